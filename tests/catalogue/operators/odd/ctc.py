"""Unusual parameters of ctc_loss."""

from __future__ import annotations

from typing import Any

ODD: dict[str, list[dict[str, Any]]] = {
    "ctc_loss": [
        {"steps": 9, "batch": 3, "classes": 5, "labels": 4, "reduction": "none"},
        {"steps": 7, "batch": 2, "classes": 2, "labels": 4, "reduction": "sum"},
        {"steps": 1, "batch": 1, "classes": 3, "labels": 1},
    ],
}
