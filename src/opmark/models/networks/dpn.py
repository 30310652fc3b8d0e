"""Dual path networks for pictures: each block adds to some channels and appends to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from opmark.models.networks.layers import conv_norm

_EPS = 1e-3


def _norm_conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> Any:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(nn.BatchNorm2d(inputs, eps=_EPS), nn.ReLU(), conv)


class _DualPath(nn.Module):  # type: ignore[misc]
    """A block on a tensor whose first `added` channels are the residual path and whose others are the dense path."""

    def __init__(
        self, inputs: int, inner: int, added: int, appended: int, stride: int, groups: int, first: bool
    ) -> None:
        super().__init__()
        self.added = added
        self.projection = _norm_conv(inputs, added + 2 * appended, stride=stride) if first else nn.Identity()
        self.layers = nn.Sequential(
            _norm_conv(inputs, inner), _norm_conv(inner, inner, 3, stride, groups), _norm_conv(inner, added + appended)
        )

    def forward(self, x: Tensor) -> Tensor:
        kept, new = self.projection(x), self.layers(x)
        n = self.added
        return torch.cat([kept[:, :n] + new[:, :n], kept[:, n:], new[:, n:]], 1)


def dpn(
    *,
    blocks: Sequence[int],
    appended: Sequence[int],
    stem: int,
    inner: int,
    width: int,
    groups: int,
    classes: int = 1000,
) -> Any:
    """Return a dual path network. Stage s has blocks[s] blocks, a residual path of width * 2^s channels and 3x3
    convolutions of inner * 2^s channels; each of its blocks appends appended[s] channels."""
    layers = [conv_norm(3, stem, 3, 2, eps=_EPS), nn.MaxPool2d(3, 2, 1)]
    channels = stem
    for stage, (count, more) in enumerate(zip(blocks, appended, strict=True)):
        added = width << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            layers.append(_DualPath(channels, inner << stage, added, more, stride, groups, not block))
            channels = channels + more if block else added + 3 * more
    norm = [nn.BatchNorm2d(channels, eps=_EPS), nn.ReLU()]
    return nn.Sequential(*layers, *norm, nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, classes, 1), nn.Flatten())
