"""The two networks that PARAM has as operators, `pytorch.model.alex_net` and `pytorch.model.resnet`.

Each is a class that makes a torch module, so that this file can be imported without torch. As in PARAM they are in
training mode: dropout is active, and batch norms use the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opmark.registry import resolve

# Channels in and out, kernel, stride and padding of convolutions; `pool` halves the image.
_ALEX_NET: tuple[tuple[int, ...] | str, ...] = (
    (3, 64, 11, 4, 2), "pool", (64, 192, 5, 1, 2), "pool", (192, 384, 3, 1, 1), (384, 256, 3, 1, 1),
    (256, 256, 3, 1, 1), "pool",
)  # fmt: skip
# Channels of the narrow part of a block, for each stage; the output of a block has four times as many.
_WIDTHS = (64, 128, 256, 512)
_EXPANSION = 4


class AlexNet:
    """Krizhevsky's network in one column (2014), for images of at least 63x63."""

    def __new__(cls, num_classes: int = 1000, dropout: float = 0.5) -> Any:
        nn = resolve("torch.nn")
        layers: list[Any] = []
        for item in _ALEX_NET:
            layers += [nn.MaxPool2d(3, 2)] if isinstance(item, str) else [nn.Conv2d(*item), nn.ReLU(inplace=True)]
        layers += [nn.AdaptiveAvgPool2d(6), nn.Flatten()]
        for size in (256 * 6 * 6, 4096):
            layers += [nn.Dropout(dropout), nn.Linear(size, 4096), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers, nn.Linear(4096, num_classes))


class ResNet:
    """ResNet-50 with the stride in the 3x3 convolution of a block; `layers` are the blocks of each stage."""

    def __new__(cls, layers: Sequence[int] = (3, 4, 6, 3), num_classes: int = 1000) -> Any:
        nn = resolve("torch.nn")
        made: list[Any] = [*_conv_norm(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for stage, (blocks, width) in enumerate(zip(layers, _WIDTHS, strict=True)):
            for block in range(blocks):
                made.append(_bottleneck(channels, width, 2 if stage and not block else 1))
                channels = _EXPANSION * width
        return nn.Sequential(*made, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))


def _conv_norm(into: int, out: int, kernel: int, stride: int = 1) -> list[Any]:
    nn = resolve("torch.nn")
    return [nn.Conv2d(into, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out)]


def _bottleneck(channels: int, width: int, stride: int) -> Any:
    """Return a block: narrow, 3x3 and wide convolution, plus its input, projected if the shape differs."""
    nn = resolve("torch.nn")
    out = _EXPANSION * width

    class Bottleneck(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.branch = nn.Sequential(
                *_conv_norm(channels, width, 1), nn.ReLU(inplace=True),
                *_conv_norm(width, width, 3, stride), nn.ReLU(inplace=True),
                *_conv_norm(width, out, 1),
            )  # fmt: skip
            same = channels == out and stride == 1
            self.shortcut = nn.Identity() if same else nn.Sequential(*_conv_norm(channels, out, 1, stride))
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: Any) -> Any:
            return self.relu(self.branch(x).add_(self.shortcut(x)))

    return Bottleneck()
