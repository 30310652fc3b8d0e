"""Modules of opperf beside its functions that measure: utils and rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from opperf_runs import PREEMPTED, without_workers

from opmark.catalogue.expansion import expand
from opmark.errors import UnknownName, UserError
from opmark.interop.opperf.exporter import document, lines_in
from opmark.interop.opperf.operators import CATEGORIES
from opmark.interop.opperf.rules.default_params import MX_OP_MODULE
from opmark.interop.opperf.utils import common_utils, op_registry_utils
from opmark.interop.opperf.utils.benchmark_utils import run_op_benchmarks, run_performance_test
from opmark.plugin.registry import operator as find_operator

NULL: dict[str, Any] = {"framework": "null", "db": ":memory:"}


def test_results_of_several_calls_in_one_dictionary() -> None:
    assert common_utils.merge_map_list([{"a": 1}, {"a": 2, "b": 3}]) == {"a": 1, "b": 3}
    assert common_utils.merge_map_list([]) == {}
    assert common_utils.get_json({"a": [1]}) == '{\n    "a": [\n        1\n    ]\n}'


@pytest.mark.parametrize("profiler", ["native", "python"])
def test_the_steps_of_opperf_s_own_program(profiler: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It measures by category, merges, saves, and lists what is left."""
    without_workers(monkeypatch)
    options: Any = {"profiler": profiler, **NULL}
    binary = op_registry_utils.get_all_misc_binary_operators()
    some = run_performance_test([MX_OP_MODULE.add], [{"lhs": (4, 4), "rhs": (4, 4)}], **options)
    found = common_utils.merge_map_list([*some, run_op_benchmarks(binary, **options)])
    assert set(found) == {"add", "choose_element_0index", "reshape_like"}
    features = op_registry_utils.get_current_runtime_features()
    for form in ("json", "md", "csv"):
        common_utils.save_to_file(found, tmp_path / f"out.{form}", form, features, profiler)
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(json.dumps(found))
    table = (tmp_path / "out.md").read_text()
    assert "| add |" in table
    assert "0. NULL : ✔ NULL" in table
    assert (tmp_path / "out.csv").read_text().count("\nreshape_like,") == len(found["reshape_like"])
    with pytest.raises(UnknownName, match="xml"):
        common_utils.save_to_file(found, tmp_path / "out.xml", "xml")
    left = op_registry_utils.get_operators_with_no_benchmark(found)
    assert "add" not in left
    assert {"batch_dot", "Custom"} <= set(left)


def test_results_become_lines_and_results_again(monkeypatch: pytest.MonkeyPatch) -> None:
    without_workers(monkeypatch, PREEMPTED)
    found = run_op_benchmarks(["dot", "pad"], **NULL)
    assert document(lines_in(found)) == found
    without_workers(monkeypatch, error="it failed")
    found = run_op_benchmarks(["dot"], **NULL)
    assert found["dot"][0]["failed"]
    assert document(lines_in(found)) == found


def test_operators_by_category_have_what_opperf_s_scripts_read() -> None:
    found = op_registry_utils.get_all_reduction_operators()
    assert list(found) == CATEGORIES["reduction"]
    assert found["sum"] == {
        "has_backward": True, "nd_op_handle": "sum",
        "params": {"narg": 4, "arg_names": ["data", "axis", "keepdims", "exclude"],
                   "arg_types": ["NDArray-or-Symbol", "option", "option", "option"]},
    }  # fmt: skip
    assert not op_registry_utils.get_all_rounding_operators()["round"]["has_backward"]
    listed = {name for function in op_registry_utils._CATEGORIES for name in getattr(op_registry_utils, function)()}
    assert listed > {"exp", "broadcast_add", "elemwise_mul", "linalg_det", "sgd_update", "softmax"}


@pytest.mark.parametrize(
    "name", ["exp", "broadcast_add", "dot", "topk", "Convolution", "Embedding", "sgd_update", "concat"]
)
def test_default_inputs_mean_what_the_suite_measures(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = without_workers(monkeypatch)
    run_performance_test(name, op_registry_utils.prepare_op_inputs(name, None, "off"), **NULL)
    run_op_benchmarks([name], **NULL)
    own, suite = ({case.id for case in expand(call["workload"], find_operator)} for call in asked)
    assert own <= suite
    assert own


def test_default_inputs_that_opperf_has_no_words_for() -> None:
    with pytest.raises(UserError, match="`pad`: opperf's words cannot say") as error:
        op_registry_utils.prepare_op_inputs("pad")
    assert "run_op_benchmarks" in str(error.value.hint)
    with pytest.raises(UnknownName, match="exo"):
        op_registry_utils.prepare_op_inputs("exo")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("utils.profiler_utils import cpp_profile", "profiler='native'"),
        ("utils.profiler_utils import python_profile", "profiler='python'"),
        ("utils.profiler_utils import parse_profiler_dump", "nothing to parse"),
        ("utils.ndarray_utils import get_mx_ndarray", "give their shapes as inputs"),
        ("utils.ndarray_utils import nd_forward_backward_and_profile", "run_backward=True"),
        ("utils.op_registry_utils import _get_all_mxnet_operators", "get_all_..._operators"),
        ("rules.default_params import DEFAULTS_INPUTS", "prepare_op_inputs"),
        ("rules.default_params import PARAMS_OF_TYPE_NDARRAY", "prepare_op_inputs"),
    ],
)
def test_what_has_no_counterpart_is_refused_with_what_to_use(line: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        exec(f"from opmark.interop.opperf.{line}")
    assert f"`{line.split()[-1]}` exists in opperf, but not in opmark: " in error.value.message
    assert words in error.value.message
    with pytest.raises(ImportError, match="no_such_name"):
        exec(f"from opmark.interop.opperf.{line.split()[0]} import no_such_name")


def test_operators_as_attributes() -> None:
    assert MX_OP_MODULE.batch_dot == "batch_dot"
    assert "dot" in dir(MX_OP_MODULE)
    assert not hasattr(MX_OP_MODULE, "no_such_operator")
    with pytest.raises(AttributeError, match="did you mean 'batch_dot'"):
        MX_OP_MODULE.batch_dto  # noqa: B018
