"""Unusual parameters of the operators in class_loss.py."""

from __future__ import annotations

from typing import Any


def _odd(width: str, **options: Any) -> list[dict[str, Any]]:
    """Each reduction once."""
    return [
        {"batch": 5, width: 7, "reduction": "none", **options},
        {"batch": 33, width: 3, "reduction": "sum"},
        {"batch": 1, width: 129},
    ]


ODD: dict[str, list[dict[str, Any]]] = {
    "cross_entropy": _odd("classes", label_smoothing=0.1),
    "nll_loss": _odd("classes"),
    "multi_margin_loss": _odd("classes", margin=0.6),
    "multilabel_soft_margin_loss": _odd("classes"),
    "cosine_embedding_loss": _odd("dim", margin=0.25),
    "triplet_margin_loss": _odd("dim", margin=2.0),
}
