"""Small networks for pictures: MobileNet v1 and v2, SqueezeNet 1.1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from opmark.models.networks.layers import classifier, conv_norm


def mobilenet_v1(*, layers: Sequence[tuple[int, int]], stem: int = 32, classes: int = 1000) -> Any:
    """Return a MobileNet v1 whose separable convolutions have these (outputs, stride)."""
    modules, channels = [conv_norm(3, stem, 3, 2)], stem
    for outputs, stride in layers:
        modules += [conv_norm(channels, channels, 3, stride, groups=channels), conv_norm(channels, outputs)]
        channels = outputs
    return nn.Sequential(*modules, classifier(channels, classes))


class _InvertedResidual(nn.Module):  # type: ignore[misc]
    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        expand = [] if expansion == 1 else [conv_norm(inputs, hidden, activation=nn.ReLU6)]
        self.layers = nn.Sequential(
            *expand,
            conv_norm(hidden, hidden, 3, stride, groups=hidden, activation=nn.ReLU6),
            conv_norm(hidden, outputs, activation=None),
        )
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


def mobilenet_v2(
    *, stages: Sequence[tuple[int, int, int, int]], stem: int = 32, last: int = 1280, classes: int = 1000
) -> Any:
    """Return a MobileNet v2 whose stages have these (expansion, outputs, blocks, stride of the first block)."""
    modules, channels = [conv_norm(3, stem, 3, 2, activation=nn.ReLU6)], stem
    for expansion, outputs, count, stride in stages:
        for block in range(count):
            modules.append(_InvertedResidual(channels, outputs, 1 if block else stride, expansion))
            channels = outputs
    return nn.Sequential(*modules, conv_norm(channels, last, activation=nn.ReLU6), classifier(last, classes))


class _Fire(nn.Module):  # type: ignore[misc]
    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.expand1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.expand1(x)), torch.relu(self.expand3(x))], 1)


def squeezenet(*, groups: Sequence[Sequence[tuple[int, int]]], stem: int = 64, classes: int = 1000) -> Any:
    """Return a SqueezeNet 1.1: groups of fire modules (squeezed, expanded per branch), each behind a max pooling."""
    modules, channels = [nn.Conv2d(3, stem, 3, 2), nn.ReLU()], stem
    for group in groups:
        modules.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        for squeezed, expanded in group:
            modules.append(_Fire(channels, squeezed, expanded))
            channels = 2 * expanded
    return nn.Sequential(*modules, nn.Conv2d(channels, classes, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
