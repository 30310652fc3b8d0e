"""Attention: lengths that differ, pages filled in part, heads that share keys."""

from __future__ import annotations

from typing import Any

_HEADS = {"q_heads": 6, "kv_heads": 2, "head_dim": 8}
_LATENT = {"heads": 3, "kv_lora_rank": 10, "rope_dim": 4, "nope_dim": 6}

ODD: dict[str, list[dict[str, Any]]] = {
    "scaled_dot_product_attention": [
        {"batch": 2, "heads": 6, "q_len": 9, "kv_len": 13, "head_dim": 8, "kv_heads": 2},
        {"batch": 1, "heads": 2, "q_len": 17, "kv_len": 17, "head_dim": 16, "causal": True},
        {"batch": 2, "heads": 4, "q_len": 5, "kv_len": 1, "head_dim": 8, "kv_heads": 2},
    ],
    "flash_attention": [
        {**_HEADS, "batch": 3, "q_lens": [5, 1, 3], "cache_lens": [2, 0, 9], "block_size": 4},
        {**_HEADS, "batch": 3, "q_lens": [5, 1, 3], "cache_lens": [2, 0, 9]},
        {**_HEADS, "batch": 2, "q_len": 5, "cache_len": 6, "block_size": 8, "cache_dtype": "int8"},
        {**_HEADS, "batch": 2, "q_len": 5, "cache_len": 6, "block_size": 8, "cache_dtype": "float8_e4m3fn"},
        {**_HEADS, "batch": 2, "q_len": 7, "cache_len": 4, "kv_heads": 0},
        {**_HEADS, "batch": 3, "q_len": 3, "cache_lens": [8, 7, 9], "cache_dtype": "int8"},
    ],
    "flash_decoding": [
        {**_HEADS, "batch": 3, "cache_lens": [2, 0, 9], "block_size": 4},
        {**_HEADS, "batch": 3, "q_len": 2, "cache_lens": [8, 7, 9], "block_size": 4},
        {**_HEADS, "batch": 3, "cache_lens": [8, 7, 9]},
        {**_HEADS, "batch": 2, "cache_len": 6, "cache_dtype": "int8"},
        {**_HEADS, "batch": 2, "cache_len": 6, "cache_dtype": "float8_e5m2"},
        {**_HEADS, "batch": 2, "q_len": 3, "cache_len": 6, "block_size": 2},
        {**_HEADS, "batch": 3, "q_lens": [1, 4, 2], "cache_lens": [2, 0, 9], "block_size": 4},
    ],
    "mla_decode": [
        {**_LATENT, "batch": 3, "cache_lens": [2, 0, 9], "block_size": 4},
        {**_LATENT, "batch": 2, "cache_len": 6},
        {**_LATENT, "batch": 3, "q_len": 2, "cache_lens": [8, 7, 9]},
        {**_LATENT, "batch": 2, "q_len": 3, "cache_len": 6, "block_size": 2},
        {**_LATENT, "batch": 3, "q_lens": [1, 4, 2], "cache_lens": [2, 0, 9]},
    ],
    "mla_prefill": [
        {**_LATENT, "v_dim": 5, "batch": 3, "q_lens": [5, 1, 3], "cache_lens": [2, 0, 9], "block_size": 4},
        {**_LATENT, "v_dim": 7, "batch": 2, "q_len": 5, "cache_len": 4},
    ],
}
