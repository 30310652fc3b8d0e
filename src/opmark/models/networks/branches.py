"""Networks with branches that do not depend on each other: for schedules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn


def _dense(*widths: int) -> Any:
    """Return linear layers with a ReLU after each but the last."""
    layers: list[Any] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class MultiHead(nn.Module):  # type: ignore[misc]
    """Layers of attention in which every head has products of its own, and nothing is fused."""

    def __init__(self, *, hidden: int, heads: int, layers: int) -> None:
        super().__init__()
        width = hidden // heads
        self.layers = nn.ModuleList(
            nn.ModuleList(nn.ModuleList(nn.Linear(hidden, width) for _ in range(3)) for _ in range(heads))
            for _ in range(layers)
        )
        self.outputs = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(layers))
        self.scale = width**-0.5

    def forward(self, x: Any) -> Any:
        for heads, output, norm in zip(self.layers, self.outputs, self.norms, strict=True):
            found = []
            for query, key, value in heads:
                weights = torch.softmax(query(x) @ key(x).transpose(-1, -2) * self.scale, -1)
                found.append(weights @ value(x))
            x = norm(x + output(torch.cat(found, -1)))
        return x


class Dlrm(nn.Module):  # type: ignore[misc]
    """DLRM: bags of embeddings beside a network of numeric columns, products of all pairs of their results, and a
    network on top (Naumov et al., 2019)."""

    def __init__(
        self, *, columns: int, buckets: int, bag: int, embedding: int, numeric: int, bottom: Sequence[int],
        top: Sequence[int],
    ) -> None:  # fmt: skip
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(buckets, embedding, mode="sum") for _ in range(columns))
        self.bottom = _dense(numeric, *bottom, embedding)
        pairs = (columns + 1) * columns // 2
        self.top = _dense(embedding + pairs, *top, 1)
        self.register_buffer("rows", torch.empty(pairs, dtype=torch.int64), persistent=False)
        self.register_buffer("cols", torch.empty(pairs, dtype=torch.int64), persistent=False)
        self.columns = columns
        self.write_tables()

    def write_tables(self) -> None:
        """Note which pairs of results are multiplied: each one once."""
        first, second = torch.tril_indices(self.columns + 1, self.columns + 1, -1)
        self.rows.copy_(first)
        self.cols.copy_(second)

    def forward(self, categorical: Any, numeric: Any) -> Any:
        dense = self.bottom(numeric)
        found = [dense, *(table(categorical[:, i]) for i, table in enumerate(self.tables))]
        stacked = torch.stack(found, 1)
        products = stacked @ stacked.transpose(1, 2)
        chosen = products[:, self.rows, self.cols]
        return torch.sigmoid(self.top(torch.cat((dense, chosen), 1)))


class TwoTowers(nn.Module):  # type: ignore[misc]
    """Two towers: a network for the user and one for the item, and the cosine of what they return."""

    def __init__(self, *, user: int, item: int, layers: Sequence[int], width: int) -> None:
        super().__init__()
        self.user, self.item = _dense(user, *layers, width), _dense(item, *layers, width)

    def forward(self, user: Any, item: Any) -> Any:
        one, other = (nn.functional.normalize(found, dim=-1) for found in (self.user(user), self.item(item)))
        return (one * other).sum(-1, keepdim=True)


class SoftMixture(nn.Module):  # type: ignore[misc]
    """A mixture of experts with soft routing: each expert gets weighted means of all tokens (Puigcerver et al., 2023),
    so that shapes do not depend on data and nothing jumps where weights are almost equal."""

    def __init__(self, *, hidden: int, ffn: int, experts: int, slots: int) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, experts * slots, bias=False)
        self.experts = nn.ModuleList(_dense(hidden, ffn, hidden) for _ in range(experts))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x: Any) -> Any:
        weights = self.router(self.norm(x))
        dispatched = torch.softmax(weights, 1).transpose(1, 2) @ x
        parts = dispatched.chunk(len(self.experts), 1)
        found = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)], 1)
        return x + torch.softmax(weights, 2) @ found
