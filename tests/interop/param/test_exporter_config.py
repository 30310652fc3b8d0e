"""Cases as a config of PARAM, and back: the same cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.api.export import export_workload
from opmark.interop.param.config_exporter import PARAM
from opmark.plugin import registry
from opmark.runner.workload_source import read_source
from opmark.schema import Case

GENERATOR = "PyTorch:DefaultDataGenerator"


def case(
    op: str, *args: Any, phase: Any = "forward", wrt: tuple[str, ...] = (), build: Any = None, **kwargs: Any
) -> Case:
    return Case.of(op, {"args": list(args), "kwargs": kwargs, "build": build}, phase, wrt=wrt)


def write_case(*cases: Case) -> tuple[dict[str, Any], list[str]]:
    files, lines = PARAM.files("x", cases)
    assert list(files) == ["x.json"]
    return json.loads(files["x.json"]), list(lines)


def cases_of(data: Any, phases: tuple[str, ...] = ()) -> list[Case]:
    taken = read_source(data, phases=phases)
    assert taken.problems == ()
    return list(taken.cases)


def test_it_is_registered_by_an_entry_point() -> None:
    assert registry.workload_exporters()["param"] is PARAM


def test_a_config_by_hand() -> None:
    data, lines = write_case(case("torch.add", "8x64 float32 0..1", "8 int64", 2, alpha=0.5))
    assert lines == []
    assert data == {
        "torch.add": {
            "input_data_generator": GENERATOR,
            "config": [
                {
                    "input": [
                        {
                            "args": [
                                {"type": "tensor", "dtype": "float", "shape": [8, 64]},
                                {"type": "tensor", "dtype": "long", "shape": [8], "requires_grad": False},
                                {"type": "int", "value": 2},
                            ],
                            "kwargs": {"alpha": {"type": "float", "value": 0.5}},
                        }
                    ]
                }
            ],
        }
    }


def test_neighbours_that_are_built_alike_share_a_config() -> None:
    made = [case("torch.nn.Linear", f"{n}x8 float32 0..1", build={"args": [8, out]}) for out in (1, 2) for n in (3, 4)]
    data, _ = write_case(*made)
    configs = data["torch.nn.Linear"]["config"]
    assert [[arg["value"] for arg in config["build"][0]["args"]] for config in configs] == [[8, 1], [8, 2]]
    assert [len(config["input"]) for config in configs] == [2, 2]


def test_another_phase_is_an_option_and_no_other_input() -> None:
    data, lines = write_case(
        case("torch.add", "4 float32 0..1", 1), case("torch.add", "4 float32 0..1", 1, phase="backward")
    )
    assert len(data["torch.add"]["config"][0]["input"]) == 1
    assert any("-b" in line for line in lines)


def test_domains_and_names_unknown_to_param_are_noted() -> None:
    data, lines = write_case(case("torch.softmax", "4 float32", -1))
    assert data["torch.softmax"]["config"][0]["input"][0]["args"][0]["low"] == -1
    assert any("`low`" in line for line in lines)
    assert any("torch.softmax" in line for line in lines)


@pytest.mark.parametrize(
    ("unsaid", "reason"),
    [
        (case("torch.sum", "4 float32", dtype={"dtype": "float64"}), "`kwargs.dtype` is an element type"),
        (case("torch.f", {"a": 1}), "`args.0` is a mapping"),
        (case("torch.f", "4 complex64"), "`args.0` is of complex64"),
        (case("numpy.add", "4 float32", 1), "PARAM calls only torch"),
        (case("aten::add.Tensor", "4 float32", "4 float32"), "schema"),
        (Case.of("softmax", {"shape": [4], "dim": -1}, "forward"), "catalogue"),
    ],
)
def test_a_case_that_param_cannot_express(unsaid: Case, reason: str) -> None:
    data, lines = write_case(unsaid, case("torch.add", "4 float32 0..1", 1))
    assert list(data) == ["torch.add"]
    assert len(lines) == 1
    assert lines[0].startswith(f"{unsaid.op}: ")
    assert reason in lines[0]


def argument() -> st.SearchStrategy[dict[str, Any]]:
    whole = st.integers(-(2**63), 2**63 - 1)
    real = st.floats(allow_nan=False, allow_infinity=False)
    dtype = st.sampled_from(
        ["float", "double", "float16", "bfloat16", "int", "long", "int16", "int8", "uint8", "bool", "half", "int64"]
    )
    tensor = st.fixed_dictionaries(
        {"type": st.just("tensor"), "dtype": dtype, "shape": st.lists(st.integers(0, 2**40), max_size=4)},
        optional={"requires_grad": st.booleans(), "name": st.text(max_size=3)},
    )
    bounded = st.builds(
        lambda spec, low, width: {**spec, "low": low, "high": low + width},
        tensor, st.integers(-(10**6), 10**6), st.integers(1, 10**6),
    )  # fmt: skip
    text = st.text(max_size=8) | st.sampled_from(["8x64 float32", "{M}", "cpu", "a {b} c", "1x2 flaot"])
    plain = st.one_of(
        tensor,
        bounded,
        st.builds(lambda kind, value: {"type": kind, "value": value}, st.sampled_from(["int", "long"]), whole),
        st.builds(lambda kind, value: {"type": kind, "value": value}, st.sampled_from(["float", "double"]), real),
        st.builds(
            lambda low, n: {"type": "long", "value_range": [low, low + n]}, st.integers(0, 99), st.integers(0, 99)
        ),
        st.builds(lambda value: {"type": "bool", "value": value}, st.booleans()),
        st.builds(lambda kind, value: {"type": kind, "value": value}, st.sampled_from(["str", "device"]), text),
        st.just({"type": "none"}),
    )
    nested = st.sampled_from(["genericlist", "list", "tuple"])
    return st.recursive(
        plain,
        lambda inner: st.builds(
            lambda kind, items: {"type": kind, "value": items}, nested, st.lists(inner, max_size=3)
        ),
        max_leaves=4,
    )


def spec(with_tensors: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    one = argument() if with_tensors else st.builds(lambda n: {"type": "int", "value": n}, st.integers(0, 9))
    names = st.sampled_from(["alpha", "out", "dim", "value"])
    return st.fixed_dictionaries({"args": st.lists(one, max_size=3), "kwargs": st.dictionaries(names, one, max_size=2)})


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    functions = st.sampled_from(["torch.add", "torch.add_", "torch.softmax", "torch.Tensor.mul_", "torch.selu_"])
    classes = st.sampled_from(["torch.nn.Linear", "pytorch.model.alex_net", "pytorch.model.resnet"])
    data: dict[str, Any] = {}
    for name in draw(st.lists(functions | classes, min_size=1, max_size=3, unique=True)):
        configs = draw(
            st.lists(st.fixed_dictionaries({"input": st.lists(spec(), min_size=1, max_size=3)}), min_size=1, max_size=2)
        )
        if not name.endswith("_") and name[:9] not in ("torch.add", "torch.sof"):
            for config in configs:
                config["build"] = draw(st.lists(spec(with_tensors=False), max_size=2))
        data[name] = {"input_data_generator": GENERATOR, "config": configs}
    return data


@settings(deadline=None, max_examples=40)
@given(documents(), st.sampled_from([("backward",), ("forward", "backward")]))
def test_there_and_back_again(data: dict[str, Any], phases: tuple[str, ...]) -> None:
    """Backward cases with different gradients are different cases."""
    once = cases_of(data, phases)
    files, _ = PARAM.files("x", once)
    again = cases_of(json.loads(files["x.json"]), phases)
    assert {case.id for case in again} == {case.id for case in once}


@settings(deadline=None, max_examples=40)
@given(documents())
def test_a_file_exported_says_the_same_with_the_same_gradients(data: dict[str, Any]) -> None:
    """Only a backward case has gradients; the file itself requests no backward pass."""
    files, _ = export_workload(data, format="param")
    again = [case.id for case in cases_of(json.loads(files["config.json"]), ("backward",))]
    assert sorted(again) == sorted({case.id for case in cases_of(data, ("backward",))})


@pytest.mark.parametrize("choices", [[True, False], [False, True]])
def test_inputs_that_differ_in_their_gradients_alone_are_two(choices: list[bool]) -> None:
    def tensor(**more: Any) -> dict[str, Any]:
        return {"type": "tensor", "dtype": "float", "shape": [8], **more}

    inputs = [{"args": [tensor(), tensor() if wants else tensor(requires_grad=False)]} for wants in choices]
    data = {"torch.add": {"input_data_generator": GENERATOR, "config": [{"input": inputs}]}}
    files, _ = export_workload(data, format="param")
    assert json.loads(files["config.json"]) == data


def test_a_second_round_trip_changes_nothing_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    spec = {"args": [{"type": "tensor", "dtype": "float", "shape": [[1, 3], 2], "__range__": ["shape"]}]}
    path.write_text(json.dumps({"torch.f": {"input_iterator": "RangeConfigIterator", "config": [{"input": [spec]}]}}))
    once, _ = PARAM.files("x", read_source(path).cases)
    path.write_text(once["x.json"])
    assert PARAM.files("x", read_source(path).cases)[0] == once


@pytest.mark.parametrize("weighted", [False, True])
def test_embedding_tables_there_and_back(weighted: bool) -> None:
    from opmark.plugin.registry import operator

    sizes = {"rows": 9, "dim": 8, "bags": 4, "pooling": 3, "dtype": "bfloat16", "mode": "sum"}
    if weighted:
        made = [Case.of("embedding_bag", operator("embedding_bag").complete({**sizes, "weighted": True}), "forward")]
    else:
        op = operator("batched_embedding_bag")
        made = [Case.of(op.name, op.complete({**sizes, "tables": n}), "forward") for n in (1, 3)]
    data, lines = write_case(*made)
    assert lines == []
    assert [found.id for found in cases_of(data)] == [found.id for found in made]


def test_tables_of_different_sizes_there_and_back() -> None:
    sizes = {"rows": [7, 9], "dims": [8, 4], "bags": 2, "pooling": [3, 5], "weighted": True}
    made = Case.of("split_embedding_bag", registry.operator("split_embedding_bag").complete(sizes), "forward")
    config, lines = write_case(made)
    assert lines == []
    (found,) = read_source(config, seed=0).cases
    assert (found.op, found.params) == (made.op, made.params)


def test_a_module_in_eval_mode_is_said_to_be_lost() -> None:
    def lines(build: Any) -> list[str]:
        params = {"args": ["4 float32 0..1"], "kwargs": {}, "build": build}
        return write_case(Case.of("torch.nn.ReLU", params, "forward"))[1]

    assert lines({}) == lines(None) == ["modules in eval() mode: PARAM runs all modules in training mode"]
    assert lines({"train": True}) == []


def test_indices_that_belong_together_come_back() -> None:
    args = ["512 int64 0..1000 zipf 1.2", "64 int64 0..512 offsets", "9 int64 permutation"]
    config, lines = write_case(Case.of("torch.f", {"args": args, "kwargs": {}, "build": None}, "forward"))
    written = config["torch.f"]["config"][0]["input"][0]["args"]
    assert [arg.get("values") for arg in written] == ["zipf", "offsets", "permutation"]
    assert any("which PARAM does not read" in line for line in lines)
    assert read_source(config, seed=0).workload.cases[0].args == args
