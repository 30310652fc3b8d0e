"""rotary_embedding: a rotation of a part of each head by its position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.attention import ROTARY
from opmark.errors import InvalidParameter
from opmark.schema import Cost

HEADS: dict[str, Any] = {"q_heads": 2, "kv_heads": 1, "head_dim": 4}
DIFFERENT = {**HEADS, "batch": 3, "q_lens": [3, 1, 2], "cache_lens": [1, 0, 2]}


def _arrays(params: dict[str, Any], live: Any) -> dict[str, Any]:
    return {n: live.to_numpy(live.tensor(spec, i)) for i, (n, spec) in enumerate(ROTARY.inputs(params).items())}


@pytest.mark.parametrize(
    "given", [DIFFERENT, {**DIFFERENT, "rope_dim": 2}, {**HEADS, "mode": "decode", "batch": 4, "cache_len": 5}], ids=str
)
def test_only_rows_of_the_tables_that_occur_are_read(given: dict[str, Any], bytes_read: Any) -> None:
    params = ROTARY.complete(given)
    assert ROTARY.cost(params).bytes_read == bytes_read(ROTARY, params)


def test_cost_by_hand() -> None:
    """4 sequences at the same place: one row of each table of 6, for 4 tokens of 3 heads of 4 elements."""
    params = ROTARY.complete({**HEADS, "mode": "decode", "batch": 4, "cache_len": 5, "dtype": "bfloat16"})
    assert ROTARY.cost(params) == Cost(3 * 48, 2 * (48 + 2 * 4), 2 * 48)
    # Back, the gradient of the values' head is written too.
    assert ROTARY.phase_cost(params, "backward") == Cost(3 * 48, 2 * (48 + 2 * 4), 2 * 64)


def test_each_pair_of_elements_is_turned_as_a_complex_number(numpy_cpu: Any) -> None:
    params = ROTARY.complete({**DIFFERENT, "dtype": "float64"})
    arrays = _arrays(params, numpy_cpu)
    x, places = arrays["packed_qkv"][:, :3], np.array([1, 2, 3, 0, 2, 3])
    turned = (x[..., :2] + 1j * x[..., 2:]) * np.exp(1j * places[:, None, None] * np.array([1.0, 0.01]))
    expected = np.concatenate([turned.real, turned.imag], axis=-1)
    np.testing.assert_allclose(ROTARY.reference(params, **arrays), expected, rtol=1e-12, atol=1e-14)


def test_the_rest_of_a_head_stays(numpy_cpu: Any) -> None:
    params = ROTARY.complete({**DIFFERENT, "head_dim": 6, "rope_offset": 1, "rope_dim": 4, "dtype": "float64"})
    arrays = _arrays(params, numpy_cpu)
    found = ROTARY.reference(params, **arrays)
    np.testing.assert_array_equal(found[..., [0, 5]], arrays["packed_qkv"][:, :3, [0, 5]])
    assert (found[:3, :, 1:5] != arrays["packed_qkv"][:3, :3, 1:5]).any()


@pytest.mark.parametrize(
    ("change", "param"),
    [({"rope_dim": 3}, "rope_dim"), ({"rope_offset": 2, "rope_dim": 4}, "rope_offset"), ({"rope_offset": 4}, "rope_")],
)
def test_what_does_not_fit_into_a_head_is_refused(change: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{param}"):
        ROTARY.check_rules(ROTARY.complete({**DIFFERENT, **change}))
