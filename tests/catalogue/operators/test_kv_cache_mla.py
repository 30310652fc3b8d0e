"""mla_decode, mla_prefill: absorbing the matrices equals expanding the vectors."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators._attention import Sequences
from opmark.catalogue.operators.kv_cache import DECODE, PREFILL, _decode, _prefill
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

LATENT: dict[str, Any] = {"heads": 2, "kv_lora_rank": 3, "rope_dim": 2, "nope_dim": 4}
DIFFERENT = {**LATENT, "mode": "prefill", "batch": 2, "q_lens": [2, 1], "cache_lens": [1, 0]}
VARIANTS = [
    (DECODE, {**LATENT, "batch": 2, "cache_len": 2}),
    (DECODE, {**DIFFERENT, "block_size": 2}),
    (PREFILL, {**DIFFERENT, "v_dim": 3}),
    (PREFILL, {**DIFFERENT, "v_dim": 3, "block_size": 2}),
]


@pytest.mark.parametrize(("op", "given"), VARIANTS)
def test_only_what_a_sequence_has_in_the_cache_is_read(op: Operator, given: dict[str, Any], bytes_read: Any) -> None:
    params = op.complete(given)
    entries = sum(Sequences.of(params).pages) if params["block_size"] else 0
    assert op.cost(params).bytes_read == bytes_read(op, params) + 4 * entries


def test_cost_of_decoding_by_hand() -> None:
    """2 sequences of 8 keys: 16 pairs of 3 heads; a score over 10 + 4 elements, a result over 10."""
    params = DECODE.complete({"batch": 2, "cache_len": 7, "heads": 3, "kv_lora_rank": 10, "rope_dim": 4, "nope_dim": 6})
    assert DECODE.cost(params) == Cost(2 * 16 * 3 * (14 + 10), 4 * (2 * 3 * 14 + 16 * 14), 4 * 2 * 3 * 10)


def test_cost_of_a_prefill_by_hand() -> None:
    """3 tokens: each expanded to 2 heads of 4 + 3 elements out of 5; 6 pairs, keys of 6 elements, values of 3."""
    given = {"batch": 1, "q_len": 3, "heads": 2, "kv_lora_rank": 5, "rope_dim": 2, "nope_dim": 4, "v_dim": 3}
    flops = 2 * 3 * 5 * 14 + 2 * 6 * 2 * (6 + 3)
    assert PREFILL.cost(PREFILL.complete(given)) == Cost(flops, 4 * (3 * 2 * 6 + 3 * 7 + 14 * 5), 4 * 3 * 2 * 3)


def test_absorbing_the_matrices_changes_nothing(numpy_cpu: Any) -> None:
    """Queries times the keys' matrix before, results times the values' matrix after, against keys and values."""
    params = PREFILL.complete({**DIFFERENT, "v_dim": 3, "dtype": "float64"})
    arrays = {n: numpy_cpu.tensor(spec, i) for i, (n, spec) in enumerate(PREFILL.inputs(params).items())}
    by_head = arrays["weight"].reshape(2, 4 + 3, 3)
    nope, rope = arrays["q"][..., :4], arrays["q"][..., 4:]
    absorbed = np.concatenate([np.einsum("thn,hnr->thr", nope, by_head[:, :4]), rope], axis=-1)
    latent = _decode(params, absorbed, arrays["kv_cache"])
    expected = np.einsum("thr,hvr->thv", latent, by_head[:, 4:])
    np.testing.assert_allclose(_prefill(params, **arrays), expected, rtol=1e-12, atol=1e-14)


def test_scores_are_scaled_by_the_length_of_whole_keys(numpy_cpu: Any) -> None:
    """One query, two keys: the weight of the second is a logistic function of the difference of the scores."""
    params = DECODE.complete({**LATENT, "heads": 1, "batch": 1, "cache_len": 1, "dtype": "float64"})
    q, cache = np.ones((1, 1, 5)), np.zeros((1, 1, 2, 5))
    cache[0, 0, 1, :3] = 1
    share = 1 / (1 + np.exp(-3 / sqrt(4 + 2)))
    np.testing.assert_allclose(_decode(params, q, cache), np.full((1, 1, 3), share), rtol=1e-12)


def test_it_is_found_by_the_name_of_its_kernel() -> None:
    assert operator("flash_mla") is DECODE
