"""Detectors: YOLOv5, YOLOv3 and the small YOLOv3-tiny. They return the decoded boxes and the raw predictions of each
scale."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from opmark.models.networks.layers import conv_norm

_Anchors = tuple[tuple[int, int], ...]
"""Width and height in pixels of the three boxes that each place of a scale starts from."""
_SCALES: dict[int, _Anchors] = {
    8: ((10, 13), (16, 30), (33, 23)),
    16: ((30, 61), (62, 45), (59, 119)),
    32: ((116, 90), (156, 198), (373, 326)),
}
_TINY_SCALES: dict[int, _Anchors] = {
    16: ((10, 14), (23, 27), (37, 58)),
    32: ((81, 82), (135, 169), (344, 319)),
}
"""The boxes by the stride of their scale."""

_conv = partial(conv_norm, activation=nn.SiLU, eps=1e-3)


class _Detect(nn.Module):  # type: ignore[misc]
    def __init__(self, channels: tuple[int, ...], classes: int, scales: dict[int, _Anchors] = _SCALES) -> None:
        super().__init__()
        self.values, self.scales = classes + 5, scales
        self.heads = nn.ModuleList(nn.Conv2d(one, 3 * self.values, 1) for one in channels)

    def forward(self, *scales: Tensor) -> tuple[Tensor, ...]:
        raw, decoded = [], []
        for x, head, (stride, anchors) in zip(scales, self.heads, self.scales.items(), strict=True):
            batch, _, height, width = x.shape
            predicted = head(x).view(batch, 3, self.values, height, width).permute(0, 1, 3, 4, 2).contiguous()
            raw.append(predicted)
            rows = torch.arange(height, device=x.device).to(x.dtype).view(height, 1).expand(height, width)
            columns = torch.arange(width, device=x.device).to(x.dtype).view(1, width).expand(height, width)
            sizes = torch.tensor(anchors, dtype=x.dtype, device=x.device).view(3, 1, 1, 2)
            y = predicted.sigmoid()
            centres = (y[..., :2] * 2 - 0.5 + torch.stack([columns, rows], -1)) * stride
            extents = (y[..., 2:4] * 2) ** 2 * sizes
            decoded.append(torch.cat([centres, extents, y[..., 4:]], -1).flatten(1, 3))
        return torch.cat(decoded, 1), *raw


def _upsample(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="nearest")


class _Bottleneck(nn.Module):  # type: ignore[misc]
    def __init__(self, channels: int, inner: int, adds: bool = True, conv: Any = _conv) -> None:
        super().__init__()
        self.layers = nn.Sequential(conv(channels, inner), conv(inner, channels, 3))
        self.adds = adds

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


class _CrossStage(nn.Module):  # type: ignore[misc]
    """Half of the channels pass through bottlenecks, the other half around them (C3 of YOLOv5)."""

    def __init__(self, inputs: int, outputs: int, count: int, adds: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        blocks = [_Bottleneck(half, half, adds) for _ in range(count)]
        self.through = nn.Sequential(_conv(inputs, half), *blocks)
        self.around = _conv(inputs, half)
        self.join = _conv(2 * half, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.join(torch.cat([self.through(x), self.around(x)], 1))


class _PyramidPooling(nn.Module):  # type: ignore[misc]
    """Maxima over ever larger neighbourhoods (SPPF of YOLOv5)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = _conv(channels, channels // 2)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.join = _conv(channels * 2, channels)

    def forward(self, x: Tensor) -> Tensor:
        maxima = [self.reduce(x)]
        for _ in range(3):
            maxima.append(self.pool(maxima[-1]))
        return self.join(torch.cat(maxima, 1))


class _YoloV5(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        a, b, c, d, e = (width << power for power in range(5))
        self.eighth = nn.Sequential(
            _conv(3, a, 6, 2, padding=2),
            _conv(a, b, 3, 2), _CrossStage(b, b, depth), _conv(b, c, 3, 2), _CrossStage(c, c, 2 * depth),
        )  # fmt: skip
        self.sixteenth = nn.Sequential(_conv(c, d, 3, 2), _CrossStage(d, d, 3 * depth))
        self.last = nn.Sequential(
            _conv(d, e, 3, 2), _CrossStage(e, e, depth), _PyramidPooling(e), _conv(e, d)
        )  # fmt: skip
        self.up_d = nn.Sequential(_CrossStage(2 * d, d, depth, adds=False), _conv(d, c))
        self.up_c = _CrossStage(2 * c, c, depth, adds=False)
        self.down_c, self.join_d = _conv(c, c, 3, 2), _CrossStage(d, d, depth, adds=False)
        self.down_d, self.join_e = _conv(d, d, 3, 2), _CrossStage(e, e, depth, adds=False)
        self.detect = _Detect((c, d, e), classes)

    def forward(self, images: Tensor) -> Any:
        eighth = self.eighth(images)
        sixteenth = self.sixteenth(eighth)
        top = self.last(sixteenth)
        middle = self.up_d(torch.cat([_upsample(top), sixteenth], 1))
        fine = self.up_c(torch.cat([_upsample(middle), eighth], 1))
        medium = self.join_d(torch.cat([self.down_c(fine), middle], 1))
        coarse = self.join_e(torch.cat([self.down_d(medium), top], 1))
        return self.detect(fine, medium, coarse)


def yolov5(*, width: int, depth: int = 1, classes: int = 80) -> Any:
    """Return a YOLOv5 of release 6. `width` is the number of channels of the first convolution; the stages of the
    backbone have depth, 2 depth, 3 depth and depth blocks."""
    return _YoloV5(width, depth, classes)


class _YoloV3(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, blocks: tuple[int, int, int, int, int], classes: int) -> None:
        super().__init__()
        conv = partial(conv_norm, activation=partial(nn.LeakyReLU, 0.1))

        def stage(inputs: int, count: int) -> list[Any]:
            outputs = 2 * inputs
            return [conv(inputs, outputs, 3, 2), *(_Bottleneck(outputs, inputs, conv=conv) for _ in range(count))]

        def head(inputs: int, n: int) -> Any:
            return nn.Sequential(
                conv(inputs, n), conv(n, 2 * n, 3), conv(2 * n, n), conv(n, 2 * n, 3), conv(2 * n, n)
            )  # fmt: skip

        w = width
        self.eighth = nn.Sequential(
            conv(3, w, 3), *stage(w, blocks[0]), *stage(2 * w, blocks[1]), *stage(4 * w, blocks[2])
        )
        self.sixteenth = nn.Sequential(*stage(8 * w, blocks[3]))
        self.last = nn.Sequential(*stage(16 * w, blocks[4]))
        self.coarse, self.medium, self.fine = head(32 * w, 16 * w), head(24 * w, 8 * w), head(12 * w, 4 * w)
        self.to_medium, self.to_fine = conv(16 * w, 8 * w), conv(8 * w, 4 * w)
        self.widen = nn.ModuleList(conv(n * w, 2 * n * w, 3) for n in (4, 8, 16))
        self.detect = _Detect((8 * w, 16 * w, 32 * w), classes)

    def forward(self, images: Tensor) -> Any:
        eighth = self.eighth(images)
        sixteenth = self.sixteenth(eighth)
        coarse = self.coarse(self.last(sixteenth))
        medium = self.medium(torch.cat([_upsample(self.to_medium(coarse)), sixteenth], 1))
        fine = self.fine(torch.cat([_upsample(self.to_fine(medium)), eighth], 1))
        return self.detect(*(widen(x) for widen, x in zip(self.widen, (fine, medium, coarse), strict=True)))


def yolov3(*, width: int = 32, blocks: tuple[int, int, int, int, int] = (1, 2, 8, 8, 4), classes: int = 80) -> Any:
    """Return a YOLOv3 on Darknet-53. Boxes are decoded as in YOLOv5, because e^x would leave the range of float16."""
    return _YoloV3(width, blocks, classes)


class _YoloV3Tiny(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        conv = partial(conv_norm, activation=partial(nn.LeakyReLU, 0.1))
        a, b, c, d, e, f, g = (width << power for power in range(7))
        self.sixteenth = nn.Sequential(
            conv(3, a, 3), nn.MaxPool2d(2), conv(a, b, 3), nn.MaxPool2d(2), conv(b, c, 3), nn.MaxPool2d(2),
            conv(c, d, 3), nn.MaxPool2d(2), conv(d, e, 3),
        )  # fmt: skip
        self.last = nn.Sequential(nn.MaxPool2d(2), conv(e, f, 3), nn.ZeroPad2d((0, 1, 0, 1)), nn.MaxPool2d(2, 1))
        self.coarse = nn.Sequential(conv(f, g, 3), conv(g, e))
        self.widen, self.to_medium, self.medium = conv(e, f, 3), conv(e, d), conv(d + e, e, 3)
        self.detect = _Detect((e, f), classes, _TINY_SCALES)

    def forward(self, images: Tensor) -> Any:
        sixteenth = self.sixteenth(images)
        coarse = self.coarse(self.last(sixteenth))
        medium = self.medium(torch.cat([_upsample(self.to_medium(coarse)), sixteenth], 1))
        return self.detect(medium, self.widen(coarse))


def yolov3_tiny(*, width: int = 16, classes: int = 80) -> Any:
    """Return a YOLOv3-tiny, which predicts at two scales; boxes are decoded as in YOLOv5."""
    return _YoloV3Tiny(width, classes)
