"""Layers that several picture networks share."""

from __future__ import annotations

from typing import Any

from torch import nn


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, ...] = 1,
    stride: int | tuple[int, ...] = 1,
    *,
    padding: int | None = None,
    groups: int = 1,
    activation: Any = nn.ReLU,
    eps: float = 1e-5,
    dimensions: int = 2,
) -> Any:
    """Return convolution, batch normalisation and activation. Without `padding`, stride 1 keeps the picture's size."""
    sizes = (kernel,) * dimensions if isinstance(kernel, int) else kernel
    pads = tuple(size // 2 for size in sizes) if padding is None else padding
    conv, norm = (nn.Conv2d, nn.BatchNorm2d) if dimensions == 2 else (nn.Conv3d, nn.BatchNorm3d)
    layers = [conv(inputs, outputs, sizes, stride, pads, groups=groups, bias=False), norm(outputs, eps=eps)]
    if activation is not None:
        layers.append(activation(inplace=True))
    return nn.Sequential(*layers)


def classifier(features: int, classes: int, dimensions: int = 2) -> Any:
    """Return the mean over all pixels and a linear layer."""
    pool = nn.AdaptiveAvgPool2d(1) if dimensions == 2 else nn.AdaptiveAvgPool3d(1)
    return nn.Sequential(pool, nn.Flatten(), nn.Linear(features, classes))
