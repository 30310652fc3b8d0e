"""Positions: lengths that differ, pages filled in part, a part of a head that is turned, caches of 8 bits."""

from __future__ import annotations

from typing import Any

_HEADS = {"q_heads": 3, "kv_heads": 2, "head_dim": 8}
_DIFFERENT = {**_HEADS, "batch": 3, "q_lens": [5, 1, 3], "cache_lens": [2, 0, 9]}

ODD: dict[str, list[dict[str, Any]]] = {
    "rotary_embedding": [
        {**_DIFFERENT},
        {**_DIFFERENT, "rope_dim": 4, "rope_offset": 2},
        {**_HEADS, "mode": "decode", "batch": 5, "cache_len": 7, "rope_offset": 6},
    ],
    "store_kv_cache": [
        {**_DIFFERENT, "cache_dtype": "int8", "block_size": 4},
        {**_DIFFERENT},
        {**_HEADS, "batch": 2, "q_len": 3, "cache_len": 2, "cache_dtype": "int8", "store_mode": "k"},
        {**_HEADS, "mode": "decode", "batch": 5, "cache_len": 7, "store_mode": "v"},
        {**_DIFFERENT, "cache_dtype": "float8_e4m3fn", "block_size": 4},
        {**_HEADS, "batch": 2, "q_len": 3, "cache_len": 2, "cache_dtype": "float8_e5m2"},
    ],
}
