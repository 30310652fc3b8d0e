"""Odd cases of embedding and embedding_update."""

from __future__ import annotations

from typing import Any

_BAGS: list[dict[str, Any]] = [
    {"rows": 37, "dim": 5, "bags": 7, "pooling": 3, "lengths": "random"},
    {"rows": 29, "dim": 3, "bags": 5, "pooling": 4, "distribution": "zipf", "alpha": 1.0},
    {"rows": 3, "dim": 1, "bags": 1, "pooling": 1, "distribution": "zipf", "alpha": 1.5, "lengths": "random"},
]

ODD: dict[str, list[dict[str, Any]]] = {
    "embedding_bag": [
        {**_BAGS[0], "weighted": True},
        {**_BAGS[1], "mode": "mean"},
        {**_BAGS[0], "mode": "max"},
        {**_BAGS[2], "mode": "mean", "lengths": "random"},
    ],
    "batched_embedding_bag": [
        {"tables": 3, **_BAGS[0]},
        {"tables": 2, **_BAGS[1], "lengths": "random", "mode": "mean"},
        {"tables": 1, **_BAGS[2]},
    ],
}

_RATES = (0.5, 0.2, 0.9)
ODD |= {
    name: [{**bags, "lr": rate} for bags, rate in zip(_BAGS, _RATES, strict=True)]
    for name in ("embedding_bag_sgd_update", "embedding_bag_rowwise_adagrad_update")
}
