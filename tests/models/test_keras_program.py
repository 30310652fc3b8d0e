"""Weights of torch's networks in Keras's layers, without Keras; and which models TensorFlow has."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opmark.errors import UserError
from opmark.models.keras_program import NETWORK, copy_weights, to_keras_layout, torch_name
from opmark.models.zoo import zoo
from opmark.runner.guests import environments
from opmark.runner.plan import make_plan
from opmark.runner.selection import select_cases
from opmark.schema.options import Selection
from opmark.schema.task import EFFORTS, Settings

SETTINGS = Settings(threads=1, effort="quick", sampling=EFFORTS["quick"])


class FakeVariable:
    """A variable as Keras has them, as far as weights are copied into it."""

    def __init__(self, name: str, *shape: int) -> None:
        self.name, self.path, self.shape, self.dtype = name, f"layer/{name}", shape, "float16"
        self.value: Any = None

    def assign(self, value: Any) -> None:
        self.value = value


def layer(name: str, *variables: FakeVariable) -> Any:
    return SimpleNamespace(name=name, _trainable_variables=list(variables), _non_trainable_variables=[])


def weights(**shapes: tuple[int, ...]) -> dict[str, Any]:
    return {
        name.replace("__", "."): np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        for name, shape in shapes.items()
    }


def test_each_variable_gets_its_weight_in_its_layout_and_type() -> None:
    kernel, bias, filters = FakeVariable("kernel", 3, 2), FakeVariable("bias", 2), FakeVariable("kernel", 5, 5, 3, 4)
    given = weights(a__weight=(2, 3), a__bias=(2,), b__weight=(4, 3, 5, 5))
    copy_weights([layer("a", kernel, bias), layer("b", filters)], given)
    assert (kernel.value == given["a.weight"].T).all()
    assert kernel.value.dtype == np.float16
    assert (bias.value == given["a.bias"]).all()
    assert filters.value[1, 2, 0, 3] == given["b.weight"][3, 0, 1, 2]


@pytest.mark.parametrize(
    ("variable", "expected"),
    [("kernel", "a.weight"), ("gamma", "a.weight"), ("beta", "a.bias"), ("moving_variance", "a.running_var")],
)
def test_a_variable_is_found_by_the_name_of_its_layer(variable: str, expected: str) -> None:
    assert torch_name("a", variable) == expected


def test_a_parameter_of_the_network_itself_has_no_module() -> None:
    assert torch_name(NETWORK, "wide_bias") == "wide_bias"


def test_an_embedding_stays_as_it_is() -> None:
    table = np.arange(6).reshape(2, 3)
    assert to_keras_layout("embeddings", table) is table


def test_a_weight_that_no_layer_takes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no layer takes the weights a\.bias"):
        copy_weights([layer("a", FakeVariable("kernel", 3, 2))], weights(a__weight=(2, 3), a__bias=(2,)))


def test_a_weight_is_not_used_twice() -> None:
    twice = [layer("a", FakeVariable("bias", 2)), layer("a", FakeVariable("bias", 2))]
    with pytest.raises(ValueError, match=r"no weight `a\.bias` is left"):
        copy_weights(twice, weights(a__bias=(2,)))


def test_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected the shape \(2,\), got \(3,\)"):
        copy_weights([layer("a", FakeVariable("bias", 2))], weights(a__bias=(3,)))


# -- which models there are


def test_tensorflow_has_the_models_that_bytemlperf_has_there() -> None:
    in_keras = {model.name for model in zoo().values() if model.keras}
    assert in_keras == {model.name for model in zoo().values() if "tensorflow" in model.frameworks}
    assert len(in_keras) == 4


@pytest.mark.parametrize(
    ("model", "frameworks"), [("albert", "torch, onnx, jax"), ("roformer", "torch, onnx, jax, tensorflow")]
)
def test_a_framework_that_has_no_such_model_says_which_have(model: str, frameworks: str) -> None:
    cases = select_cases(Selection(f"model:{model}", size="small")).cases
    plan = make_plan(cases, ["numpy-cpu", "torch-cpu"], [SETTINGS])
    expected = f"`model:{model}` has no implementation for numpy; it has some for {frameworks}"
    assert [record.reason for record in plan.skipped] == [expected]


def test_without_an_environment_the_reason_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(environments.VARIABLE, str(tmp_path))
    cases = select_cases(Selection("model:bert-base", size="small")).cases
    with pytest.raises(UserError, match="opmark env create tensorflow"):
        make_plan(cases, ["tensorflow-cpu"], [SETTINGS])
