"""Swin transformer, from transformers."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class _Logits(nn.Module):  # type: ignore[misc]
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.model(pixel_values).logits


def swin(**config: Any) -> Any:
    """Return SwinForImageClassification with the arguments of SwinConfig, which returns logits."""
    from transformers import SwinConfig, SwinForImageClassification

    constructor: Any = SwinForImageClassification
    return _Logits(constructor(SwinConfig(**config)))
