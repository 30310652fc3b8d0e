"""opperf's dictionaries, its results and the classes of DL Operator Benchmarks as cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.catalogue.workload_file import suite
from opmark.errors import InvalidParameter, UserError
from opmark.interop.opperf.class_inputs import CLASSES, class_meaning, complete_inputs
from opmark.interop.opperf.importer import OPPERF
from opmark.interop.opperf.operators import CATEGORIES, NO_COUNTERPART, OPERATORS, plain_name
from opmark.interop.opperf.rows import foreign_inputs, meaning, ops
from opmark.interop.opperf.shapes import match, shape_of, write_shape
from opmark.plugin.registry import operator
from opmark.runner.workload_source import read_source
from opmark.schema import Imported

PATH = Path("mine.json")


def read(data: Any) -> Imported:
    assert OPPERF.recognises(PATH, data)
    return OPPERF.read(PATH, data, 0)


def one(name: str, **inputs: Any) -> tuple[str, dict[str, Any]]:
    found = read({"ops": name, "inputs": [inputs], "run_backward": False})
    assert not found.problems
    return found.entries[0].op, found.entries[0].params


def test_a_test_of_two_operators_with_two_inputs_is_four_entries() -> None:
    inputs = [{"lhs": [1024, 1024], "rhs": [1024, 1024]}, {"lhs": [8, 4], "rhs": [8, 1]}]
    found = read({"ops": ["mx.nd.add", "subtract"], "inputs": inputs, "warmup": 2, "runs": 5})
    assert [(e.op, e.params, e.phases, e.source) for e in found.entries] == [
        ("add", {"shape": [1024, 1024], "y": "same"}, ["forward", "backward"], "mine.json#mx.nd.add[0]"),
        ("add", {"shape": [8, 4], "y": "column"}, ["forward", "backward"], "mine.json#mx.nd.add[1]"),
        ("sub", {"shape": [1024, 1024], "y": "same"}, ["forward", "backward"], "mine.json#subtract[0]"),
        ("sub", {"shape": [8, 4], "y": "column"}, ["forward", "backward"], "mine.json#subtract[1]"),
    ]
    assert found.asked == {"warmup": 2, "samples": 5}
    assert found.problems == found.notes == ()


@pytest.mark.parametrize(
    ("name", "inputs", "op", "params"),
    [
        ("dot", {"lhs": [1000, 10], "rhs": [1000, 10], "transpose_b": True}, "matmul", {"M": 1000, "K": 10, "N": 1000}),
        ("batch_dot", {"lhs": [2, 3, 4], "rhs": [2, 4, 5]}, "batched_matmul", {"B": 2, "M": 3, "K": 4, "N": 5}),
        ("linalg_gemm2", {"A": [2, 3, 4], "B": [2, 4, 5]}, "batched_matmul", {"B": 2, "M": 3, "K": 4, "N": 5}),
        ("sum", {"data": [10, 20], "axis": 0}, "reduce_sum", {"shape": [10, 20], "axis": 0}),
        ("sum", {"data": [10, 20]}, "reduce_sum", {"shape": [200], "axis": 0}),
        ("topk", {"data": [10, 20], "axis": 0, "k": 3}, "topk", {"shape": [20, 10], "k": 3}),
        ("Activation", {"data": [4, 4], "act_type": "softrelu"}, "softplus", {"shape": [4, 4]}),
        ("LeakyReLU", {"data": [4, 4], "slope": 0.2}, "leaky_relu", {"shape": [4, 4], "negative_slope": 0.2}),
        ("LeakyReLU", {"data": [4, 4], "act_type": "elu", "slope": 0.2}, "elu", {"shape": [4, 4], "alpha": 0.2}),
        ("concat", {"args0": [4, 4], "args1": [4, 4]}, "concat", {"count": 2, "shape": [4, 4], "axis": 1}),
        ("add_n", {"args": [[4, 4], [4, 4], [4, 4]]}, "add_n", {"n": 3, "shape": [4, 4]}),
        ("khatri_rao", {"args": [[32, 8], [16, 8]]}, "khatri_rao", {"M": 32, "N": 8, "L": 16}),
        ("sample_normal", {"mu": [2.0, 2.5], "sigma": [1.0, 3.7], "shape": [100, 10]}, "sample_normal",
         {"distributions": 2, "draws": 1000}),
        ("sample_negative_binomial", {"k": [20, 49], "p": [0.4, 0.77], "shape": 64}, "sample_negative_binomial",
         {"distributions": 2, "draws": 64}),
        ("broadcast_axis", {"data": [1, 8], "axis": 0, "size": 2}, "broadcast_copy",
         {"shape": [1, 8], "target": [2, 8]}),
        ("reshape", {"data": [4, 6], "shape": [0, -1, 2]}, "reshape", {"shape": [4, 6], "target": [4, 3, 2]}),
        ("pad", {"data": [1, 4, 2, 4], "pad_width": [0, 0, 0, 0, 1, 1, 2, 2], "mode": "constant"}, "pad",
         {"shape": [1, 4, 2, 4], "before": [1, 2], "after": [1, 2], "mode": "constant"}),
        ("tile", {"data": [4, 4], "reps": 2}, "tile", {"shape": [4, 4], "reps": [1, 2]}),
        ("slice_axis", {"data": [10, 4], "axis": 0, "begin": 2, "end": -1}, "slice",
         {"shape": [10, 4], "axis": 0, "begin": 2, "end": 9}),
        ("FullyConnected", {"data": [32, 3, 4, 4], "num_hidden": 7}, "linear", {"M": 32, "K": 48, "N": 7}),
        ("FullyConnected", {"data": [4, 5], "num_hidden": 7, "no_bias": True}, "linear_no_bias",
         {"M": 4, "K": 5, "N": 7}),
        ("FullyConnected", {"data": [32, 3, 4], "weight": [7, 4], "flatten": False}, "linear",
         {"M": 96, "K": 4, "N": 7}),
        ("Pooling", {"data": [2, 3, 8, 8], "kernel": [3, 3], "pool_type": "avg", "stride": [1, 1], "pad": [0, 0]},
         "avg_pool2d", {"batch": 2, "channels": 3, "image": [8, 8], "kernel": [3, 3], "stride": 1, "padding": 0}),
        ("Pooling", {"data": [2, 3, 8], "kernel": 3, "pool_type": "max", "global_pool": 1}, "global_max_pool1d",
         {"batch": 2, "channels": 3, "image": [8]}),
        ("Convolution", {"data": [2, 3, 8], "kernel": [3], "num_filter": 4}, "conv1d",
         {"batch": 2, "in_channels": 3, "image": [8], "kernel": [3], "out_channels": 4, "stride": 1, "padding": 0,
          "dilation": 1}),
        ("RNN", {"data": [5, 4, 3], "mode": "rnn_relu", "state": [1, 4, 6], "state_size": 6}, "rnn",
         {"seq_len": 5, "batch": 4, "input_size": 3, "hidden_size": 6, "nonlinearity": "relu"}),
        ("multi_mp_sgd_mom_update", {"args": [[5, 5]] * 8}, "multi_mp_sgd_mom_update", {"count": 2, "shape": [5, 5]}),
        ("preloaded_multi_sgd_update", {"args0": [5, 5], "args1": [5, 5], "args2": [1], "args3": [1]},
         "multi_sgd_update", {"count": 1, "shape": [5, 5]}),
        ("linalg_maketrian", {"A": [1024, 1035]}, "make_triangle", {"batch": 1024, "n": 45}),
        ("linalg_potrf", {"A": [[1, 0], [0, 1]]}, "cholesky", {"batch": 1, "n": 2}),
        ("BatchNorm", {"data": [2, 3, 4, 4], "momentum": 0.9, "eps": 1e-3}, "batch_norm",
         {"shape": [2, 3, 4, 4], "momentum": pytest.approx(0.1), "eps": 1e-3}),
        ("GridGenerator", {"data": [2, 6], "transform_type": "affine", "target_shape": [4, 5]}, "affine_grid",
         {"batch": 2, "out": [4, 5], "align_corners": True}),
        ("matmul", {"M": 2, "N": 3, "K": 4}, "matmul", {"M": 2, "N": 3, "K": 4}),
    ],
)  # fmt: skip
def test_operators_are_translated(name: str, inputs: dict[str, Any], op: str, params: dict[str, Any]) -> None:
    assert one(name, **inputs) == (op, params)


def test_an_operator_without_gradient_is_measured_forward_with_a_note() -> None:
    found = read({"ops": "argmax", "inputs": [{"data": [4, 4], "axis": 0}]})
    assert found.entries[0].phases == ["forward"]
    assert found.notes == ("argmax: forward only: `argmax` has no gradient",)
    integers = read({"ops": "add", "inputs": [{"lhs": [4], "rhs": [4]}], "dtype": "int32"})
    assert integers.entries[0].phases == ["forward"]
    assert integers.notes == ("add: forward only: `add` has no gradient through int32",)


def test_the_profiler_python_measures_both_passes_in_one() -> None:
    found = read({"ops": "add", "inputs": [{"lhs": [4], "rhs": [4]}], "profiler": "python"})
    assert found.entries[0].phases == ["both"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"lhs": [4, 4]}, "`add` needs `rhs`"),
        ({"lhs": [4, 4], "rhs": [3, 4]}, "`add`: `rhs`: [3, 4] is neither the shape [4, 4] nor one row"),
        ({"lhs": [4, 4], "rhs": [4, 4], "axsi": 1}, "`add` has no input `axsi`"),
        ({"lhs": [4, 0], "rhs": [4, 4]}, "`lhs`: expected a shape of sizes of at least 1"),
        ({"lhs": "4x4", "rhs": [4, 4]}, "`lhs`: expected a shape, got 4x4"),
        ({"lhs": [4], "rhs": [4], "dtype": "float33"}, "parameter `dtype`: expected a data type"),
    ],
)
def test_one_broken_input_is_named_and_the_others_are_taken(inputs: dict[str, Any], message: str) -> None:
    found = read({"ops": "add", "inputs": [inputs, {"lhs": [2], "rhs": [2]}]})
    assert [entry.source for entry in found.entries] == ["mine.json#add[1]"]
    (problem,) = found.problems
    assert problem.where == "mine.json: $.inputs[0]"
    assert message in problem.message


@pytest.mark.parametrize("name", NO_COUNTERPART)
def test_an_operator_without_a_counterpart_is_a_problem(name: str) -> None:
    (problem,) = read({"ops": name, "inputs": [{"data": [4, 4]}]}).problems
    assert problem.message == f"opmark has no counterpart of `{name}`"
    assert problem.hint


def test_a_wrong_name_gets_the_nearest() -> None:
    (problem,) = read({"ops": "broadcast_ad", "inputs": [{}]}).problems
    assert "broadcast_add" in problem.hint


def test_an_unknown_operator_is_named_once_where_it_stands() -> None:
    inputs = [{"lhs": [4], "rhs": [4]}, {"lhs": [8], "rhs": [8]}]
    found = read({"ops": ["add", "broadcast_ad", "Custom"], "inputs": inputs})
    assert len(found.entries) == 2
    assert [(p.where, p.message) for p in found.problems] == [
        ("mine.json: $.ops[1]", "no operator of opperf named `broadcast_ad`"),
        ("mine.json: $.ops[2]", "opmark has no counterpart of `Custom`"),
    ]
    assert "did you mean `broadcast_add`?" in found.problems[0].hint
    (problem,) = read([{"op": "ad", "inputs": inputs}]).problems
    assert problem.where == "mine.json: $[0].op"
    (problem,) = read({"nonsense.add": [{"inputs": {"args": [1]}}] * 2}).problems
    assert problem.where == "mine.json: $.nonsense.add"
    (problem,) = read({"ops": [3], "inputs": inputs}).problems
    assert problem.where == "mine.json: $.ops[0]"


def test_a_callable_outside_of_opperf_is_imported_if_its_inputs_are_arguments() -> None:
    found = read({"ops": ["torch.add"], "inputs": [{"lhs": [4]}, {"args": ["4 float32", 2]}]})
    assert [entry.source for entry in found.entries] == ["mine.json#torch.add[1]"]
    assert [problem.where for problem in found.problems] == ["mine.json: $.ops[0]"]


def test_results_of_opperf_are_measured_again() -> None:
    data = {
        "broadcast_add": [{"avg_time_forward_broadcast_add": 0.1, "inputs": {"lhs": [4, 4], "rhs": [4, 4]}}],
        "exp": [{"avg_time_exp": 1, "p50_time_exp": 1, "inputs": {"data": [4, 4]}}, "garbage"],
        "log": [{"inputs": {"data": [4, 4]}, "failed": [{"phase": "backward", "status": "oom", "reason": "big"}]}],
        "Pooling": [{"inputs": {"batch": 1, "channels": 1, "image": [8]}, "operator": "global_sum_pool1d"}],
    }
    found = read(data)
    assert [(e.op, e.phases) for e in found.entries] == [
        ("add", ["forward"]), ("exp", ["both"]), ("log", ["backward"]), ("global_sum_pool1d", ["forward", "backward"]),
    ]  # fmt: skip
    assert [p.where for p in found.problems] == ["mine.json: $.exp[1]"]


def test_classes_by_their_names() -> None:
    found = read({"Add": {"inputs": {"dtype": "float64"}, "warmup": 10, "runs": 50}, "Sort": None})
    assert [(e.op, e.phases, e.source) for e in found.entries] == [
        ("add", ["both"], "mine.json#Add"),
        ("sort", ["forward"], "mine.json#Sort"),
    ]
    assert found.entries[0].params["dtype"] == "float64"
    assert found.asked == {"warmup": 10, "samples": 50}
    (problem,) = read({"Add": {"inputs": {"lsh": [4]}}}).problems
    assert (problem.message, problem.hint) == ("`Add` has no input `lsh`", "did you mean `lhs`?")
    (problem,) = read({"Add": {"inputs": {"dtype": "float65"}}}).problems
    assert (problem.where, problem.hint) == ("mine.json: $.Add.inputs", "did you mean `float64`?")
    assert problem.message.startswith("`dtype` of `Add`: expected one of float64, float32")


def test_counts_that_differ_are_ignored_with_a_note() -> None:
    found = read([{"ops": "exp", "inputs": {"data": 4}, "runs": 3}, {"ops": "log", "inputs": {"data": 4}, "runs": 4}])
    assert found.asked == {}
    assert "differ" in found.notes[0]


def test_a_callable_with_arguments_is_one() -> None:
    found = read({"ops": "torch.add", "inputs": [{"args": ["4x4 float32", 2]}]})
    assert (found.entries[0].op, found.entries[0].args) == ("torch.add", ["4x4 float32", 2])


@pytest.mark.parametrize(
    "data",
    [
        {"torch.add": {"config": [{"input": [{"args": []}]}]}},
        {"Add": {"config": []}},
        {"operator": "add", "iterations": 100, "input_shape_list": [[4, 4]], "dtype": ["float32"]},
        {"add": [{"arg_type": "default", "dtype": "float32", "batch_size": [1]}]},
        {"cases": [{"dtype": ["float32"], "M": [1]}]},
        {"op": "torch.add", "inputs": {}, "config_list": {}},
        {"schema": 1, "name": "x", "cases": []},
        [], {}, None, "add", [[{"ops": 1}]], [{"inputs": {}}],
    ],
)  # fmt: skip
def test_files_of_other_systems_are_not_recognised(data: Any) -> None:
    assert not OPPERF.recognises(PATH, data)


def test_every_name_of_every_category_has_a_row_and_our_operators_exist() -> None:
    assert len(CATEGORIES) == 23
    named = {name for names in CATEGORIES.values() for name in names}
    assert named <= set(OPERATORS)
    for name, rows in OPERATORS.items():
        for row in rows:
            assert any(operator(op) for op in ops(row)), name


def test_the_table_agrees_with_the_suite() -> None:
    """The suite and the table agree about the operator that a name of opperf means."""
    for entry in suite("opperf").cases:
        name = entry.source.removeprefix("opperf ").split(",")[0].split(";")[0]
        rows = OPERATORS.get(name, ())
        views = {"split", "broadcast_to", "unravel_index"}  # the suite also has the views that MXNet copies
        if rows and entry.op not in views and "not covered" not in entry.source and "1.9.1" not in entry.source:
            known = {operator(op).name for row in rows for op in ops(row)}
            assert entry.op in known or name == "linalg_potri", entry.source


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_is_a_case(name: str) -> None:
    found = class_meaning(CLASSES[name], complete_inputs(CLASSES[name], {}))
    made = operator(found.op)
    made.check_rules(made.complete({key: made.param(key).check(value) for key, value in found.params.items()}))


def test_there_are_73_classes() -> None:
    assert len(CLASSES) == 73
    with pytest.raises(ValueError, match="lhs"):
        complete_inputs(CLASSES["Add"], {"lsh": 1})


@pytest.mark.parametrize(
    ("written_name", "plain"),
    [("mx.nd.add", "add"), ("nd.linalg.gemm2", "linalg_gemm2"), ("mx.npx.fully_connected", "FullyConnected"),
     ("mx.nd.random.normal", "random_normal"), ("np.abs", "abs"), ("exp", "exp")],
)  # fmt: skip
def test_names_of_modules_are_removed(written_name: str, plain: str) -> None:
    assert plain_name(written_name) == plain


SIZES = st.lists(st.integers(1, 50), min_size=1, max_size=4)


@given(SIZES)
def test_a_shape_goes_through_its_pattern_and_back(shape: list[int]) -> None:
    bound: dict[str, Any] = {}
    match("first *rest", [7, *shape], "x", bound)
    assert bound == {"first": 7, "rest": shape}
    assert write_shape("first *rest", bound) == [7, *shape]


@given(SIZES, st.sampled_from(["same", "row", "column", "scalar"]))
def test_broadcasting_is_read_as_it_is_written(shape: list[int], how: str) -> None:
    bound: dict[str, Any] = {"shape": shape}
    there = write_shape("~shape", {"shape": shape, "y": how})
    match("~shape", there, "rhs", bound)
    assert write_shape("~shape", bound) in (there, shape, [1])  # a row of one element is also a single element


@given(st.sampled_from(sorted(OPERATORS)), st.data())
def test_inputs_written_from_parameters_are_read_as_these_parameters(name: str, data: st.DataObject) -> None:
    """Inputs written for opperf from any case of opmark are read as the same case."""
    op = operator(data.draw(st.sampled_from(sorted({o for row in OPERATORS[name] for o in ops(row)}))))
    size = data.draw(st.sampled_from(sorted(op.presets)))
    params = op.complete(op.preset(size))
    inputs = foreign_inputs(OPERATORS[name], op.name, params)
    if inputs is not None:
        found = meaning(OPERATORS[name], inputs)
        assert (found.op, op.complete(found.params)) == (op.name, params)


def test_values_have_shapes_and_sizes_are_one() -> None:
    assert shape_of([1.0, 2.5], "x") == [2]
    assert shape_of([[1.0], [2.0]], "x") == [2, 1]
    assert shape_of(3, "x") == [3]
    for wrong in ("3", None, True, [True], {}, [[]], [-1], [None]):
        with pytest.raises(InvalidParameter):
            shape_of(wrong, "x")


def test_a_file_is_recognised_and_run_like_any_other(tmp_path: Path) -> None:
    file = tmp_path / "tests.yaml"
    file.write_text("ops: add\ninputs: [{lhs: [8, 8], rhs: [8, 8]}, {lhs: [8, 8]}]\n")
    taken = read_source(file)
    assert (taken.foreign, len(taken.cases), len(taken.problems)) == ("opperf", 2, 1)
    with pytest.raises(UserError, match="needs `rhs`"):
        read_source(file, strict=True)
