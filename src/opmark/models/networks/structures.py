"""Parts of models: stacks of Transformer layers, blocks of convolutions, recurrent layers, products of matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import relu, scaled_dot_product_attention


class CrossAttention(torch.nn.Module):  # type: ignore[misc]
    """Attention of several heads from x to `memory`, which is x itself for self-attention."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.out = torch.nn.Linear(hidden, hidden), torch.nn.Linear(hidden, hidden)
        self.key_value = torch.nn.Linear(hidden, 2 * hidden)

    def forward(self, x: Any, memory: Any, causal: bool = False) -> Any:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query(x), *self.key_value(memory).chunk(2, -1))
        )
        mixed = scaled_dot_product_attention(query, key, value, is_causal=causal)
        return self.out(mixed.transpose(1, 2).flatten(2))


class TransformerLayer(torch.nn.Module):  # type: ignore[misc]
    """A layer of the first Transformer: normalisation after each sum. With cross-attention it is one of the decoder."""

    def __init__(self, hidden: int, heads: int, ffn: int, cross: bool) -> None:
        super().__init__()
        self.attention = CrossAttention(hidden, heads)
        self.attention_norm = torch.nn.LayerNorm(hidden)
        self.cross = CrossAttention(hidden, heads) if cross else None
        self.cross_norm = torch.nn.LayerNorm(hidden) if cross else None
        self.up, self.down = torch.nn.Linear(hidden, ffn), torch.nn.Linear(ffn, hidden)
        self.ffn_norm = torch.nn.LayerNorm(hidden)

    def forward(self, x: Any, memory: Any = None) -> Any:
        x = self.attention_norm(x + self.attention(x, x, causal=self.cross is not None))
        if self.cross is not None and self.cross_norm is not None:
            x = self.cross_norm(x + self.cross(x, memory))
        return self.ffn_norm(x + self.down(relu(self.up(x))))


class TransformerEncoder(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, *, hidden: int, heads: int, ffn: int, layers: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(TransformerLayer(hidden, heads, ffn, False) for _ in range(layers))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class TransformerDecoder(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, *, hidden: int, heads: int, ffn: int, layers: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(TransformerLayer(hidden, heads, ffn, True) for _ in range(layers))

    def forward(self, x: Any, memory: Any) -> Any:
        for layer in self.layers:
            x = layer(x, memory)
        return x


def conv_block(*, channels: int, kernel: int, groups: int) -> Any:
    """Convolution, batch normalisation and ReLU, which keep the number of channels and the size of the picture."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=groups, bias=False),
        torch.nn.BatchNorm2d(channels),
        torch.nn.ReLU(),
    )


class Recurrent(torch.nn.Module):  # type: ignore[misc]
    """Layers of torch.nn.RNN, GRU or LSTM that return the sequence without the last state.

    torch.compile takes them into its graph only where torch._dynamo.config.allow_rnn is set.
    """

    def __init__(self, *, kind: str, hidden: int, layers: int) -> None:
        super().__init__()
        self.recurrent = getattr(torch.nn, kind)(hidden, hidden, layers, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.recurrent(x)[0]


def product(*, width: int) -> Any:
    """Return x W, the product of each matrix [rows, width] of a batch with a square matrix of weights."""
    return torch.nn.Linear(width, width, bias=False)


class SumOfProducts(torch.nn.Module):  # type: ignore[misc]
    """x V + z W: two products that do not depend on each other, and their sum."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.first, self.second = product(width=width), product(width=width)

    def forward(self, x: Any, z: Any) -> Any:
        return self.first(x) + self.second(z)
