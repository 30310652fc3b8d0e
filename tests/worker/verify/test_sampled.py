"""Cases too large for their reference: checked at their own size, so that what is wrong only there is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from opmark.errors import WrongResult
from opmark.plugin import Implementation, Operator
from opmark.plugin.registry import catalogue, operator
from opmark.schema import EFFORTS, Case, Phase, Settings, Task, Verification
from opmark.worker.verify.accuracy import compare_arrays
from opmark.worker.verify.outputs import too_large, verify
from opmark.worker.verify.sampled import choose_positions, plan_gradient_sample, plan_sample

SETTINGS = Settings(1, "quick", EFFORTS["quick"])
SMALL = 1 << 16
"""Elements of a result up to which the implementations here are honest."""

GIVEN: dict[str, dict[str, Any]] = {
    "matmul": {"M": 1000, "N": 1025, "K": 300},
    "batched_matmul": {"B": 9, "M": 200, "N": 300, "K": 520},
    "softmax": {"shape": [1500, 1501]},
    "relu": {"shape": [1500, 1501]},
    "layer_norm": {"shape": [1500, 1501]},
    "transpose": {"shape": [1500, 1501]},
    "sort": {"shape": [1500, 1501]},
    "reduce_sum": {"shape": [3000, 1501], "axis": -1},
    "embedding": {"rows": 70_000, "dim": 64, "indices": 9000},
    "dropout": {"shape": [1500, 1501]},
    "mse_loss": {"shape": [2200, 1100]},
    "conv2d": {"batch": 9, "in_channels": 32, "image": [60, 60], "out_channels": 40, "kernel": [3, 3], "padding": 1},
    "scaled_dot_product_attention": {"batch": 2, "heads": 3, "q_len": 700, "kv_len": 700, "head_dim": 64},
    "flash_attention": {"batch": 1, "q_len": 600, "cache_len": 500, "q_heads": 8, "kv_heads": 2, "head_dim": 64},
}


def _given(name: str, **more: Any) -> dict[str, Any]:
    op = operator(name)
    known = {param.name for param in op.params}
    return op.complete({**op.preset("typical"), **{k: v for k, v in GIVEN[name].items() if k in known}, **more})


def _check(
    op: Operator, params: dict[str, Any], live: Any, implementation: Implementation, phase: Phase = "forward"
) -> Verification:
    op.check_rules(params)
    return verify(Task(Case.of(op.name, params, phase), "", "", SETTINGS), op, implementation, live)


def _own(op: Operator, framework: str = "numpy") -> Implementation:
    return op.implementations_for(framework)[0]


@pytest.mark.parametrize("name", GIVEN)
def test_a_case_that_is_too_large_is_checked_at_its_own_size(name: str, numpy_cpu: Any) -> None:
    op, params = operator(name), _given(name)
    assert too_large(op, params)
    found = _check(op, params, numpy_cpu, _own(op))
    assert found.checked == ("full" if name in ("dropout", "mse_loss") else "sampled")
    assert found.params is None
    if found.checked == "sampled":
        assert 200 < found.numerics[0].elements < op.cost(params).bytes_written // 4


# Implementations that are right at small sizes and wrong at large ones.

Wrong = Callable[..., Any]


def _fill(result: Any, at: Any, value: Any = 0) -> Any:
    result[at] = value
    return result


def _half_of_k(p: Any, c: Any, a: Any, b: Any) -> Any:
    half = a.shape[-1] // 2
    return a[..., :half] @ b[..., :half, :]


def _keys_up_to(count: int) -> Wrong:
    def wrong(p: Any, out: Any, q: Any, k: Any, v: Any) -> Any:
        op = operator("scaled_dot_product_attention")
        less = {**p, "kv_len": count}
        return _own(op).build(less, q=q, k=k[:, :, :count], v=v[:, :, :count])()

    return wrong


def _one_element(p: Any, c: Any, **inputs: Any) -> Any:
    at = np.unravel_index(int(np.random.default_rng().integers(c.size)), c.shape)
    return _fill(c, at, c[at] + 3 * np.abs(c).max())


def _tile(p: Any, c: Any, **inputs: Any) -> Any:
    row, column = np.random.default_rng().integers(0, 14, 2) * 64
    return _fill(c, np.s_[..., row : row + 64, column : column + 64])


def _unwritten(p: Any, c: Any, **inputs: Any) -> Any:
    return np.full(c.size + 1, 0.37, c.dtype)[1:].reshape(c.shape)


def _late_rows_see_everything(p: Any, out: Any, **inputs: Any) -> Any:
    all_seen = _own(operator("scaled_dot_product_attention")).build({**p, "causal": False}, **inputs)()
    out[:, :, -20:] = all_seen[:, :, -20:]
    return out


SABOTAGE: dict[str, tuple[str, Wrong]] = {
    "zeros": ("matmul", lambda p, c, **inputs: c * 0),
    "half of K": ("matmul", _half_of_k),
    "memory that nobody wrote": ("matmul", _unwritten),
    "one tile": ("matmul", _tile),
    "one element": ("matmul", _one_element),
    "last row": ("matmul", lambda p, c, **inputs: _fill(c, -1)),
    "last column": ("matmul", lambda p, c, **inputs: _fill(c, np.s_[:, -1])),
    "after the last full tile": ("matmul", lambda p, c, **inputs: _fill(c, np.s_[c.shape[0] // 128 * 128 :])),
    "the first row": ("matmul", lambda p, c, **inputs: _fill(c, 0)),
    "TF32": ("matmul", lambda p, c, a, b: (a.view(np.uint32) & ~np.uint32(0x1FFF)).view(np.float32) @ b),
    "a product twice": ("batched_matmul", lambda p, c, **inputs: _fill(c, -1, c[0])),
    "half of K in each": ("batched_matmul", _half_of_k),
    "zero beyond 2^20": ("softmax", lambda p, y, x: _fill(y.reshape(-1), np.s_[1 << 20 :]).reshape(y.shape)),
    "another axis": ("softmax", lambda p, y, x: _own(operator("softmax")).build({**p, "axis": 0}, x=x)()),
    "not beyond 2^21": ("relu", lambda p, y, x: np.where(np.arange(x.size).reshape(x.shape) >= 1 << 21, x, y)),
    "vector tails": ("relu", lambda p, y, x: _fill(y, np.s_[:, x.shape[1] // 16 * 16 :], -1)),
    "variance of the first half": (
        "layer_norm", lambda p, y, x, weight, bias: y * x.std(-1, keepdims=True) / x[:, :750].std(-1, keepdims=True)
    ),
    "a block not transposed": ("transpose", lambda p, y, x: _fill(y, np.s_[-64:], 0.5)),
    "rows not sorted": ("sort", lambda p, out, x: (_fill(out[0], np.s_[1200:], x[1200:]), out[1])),
    "half of a row": ("reduce_sum", lambda p, y, x: x[:, :750].sum(-1)),
    "rows beyond 2^16": ("embedding", lambda p, y, **inputs: np.where(
        inputs["indices"][:, None] >= 1 << 16, 0, y).astype(y.dtype)),
    "nothing dropped": ("dropout", lambda p, y, x: x / np.float32(1 - p["p"])),
    "half of the rows": ("mse_loss", lambda p, y, x, target: np.square(x[::2] * 0.9 - target[::2]).mean(dtype="f4")),
    "the last image": ("conv2d", lambda p, y, **inputs: _fill(y, -1, y[0])),
    "an output channel": ("conv2d", lambda p, y, **inputs: _fill(y, np.s_[:, -1])),
    "a corner": ("conv2d", lambda p, y, **inputs: _fill(y, np.s_[:, :, 30:, 30:])),
    "keys beyond 256": ("scaled_dot_product_attention", _keys_up_to(256)),
    "the last query": ("scaled_dot_product_attention", lambda p, y, **inputs: _fill(y, np.s_[:, :, -1])),
    "heads share": ("flash_attention", lambda p, y, **inputs: _fill(y, np.s_[:, 4:], y[:, :4])),
    "early queries": ("flash_attention", lambda p, y, **inputs: _fill(y, np.s_[:64], y[64:128])),
}  # fmt: skip


def _sabotaged(op: Operator, wrong: Wrong) -> Implementation:
    def build(p: Any, **inputs: Any) -> Any:
        launch = _own(op).build(p, **inputs)

        def call() -> Any:
            found = launch()
            small = max(array.size for array in inputs.values()) <= SMALL
            return found if small else wrong(p, found, **inputs)

        return call

    return Implementation("numpy", build)


@pytest.mark.parametrize("what", SABOTAGE)
def test_what_is_wrong_at_large_sizes_only_is_wrong(what: str, numpy_cpu: Any) -> None:
    name, wrong = SABOTAGE[what]
    op, params = operator(name), _given(name)
    assert too_large(op, params)
    with pytest.raises(WrongResult) as caught:
        _check(op, params, numpy_cpu, _sabotaged(op, wrong))
    assert caught.value.verification.checked != "scaled"


def test_a_causal_attention_is_checked_by_its_queries(numpy_cpu: Any) -> None:
    op = operator("scaled_dot_product_attention")
    params = _given(op.name, causal=True, q_len=1100, kv_len=1100)
    assert _check(op, params, numpy_cpu, _own(op)).checked == "sampled"
    with pytest.raises(WrongResult):
        _check(op, params, numpy_cpu, _sabotaged(op, _late_rows_see_everything))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_type_of_16_bits_is_checked_at_its_own_size(dtype: str, torch_cpu: Any) -> None:
    op = operator("matmul")
    params = _given("matmul", dtype=dtype)
    assert _check(op, params, torch_cpu, _own(op, "torch")).checked == "sampled"

    def build(p: Any, a: Any, b: Any) -> Any:
        return lambda: torch.matmul(a[:, :150], b[:150])

    with pytest.raises(WrongResult):
        _check(op, params, torch_cpu, Implementation("torch", build))


# Gradients.


class _Broken(torch.autograd.Function):
    """The product, with gradients that a test changes."""

    change: Callable[[Any, Any], tuple[Any, Any]] = staticmethod(lambda a, b: (a, b))

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx: Any, seed: Any) -> Any:  # type: ignore[override]
        a, b = ctx.saved_tensors
        return _Broken.change(seed @ b.T, a.T @ seed)


GRADIENTS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "zeros": lambda a, b: (a, b * 0),
    "a tenth too large": lambda a, b: (a * 1.1, b),
    "the other sign": lambda a, b: (a, -b),
    "the last row": lambda a, b: (torch.cat([a[:-1], -a[-1:]]), b),
    "the last column": lambda a, b: (a, torch.cat([b[:, :-1], 0 * b[:, -1:]], 1)),
    "rows exchanged": lambda a, b: (a.flip(0), b),
    "not zero where it should be": lambda a, b: (torch.where(a == 0, 1.0, a), b),
    "not a number": lambda a, b: (a, b * float("nan")),
}


@pytest.mark.parametrize("phase", ["backward", "both"])
@pytest.mark.parametrize("what", GRADIENTS)
def test_a_gradient_that_is_wrong_at_large_sizes_is_wrong(
    what: str, phase: Phase, torch_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    op, params = operator("matmul"), _given("matmul")
    broken = Implementation("torch", lambda p, a, b: lambda: _Broken.apply(a, b))
    assert _check(op, params, torch_cpu, broken, phase).checked == "sampled"
    monkeypatch.setattr(_Broken, "change", staticmethod(GRADIENTS[what]))
    with pytest.raises(WrongResult, match="gradient of"):
        _check(op, params, torch_cpu, broken, phase)


def test_the_gradient_of_a_mean_is_checked_by_a_part_of_it(torch_cpu: Any) -> None:
    op, params = operator("mse_loss"), _given("mse_loss")
    assert _check(op, params, torch_cpu, _own(op, "torch"), "backward").checked == "sampled"

    def build(p: Any, **inputs: Any) -> Any:
        x, target = inputs.values()
        return lambda: torch.square(x - target).sum() / (x.numel() + x.shape[0])

    with pytest.raises(WrongResult, match="gradient of"):
        _check(op, params, torch_cpu, Implementation("torch", build), "backward")


# Cases that nothing can check.


def test_a_case_of_which_no_part_stands_for_the_rest_is_checked_at_a_smaller_size(numpy_cpu: Any) -> None:
    op = operator("matrix_power")
    given = op.complete({"batch": 1, "n": 1024, "power": 64})
    assert plan_sample(op, {**given, "n": 4096}) is None
    calls: list[int] = []

    def build(p: Any, **inputs: Any) -> Any:
        calls.append(p["n"])
        return _own(op).build(p, **inputs)

    found = _check(op, {**given, "n": 4096}, numpy_cpu, Implementation("numpy", build))
    assert found.checked == "scaled"
    assert found.params is not None
    assert calls == [found.params["n"]]
    assert "too long" in found.note


# Plans.


def test_chosen_positions_have_the_ends_and_the_borders_of_tiles() -> None:
    generator = np.random.default_rng(0)
    for n in (300, 1000, 4096, 65_537):
        chosen = choose_positions(n, 64, generator)
        assert len(chosen) == len(set(chosen)) == 64
        assert sorted(chosen) == list(chosen)
        last_tile = (n - 1) // 128 * 128
        assert {0, 1, n - 2, n - 1, last_tile, last_tile - 1} <= set(chosen.tolist())
        assert 20 <= sum((chosen > n // 10) & (chosen < n * 9 // 10)) <= 64


def test_chosen_positions_differ_from_time_to_time() -> None:
    plan = plan_sample(operator("matmul"), _given("matmul"))
    assert plan is not None
    first, second = (plan.draw(_given("matmul")).chosen for _ in range(2))
    assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_few_positions_are_the_ends() -> None:
    generator = np.random.default_rng(0)
    assert choose_positions(1000, 1, generator).tolist() == [999]
    assert 999 in choose_positions(1000, 2, generator).tolist()
    assert choose_positions(3, 7, generator).tolist() == [0, 1, 2]


def test_every_typical_case_is_checked_at_its_own_size() -> None:
    unchecked = []
    for op in catalogue().values():
        if op.ranks or "typical" not in op.presets:
            continue
        params = op.complete(op.preset("typical"))
        if too_large(op, params) and plan_sample(op, params) is None:
            unchecked.append(op.name)
        names = op.gradients_of(params)
        if names and not op.observe_gradients and too_large(op, params, 16 * len(names)):
            plan = plan_gradient_sample(op, params, names)
            unchecked += [f"{op.name} backward"] if plan is None else []
    assert unchecked == []


def test_the_worst_element_of_a_part_is_named_by_its_place_in_the_output() -> None:
    part = {0: np.array([0, 5, 8191]), 1: np.array([3, 4095])}
    found, due = np.ones((3, 2)), np.ones((3, 2))
    found[2, 1] = 0.0
    with pytest.raises(WrongResult, match=r"1 of 6 elements that were sampled .* worst at \[8191, 4095\]"):
        compare_arrays([found], [due], 1e-5, positions=[part])
    found[2, 1] = np.nan
    with pytest.raises(WrongResult, match=r"first at \[8191, 4095\]"):
        compare_arrays([found], [due], 1e-5, positions=[part])
