"""Models in a worker: what is verified, what is refused, and what every framework makes of the same model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from opmark.errors import WrongResult  # noqa: E402
from opmark.frameworks.torch.backend import TorchBackend  # noqa: E402
from opmark.models import execution  # noqa: E402
from opmark.models.family import MODELS, source_of  # noqa: E402
from opmark.models.operator import model_operator  # noqa: E402
from opmark.models.zoo.entry import ZooModel  # noqa: E402
from opmark.models.zoo_source import ZooSource  # noqa: E402
from opmark.plugin import Implementation, Operator  # noqa: E402
from opmark.plugin.registry import backend  # noqa: E402
from opmark.schema import Case, Record, Task, TensorSpec  # noqa: E402
from opmark.schema.task import EFFORTS, Settings  # noqa: E402
from opmark.worker import task_runner  # noqa: E402
from opmark.worker.task_runner import TaskRunner  # noqa: E402

SETTINGS = Settings(threads=1, effort="quick", sampling=EFFORTS["quick"], compile_only=True)
TINY = ZooModel(
    name="tiny",
    domain="cv",
    purpose="structure",
    summary="a convolution, a normalisation and a product",
    build="structures:none",
    inputs=lambda p, _: {"x": TensorSpec((p["batch"], 3, p["image"], p["image"]), str(p["dtype"]))},
    parameters=0,
    full={},
    small={},
    sizes={"full": {"image": 16}, "small": {"image": 8}},
)


class TinySource(ZooSource):
    """A model of this test: whatever `change` makes of its module."""

    def __init__(self, change: Callable[[Any], Any] = lambda module: module) -> None:
        super().__init__(TINY)
        self._change = change

    def construct(self, params: Any) -> Any:
        layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.GELU(), torch.nn.Flatten(1)]
        return torch.nn.Sequential(*layers, torch.nn.Linear(8 * (params["image"] - 2) ** 2, 10))

    def module(self, params: Any) -> Any:
        return self._change(super().module(params))

    def stamp(self, params: Any) -> str:
        return f"{id(self)}"  # nothing of one test is kept for another


@pytest.fixture(autouse=True)
def own_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The backend switches gradients off for the whole process, and what is found out about a model is kept on disk."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = torch.is_grad_enabled()
    yield
    torch.set_grad_enabled(before)


def run(source: ZooSource, monkeypatch: pytest.MonkeyPatch, implementation: Any = None, **params: Any) -> Record:
    operator = model_operator(source)
    if implementation is not None:
        operator = dataclasses.replace(operator, implementations=(Implementation("torch", implementation),))
    monkeypatch.setattr(task_runner, "find_operator", lambda name: operator)
    info = backend("torch-cpu")
    given = operator.complete({**operator.preset("small"), **params})
    task = Task(Case.of(operator.name, given, "forward"), info.name, "torch", SETTINGS)
    return TaskRunner(info, TorchBackend(info, 1)).run(task)


def test_a_model_of_the_zoo_is_found_by_name_alias_and_pattern() -> None:
    assert source_of("clip") is not None
    assert MODELS.names("model:resnet-1*") == ["model:resnet-18", "model:resnet-101", "model:resnet-152"]
    assert MODELS.names("matmul") is None
    assert MODELS.operator("matmul") is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_a_right_model_is_verified_in_full(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record = run(TinySource(), monkeypatch, batch=3, dtype=dtype)
    assert (record.status, record.reason) == ("ok", "")
    assert record.verification is not None
    assert record.verification.checked == "full"
    assert len(record.verification.bounds) == 1
    (numbers,) = record.verification.numerics
    assert numbers.max_abs is not None
    assert numbers.rms is not None
    assert numbers.max_abs <= record.verification.bounds[0] * numbers.rms


def test_rounding_to_float64_adds_up_as_that_to_float32_does() -> None:
    """Nothing wider shows it. Another order of summation is off by more than one rounding of the result."""
    source = TinySource()
    given = model_operator(source).complete(model_operator(source).preset("small"))
    narrow, wide = (execution.effects(source, {**given, "dtype": dtype}) for dtype in ("float32", "float64"))
    assert wide[0] == pytest.approx([effect * 2.0**-29 for effect in narrow[0]])
    assert wide[0][0] > 2.0**-53
    assert wide[1] == pytest.approx(narrow[1])


def test_bfloat16_does_not_pass_for_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that computes in a coarser type than the case says is outside of the bound of that type."""
    source = TinySource()

    def build(params: Any, x: Any) -> Any:
        module = execution.converted(execution.original(source, params), torch.bfloat16)
        return lambda: module(x.bfloat16()).float()

    record = run(source, monkeypatch, build)
    assert record.status == "wrong"
    assert "are off by more than" in record.reason


