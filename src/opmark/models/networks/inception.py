"""Inception v3 for pictures, without the auxiliary head of training."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from opmark.models.networks.layers import classifier, conv_norm

_conv = partial(conv_norm, eps=1e-3)
_row, _column = (1, 7), (7, 1)


def _chain(channels: int, *steps: tuple[Any, ...]) -> Any:
    """Return convolutions one after the other; a step is (outputs, kernel) or (outputs, kernel, stride, padding)."""
    layers = []
    for outputs, kernel, *rest in steps:
        stride, padding = rest or (1, None)
        layers.append(_conv(channels, outputs, kernel, stride, padding=padding))
        channels = outputs
    return nn.Sequential(*layers)


class _Branches(nn.Module):  # type: ignore[misc]
    """Modules beside each other, whose results are concatenated."""

    def __init__(self, *branches: Any) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def _pooled(channels: int, outputs: int) -> Any:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), _conv(channels, outputs))


def inception_v3(
    *, scale: int = 1, sevens: Sequence[int] = (128, 160, 160, 192), blocks: int = 3, classes: int = 1000
) -> Any:
    """Return an Inception v3 with all widths divided by `scale`, `blocks` blocks of 5x5 convolutions, and one block of
    7x7 convolutions for each width of `sevens`."""

    def n(width: int) -> int:
        return width // scale

    layers = [
        _chain(3, (n(32), 3, 2, 0), (n(32), 3, 1, 0), (n(64), 3)),
        nn.MaxPool2d(3, 2),
        _chain(n(64), (n(80), 1), (n(192), 3, 1, 0)),
        nn.MaxPool2d(3, 2),
    ]
    channels = n(192)
    for block in range(blocks):
        pooled = n(64) if block else n(32)
        layers.append(
            _Branches(
                _chain(channels, (n(64), 1)),
                _chain(channels, (n(48), 1), (n(64), 5)),
                _chain(channels, (n(64), 1), (n(96), 3), (n(96), 3)),
                _pooled(channels, pooled),
            )
        )
        channels = 2 * n(64) + n(96) + pooled
    layers.append(
        _Branches(
            _chain(channels, (n(384), 3, 2, 0)),
            _chain(channels, (n(64), 1), (n(96), 3), (n(96), 3, 2, 0)),
            nn.MaxPool2d(3, 2),
        )
    )
    channels += n(384) + n(96)
    for seven in sevens:
        s = n(seven)
        layers.append(
            _Branches(
                _chain(channels, (n(192), 1)),
                _chain(channels, (s, 1), (s, _row), (n(192), _column)),
                _chain(channels, (s, 1), (s, _column), (s, _row), (s, _column), (n(192), _row)),
                _pooled(channels, n(192)),
            )
        )
        channels = 4 * n(192)
    layers.append(
        _Branches(
            _chain(channels, (n(192), 1), (n(320), 3, 2, 0)),
            _chain(channels, (n(192), 1), (n(192), _row), (n(192), _column), (n(192), 3, 2, 0)),
            nn.MaxPool2d(3, 2),
        )
    )
    channels += n(320) + n(192)
    for _ in range(2):
        layers.append(
            _Branches(
                _chain(channels, (n(320), 1)),
                nn.Sequential(_chain(channels, (n(384), 1)), _split(n(384))),
                nn.Sequential(_chain(channels, (n(448), 1), (n(384), 3)), _split(n(384))),
                _pooled(channels, n(192)),
            )
        )
        channels = n(320) + 4 * n(384) + n(192)
    return nn.Sequential(*layers, classifier(channels, classes))


def _split(channels: int) -> Any:
    return _Branches(_conv(channels, channels, (1, 3)), _conv(channels, channels, (3, 1)))
