"""Operators that ByteMicroPerf lacks, of opmark's catalogue or of a plug-in, in files of all its formats."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.errors import InvalidFile
from opmark.interop.bytemicroperf.importer import BYTEMICROPERF
from opmark.interop.bytemicroperf.operators import TASKS, task_from_name
from opmark.plugin import registry
from opmark.plugin.registry import catalogue
from opmark.runner.workload_source import WorkloadSource, read_source

ROWS = {"arg_type": "default", "dtype": ["float32", "float16"], "batch_size": [4, 8], "dim_size": [64]}
SHAPES = [("float32", [4, 64]), ("float32", [8, 64]), ("float16", [4, 64]), ("float16", [8, 64])]
CONV = {"batch": [1, 2], "in_channels": 8, "image": [16, 16], "out_channels": 4, "kernel": [3, 3], "padding": [0, 1]}


def read(tmp_path: Path, name: str, data: Any) -> WorkloadSource:
    path = tmp_path / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return read_source(path)


def params(taken: WorkloadSource, *names: str) -> list[tuple[Any, ...]]:
    assert taken.problems == ()
    return [tuple(case.params[name] for name in names) for case in taken.cases]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("anything.json", {"hardswish": [ROWS]}),
        ("hardswish.json", {"cases": [ROWS]}),
        ("tp8_hardswish.json", {"cases": [ROWS]}),
        ("hardswish.json", {"operator": "hardswish", "iterations": 100, "dtype": ["float32", "float16"],
                            "input_shape_groups": {"inputs": [[[4, 8], [64]]]}}),
        ("hardswish.json", {"operator": "hardswish", "iterations": 100, "dtype": ["float32", "float16"],
                            "shape": [[4, 64], [8, 64]]}),
        ("ops.csv", "task_name,dtype,batch_size,dim_size\n" + "".join(
            f"hardswish,{dtype},{shape[0]},{shape[1]}\n" for dtype, shape in SHAPES)),
        ("hardswish.csv", 'dtype,shape\n' + "".join(f'{dtype},"{shape}"\n' for dtype, shape in SHAPES)),
    ],
    ids=["several operators", "cases", "name with a prefix", "first generation", "by parameter", "csv", "csv by name"],
)  # fmt: skip
def test_an_operator_of_the_catalogue_in_every_format(tmp_path, name, data):
    taken = read(tmp_path, name, data)
    assert {case.op for case in taken.cases} == {"hardswish"}
    assert sorted(params(taken, "dtype", "shape")) == sorted(SHAPES)
    assert taken.notes == ()


def test_further_parameters_have_opmarks_names(tmp_path):
    taken = read(tmp_path, "x.json", {"elu": [{**ROWS, "dtype": "float32", "alpha": [0.1, 0.2]}]})
    assert params(taken, "shape", "alpha") == [([n, 64], alpha) for n in (4, 8) for alpha in (0.1, 0.2)]


def test_an_operator_without_a_shape_has_all_its_parameters_by_name(tmp_path):
    sizes = [(n, padding) for n in (1, 2) for padding in (0, 1)]
    for name, data in (
        ("conv2d.json", {"operator": "conv2d", "iterations": 10, "dtype": ["float32"], **CONV}),
        ("x.json", {"conv2d": [{"arg_type": "default", "dtype": "float32", **CONV}]}),
    ):
        assert params(read(tmp_path, name, data), "batch", "padding") == sizes


def test_sizes_of_products_may_be_written_as_those_of_gemm(tmp_path):
    taken = read(tmp_path, "addmm.json", {"operator": "addmm", "M": [2, 4], "KN": [[8, 16]], "alpha": 0.5})
    assert params(taken, "M", "K", "N", "alpha") == [(2, 8, 16, 0.5), (4, 8, 16, 0.5)]


def test_a_list_is_one_value_of_a_parameter_that_is_a_list(tmp_path):
    for shape, expected in (([4, 64], [[4, 64]]), ([[4, 64], [8]], [[4, 64], [8]])):
        taken = read(tmp_path, "x.json", {"hardswish": [{"arg_type": "default", "dtype": "float32", "shape": shape}]})
        assert [case.params["shape"] for case in taken.cases] == expected


def test_another_systems_name_of_an_operator_will_do(tmp_path):
    alias = next(alias for alias in catalogue()["hardswish"].aliases if alias not in TASKS)
    assert read(tmp_path, "x.json", {alias: [ROWS]}).cases[0].op == "hardswish"


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"batch_size": [0]}, "argument `batch_size`: expected a whole number of at least 1"),
        ({"dtype": "int8"}, "`hardswish` has no int8"),
        ({"alpha": 0.1}, "`hardswish` has no argument `alpha`"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path, change, detail):
    taken = read(tmp_path, "x.json", {"hardswish": [ROWS, {**ROWS, **change}]})
    assert len(taken.cases) == 4
    assert detail in str(taken.problems[0])


def test_a_missing_parameter_is_named(tmp_path):
    taken = read(tmp_path, "x.json", {"topk": [{**ROWS, "k": 2}], "elu": [{"arg_type": "default", "alpha": 1.0}]})
    assert [str(problem).partition(": ")[2] for problem in taken.problems] == [
        "$.elu[0]: argument `batch_size` is missing (1 point)"
    ]


def test_a_name_that_nobody_has_is_a_problem_with_the_nearest_one(tmp_path):
    with pytest.raises(InvalidFile) as caught:
        read(tmp_path, "x.json", {"hardswich": [ROWS]})
    assert "neither ByteMicroPerf nor opmark has an operator `hardswich` (4 points)" in caught.value.message
    assert "did you mean `hardswish`?" in caught.value.message


def test_a_callable_is_no_operator_of_a_file(tmp_path):
    with pytest.raises(InvalidFile, match="has an operator `os:system`"):
        read(tmp_path, "x.json", {"os:system": [ROWS]})


def test_an_operator_of_a_plug_in(tmp_path, monkeypatch):
    own = replace(catalogue()["hardswish"], name="vendor_gate", aliases=("VendorGate",))
    monkeypatch.setitem(catalogue(), "vendor_gate", own)
    registry.aliases.cache_clear()
    try:
        for name in ("vendor_gate", "VendorGate"):
            taken = read(tmp_path, "x.json", {name: [ROWS]})
            assert {case.op for case in taken.cases} == {"vendor_gate"}
    finally:
        registry.aliases.cache_clear()


@given(st.sampled_from(sorted(catalogue().keys() - TASKS)))
def test_every_operator_of_the_catalogue_is_read_back_from_its_own_parameters(name):
    own = catalogue()[name]
    for preset in own.presets.values():
        point = {key: [value] if isinstance(value, list) else value for key, value in preset.items()}
        found = BYTEMICROPERF.read(Path("x.json"), {name: [{"arg_type": "default", **point}]}, 0)
        assert found.problems == ()
        assert [own.complete(entry.params) for entry in found.entries] == [own.complete(preset)]


@pytest.mark.parametrize(
    ("stem", "task"),
    [("a_gemm", "gemm"), ("my_leaky_relu", "leaky_relu"), ("head_rms_norm", "head_rms_norm"), ("no_such", "no_such")],
)
def test_the_operator_that_a_file_is_named_after(stem, task):
    assert task_from_name(stem) == task
