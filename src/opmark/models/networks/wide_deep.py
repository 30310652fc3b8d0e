"""Wide & Deep: memorised weights of categories, and a perceptron over their embeddings and the numeric columns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch


class WideAndDeep(torch.nn.Module):  # type: ignore[misc]
    """categorical [batch, columns] int64, numeric [batch, numeric] -> probabilities of the two classes [batch, 2]."""

    def __init__(self, *, columns: int, buckets: int, embedding: int, numeric: int, layers: tuple[int, ...]) -> None:
        super().__init__()
        self.columns, self.buckets = columns, buckets
        self.wide = torch.nn.Parameter(torch.empty(buckets, columns))
        self.wide_bias = torch.nn.Parameter(torch.empty(1))
        self.embedding = torch.nn.Embedding(columns * buckets, embedding)
        widths = (columns * embedding + numeric, *layers)
        hidden = [
            step for before, after in pairwise(widths) for step in (torch.nn.Linear(before, after), torch.nn.ReLU())
        ]
        self.deep = torch.nn.Sequential(*hidden, torch.nn.Linear(widths[-1], 1))

    def forward(self, categorical: Any, numeric: Any) -> Any:
        columns = torch.arange(self.columns, device=categorical.device)
        rows = categorical + columns * self.buckets
        wide = self.wide[categorical, columns].sum(1, keepdim=True) + self.wide_bias
        deep = self.deep(torch.cat((self.embedding(rows).flatten(1), numeric), 1))
        logit = wide + deep
        return torch.softmax(torch.cat((torch.zeros_like(logit), logit), 1), 1)
