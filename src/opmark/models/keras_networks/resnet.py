"""ResNet for pictures, v1.5, with the channels last."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import keras
from keras import layers


def _conv_norm(
    x: Any, name: str, outputs: int, kernel: int, stride: int = 1, *, dtype: str, activation: bool = True
) -> Any:
    """Convolve, normalise and activate. torch pads both sides alike, where TensorFlow's `same` pads the second more."""
    layout = {"dtype": dtype, "data_format": "channels_last"}
    if stride > 1 and kernel > 1:
        x = layers.ZeroPadding2D(kernel // 2, **layout)(x)
    padding = "same" if stride == 1 else "valid"
    x = layers.Conv2D(outputs, kernel, stride, padding, use_bias=False, name=f"{name}.0", **layout)(x)
    x = layers.BatchNormalization(epsilon=1e-5, dtype=dtype, name=f"{name}.1")(x)
    return layers.ReLU(dtype=dtype)(x) if activation else x


def _residual_block(x: Any, name: str, width: int, stride: int, bottleneck: bool, dtype: str) -> Any:
    conv = partial(_conv_norm, dtype=dtype)
    outputs = width * 4 if bottleneck else width
    if bottleneck:
        found = conv(x, f"{name}.residual.0", width, 1)
        found = conv(found, f"{name}.residual.1", width, 3, stride)
        found = conv(found, f"{name}.residual.2", outputs, 1, activation=False)
    else:
        found = conv(x, f"{name}.residual.0", width, 3, stride)
        found = conv(found, f"{name}.residual.1", width, 3, activation=False)
    if x.shape[-1] != outputs or stride > 1:
        x = conv(x, f"{name}.shortcut", outputs, 1, stride, activation=False)
    return layers.ReLU(dtype=dtype)(layers.Add(dtype=dtype)([found, x]))


def resnet(*, dtype: str, blocks: Sequence[int], bottleneck: bool, width: int = 64, classes: int = 1000) -> Any:
    """Return a ResNet with `blocks` blocks per stage; its input is [batch, height, width, 3]."""
    layout = {"dtype": dtype, "data_format": "channels_last"}
    image = keras.Input((None, None, 3), dtype=dtype, name="image")
    x = _conv_norm(image, "0", width, 7, 2, dtype=dtype)
    # Zeros serve as padding of a maximum, since nothing is negative behind a relu.
    x = layers.MaxPooling2D(3, 2, **layout)(layers.ZeroPadding2D(1, **layout)(x))
    number = 2
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage and not block else 1
            x = _residual_block(x, str(number), width << stage, stride, bottleneck, dtype)
            number += 1
    x = layers.GlobalAveragePooling2D(**layout)(x)
    return keras.Model([image], layers.Dense(classes, dtype=dtype, name=f"{number}.2")(x))
