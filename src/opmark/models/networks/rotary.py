"""Rotary position embeddings: a table of angles, and the rotation itself."""

from __future__ import annotations

from typing import Any

import torch


def compute_angles(positions: int, width: int, theta: float = 10_000.0) -> Any:
    """Return position * theta^(-2i/width) for i below width/2, in float64 on the CPU."""
    exponents = torch.arange(0, width, 2, dtype=torch.float64, device="cpu") / width
    return torch.arange(positions, dtype=torch.float64, device="cpu")[:, None] * theta**-exponents


class RotaryTable(torch.nn.Module):  # type: ignore[misc]
    """Cosines and sines of the angles."""

    def __init__(self, positions: int, width: int) -> None:
        super().__init__()
        self.register_buffer("cos", torch.empty(positions, width // 2), persistent=False)
        self.register_buffer("sin", torch.empty(positions, width // 2), persistent=False)

    def write_tables(self) -> None:
        angles = compute_angles(len(self.cos), 2 * self.cos.shape[1])
        self.cos.copy_(angles.cos())
        self.sin.copy_(angles.sin())

    def take(self, start: int, length: int) -> tuple[Any, Any]:
        """Return (cosines, sines) of `length` positions."""
        return self.cos[start : start + length], self.sin[start : start + length]


def rotate(x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    """Rotate the first channels of the last axis, as many as the table has, and pass the others on.

    The partner of a channel is the next one if `interleaved`, otherwise the one that lies half the rotated width away.
    """
    cos, sin, width = cos.to(x.dtype), sin.to(x.dtype), 2 * cos.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    if interleaved:
        even, odd = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)
    else:
        low, high = turned.chunk(2, -1)
        turned = torch.cat((low * cos - high * sin, high * cos + low * sin), -1)
    return torch.cat((turned, rest), -1) if rest.shape[-1] else turned