def test_another_activation_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tanh approximation of GELU differs by no more than 0.1 % of an activation."""
    source = TinySource()

    def build(params: Any, x: Any) -> Any:
        module = execution.converted(execution.original(source, params), torch.float32)
        module[2] = torch.nn.GELU("tanh")
        return lambda: module(x)

    assert run(source, monkeypatch, build).status == "wrong"


def test_an_output_that_depends_on_its_batch_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    source = TinySource()

    def build(params: Any, x: Any) -> Any:
        module = execution.original(source, params)
        return lambda: module(x - 0.01 * x.mean(0, keepdim=True))

    assert run(source, monkeypatch, build, batch=4).status == "wrong"


def test_rows_in_another_order_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    source = TinySource()

    def build(params: Any, x: Any) -> Any:
        module = execution.original(source, params)
        return lambda: module(x).flip(0)

    assert run(source, monkeypatch, build, batch=2).status == "wrong"


def test_a_reference_with_nan_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(module: Any) -> Any:
        module[0].weight.data[0] = float("nan")
        return module

    record = run(TinySource(spoil), monkeypatch)
    assert record.status == "wrong"
    assert "the reference itself has NaN or Inf" in record.reason


def test_where_rounding_moves_as_much_as_another_input_nothing_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant of 1000 hides the outputs behind it from 8 bits of a fraction."""

    class Shifted(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return self.inner(x) + 1000

    source = TinySource(Shifted)
    monkeypatch.setattr(source, "construct", lambda params: Shifted(TinySource().construct(params)))
    record = run(source, monkeypatch, dtype="bfloat16")
    assert record.status == "unchecked"
    assert "cannot tell right from wrong" in record.reason


def test_the_reference_takes_each_sample_alone() -> None:
    source, x = TinySource(), np.random.default_rng(0).uniform(-1, 1, (3, 3, 8, 8))
    params = {"size": "small", "batch": 3, "image": 8, "dtype": "float32"}
    (whole,) = execution.reference(source, params, x=x)
    for i in range(3):
        (alone,) = execution.reference(source, {**params, "batch": 1}, x=x[i : i + 1])
        assert np.array_equal(whole[i : i + 1], alone)
    with pytest.raises(WrongResult, match="NaN or Inf"):
        execution.reference(source, params, x=np.full_like(x, np.nan))


def test_layers_are_outputs_in_the_order_in_which_they_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    record = run(TinySource(), monkeypatch, outputs="layers")
    assert record.status == "ok"
    assert record.verification is not None
    assert record.verification.outputs == ("0", "1", "2", "3", "4", "output")
    assert len(record.verification.numerics) == len(record.verification.bounds) == 6


def test_the_cost_counts_products_and_weights() -> None:
    operator: Operator = model_operator(TinySource())
    params = operator.complete({**operator.preset("small"), "batch": 2})
    weights = (3 * 9 + 1) * 8 + 2 * 8 + (8 * 36 + 1) * 10
    cost = operator.cost(params)
    assert cost.flops == 2 * 2 * (36 * 8 * 27 + 10 * 8 * 36)
    assert cost.bytes_read == 4 * (weights + 2 * 3 * 64)
    assert cost.bytes_written == 4 * 2 * 10
    assert operator.held(params) == 4 * weights
