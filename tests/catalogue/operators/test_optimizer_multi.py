"""Update steps of many tensors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators._optimizer import require_fused
from opmark.catalogue.operators.optimizer_multi import OPERATORS
from opmark.errors import Unsupported
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

BY_NAME = {op.name: op for op in OPERATORS}
UPDATES = [op for op in OPERATORS if op.name != "multi_lars"]
every_update = pytest.mark.parametrize("op", UPDATES, ids=lambda op: op.name)


@every_update
def test_many_tensors_cost_as_much_as_one_of_their_size(op: Operator) -> None:
    single = operator(op.name.removeprefix("multi_"))
    of_one = single.cost(single.complete({"shape": [15, 4]}))
    of_many = op.cost(op.complete({"count": 5, "shape": [3, 4]}))
    assert (of_many.bytes_read, of_many.bytes_written) == (of_one.bytes_read, of_one.bytes_written)


@every_update
def test_many_tensors_are_updated_as_each_alone(op: Operator, torch_cpu: Any) -> None:
    """The generic tests check the implementations; this one checks the reference, which could mix tensors up."""
    single = operator(op.name.removeprefix("multi_"))
    params, alone = op.complete({"count": 3, "shape": [4, 2]}), single.complete({"shape": [4, 2]})
    inputs = {n: torch_cpu.to_numpy(torch_cpu.tensor(s, i)) for i, (n, s) in enumerate(op.inputs(params).items())}
    found = as_tuple(op.reference(params, **inputs))
    for i in range(3):
        expected = as_tuple(single.reference(alone, **{name: array[i] for name, array in inputs.items()}))
        for stacked, value in zip(found, expected, strict=True):
            np.testing.assert_allclose(stacked[i], value, rtol=1e-12)


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("name", ["multi_sgd_update", "multi_adam_update", "multi_adamw_update"])
def test_a_loop_foreach_and_a_fused_kernel_are_neighbours(name: str) -> None:
    assert [i.label for i in BY_NAME[name].implementations_for("torch")] == ["loop", "foreach", "fused"]


def test_where_torch_has_no_fused_kernel_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("`fused=True` requires supported devices\nand more")

    monkeypatch.setattr(torch.optim, "SGD", refuse)
    with pytest.raises(Unsupported, match=r"no fused SGD for torch.float32 on cpu: `fused=True` requires"):
        require_fused("SGD", torch.zeros(1))


def test_a_fused_kernel_that_does_nothing_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.optim, "SGD", lambda *_, **__: SimpleNamespace(step=lambda: None))
    with pytest.raises(Unsupported, match="does not change weights"):
        require_fused("SGD", torch.zeros(1))


def test_layer_wise_rates_by_hand() -> None:
    op = BY_NAME["multi_lars"]
    params = op.complete({"count": 3, "eta": 0.5, "eps": 1.0, "rescale_grad": 2.0})
    inputs = {"lrs": [0.1, 0.2, 0.3], "weights_sum_sq": [9, 0, 4], "grads_sum_sq": [16, 4, 0], "wds": [0.2, 0.2, 0.2]}
    found = op.reference(params, **{name: np.array(values, float) for name, values in inputs.items()})
    # 0.1 x 0.5 x 3 / (4 x 2 + 0.2 x 3 + 1); without a norm the rate stays.
    np.testing.assert_allclose(found, [0.15 / 9.6, 0.2, 0.3])
    assert op.cost(params) == Cost(27, 48, 12)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("preloaded_multi_sgd_update", "multi_sgd_update"),
        ("preloaded_multi_mp_sgd_mom_update", "multi_mp_sgd_mom_update"),
    ],
)
def test_preloaded_rates_are_the_same_step(alias: str, name: str) -> None:
    assert operator(alias).name == name
