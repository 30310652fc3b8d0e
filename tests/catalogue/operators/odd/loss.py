"""Unusual parameters of the operators in loss.py."""

from __future__ import annotations

from typing import Any


def _odd(**options: Any) -> list[dict[str, Any]]:
    """Each reduction once."""
    return [
        {"shape": [5, 7], "reduction": "none", **options},
        {"shape": [33, 3], "reduction": "sum"},
        {"shape": [11]},
    ]


ODD: dict[str, list[dict[str, Any]]] = {
    "l1_loss": _odd(),
    "mse_loss": _odd(),
    "smooth_l1_loss": _odd(beta=0.5),
    "smooth_l1": _odd(sigma=2.0),
    "huber_loss": _odd(delta=0.5),
    "bce_loss": _odd(),
    "bce_with_logits": _odd(),
    "kl_div": _odd(),
    "poisson_nll_loss": _odd(log_input=False),
    "gaussian_nll_loss": _odd(),
    "soft_margin_loss": _odd(),
    "hinge_loss": _odd(margin=0.5),
    "hinge_embedding_loss": _odd(margin=0.5),
    "margin_ranking_loss": _odd(margin=0.5),
    "scaled_loss": _odd(grad_scale=0.5),
}
