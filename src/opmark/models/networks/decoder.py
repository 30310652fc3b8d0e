"""Decoders of Llama's kind, which read a text (prefill) or add one token to a cache of keys and values (decode)."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention, silu

from opmark.models.networks.rotary import RotaryTable, rotate


class GroupedAttention(torch.nn.Module):  # type: ignore[misc]
    """Causal attention in which groups of query heads share keys and values. With a cache, one new token per row."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, interleaved: bool, bias: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, hidden // heads
        self.interleaved = interleaved
        self.qkv = torch.nn.Linear(hidden, (heads + 2 * kv_heads) * self.width, bias=bias)
        self.out = torch.nn.Linear(hidden, hidden, bias=False)
        self.register_buffer("keys", None, persistent=False)
        self.register_buffer("values", None, persistent=False)

    def allocate_cache(self, batch: int, length: int) -> None:
        shape = batch, self.kv_heads, length, self.width
        self.keys, self.values = self.qkv.weight.new_zeros(shape), self.qkv.weight.new_zeros(shape)

    def forward(self, x: Any, cos: Any, sin: Any, fill: bool = False) -> Any:
        """With `fill`, x is a whole context, and its keys and values go into the cache of every row of the batch."""
        batch, length, _ = x.shape
        heads = self.qkv(x).view(batch, length, -1, self.width).transpose(1, 2)
        query, key, value = heads.split((self.heads, self.kv_heads, self.kv_heads), 1)
        query, key = rotate(query, cos, sin, self.interleaved), rotate(key, cos, sin, self.interleaved)
        decode = self.keys is not None and not fill
        if decode:
            # The new token always takes the last place, so that a repeated call gives the same answer.
            self.keys[:, :, -1:] = key
            self.values[:, :, -1:] = value
            key, value = self.keys, self.values
        elif fill:
            self.keys[:, :, :length] = key
            self.values[:, :, :length] = value
        grouped = self.heads != self.kv_heads
        mixed = scaled_dot_product_attention(query, key, value, is_causal=not decode, enable_gqa=grouped)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))


class DecoderLayer(torch.nn.Module):  # type: ignore[misc]
    def __init__(
        self, hidden: int, heads: int, kv_heads: int, ffn: int, interleaved: bool, bias: bool, eps: float
    ) -> None:
        super().__init__()
        self.attention_norm = torch.nn.RMSNorm(hidden, eps)
        self.attention = GroupedAttention(hidden, heads, kv_heads, interleaved, bias)
        self.ffn_norm = torch.nn.RMSNorm(hidden, eps)
        self.gate_up = torch.nn.Linear(hidden, 2 * ffn, bias=False)
        self.down = torch.nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: Any, cos: Any, sin: Any, fill: bool = False) -> Any:
        x = x + self.attention(self.attention_norm(x), cos, sin, fill)
        gate, up = self.gate_up(self.ffn_norm(x)).chunk(2, -1)
        return x + self.down(silu(gate) * up)


class Decoder(torch.nn.Module):  # type: ignore[misc]
    """input_ids -> logits of the last token. Prefill takes [batch, seq]; decode, after fill_cache, takes [batch, 1]."""

    def __init__(
        self, *, vocab: int, hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, positions: int,
        rotary_share: float, interleaved: bool, qkv_bias: bool, eps: float = 1e-5,
    ) -> None:  # fmt: skip
        super().__init__()
        self.vocab, self.cached = vocab, 0
        self.embedding = torch.nn.Embedding(vocab, hidden)
        self.rotary = RotaryTable(positions, int(hidden // heads * rotary_share))
        self.layers = torch.nn.ModuleList(
            DecoderLayer(hidden, heads, kv_heads, ffn, interleaved, qkv_bias, eps) for _ in range(layers)
        )
        self.norm = torch.nn.RMSNorm(hidden, eps)
        self.head = torch.nn.Linear(hidden, vocab, bias=False)

    def forward(self, input_ids: Any) -> Any:
        x = self.embedding(input_ids)
        cos, sin = self.rotary.take(self.cached, input_ids.shape[1])
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x[:, -1]))

    def context_ids(self, batch: int, seq: int) -> Any:
        """Return the tokens that fill_cache reads: the same for every row, so that any row can be checked alone."""
        generator = torch.Generator("cpu").manual_seed(0)
        ids = torch.randint(self.vocab, (1, seq), generator=generator, device="cpu")
        return ids.expand(batch, seq).to(self.embedding.weight.device)

    def fill_cache(self, batch: int, seq: int) -> None:
        """Read a context of `seq` tokens per row; from then on each call adds one token to it, always the same place.

        Weights and their element type have to be final.
        """
        self.cached = seq
        for layer in self.layers:
            layer.attention.allocate_cache(batch, seq + 1)
        cos, sin = self.rotary.take(0, seq)
        with torch.no_grad():
            x = self.embedding(self.context_ids(1, seq))
            for layer in self.layers:
                x = layer(x, cos, sin, True)
