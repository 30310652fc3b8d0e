"""NASNet-A for pictures: two cells found by a search, repeated. Paddings are symmetric."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from opmark.models.networks.layers import classifier

_norm = partial(nn.BatchNorm2d, eps=1e-3)


def _separable(inputs: int, outputs: int, kernel: int, stride: int = 1, *, widen_first: bool = False) -> Any:
    """Return two separable convolutions, each behind a relu; the second changes the width unless `widen_first`."""
    layers: list[Any] = []
    middle = outputs if widen_first else inputs
    for before, after, step in ((inputs, middle, stride), (middle, outputs, 1)):
        layers += [
            nn.ReLU(),
            nn.Conv2d(before, before, kernel, step, kernel // 2, groups=before, bias=False),
            nn.Conv2d(before, after, 1, bias=False),
            _norm(after),
        ]
    return nn.Sequential(*layers)


def _squeeze(inputs: int, outputs: int) -> Any:
    return nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, outputs, 1, bias=False), _norm(outputs))


class _Halve(nn.Module):  # type: ignore[misc]
    """Halve a picture by two grids of pixels, one of them shifted, so that no pixel of the diagonal is lost."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, bias=False)
        self.odd = nn.Conv2d(inputs, outputs // 2, 1, bias=False)
        self.norm = _norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(x)
        shifted = F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        return self.norm(torch.cat([self.even(x[:, :, ::2, ::2]), self.odd(shifted[:, :, ::2, ::2])], 1))


def _average(stride: int = 1) -> Any:
    return nn.AvgPool2d(3, stride, 1, count_include_pad=False)


class _NormalCell(nn.Module):  # type: ignore[misc]
    def __init__(self, current: int, previous: int, width: int, halve: bool) -> None:
        super().__init__()
        self.current = _squeeze(current, width)
        self.previous = _Halve(previous, width) if halve else _squeeze(previous, width)
        self.five_current = _separable(width, width, 5)
        self.three_previous = _separable(width, width, 3)
        self.five_both = _separable(width, width, 5)
        self.three_both = _separable(width, width, 3)
        self.three_current = _separable(width, width, 3)
        self.average = _average()

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        x, before = self.current(x), self.previous(before)
        averaged = self.average(before)
        return torch.cat(
            [
                before,
                self.five_current(x) + self.three_previous(before),
                self.five_both(before) + self.three_both(before),
                self.average(x) + before,
                averaged + averaged,
                self.three_current(x) + x,
            ],
            1,
        )


class _ReductionCell(nn.Module):  # type: ignore[misc]
    """The cell that halves the picture. `previous` is a module for the older input; in the first cell there is no older
    input, and the unchanged current one, with `stem` channels, takes its place."""

    def __init__(self, current: int, previous: Any, width: int, stem: int = 0) -> None:
        super().__init__()
        self.current = _squeeze(current, width)
        self.previous = previous
        older = partial(_separable, stem or width, width, stride=2, widen_first=bool(stem))
        self.five = _separable(width, width, 5, 2)
        self.seven_a, self.seven_b, self.five_older = older(7), older(7), older(5)
        self.three = _separable(width, width, 3)
        self.maximum = nn.MaxPool2d(3, 2, 1)
        self.halve, self.average = _average(2), _average()

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        x, before = self.current(x), self.previous(before)
        first = self.five(x) + self.seven_a(before)
        largest = self.maximum(x)
        second = largest + self.seven_b(before)
        third = self.halve(x) + self.five_older(before)
        return torch.cat([second, third, self.average(first) + second, self.three(first) + largest], 1)


class _NasNet(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, stem: int, repeats: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, stem, 3, 2, bias=False), _norm(stem))
        self.stem_a = _ReductionCell(stem, nn.Identity(), width // 4, stem)
        self.stem_b = _ReductionCell(width, _Halve(stem, width // 2), width // 2)
        self.cells = nn.ModuleList()
        before, now = width, 2 * width
        for stage in range(3):
            n = width << stage
            if stage:
                self.cells.append(_ReductionCell(now, _squeeze(before, n), n))
                now = 4 * n
            for cell in range(repeats):
                self.cells.append(_NormalCell(now, before, n, halve=not cell))
                before, now = now, 6 * n
        self.head = nn.Sequential(nn.ReLU(), classifier(now, classes))

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        a = self.stem_a(x, x)
        before, x = a, self.stem_b(a, x)
        for cell in self.cells:
            following = cell(x, before)
            # The first normal cell behind a reduction gets what the reduction got as its older input.
            if not isinstance(cell, _ReductionCell):
                before = x
            x = following
        return self.head(x)


def nasnet(*, width: int, stem: int, repeats: int, classes: int = 1000) -> Any:
    """Return a NASNet-A with 3 x `repeats` normal cells; the first ones are `width` channels wide per branch."""
    return _NasNet(width, stem, repeats, classes)
