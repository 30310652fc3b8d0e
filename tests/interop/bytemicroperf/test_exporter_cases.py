"""Cases as workloads of ByteMicroPerf's third generation, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bytemicroperf_samples import LISTS, V1_GROUPS, V3_COMPUTE, v1
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opmark.api.export import export_workload
from opmark.interop.bytemicroperf.workload_exporter import BYTEMICROPERF
from opmark.plugin.registry import operator
from opmark.runner.workload_source import read_source
from opmark.schema import Case


def cases_of(folder: Path, data: Any) -> list[Case]:
    path = folder / "x.json"
    path.write_text(json.dumps(data))
    return list(read_source(path, strict=True).cases)


def exported(cases: list[Case]) -> dict[str, Any]:
    files, unsaid = BYTEMICROPERF.files("x", cases)
    assert unsaid == []
    assert list(files) == ["x.json"]
    return json.loads(files["x.json"])


def case(op: str, **params: Any) -> Case:
    return Case.of(op, operator(op).complete(params), "forward")


@pytest.mark.parametrize("task", sorted(V3_COMPUTE))
def test_every_operator_comes_back_as_the_same_cases(tmp_path, task):
    cases = cases_of(tmp_path, {task: V3_COMPUTE[task]})
    back = cases_of(tmp_path, exported(cases))
    assert sorted(found.id for found in back) == sorted(found.id for found in cases)


@pytest.mark.parametrize("task", sorted(V1_GROUPS))
def test_the_first_generation_in_the_format_of_the_third(tmp_path, task):
    cases = cases_of(tmp_path, v1(task))
    assert [found.id for found in cases_of(tmp_path, exported(cases))] == [found.id for found in cases]


SIZES = st.lists(st.integers(1, 512), min_size=1, max_size=4)
DTYPES = st.lists(st.sampled_from(["float32", "half", "bfloat16"]), min_size=1, max_size=3)
HEADS = st.fixed_dictionaries({"q_head_num": st.just(8), "kv_head_num": st.sampled_from([1, 2, 8]),
                               "head_dim": st.sampled_from([64, [32, 128]])})  # fmt: skip
LENGTHS = st.integers(2, 5).flatmap(lambda n: st.fixed_dictionaries({
    "q_lens": st.lists(st.integers(1, 99), min_size=n, max_size=n),
    "cache_lens": st.lists(st.integers(0, 99), min_size=n, max_size=n),
}))  # fmt: skip
ROWS = st.fixed_dictionaries({"arg_type": st.just("default"), "dtype": DTYPES, "batch_size": SIZES, "dim_size": SIZES})
GEMM = st.fixed_dictionaries({"arg_type": st.sampled_from(["default", ["default"]]), "M": SIZES, "dtype": DTYPES,
                              "K.N": st.lists(st.tuples(st.integers(1, 64), st.integers(1, 64)).map(list), min_size=1,
                                              max_size=3)})  # fmt: skip
ATTENTION = st.fixed_dictionaries({
    "arg_type": st.just("llm"), "attn_mode": st.just("prefill"), "dtype": st.just("bfloat16"), "block_size": SIZES,
    "cache_dtype": st.sampled_from(["bfloat16", "int8", ["int8", "bfloat16"]]),
    "batch_size.cache_len.q_len": st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(1, 9)).map(list),
                                           min_size=1, max_size=3),
})  # fmt: skip
BATCH = st.fixed_dictionaries({"arg_type": st.just("batch_llm"), "attn_mode": st.just("prefill"),
                               "dtype": st.just("bfloat16")})  # fmt: skip
MOE = st.fixed_dictionaries({
    "arg_type": st.just("llm"), "dtype": st.just("bfloat16"), "num_tokens": st.lists(st.integers(8, 99), min_size=1),
    "num_experts.topk.ep_size": st.just([[8, 2, 4], [16, 4, 2]]), "ep_rank": st.integers(0, 1), "hidden_size": SIZES,
    "sp_size": st.sampled_from([1, 2]), "res_scale": st.sampled_from([0.5, 1.0, 2]),
})  # fmt: skip


def merged(*parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(*parts).map(lambda found: {key: value for part in found for key, value in part.items()})


def objects(one: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(one, min_size=1, max_size=2)


FILES = st.fixed_dictionaries({}, optional={
    **dict.fromkeys(("exp", "add", "reduce_sum", "softmax", "cast", "device2device"), objects(ROWS)),
    "gemm": objects(GEMM),
    "flash_attention": objects(st.one_of(merged(ATTENTION, HEADS), merged(BATCH, HEADS, LENGTHS))),
    "moe_gather": objects(MOE),
}).filter(bool)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(FILES)
def test_import_export_import_gives_the_same_cases(tmp_path, file):
    cases = cases_of(tmp_path, file)
    back = cases_of(tmp_path, exported(cases))
    assert sorted(found.id for found in back) == sorted(found.id for found in cases)


def test_neighbours_are_one_object_with_lists_where_they_are_a_product(tmp_path):
    points = [case("add", shape=[rows, 8], dtype=dtype) for dtype in ("float32", "float16") for rows in (1, 2, 4)]
    assert exported(points) == {
        "add": [{"arg_type": "default", "dim_size": 8, "dtype": ["float32", "float16"], "batch_size": [1, 2, 4]}]
    }


def test_neighbours_are_rows_where_they_are_no_product():
    points = [case("matmul", M=m, K=k, N=8) for m, k in ((1, 4), (2, 5), (3, 4))]
    assert exported(points) == {
        "gemm": [{"arg_type": "default", "N": 8, "dtype": "float32", "M.K": [[1, 4], [2, 5], [3, 4]]}]
    }


def test_lists_of_lengths_stand_alone_and_as_they_are(tmp_path):
    cases = cases_of(tmp_path, {"flash_attention": [LISTS, {**LISTS, "q_lens": [9, 1]}]})
    found = exported(cases)["flash_attention"]
    assert [item["q_lens"] for item in found] == [[3, 5], [9, 1]]
    assert {item["arg_type"] for item in found} == {"batch_llm"}


def test_what_cannot_be_said_is_a_line_for_each_kind():
    conv = case("conv2d", **operator("conv2d").preset("small"))
    backward = Case.of("exp", operator("exp").complete({"shape": [4, 8]}), "backward")
    files, unsaid = BYTEMICROPERF.files("x", [conv, backward, case("exp", shape=[2, 4, 8]), case("exp", shape=[4, 8])])
    assert json.loads(files["x.json"]) == {
        "exp": [{"arg_type": "default", "batch_size": 4, "dim_size": 8, "dtype": "float32"}]
    }
    assert len(unsaid) == 3
    assert unsaid[0].startswith("conv2d: ")
    assert "backward" in unsaid[1]
    assert "[2, 4, 8]" in unsaid[2]


def test_nothing_to_say_is_no_file():
    files, unsaid = BYTEMICROPERF.files("x", [case("conv2d", **operator("conv2d").preset("small"))])
    assert files == {}
    assert len(unsaid) == 1


@pytest.mark.parametrize(
    ("name", "file"), [("my suite/1", "my_suite_1.json"), ("..", "workload.json"), ("a", "a.json")]
)
def test_the_file_is_named_after_the_workload(name, file):
    assert list(BYTEMICROPERF.files(name, [case("exp", shape=[4, 8])])[0]) == [file]


def test_a_workload_of_ours_through_the_library():
    workload = {"schema": 1, "name": "mine", "cases": [{"op": "exp", "params": {"shape": [[1, 8], [2, 8]]}}]}
    files, unsaid = export_workload(workload, format="bytemicroperf")
    assert unsaid == []
    assert json.loads(files["mine.json"])["exp"][0]["batch_size"] == [1, 2]
