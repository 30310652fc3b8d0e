"""PARAM's configs: recognised by content, every point in PARAM's order, under PARAM's id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opmark.interop.param.exporter import DEFAULT_OPTIONS
from opmark.interop.param.importer import PARAM, keep_specs
from opmark.plugin import registry
from opmark.runner.workload_source import read_source
from opmark.schema import Entry, Imported

FILE = Path("some/c.json")
GENERATOR = "PyTorch:DefaultDataGenerator"


def tensor(*shape: Any, dtype: Any = "float", **more: Any) -> dict[str, Any]:
    return {"type": "tensor", "dtype": dtype, "shape": list(shape), **more}


def whole(value: Any, **more: Any) -> dict[str, Any]:
    return {"type": "int", "value": value, **more}


def operator(*configs: Any, **more: Any) -> dict[str, Any]:
    return {"input_data_generator": GENERATOR, "config": list(configs), **more}


def ranged(*configs: Any) -> dict[str, Any]:
    return operator(*configs, build_iterator="RangeConfigIterator", input_iterator="RangeConfigIterator")


def call(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"args": list(args), **({"kwargs": kwargs} if kwargs else {})}


def read(data: Any, seed: int = 0) -> Imported:
    assert PARAM.recognises(FILE, data)
    return PARAM.read(FILE, data, seed)


def entries(data: Any, seed: int = 0) -> tuple[Entry, ...]:
    found = read(data, seed)
    assert found.problems == ()
    return found.entries


def ids(found: tuple[Entry, ...]) -> list[str]:
    return [entry.source.partition("#")[2] for entry in found]


def args_of(data: Any) -> list[Any]:
    return [entry.args for entry in entries(data)]


def test_it_is_registered_by_an_entry_point() -> None:
    assert registry.importers()["param"] is PARAM


@pytest.mark.parametrize(
    "data", [[], "x", None, {}, {"cases": []}, {"operator": "gemm", "iterations": 3}, {"a": {"b": 1}}, 5]
)
def test_other_data_is_not_recognised(data: Any) -> None:
    assert not PARAM.recognises(FILE, data)


def test_the_simplest_config() -> None:
    (entry,) = entries({"torch.add": operator({"input": [call(tensor(256, 256), tensor(256, 256))]})})
    assert entry == Entry(
        "torch.add", args=["256x256 float32 0..1", "256x256 float32 0..1"], source="c.json#torch.add|0|0|0"
    )


def test_every_config_and_input_has_its_id() -> None:
    data = {
        "torch.add": operator({"input": [call(whole(1)), call(whole(2))]}, {"input": [call(whole(3))]}),
        "torch.mul": operator({"input": [call(whole(4))]}),
    }
    found = entries(data)
    assert ids(found) == ["torch.add|0|0|0", "torch.add|0|0|1", "torch.add|1|0|0", "torch.mul|0|0|0"]
    assert [entry.args for entry in found] == [[1], [2], [3], [4]]


def test_ids_of_several_builds_do_not_accumulate() -> None:
    builds = [call(whole(4), whole(n)) for n in (1, 2, 3)]
    found = entries({"torch.nn.Linear": operator({"build": builds, "input": [call(tensor(2, 4))]})})
    assert ids(found) == [f"torch.nn.Linear|0|{n}|0" for n in range(3)]
    assert [entry.build for entry in found] == [{"args": [4, n], "train": True} for n in (1, 2, 3)]


def test_builds_and_inputs_with_ranges() -> None:
    build = call(whole(4), whole([1, 3], __range__=["value"]))
    point = call(tensor([2, 6, 4], 4, __range__=["shape"]))
    found = entries({"torch.nn.Linear": ranged({"build": [build], "input": [point]})})
    assert ids(found) == [f"torch.nn.Linear|0|0_{b}|0_{i}" for b in range(3) for i in range(2)]
    assert [(entry.build["args"][1], entry.args) for entry in found] == [  # type: ignore[call-overload,index]
        (out, [f"{rows}x4 float32 0..1"]) for out in (1, 2, 3) for rows in (2, 6)
    ]


def test_the_last_argument_changes_fastest_and_kwargs_faster_still() -> None:
    point = call(
        tensor([1, 2], [3, 5, 2], dtype=["float", "double"], __range__=["shape", "dtype"]),
        whole([7, 8], __range__=["value"]),
        alpha=whole([1, 2], __range__=["value"]),
        mode={"type": "str", "value": ["a", "b"], "__range__": ["value"]},
    )
    expected = [
        ([f"{a}x{b} {dtype} 0..1", n], {"alpha": alpha, "mode": mode})
        for dtype in ("float32", "float64")  # before the shape, as in the file
        for a in (1, 2)
        for b in (3, 5)
        for n in (7, 8)
        for alpha in (1, 2)
        for mode in ("a", "b")
    ]
    found = entries({"torch.f": ranged({"input": [point]})})
    assert [(entry.args, entry.kwargs) for entry in found] == expected
    assert ids(found) == [f"torch.f|0|0|0_{n}" for n in range(64)]


def test_each_input_spec_is_a_variant_of_its_own() -> None:
    points = [call(whole([1, 2], __range__=["value"])), call(whole(5)), call(whole([7, 9, 2], __range__=["value"]))]
    found = entries({"torch.f": ranged({"input": points})})
    assert ids(found) == [f"torch.f|0|0|{i}" for i in ("0_0", "0_1", "1_0", "2_0", "2_1")]


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ({"type": "long", "value": [10, 20, 5]}, [10, 15, 20]),
        ({"type": "int", "value": [3, 3]}, [3]),
        ({"type": "float", "value": [0, 1, 0.25]}, [0.0, 0.25, 0.5, 0.75, 1.0]),
        ({"type": "double", "value": [0.1, 0.35, 0.1]}, [0.1, 0.2, 0.3]),
        ({"type": "bool", "value": [True, False]}, [True, False]),
        ({"type": "device", "value": ["cpu", "cuda"]}, ["cpu", "cuda"]),
        ({"type": "genericlist", "value": [whole(9), whole([1, 2], __range__=["value"])]}, [[9, 1], [9, 2]]),
        ({"type": "tuple", "value": [whole([1, 2], __range__=["value"])]}, [{"tuple": [1]}, {"tuple": [2]}]),
    ],
)
def test_every_type_has_a_range(argument: dict[str, Any], values: list[Any]) -> None:
    point = call({**argument, "__range__": ["value"]})
    assert args_of({"torch.f": ranged({"input": [point]})}) == [[value] for value in values]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            call(tensor(4, requires_gard=False)),
            "`requires_gard` is not known and is ignored; did you mean `requires_grad`?",
        ),
        (call(x={"type": "tuple", "value": [whole(1, colour="red")]}), "`colour` is not known and is ignored"),
        ({**call(tensor(4)), "colour": 1}, "`colour` is not known and is ignored"),
    ],
)
def test_a_key_that_nothing_reads_is_always_said(spec: dict[str, Any], says: str) -> None:
    for file in (operator({"input": [spec]}), ranged({"input": [spec]})):
        assert any(says in note for note in read({"torch.relu": file}).notes)
    assert any("`confg`" in note for note in read({"torch.relu": operator({"input": [call()]}, confg=1)}).notes)
    plain = call(tensor(4, requires_grad=True, __about="mine"), x=whole(1))
    assert not any("not known" in note for note in read({"torch.relu": operator({"input": [plain]})}).notes)


def test_ten_steps_of_a_tenth_end_at_one() -> None:
    point = call({"type": "float", "value": [0, 1, 0.1], "__range__": ["value"]})
    assert args_of({"torch.f": ranged({"input": [point]})}) == [[n / 10] for n in range(11)]


def test_copies_follow_ranges_in_the_order_of_the_arguments() -> None:
    point = call(
        tensor([2, 3], [4, 5], __range__=["shape"]),
        tensor(-1, 7, __copy__=[{"shape": [0, [0, 1]]}]),
        tensor(-1, -1, __copy__=[{"shape": [0, [1, 0]]}, {"shape": [1, [0, 0]]}]),
        out=tensor(-1, 9, __copy__=[{"shape": [0, [0, 0]]}]),
        last=tensor(-1, __copy__=[{"shape": [0, ["out", 1]]}]),
    )
    found = entries({"torch.f": ranged({"input": [point]})})
    assert [(entry.args, entry.kwargs) for entry in found] == [
        (
            [f"{a}x{b} float32 0..1", f"{b}x7 float32 0..1", f"{b}x{a} float32 0..1"],
            {"out": f"{a}x9 float32 0..1", "last": "9 float32 0..1"},
        )
        for a in (2, 3)
        for b in (4, 5)
    ]


def test_the_dummy_iterator_calls_without_arguments() -> None:
    found = entries({"torch.f": operator({"input": []}, input_iterator="DummyConfigIterator")})
    assert (found[0].args, ids(found)) == ([], ["torch.f|0|0|0"])


def test_arguments_by_name_alone() -> None:
    (entry,) = entries({"torch.add": operator({"input": [{"kwargs": {"input": tensor(4), "other": whole(2)}}]})})
    assert (entry.args, entry.kwargs) == ([], {"input": "4 float32 0..1", "other": 2})


@pytest.mark.parametrize("name", [GENERATOR, "PyTorch::DefaultDataGenerator", None])
def test_generators_by_their_older_name_and_by_none(name: str | None) -> None:
    assert args_of({"torch.f": {"input_data_generator": name, "config": [{"input": [call(whole(1))]}]}}) == [[1]]


def test_an_empty_build_gives_no_arguments() -> None:
    for nothing in ([], None, {}, [{"args": []}]):
        (entry,) = entries({"torch.nn.ReLU": operator({"build": nothing, "input": [call(tensor(4))]})})
        assert (entry.build, entry.source) == ({"train": True}, "c.json#torch.nn.ReLU|0|0|0")
    (entry,) = entries({"torch.relu": operator({"build": [], "input": [call(tensor(4))]})})
    assert entry.build is None


def batch(**changes: Any) -> dict[str, Any]:
    spec = {"id": "2_34", **call(tensor(8, 8), whole(1))}
    return {
        "op_name": "torch.add",
        "config_build_id": "1|2",
        "op_info": operator({"build": None, "input": [spec, call(whole(1))]}, input_iterator="RangeConfigIterator"),
        "run_options": {"device": "cuda", "pass_type": "forward", "warmup": 3, "iteration": 7},
        **changes,
    }


def test_a_batch_file_keeps_the_ids_of_its_inputs() -> None:
    found = read(batch())
    assert found.problems == ()
    assert ids(found.entries) == ["torch.add|1|2|2_34", "torch.add|1|2|1"]
    assert found.asked == {"warmup": 3, "samples": 7}
    assert found.entries[0].phases == ["forward"]


def test_an_id_twice_in_a_batch_file_is_a_problem_with_its_place() -> None:
    first, second = ({"id": "0", **call(tensor(n, n))} for n in (4, 512))
    found = read(batch(op_info=operator({"input": [first, second, {"id": "1", **call(tensor(8, 8))}]})))
    assert ids(found.entries) == ["torch.add|1|2|0", "torch.add|1|2|1"]
    assert found.entries[0].args == ["4x4 float32 0..1"]
    (problem,) = found.problems
    assert problem.where == "some/c.json: $.op_info.config[0].input[1]"
    assert "`'0'` is used twice" in problem.message


def test_what_only_param_uses_of_run_options_is_noted() -> None:
    (note,) = read(batch()).notes
    assert note == "`run_options`: `device` is ignored: `opmark param -c FILE` uses all of them"
    assert read(batch(run_options={"device": "cpu", "op_exec_mode": "discrete"})).notes == ()
    options = {"device": "cuda", "op-exec-mode": "OpExecutionMode.CONTINUOUS", "warmup": 5}
    (note,) = read(batch(run_options=options)).notes
    assert "`device`, `op_exec_mode` are ignored" in note
    with keep_specs():
        assert read(batch()).notes == ()
    with keep_specs(in_folder=True):
        (note,) = read(batch()).notes
        assert "`device`, `warmup`, `iteration` are ignored: options of the command line apply" in note


def test_run_options_that_nothing_uses_are_named_with_the_reason() -> None:
    """All of PARAM's names are known; those with its defaults need no note."""
    defaults = {**DEFAULT_OPTIONS, "pass_type": "forward", "op_exec_mode": "discrete"}
    assert read(batch(run_options=defaults)).notes == ()
    options = {**defaults, "run_ncu": True, "ncu-warmup": 7, "out_stream": "x", "stop_op_run_id": "torch.add|1|2|1"}
    assert set(read(batch(run_options=options)).notes) == {
        "`run_options`: `run_ncu`, `ncu_warmup` are ignored: --ncu and --nsys of the command line run profilers",
        "`run_options`: `out_stream` is ignored: -o PREFIX of the command line names the result file",
        "`run_options`: `stop_op_run_id` is ignored: -r and -s of the command line choose cases",
    }
    notes = read(batch(run_options={"warm_up": 5, "colour": "red"})).notes
    assert notes == (
        "`run_options.warm_up` is not known and is ignored; did you mean `warmup`?",
        "`run_options.colour` is not known and is ignored",
    )


