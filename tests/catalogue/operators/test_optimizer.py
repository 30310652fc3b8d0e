"""Update steps of one tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators.optimizer import OPERATORS
from opmark.errors import InvalidParameter, Unsupported
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

BY_NAME = {op.name: op for op in OPERATORS}
every_operator = pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)

COSTS = [
    # 12 elements of 4 bytes: weight and gradient in, weight out.
    ("sgd_update", "float32", Cost(5 * 12, 96, 48)),
    # Besides, the momentum in and out.
    ("sgd_mom_update", "float32", Cost(7 * 12, 144, 96)),
    ("signsgd_update", "float64", Cost(3 * 12, 192, 96)),
    # Weight, gradient and two states of 2 bytes.
    ("adam_update", "float16", Cost(15 * 12, 96, 72)),
    ("ftml_update", "float32", Cost(19 * 12, 240, 192)),
    # The gradient in 2 bytes, momentum and weight in 4: 24 + 96 in; both and the rounded weight out.
    ("mp_sgd_mom_update", "float16", Cost(7 * 12, 120, 120)),
]


@pytest.mark.parametrize(("name", "dtype", "expected"), COSTS)
def test_cost_by_hand(name: str, dtype: str, expected: Cost) -> None:
    op = BY_NAME[name]
    assert op.cost(op.complete({"shape": [3, 4], "dtype": dtype})) == expected


@every_operator
def test_the_reference_returns_what_is_changed(op: Operator) -> None:
    params = op.complete({"shape": [3]})
    arrays = {name: np.full(3, 0.5) for name in op.inputs(params)}
    found = op.reference(params, **arrays)
    written = len(op.mutates) + ("weight32" in op.mutates)
    assert len(found if isinstance(found, tuple) else (found,)) == written


STEP: dict[str, Any] = {"lr": 0.5, "wd": 0.25, "rescale_grad": 2.0, "clip_gradient": 3.0}


def step(name: str, given: dict[str, Any], **inputs: float) -> list[float]:
    op = BY_NAME[name]
    params = op.complete({"shape": [1], **given})
    found = op.reference(params, **{key: np.array([value]) for key, value in inputs.items()})
    return [float(value[0]) for value in (found if isinstance(found, tuple) else (found,))]


def test_sgd_by_hand() -> None:
    # The gradient 2 x 2 is clipped to 3; with 0.25 x 4 of the weight it is 4, half of which is taken off.
    assert step("sgd_update", STEP, weight=4, grad=2) == [2]


def test_momentum_by_hand() -> None:
    # 0.9 x 10 - 0.5 x 4 = 7.
    assert step("sgd_mom_update", STEP, weight=4, grad=2, mom=10) == [11, 7]


def test_nesterov_by_hand() -> None:
    # 7 as above, then 4 + 0.9 x 7 - 2.
    assert step("nag_mom_update", STEP, weight=4, grad=2, mom=10) == pytest.approx([8.3, 7])


def test_adam_clips_after_the_decay_as_mxnet_does() -> None:
    # 2 x 2 + 0.25 x 4 = 5, clipped to 3.
    _, mean, var = step("adam_update", STEP, weight=4, grad=2, mean=0, var=0)
    assert (mean, var) == pytest.approx((0.3, 0.009))


def test_adamw_decays_the_weight_and_not_the_gradient() -> None:
    weight, mean, _ = step("adamw_update", {**STEP, "beta2": 0.0, "eps": 0.0}, weight=4, grad=2, mean=0, var=1)
    assert mean == pytest.approx(0.3)
    assert weight == pytest.approx(4 - 0.5 * (0.3 / 3 + 0.25 * 4))


def test_a_master_weight_decides_and_the_rounded_one_follows() -> None:
    assert step("mp_sgd_update", STEP, weight32=4, grad=2) == [2, 2]


def test_ftrl_sets_small_weights_to_zero() -> None:
    weight, *_ = step("ftrl_update", {"lamda1": 5.0}, weight=0.1, grad=0.2, z=0.3, n=1)
    assert weight == 0


def test_signum_goes_by_the_sign_of_the_momentum() -> None:
    weight, mom = step("signum_update", {"lr": 0.5, "wd": 0.0, "wd_lh": 0.1}, weight=1, grad=-1, mom=2)
    assert mom == pytest.approx(0.9 * 2 + 0.1)
    assert weight == pytest.approx(0.95 + 0.5)


TORCH = {
    "adagrad_update": (torch.optim.Adagrad, {"lr": 0.3, "weight_decay": 0.1, "eps": 1e-8}),
    "adadelta_update": (torch.optim.Adadelta, {"lr": 0.3, "weight_decay": 0.1, "rho": 0.9, "eps": 1e-6}),
}


@pytest.mark.parametrize("name", TORCH)
def test_the_reference_is_the_first_step_of_torchs_optimizer(name: str) -> None:
    """Both start from states of zero."""
    kind, options = TORCH[name]
    weight = torch.linspace(-1, 1, 7, dtype=torch.float64).requires_grad_(True)
    weight.grad = torch.linspace(2, -1, 7, dtype=torch.float64)
    start = weight.detach().numpy().copy()
    kind([weight], **options).step()
    op = BY_NAME[name]
    given = {{"weight_decay": "wd"}.get(key, key): value for key, value in options.items()}
    params = op.complete({"shape": [7], **given})
    states = {state: np.zeros(7) for state in op.mutates[1:]}
    found = op.reference(params, weight=start, grad=weight.grad.numpy(), **states)[0]
    np.testing.assert_allclose(found, weight.detach().numpy(), rtol=1e-12)


@every_operator
def test_two_thousand_steps_stay_finite(op: Operator, numpy_cpu: Any) -> None:
    params = op.complete({"shape": [16]})
    inputs = {name: numpy_cpu.tensor(spec, i) for i, (name, spec) in enumerate(op.inputs(params).items())}
    (implementation,) = op.implementations_for("numpy")
    launch = implementation.build(params, **inputs)
    for _ in range(2000):
        outputs = launch()
    assert all(np.isfinite(output).all() for output in outputs)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@every_operator
def test_a_launch_changes_what_it_says_and_nothing_else(op: Operator, framework: str, request: Any) -> None:
    live = request.getfixturevalue(f"{framework}_cpu")
    params = op.complete({"shape": [3, 5], "lr": 0.5})
    inputs = {name: live.tensor(spec, i) for i, (name, spec) in enumerate(op.inputs(params).items())}
    before = {name: np.array(live.to_numpy(tensor)) for name, tensor in inputs.items()}
    op.implementations_for(framework)[0].build(params, **inputs)()
    changed = {name for name, tensor in inputs.items() if (live.to_numpy(tensor) != before[name]).any()}
    assert changed == set(op.mutates)


def test_a_weight_next_to_the_change_of_sign_is_not_judged() -> None:
    op = BY_NAME["signum_update"]
    params = op.complete({"shape": [2], "momentum": 0.5, "wd": 0.0})
    arrays = {"weight": np.zeros(2), "grad": np.array([0.5, -0.5]), "mom": np.array([0.5, 0.5])}
    due, mom = op.reference(params, **arrays)
    assert op.observe is not None
    seen, _ = op.observe(params, (due + 1, mom), **arrays)
    assert (seen == due).tolist() == [True, False]


@pytest.mark.parametrize("name", ["ftrl_update", "ftml_update"])
def test_what_divides_by_the_rate_refuses_a_rate_of_zero(name: str) -> None:
    op = BY_NAME[name]
    with pytest.raises(InvalidParameter, match="parameter `lr` must be above 0"):
        op.check_rules(op.complete({"shape": [3], "lr": 0.0}))


FUSED = {f"{name}_update" for name in ("sgd", "mp_sgd", "sgd_mom", "mp_sgd_mom", "adam", "mp_adam", "adamw", "mp_adamw",
                                       "adagrad")}  # fmt: skip


@every_operator
def test_a_plain_and_a_fused_step_are_neighbours_where_torch_has_both(op: Operator) -> None:
    labels = [implementation.label for implementation in op.implementations_for("torch")]
    assert labels == (["plain", "fused"] if op.name in FUSED else ["torch"])


FUSED_KERNELS = {"adam_update": "_fused_adam_", "adamw_update": "_fused_adamw_", "sgd_mom_update": "_fused_sgd_",
                 "adagrad_update": "_fused_adagrad_"}  # fmt: skip


@pytest.mark.parametrize("label", ["plain", "fused"])
@pytest.mark.parametrize("name", FUSED_KERNELS)
def test_only_the_fused_step_calls_the_fused_kernel(
    name: str, label: str, torch_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    op, called = BY_NAME[name], []
    params = op.complete({"shape": [4]})
    inputs = {key: torch_cpu.tensor(spec, i) for i, (key, spec) in enumerate(op.inputs(params).items())}
    (chosen,) = (i for i in op.implementations_for("torch") if i.label == label)
    launch = chosen.build(params, **inputs)
    monkeypatch.setattr(torch, FUSED_KERNELS[name], lambda *_, **__: called.append(name))
    launch()
    assert called == ([name] if label == "fused" else [])


@pytest.mark.parametrize("name", ["sgd_update", "adam_update", "adagrad_update"])
def test_where_torch_has_no_fused_step_the_reason_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("not on this device")

    for optimizer in ("SGD", "Adam", "Adagrad"):
        monkeypatch.setattr(torch.optim, optimizer, refuse)
    op = BY_NAME[name]
    tensors = {key: torch.ones(4) for key in op.inputs(op.complete({"shape": [4]}))}
    plain, fused = op.implementations_for("torch")
    plain.build(op.complete({"shape": [4]}), **tensors)
    with pytest.raises(Unsupported, match=r"torch has no fused .* on cpu: not on this device"):
        fused.build(op.complete({"shape": [4]}), **tensors)


def test_torchs_rmsprop_is_another_step() -> None:
    assert "RMSprop" not in BY_NAME["rmsprop_update"].aliases


@pytest.mark.parametrize(("alias", "name"), [("sgd", "sgd_update"), ("nag", "nag_mom_update"), ("Ftrl", "ftrl_update")])
def test_the_optimizers_own_name_finds_its_step(alias: str, name: str) -> None:
    assert operator(alias).name == name


@every_operator
def test_a_master_weight_is_for_16_bit_types_only(op: Operator) -> None:
    assert op.name.startswith("mp_") == (set(op.param("dtype").choices) == {"float16", "bfloat16"})
