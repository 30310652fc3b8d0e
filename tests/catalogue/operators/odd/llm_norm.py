"""Norms of language models: some of the heads, tokens that ranks share."""

from __future__ import annotations

from typing import Any

ODD: dict[str, list[dict[str, Any]]] = {
    "add_rms_norm": [{"num_tokens": 5, "hidden_size": 33}, {"num_tokens": 7, "hidden_size": 17, "sp_size": 3}],
    "head_rms_norm": [
        {"num_tokens": 5, "heads": 7, "head_dim": 9, "norm_start": 2, "norm_heads": 3},
        {"num_tokens": 7, "heads": 2, "head_dim": 17, "sp_size": 3, "norm_start": 1, "eps": 0.1},
    ],
    "qk_rms_norm": [
        {"num_tokens": 5, "q_heads": 3, "kv_heads": 2, "qk_head_dim": 9, "v_head_dim": 5},
        {"num_tokens": 7, "q_heads": 1, "kv_heads": 1, "qk_head_dim": 17, "v_head_dim": 3, "sp_size": 3, "eps": 0.1},
    ],
}
