"""scaled_dot_product_attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from opmark.catalogue.operators import _attention
from opmark.catalogue.operators.attention import SDPA
from opmark.errors import InvalidParameter, Unsupported, WrongResult
from opmark.schema import Cost
from opmark.worker.verify.outputs import check_outputs

BASE: dict[str, Any] = {"batch": 2, "heads": 6, "q_len": 5, "kv_len": 7, "head_dim": 4}
CAUSAL = {**BASE, "kv_len": 5, "causal": True}

VARIANTS = [
    BASE,
    {**BASE, "kv_heads": 6},
    {**BASE, "kv_heads": 2},
    {**BASE, "kv_heads": 1},
    CAUSAL,
    {**CAUSAL, "kv_heads": 3},
    {**BASE, "q_len": 1},
    {**BASE, "kv_len": 1},
]


def _arrays(params: dict[str, Any]) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    return {name: generator.uniform(-3, 3, spec.shape) for name, spec in SDPA.inputs(params).items()}


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_reference_is_that_of_torch(variant: dict[str, Any]) -> None:
    params = SDPA.complete(variant)
    arrays = _arrays(params)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(torch.from_numpy(array) for array in arrays.values()), is_causal=params["causal"], enable_gqa=True
    )
    np.testing.assert_allclose(SDPA.reference(params, **arrays), expected, rtol=1e-12, atol=1e-14)


def test_query_heads_share_their_neighbours_keys() -> None:
    """Heads 0 and 1 use the first head of keys and values, 2 and 3 the second: groups, not strides."""
    params = SDPA.complete({**BASE, "heads": 4, "kv_heads": 2})
    arrays = _arrays(params)
    whole = SDPA.reference(params, **arrays)
    for head in range(4):
        one = {**params, "heads": 1, "kv_heads": 1}
        of_head = {"q": head, "k": head // 2, "v": head // 2}
        alone = SDPA.reference(one, **{name: arrays[name][:, [i]] for name, i in of_head.items()})
        np.testing.assert_allclose(whole[:, [head]], alone, rtol=1e-13)


def test_a_causal_query_sees_no_later_key() -> None:
    params = SDPA.complete(CAUSAL)
    arrays = _arrays(params)
    before = SDPA.reference(params, **arrays)
    arrays["v"][:, :, 3:] += 100
    after = SDPA.reference(params, **arrays)
    np.testing.assert_array_equal(before[:, :, :3], after[:, :, :3])
    assert (before[:, :, 3:] != after[:, :, 3:]).all()


COSTS = [
    # 2 x 6 heads, 5 x 7 pairs each: 420 pairs of 4 products, twice; q has 240 elements, k and v 336 each.
    ({**BASE, "dtype": "float32"}, Cost(4 * 420 * 4, 4 * 912, 4 * 240), Cost(10 * 420 * 4, 4 * 1392, 4 * 912)),
    # k and v have a third of the heads; the pairs are the same.
    (
        {**BASE, "kv_heads": 2, "dtype": "bfloat16"},
        Cost(4 * 420 * 4, 2 * 464, 2 * 240),
        Cost(10 * 420 * 4, 2 * 944, 2 * 464),
    ),
    # Query i sees i keys: 1 + 2 + 3 + 4 + 5 = 15 pairs for each of 12 heads.
    ({**CAUSAL, "dtype": "float64"}, Cost(4 * 180 * 4, 8 * 720, 8 * 240), Cost(10 * 180 * 4, 8 * 1200, 8 * 720)),
]


@pytest.mark.parametrize(("given", "forward", "backward"), COSTS)
def test_cost_by_hand(given: dict[str, Any], forward: Cost, backward: Cost) -> None:
    params = SDPA.complete(given)
    assert SDPA.phase_cost(params, "forward") == forward
    assert SDPA.phase_cost(params, "backward") == backward


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_torch_counts_as_many_operations(variant: dict[str, Any], torch_cpu: Any) -> None:
    """Torch counts nothing for the fused kernels of a CPU, so their products are counted instead.

    It also counts a causal attention as if every query saw every key.
    """
    params = SDPA.complete(variant)
    inputs = {name: torch_cpu.tensor(spec, i) for i, (name, spec) in enumerate(SDPA.inputs(params).items())}
    (implementation,) = SDPA.implementations_for("torch")
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        implementation.build(params, **inputs)()
    seen = (params["q_len"] + 1) / (2 * params["q_len"]) if params["causal"] else 1
    assert SDPA.cost(params).flops == pytest.approx(seen * counter.get_total_flops(), rel=1e-12)


@pytest.mark.parametrize("variant", [BASE, {**BASE, "q_len": 1}], ids=str)
def test_torch_has_the_same_formulas_for_fused_kernels(variant: dict[str, Any]) -> None:
    """Backward included: there the scores are computed a second time."""
    params = SDPA.complete(variant)
    q, k, v = (spec.shape for spec in SDPA.inputs(params).values())
    assert SDPA.cost(params).flops == sdpa_flop_count(q, k, v)
    assert SDPA.backward_cost(params).flops == sdpa_backward_flop_count(q, q, k, v)


REFUSED = [
    ({"kv_heads": 4}, "kv_heads", "heads=6"),
    ({"kv_heads": 12}, "kv_heads", "heads=6"),
    ({"causal": True}, "causal", "5 and 7"),
    ({"causal": True, "q_len": 9}, "causal", "9 and 7"),
]


@pytest.mark.parametrize(("change", "param", "detail"), REFUSED, ids=str)
def test_what_has_no_meaning_is_refused(change: dict[str, Any], param: str, detail: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must .*{detail}"):
        SDPA.check_rules(SDPA.complete({**BASE, **change}))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_what_has_a_meaning_is_allowed(variant: dict[str, Any]) -> None:
    SDPA.check_rules(SDPA.complete(variant))


# Attention of 8-bit floats: what can be tested without a GPU that has it.


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let any device have attention of 8-bit floats, which is then computed step by step, in the type of the inputs."""
    monkeypatch.setattr(_attention, "_refuse_without_float8", lambda q: None)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_flex_attention_computes_the_reference(variant: dict[str, Any]) -> None:
    params = SDPA.complete({**variant, "head_dim": 16})
    tensors = {name: torch.from_numpy(array) for name, array in _arrays(params).items()}
    found = _attention.compile_flex(16**-0.5, **tensors, causal=params["causal"])(**tensors)
    assert found.dtype == torch.bfloat16
    expected = SDPA.reference(params, **_arrays(params))
    np.testing.assert_allclose(found.float(), expected, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_without_a_kernel_for_8_bit_floats_nothing_is_cast(kind: str, torch_cpu: Any) -> None:
    params = SDPA.complete({**BASE, "dtype": kind})
    tensors = {name: torch_cpu.tensor(spec, 0) for name, spec in SDPA.inputs(params).items()}
    (implementation,) = SDPA.implementations_for("torch")
    with pytest.raises(Unsupported, match="torch has no attention of 8-bit floats on cpu"):
        implementation.build(params, **tensors)


def test_the_first_gpus_that_multiply_8_bit_floats_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = type("Tensor", (), {"device": torch.device("cuda")})()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    with pytest.raises(Unsupported, match=r"compute capability 8\.0, and products of 8-bit floats came with 8\.9"):
        _attention._refuse_without_float8(gpu)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    _attention._refuse_without_float8(gpu)


def test_the_result_of_8_bit_floats_is_wider_and_has_no_gradient() -> None:
    params = SDPA.complete({**BASE, "dtype": "float8_e4m3fn"})
    assert SDPA.result_dtype(params) == "bfloat16"
    assert SDPA.cost(params) == Cost(4 * 420 * 4, 912, 2 * 240)
    assert SDPA.why_no_phase(params, "backward") == (
        "`scaled_dot_product_attention` has no gradient through float8_e4m3fn"
    )


def test_rounded_weights_are_allowed_for_and_no_more() -> None:
    """A weight that is rounded to 8 bits is off by at most a sixteenth, and by another one in the result."""
    params = SDPA.complete(
        {"batch": 2, "heads": 4, "q_len": 64, "kv_len": 64, "head_dim": 32, "dtype": "float8_e4m3fn"}
    )
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        (torch.rand(spec.shape, generator=generator) * 2 - 1).to(torch.float8_e4m3fn).float()
        for spec in SDPA.inputs(params).values()
    )
    scores = q @ k.mT * 32**-0.5
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    rounded = (weights.to(torch.float8_e4m3fn).float() @ v / weights.sum(-1, keepdim=True)).to(torch.float8_e4m3fn)
    arrays = {name: tensor.double().numpy() for name, tensor in zip("qkv", (q, k, v), strict=True)}
    check_outputs(SDPA, params, (rounded.float().numpy(),), arrays)
    with pytest.raises(WrongResult):
        check_outputs(SDPA, params, (rounded.float().numpy() * 2,), arrays)