def test_specs_of_a_file_can_be_kept_as_they_are() -> None:
    build = {"args": [whole(8), {"type": "long", "value": 4}], "name": "wide"}
    inputs = [call(tensor(2, 8, requires_grad=False, name="x")), call(tensor([2, 4, 2], 8, __range__=["shape"]))]
    data = {
        "torch.nn.Linear": operator({"build": [build], "input": inputs[:1]}),
        "torch.mean": operator({"build": [], "input": inputs[1:]}, input_iterator="RangeConfigIterator"),
    }
    with keep_specs() as kept:
        read(data)
    read({"torch.add": operator({"input": [call(whole(1))]})})
    assert {name: (said.build, said.input) for (_, name), said in kept.items()} == {
        "torch.nn.Linear|0|0|0": (build, inputs[0]),
        "torch.mean|0|0|0_0": ([], call(tensor(2, 8))),
        "torch.mean|0|0|0_1": ([], call(tensor(4, 8))),
    }
    assert {path for path, _ in kept} == {str(FILE)}


def fixed(*wanted: bool) -> dict[str, Any]:
    return call(*(tensor(4, requires_grad=wants) for wants in wanted))


@pytest.mark.parametrize(
    ("name", "point", "reason"),
    [
        ("torch.add", fixed(True, False), ""),
        ("torch.add", fixed(False, False), "no tensor has `requires_grad`"),
        ("torch.add", call(tensor(4, dtype="long", requires_grad=False)), ""),
        ("torch.nn.ReLU", fixed(False), ""),
        ("torch.add_", fixed(True, True), "works in place"),
        ("torch.nn.functional.relu_", fixed(True), "works in place"),
        ("torch.selu_", fixed(True), "works in place"),
        ("aten::mul_", fixed(True, True), "works in place"),
    ],
)
def test_cases_without_backward_pass(name: str, point: dict[str, Any], reason: str) -> None:
    with keep_specs() as kept:
        assert len(entries({name: operator({"input": [point]})})) == 1
    (said,) = kept.values()
    assert reason in said.forward_only
    assert bool(reason) == bool(said.forward_only)


