"""flash_attention and flash_decoding: costs counted one by one, pages, heads that share keys, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators import _attention
from opmark.catalogue.operators._attention import Sequences
from opmark.catalogue.operators.attention import FLASH_ATTENTION_OPERATORS, _flash_attention, _flash_torch
from opmark.errors import InvalidParameter, Unsupported
from opmark.plugin.registry import operator
from opmark.schema import Cost

FLASH, DECODING = FLASH_ATTENTION_OPERATORS
HEADS: dict[str, Any] = {"q_heads": 4, "kv_heads": 2, "head_dim": 2}
DIFFERENT = {**HEADS, "batch": 3, "q_lens": [3, 1, 2], "cache_lens": [2, 0, 3]}
VARIANTS = [
    {**HEADS, "batch": 2, "q_len": 3},
    {**HEADS, "batch": 2, "q_len": 2, "cache_len": 3},
    DIFFERENT,
    {**DIFFERENT, "block_size": 4},
    {**DIFFERENT, "cache_lens": [2, 1, 3], "block_size": 4, "cache_dtype": "int8"},
    {**HEADS, "kv_heads": 0, "batch": 1, "q_len": 2, "block_size": 3},
]


@pytest.mark.parametrize("given", VARIANTS, ids=str)
def test_only_what_a_sequence_has_in_the_cache_is_read(given: dict[str, Any], bytes_read: Any) -> None:
    params = FLASH.complete(given)
    names = [name for name in FLASH.inputs(params) if name != "block_table"]
    entries = sum(Sequences.of(params).pages) if params["block_size"] else 0
    assert FLASH.cost(params).bytes_read == bytes_read(FLASH, params, *names) + 4 * entries


@pytest.mark.parametrize("given", VARIANTS, ids=str)
def test_two_products_for_each_pair_that_sees_each_other(given: dict[str, Any]) -> None:
    params = FLASH.complete(given)
    sequences = Sequences.of(params)
    pairs = sum(
        key <= cache + query
        for q, cache in zip(sequences.q, sequences.cache, strict=True)
        for query in range(q)
        for key in range(cache + q)
    )
    assert FLASH.cost(params).flops == pairs * 4 * (2 + 2) * 2
    assert FLASH.cost(params).bytes_written == sum(sequences.q) * 4 * 2 * 4


def test_cost_by_hand() -> None:
    """Two sequences of 7 keys, one new: 14 pairs of 6 heads of 8 elements; pages of 4, two each."""
    given = {"batch": 2, "cache_len": 6, "q_heads": 6, "kv_heads": 2, "head_dim": 8, "dtype": "bfloat16"}
    linear = DECODING.complete(given)
    assert DECODING.cost(linear) == Cost(4 * 14 * 6 * 8, 2 * (2 * 48 + 2 * 14 * 16), 2 * 2 * 48)
    paged = {**linear, "block_size": 4}
    assert DECODING.cost(paged).bytes_read == DECODING.cost(linear).bytes_read + 4 * 4
    narrow = {**linear, "cache_dtype": "int8"}
    assert DECODING.cost(narrow).bytes_read == 2 * 2 * 48 + 2 * 14 * 16 + 4 * 2 * 16


def _tensors(params: dict[str, Any], live: Any) -> dict[str, Any]:
    return {name: live.tensor(spec, i) for i, (name, spec) in enumerate(FLASH.inputs(params).items())}


@pytest.mark.parametrize("given", VARIANTS[:3], ids=str)
def test_the_reference_is_that_of_torch_sequence_by_sequence(given: dict[str, Any], numpy_cpu: Any) -> None:
    params = FLASH.complete({**given, "dtype": "float64"})
    arrays = _tensors(params, numpy_cpu)
    q, k, v = (torch.from_numpy(arrays[name]) for name in ("q", "k_cache", "v_cache"))
    sequences, start, parts = Sequences.of(params), 0, []
    for row, (new, kv) in enumerate(zip(sequences.q, sequences.kv, strict=True)):
        seen = torch.ones(new, kv, dtype=torch.bool).tril(kv - new)
        part = torch.nn.functional.scaled_dot_product_attention(
            q[start : start + new].transpose(0, 1), k[row, :, :kv], v[row, :, :kv], seen, enable_gqa=True
        )
        parts.append(part.transpose(0, 1))
        start += new
    np.testing.assert_allclose(_flash_attention(params, **arrays), torch.cat(parts), rtol=1e-12, atol=1e-14)


def test_pages_in_any_order_hold_what_a_linear_cache_holds(numpy_cpu: Any) -> None:
    linear = FLASH.complete({**DIFFERENT, "dtype": "float64"})
    paged = {**linear, "block_size": 4}
    flat, sequences = _tensors(linear, numpy_cpu), Sequences.of(paged)
    arrays = {**_tensors(paged, numpy_cpu), "q": flat["q"]}
    for name in ("k_cache", "v_cache"):
        for row, kv in enumerate(sequences.kv):
            for at in range(kv):
                arrays[name][arrays["block_table"][row, at // 4], :, at % 4] = flat[name][row, :, at]
    np.testing.assert_array_equal(_flash_attention(paged, **arrays), _flash_attention(linear, **flat))


@pytest.mark.parametrize("label", ["sdpa", "matmul"])
def test_the_table_is_read_by_every_call(label: str, torch_cpu: Any) -> None:
    params = FLASH.complete({**DIFFERENT, "block_size": 4})
    tensors = _tensors(params, torch_cpu)
    (build,) = (i.build for i in FLASH.implementations_for("torch") if i.label == label)
    launch = build(params, **tensors)
    before = launch()
    tensors["block_table"].copy_(tensors["block_table"].flip(1))
    assert not torch.equal(launch(), before)


REFUSED = [
    ({"kv_heads": 3}, "kv_heads", "q_heads=4"),
    ({"q_lens": [1, 2]}, "q_lens", "batch=3"),
    ({"cache_lens": [1, 2, 3, 4]}, "cache_lens", "batch=3"),
    ({"q_lens": [1, 0, 2]}, "q_lens", "at least 1"),
    ({"mode": "decode", "q_lens": [1, 17, 1]}, "mode", "more than 16 new tokens"),
    ({"mode": "decode", "q_lens": [], "q_len": 17}, "mode", "more than 16 new tokens"),
]


@pytest.mark.parametrize(("change", "param", "detail"), REFUSED, ids=str)
def test_what_has_no_meaning_is_refused(change: dict[str, Any], param: str, detail: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must .*{detail}"):
        FLASH.check_rules(FLASH.complete({**DIFFERENT, **change}))


def test_sequences_may_decode_different_numbers_of_tokens() -> None:
    params = DECODING.complete({**DIFFERENT, "mode": "decode"})
    DECODING.check_rules(params)
    assert DECODING.cost(params) == FLASH.cost(FLASH.complete(DIFFERENT))


@pytest.mark.parametrize(
    ("name", "op"),
    [("flash_attention_session_cache", FLASH), ("flash_decoding", DECODING), ("paged_attention", DECODING)],
)
def test_names_of_other_systems_are_found(name: str, op: Any) -> None:
    assert operator(name) is op


def test_a_decoding_step_is_the_default_of_decoding() -> None:
    params = DECODING.complete({**HEADS, "batch": 2, "cache_len": 5})
    assert (params["mode"], params["q_len"]) == ("decode", 1)


# Queries, keys and values of 8-bit floats.


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("given", [one for one in VARIANTS if "cache_dtype" not in one], ids=str)
def test_attention_for_8_bit_floats_reads_caches_and_pages(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, torch_cpu: Any
) -> None:
    """On a CPU it is computed step by step in float32, and rounded at the end."""
    monkeypatch.setattr(_attention, "_refuse_without_float8", lambda q: None)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    params = FLASH.complete({**given, "head_dim": 16})
    tensors = {name: torch_cpu.tensor(spec, i) for i, (name, spec) in enumerate(FLASH.inputs(params).items())}
    found = _flash_torch(_attention.flex_float8, None)(params, **tensors)()
    assert found.dtype == torch.bfloat16
    expected = _flash_attention(params, **{name: torch_cpu.to_numpy(tensor) for name, tensor in tensors.items()})
    np.testing.assert_allclose(found.float(), expected, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("block_size", [0, 4])
def test_without_a_kernel_for_8_bit_floats_both_ways_say_so(block_size: int, torch_cpu: Any) -> None:
    params = FLASH.complete({**DIFFERENT, "block_size": block_size, "dtype": "float8_e4m3fn"})
    assert (FLASH.result_dtype(params), FLASH.inputs(params)["k_cache"].dtype) == ("bfloat16", "float8_e4m3fn")
    tensors = {name: torch_cpu.tensor(spec, i) for i, (name, spec) in enumerate(FLASH.inputs(params).items())}
    for implementation in FLASH.implementations_for("torch"):
        with pytest.raises(Unsupported, match=r"torch has no .* of 8-bit floats"):
            implementation.build(params, **tensors)()


def test_a_cache_with_scales_is_for_wider_queries() -> None:
    for kind in ("int8", "float8_e5m2"):
        with pytest.raises(InvalidParameter, match="`cache_dtype` must be same for queries of float8_e4m3fn"):
            FLASH.check_rules(FLASH.complete({**DIFFERENT, "cache_dtype": kind, "dtype": "float8_e4m3fn"}))
