"""Rotary position embeddings: a table of angles that outlives to_empty(), and the rotation itself."""

from __future__ import annotations

from typing import Any

import torch


class RotaryTable(torch.nn.Module):  # type: ignore[misc]
    """Cosines and sines of position * theta^(-2i/width) for i below width/2, exact in every element type.

    A table lost by to_empty(), or rounded by a conversion to a shorter type, is computed again.
    """

    def __init__(self, positions: int, width: int, theta: float = 10_000.0) -> None:
        super().__init__()
        self.width, self.theta = width, theta
        self.register_buffer("cos", torch.empty(positions, width // 2), persistent=False)
        self.register_buffer("sin", torch.empty(positions, width // 2), persistent=False)
        self._compute()

    def _compute(self) -> None:
        if self.cos.is_meta:
            return
        exponents = torch.arange(0, self.width, 2, dtype=torch.float64, device="cpu") / self.width
        angles = torch.arange(len(self.cos), dtype=torch.float64, device="cpu")[:, None] * self.theta**-exponents
        with torch.no_grad():
            self.cos.copy_(angles.cos())
            self.sin.copy_(angles.sin())

    def _apply(self, *arguments: Any, **options: Any) -> Any:
        super()._apply(*arguments, **options)
        self._compute()
        return self

    def take(self, start: int, length: int) -> tuple[Any, Any]:
        """Return (cosines, sines) of `length` positions."""
        return self.cos[start : start + length], self.sin[start : start + length]


def rotate(x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    """Rotate the first channels of the last axis, as many as the table has, and pass the others on.

    The partner of a channel is the next one if `interleaved`, otherwise the one that lies half the rotated width away.
    """
    width = 2 * cos.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    if interleaved:
        even, odd = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)
    else:
        low, high = turned.chunk(2, -1)
        turned = torch.cat((low * cos - high * sin, high * cos + low * sin), -1)
    return torch.cat((turned, rest), -1) if rest.shape[-1] else turned