@pytest.mark.parametrize(
    ("wanted", "wrt"), [((False,), ["weights"]), ((True, False), ["args.0", "weights"]), ((True, True), [])]
)
def test_a_module_with_fixed_inputs_computes_the_gradients_of_its_weights(wanted: Any, wrt: list[str]) -> None:
    (entry,) = entries({"torch.nn.Bilinear": operator({"input": [fixed(*wanted)]})})
    assert entry.wrt == wrt


def test_modules_run_in_training_mode_and_a_note_says_so() -> None:
    found = read({"torch.nn.ReLU": operator({"input": [call(tensor(4))]})})
    assert found.entries[0].build == {"train": True}
    assert found.notes == ("modules run in training mode, as in PARAM",)
    assert read({"torch.relu": operator({"input": [call(tensor(4))]})}).notes == ()


def test_a_batch_file_of_an_older_form() -> None:
    data = batch(build_id="1:2")
    del data["config_build_id"]
    assert ids(entries(data))[0] == "torch.add|1|2|2_34"
    assert ids(entries({"op_name": data["op_name"], "op_info": data["op_info"]}))[0] == "torch.add|0|0|2_34"


def test_a_batch_file_with_a_backward_pass_and_a_build() -> None:
    info = operator({"build": call(whole(8), whole(4)), "input": [call(tensor(2, 8))]})
    (entry,) = entries(batch(op_name="torch.nn.Linear", op_info=info, run_options={"pass_type": "backward"}))
    assert entry.phases == ["forward", "backward"]
    assert entry.build == {"args": [8, 4], "train": True}


def test_run_options_may_have_hyphens() -> None:
    hyphens = {"pass-type": "backward", "warm-up": 1, "warmup": 3, "iteration": 7}
    found = read(batch(op_name="torch.mul", run_options=hyphens))
    assert found.entries[0].phases == ["forward", "backward"]
    assert found.asked == {"warmup": 3, "samples": 7}


def test_cases_keep_their_source_from_file_to_case(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(
        json.dumps({"torch.add": operator({"input": [call(tensor(4), whole(1)), call(tensor(4), whole(2))]})})
    )
    taken = read_source(path)
    assert taken.problems == ()
    assert [case.sources for case in taken.cases] == [("c.json#torch.add|0|0|0",), ("c.json#torch.add|0|0|1",)]


def test_ten_thousand_specs_are_ten_thousand_entries() -> None:
    specs = [call(tensor(n, 8), tensor(8, 8)) for n in range(1, 10_001)]
    found = entries({"torch.mm": operator({"input": specs})})
    assert len({entry.source for entry in found}) == 10_000
    assert found[-1].args == ["10000x8 float32 0..1", "8x8 float32 0..1"]
