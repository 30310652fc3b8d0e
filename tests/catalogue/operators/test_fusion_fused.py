"""Fused patterns, and how their chains are launched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators import _fusion, dropout, fusion
from opmark.errors import InvalidParameter, Unsupported, WrongResult
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import EFFORTS, PHASES, Case, Cost, Settings, Task
from opmark.worker.verify.outputs import verify

OPERATORS = (*fusion.OPERATORS, *fusion.FUSED_CONV_OPERATORS, *dropout.FUSED_DROPOUT_OPERATORS)
BY_NAME = {op.name: op for op in OPERATORS}
every_operator = pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)

COSTS = [
    # 2 x 3 results of 4 products, a sum each; x, weight and bias in.
    ("linear_relu", {"M": 2, "N": 3, "K": 4}, Cost(6 * 9, (8 + 12 + 3) * 4, 24)),
    ("linear_gelu", {"M": 2, "N": 3, "K": 4}, Cost(6 * 14, (8 + 12 + 3) * 4, 24)),
    ("linear_add", {"M": 2, "N": 3, "K": 4, "dtype": "float16"}, Cost(6 * 9, (8 + 12 + 6) * 2, 12)),
    ("add_layer_norm", {"shape": [3, 4]}, Cost(96, (24 + 8) * 4, 48)),
    # Two products of 5 x 5 x 2, for 6 heads.
    ("matmul_softmax_matmul", {"batch": 2, "heads": 3, "length": 5, "head_dim": 2}, Cost(6 * 200, 720, 240)),
]


@pytest.mark.parametrize(("name", "given", "expected"), COSTS)
def test_cost_by_hand(name: str, given: dict[str, Any], expected: Cost) -> None:
    op = BY_NAME[name]
    assert op.cost(op.complete(given)) == expected


BACKWARD_COSTS = [
    # Two products and a sum; x, weight, the incoming gradient and the input of the activation in, three gradients out.
    ("linear_relu", {"M": 2, "N": 3, "K": 4}, Cost(6 * 17, (8 + 12 + 12) * 4, (8 + 12 + 3) * 4)),
    ("linear_gelu", {"M": 2, "N": 3, "K": 4}, Cost(6 * 26, (8 + 12 + 12) * 4, (8 + 12 + 3) * 4)),
    ("linear_add", {"M": 2, "N": 3, "K": 4, "dtype": "float16"}, Cost(6 * 16, (8 + 12 + 6) * 2, (8 + 12) * 2)),
    ("add_layer_norm", {"shape": [3, 4]}, Cost(144, (24 + 4) * 4, (12 + 8) * 4)),
    # Five products of 5 x 5 x 2, for 6 heads.
    ("matmul_softmax_matmul", {"batch": 2, "heads": 3, "length": 5, "head_dim": 2}, Cost(6 * 500, 1200, 720)),
    # A bool per element says what was dropped.
    ("softmax_dropout", {"shape": [3, 4]}, Cost(60, 96 + 12, 48)),
    ("bias_dropout_add", {"shape": [3, 4]}, Cost(24, 48 + 12, 48 + 16)),
]


@pytest.mark.parametrize(("name", "given", "expected"), BACKWARD_COSTS)
def test_backward_cost_by_hand(name: str, given: dict[str, Any], expected: Cost) -> None:
    op = BY_NAME[name]
    assert op.phase_cost(op.complete(given), "backward") == expected


@every_operator
def test_every_fused_operator_has_all_phases(op: Operator) -> None:
    params = op.complete(op.preset("small"))
    assert [op.why_no_phase(params, phase) for phase in PHASES] == [None] * len(PHASES)
    assert all(op.phase_cost(params, phase) for phase in PHASES)


@pytest.mark.parametrize("phase", ["backward", "both"])
@pytest.mark.parametrize("seed", range(4))
def test_a_kink_behind_a_product_does_not_spoil_the_check_of_gradients(phase: Any, seed: int, torch_cpu: Any) -> None:
    """Of 65,536 outputs, some are so close to zero that the check itself moves them to the other side."""
    op = BY_NAME["linear_relu"]
    params = op.complete({"M": 256, "N": 256, "K": 24})
    unfused = op.implementations_for("torch")[0]
    task = Task(Case.of(op.name, params, phase), "torch-cpu", "unfused", Settings(1, "quick", EFFORTS["quick"], seed))
    assert verify(task, op, unfused, torch_cpu).checked == "full"
    with pytest.raises(WrongResult, match="gradient of"):
        verify(task, replace(op, smooth=None), unfused, torch_cpu)


@every_operator
def test_the_chain_and_the_compiled_chain_are_neighbours(op: Operator) -> None:
    labels = [i.label for i in op.implementations_for("torch")]
    assert labels in (["unfused", "fused", "compiled"], ["unfused", "folded", "compiled"], ["unfused", "compiled"])


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_the_reference_of_linear_gelu_is_that_of_torch(approximate: str) -> None:
    generator = np.random.default_rng(0)
    x, weight, bias = (torch.from_numpy(generator.uniform(-2, 2, size)) for size in ((4, 3), (5, 3), (5,)))
    expected = torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias), approximate=approximate)
    params = BY_NAME["linear_gelu"].complete({"M": 4, "N": 5, "K": 3, "approximate": approximate})
    found = BY_NAME["linear_gelu"].reference(params, x=x.numpy(), weight=weight.numpy(), bias=bias.numpy())
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def chain(p: Any) -> Any:
    return lambda x: x + p["more"]


def test_each_build_is_compiled_as_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile gives up after a few shapes of the same code."""
    seen: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda function, **_: seen.append(function) or function)
    build = _fusion.compiled(chain).build
    launches = [build({"more": more}, x=torch.ones(2)) for more in (1, 2)]
    assert [launch().tolist() for launch in launches] == [[2, 2], [3, 3]]
    assert seen[0].__code__ is not seen[1].__code__


def test_what_cannot_be_compiled_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("no C++ compiler\nand a long trace")

    monkeypatch.setattr(torch, "compile", lambda function, **_: refuse)
    with pytest.raises(Unsupported, match=r"torch.compile fails here: no C\+\+ compiler$"):
        _fusion.compiled(chain).build({"more": 1}, x=torch.ones(2))


def test_a_kernel_that_a_device_lacks_is_skipped_with_the_reason() -> None:
    def native(p: Any, x: Any) -> Any:
        def launch() -> None:
            raise RuntimeError("no engine")

        return launch

    with pytest.raises(Unsupported, match="no fused kernel for float64 on cpu: no engine"):
        _fusion.fused(native).build({"dtype": "float64"}, x=torch.ones(2))


@pytest.mark.parametrize("implementation", [_fusion.compiled(chain), _fusion.fused(lambda p, x: lambda: chain(p)(x))])
def test_too_little_memory_is_not_called_a_missing_kernel(implementation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(self: Any, other: Any) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(torch.Tensor, "__add__", exhausted)
    with pytest.raises(torch.OutOfMemoryError):
        implementation.build({"more": 1, "dtype": "float32"}, x=torch.ones(2))


def test_a_device_without_such_a_kernel_is_named() -> None:
    with pytest.raises(Unsupported, match="no fused thing on meta"):
        _fusion.refuse_device(torch.ones(1, device="meta"), "thing")


def test_too_short_rows_are_refused() -> None:
    op = BY_NAME["add_layer_norm"]
    with pytest.raises(InvalidParameter, match="parameter `shape` must have at least 4"):
        op.check_rules(op.complete({"shape": [8, 3]}))


def test_the_only_fused_benchmark_of_opperf_is_found() -> None:
    assert operator("fc_sum").name == "linear_add"
