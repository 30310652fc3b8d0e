"""Encoder of pictures of lines of text: two convolutions, then Conformer blocks over the columns of the picture."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F


class _ConformerAttention(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, pad: Tensor) -> Tensor:
        query, key, value = self.project(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=~pad[:, None, None, :])
        return self.out(attended.transpose(1, 2).flatten(2))


class _Convolution(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Linear(width, 2 * width)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.batch_norm = nn.BatchNorm1d(width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, pad: Tensor) -> Tensor:
        x = F.glu(self.gate(self.norm(x))).masked_fill(pad[:, :, None], 0.0)
        x = F.silu(self.batch_norm(self.depthwise(x.transpose(1, 2))))
        return self.out(x.transpose(1, 2))


def _feed_forward(width: int, hidden: int) -> Any:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, width))


class _ConformerBlock(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, heads: int, hidden: int, kernel: int) -> None:
        super().__init__()
        self.before, self.after = _feed_forward(width, hidden), _feed_forward(width, hidden)
        self.attention = _ConformerAttention(width, heads)
        self.convolution = _Convolution(width, kernel)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, pad: Tensor) -> Tensor:
        x = x + 0.5 * self.before(x)
        x = x + self.attention(x, pad)
        x = x + self.convolution(x, pad)
        return self.norm(x + 0.5 * self.after(x))


class _Encoder(nn.Module):  # type: ignore[misc]
    def __init__(self, stem: int, height: int, width: int, heads: int, hidden: int, kernel: int, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, stem, 3, 2, 1), nn.ReLU(), nn.Conv2d(stem, stem, 3, 2, 1), nn.ReLU()
        )  # fmt: skip
        self.project = nn.Linear(stem * (height // 4), width)
        self.blocks = nn.ModuleList(_ConformerBlock(width, heads, hidden, kernel) for _ in range(blocks))

    def forward(self, src: Tensor, src_pad_mask: Tensor) -> Tensor:
        x = self.project(self.stem(src).flatten(1, 2).transpose(1, 2))
        for block in self.blocks:
            x = block(x, src_pad_mask)
        return x


def conformer(
    *,
    stem: int = 64,
    height: int = 64,
    width: int = 256,
    heads: int = 4,
    hidden: int = 1024,
    kernel: int = 31,
    blocks: int = 12,
) -> Any:
    """Return an encoder of pictures [batch, 3, height, columns]; the mask [batch, columns / 4] is true at padding."""
    return _Encoder(stem, height, width, heads, hidden, kernel, blocks)
