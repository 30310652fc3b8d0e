"""ResNet for pictures (v1.5: the 3x3 convolution has the stride) and for videos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from opmark.models.networks.layers import classifier, conv_norm


class _ResidualBlock(nn.Module):  # type: ignore[misc]
    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool, dimensions: int) -> None:
        super().__init__()

        def conv(inputs: int, outputs: int, kernel: int, stride: int = 1, activation: Any = nn.ReLU) -> Any:
            return conv_norm(inputs, outputs, kernel, stride, activation=activation, dimensions=dimensions)

        outputs = width * 4 if bottleneck else width
        if bottleneck:
            layers = [conv(inputs, width, 1), conv(width, width, 3, stride), conv(width, outputs, 1, activation=None)]
        else:
            layers = [conv(inputs, width, 3, stride), conv(width, width, 3, activation=None)]
        self.residual = nn.Sequential(*layers)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else conv(inputs, outputs, 1, stride, activation=None)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.residual(x) + self.shortcut(x))


def resnet(
    *, blocks: Sequence[int], bottleneck: bool, width: int = 64, classes: int = 1000, dimensions: int = 2
) -> Any:
    """Return a ResNet with `blocks` blocks per stage; its input is [batch, 3, height, width], or in 3 dimensions
    [batch, 3, frames, height, width]."""
    layers = [
        conv_norm(3, width, 7, 2) if dimensions == 2 else conv_norm(3, width, (3, 7, 7), (1, 2, 2), dimensions=3),
    ]
    if dimensions == 2:
        layers.append(nn.MaxPool2d(3, 2, 1))
    channels = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage and not block else 1
            layers.append(_ResidualBlock(channels, width << stage, stride, bottleneck, dimensions))
            channels = (width << stage) * (4 if bottleneck else 1)
    return nn.Sequential(*layers, classifier(channels, classes, dimensions))
