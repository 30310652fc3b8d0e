"""Tuning logs of other systems: what is read from them, what is said of broken lines, and that they can be written
again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opmark.api.tuned import export_tuned, import_tuned, tuned
from opmark.errors import UserError
from opmark.interop.autotvm import AUTOTVM
from opmark.interop.lorien import LORIEN, plain, typed_value
from opmark.interop.metaschedule import METASCHEDULE, RECORDS, WORKLOADS
from opmark.interop.opbench.tables import OPBENCH_TABLES
from opmark.interop.triton_autotune import TRITON
from opmark.interop.tuning_logs import split_target
from opmark.plugin.registry import tuning_formats
from opmark.schema.tuned import TunedEntry, TuningTarget

LLVM = "llvm -keys=cpu -link-params=0"
CONV = [
    ["TENSOR", [1, 512, 7, 7], "float32"], ["TENSOR", [512, 512, 3, 3], "float32"], [1, 1], [1, 1, 1, 1], [1, 1],
    "NCHW", "NCHW", "float32",
]  # fmt: skip


def line(
    task: str, args: list[Any], knobs: list[Any], costs: list[float], error: int = 0, target: str = LLVM, index: int = 7
) -> dict[str, Any]:
    return {
        "input": [target, task, args, {}],
        "config": {"index": index, "code_hash": None, "entity": knobs},
        "result": [costs, error, 0.6, 1660884054.5],
        "version": 0.2,
        "tvm_version": "0.8.0",
    }


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in records))
    return path


TILED = [["tile_ic", "sp", [-1, 32]], ["unroll_kw", "ot", True]]


def test_a_log_of_autotvm_keeps_the_fastest_of_each_task(tmp_path: Path) -> None:
    path = write(
        tmp_path / "resnet-18-xgb_knob-llvm-autotvm.json",
        line("conv2d_NCHWc.x86", CONV, [["tile_ic", "sp", [-1, 8]], ["unroll_kw", "ot", False]], [0.002]),
        line("conv2d_NCHWc.x86", CONV, TILED, [0.001, 0.0012, 0.0011], index=345),
        line("conv2d_NCHWc.x86", CONV, [["tile_ic", "sp", [-1, 64]]], [1e9], error=6),
        line("dense_pack.x86", [["TENSOR", [1, 512], "float32"], ["TENSOR", [1000, 512], "float32"], None, "float32"],
             [["tile_y", "sp", [-1, 1, 1]]], [3.8e-05]),
    )  # fmt: skip
    assert AUTOTVM.recognises(path, path.read_bytes())
    log = AUTOTVM.read(path)
    conv, dense = log.entries
    assert not log.problems
    assert log.notes == ["4 trials: of each case and target the fastest is kept"]
    assert (conv.op, conv.implementation, conv.backend, conv.tuner) == (
        "conv2d", "conv2d_NCHWc.x86", "tvm-cpu", "xgb_knob",
    )  # fmt: skip
    assert (conv.params["image"], conv.params["padding"], conv.params["groups"]) == ([7, 7], 1, 1)
    assert conv.configuration == {"tile_ic": (-1, 32), "unroll_kw": True, "autotvm_index": 345}
    assert (conv.tuned_seconds, conv.trials) == (0.0011, 3)
    assert "1 failed: compiling took too long" in conv.note
    assert conv.made.startswith("2022-08-19")
    assert (dense.op, dense.params) == ("linear_no_bias", {"M": 1, "N": 1000, "K": 512, "dtype": "float32"})


def test_a_case_of_a_log_is_the_case_that_a_run_measures(tmp_path: Path) -> None:
    import opmark

    (entry,) = AUTOTVM.read(write(tmp_path / "log.json", line("conv2d_NCHWc.x86", CONV, TILED, [0.001]))).entries
    planned = opmark.plan(entry.op, params=entry.params, backend="numpy-cpu")
    assert {task.case.id for task in planned.tasks} | {one.task.case.id for one in planned.skipped} == {entry.case}


@pytest.mark.parametrize(
    ("task", "args", "op", "params"),
    [
        (
            "batch_matmul.cuda",
            [["TENSOR", [12, 128, 64], "float16"], ["TENSOR", [12, 96, 64], "float16"], [12, 128, 96], None, 0, 1],
            "batched_matmul",
            {"B": 12, "M": 128, "N": 96, "K": 64, "dtype": "float16"},
        ),
        (
            "depthwise_conv2d_nchw.cuda",
            [["TENSOR", [1, 32, 112, 112], "float32"], ["TENSOR", [32, 1, 3, 3], "float32"], [2, 2], [1, 1, 1, 1],
             [1, 1], "float32"],
            "depthwise_conv2d",
            {"batch": 1, "channels": 32, "image": [112, 112], "multiplier": 1, "kernel": [3, 3], "stride": 2,
             "padding": 1, "dilation": 1, "dtype": "float32"},
        ),
        (
            "conv2d_packed.vta",
            [["TENSOR", [1, 16, 14, 14, 1, 16], "int8"], ["TENSOR", [16, 16, 3, 3, 16, 16], "int8"], [1, 1],
             [1, 1, 1, 1], [1, 1], "NCHW1n16c", "int32"],
            None,
            {},
        ),
    ],
)  # fmt: skip
def test_tasks_become_operators(tmp_path: Path, task: str, args: list[Any], op: str | None, params: Any) -> None:
    log = AUTOTVM.read(write(tmp_path / "log.json", line(task, args, TILED, [0.001])))
    if op is None:  # the catalogue's convolutions have no int8
        assert not log.entries
        assert "int8" in log.problems[0].message
    else:
        (entry,) = log.entries
        assert (entry.op, entry.params) == (op, {**entry.params, **params})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("{", "line 1: no JSON"),
        ({"input": 3}, "line 1: expected version 0.2, got None"),
        ({**line("conv2d", CONV, TILED, [1]), "version": 0.1}, "expected version 0.2, got 0.1"),
        (line("conv1d_ncw.cuda", [], TILED, [0.1]), "the task `conv1d_ncw.cuda` is none of"),
        (line("conv2d_nchw.cuda", [["TENSOR", [1, 2], "float32"]], TILED, [0.1]), "expected a tensor of 4 or 5 or 6"),
        (line("conv2d_nchw.cuda", [*CONV[:3], [0, 1, 1, 0], [1, 1]], TILED, [0.1]), "paddings [0, 1, 1, 0]"),
        (line("conv2d_nchw.cuda", CONV, [["tile"]], [0.1]), 'the knob ["tile"] is not written as'),
        (line("conv2d_nchw.cuda", CONV, TILED, [-1.0]), "expected times above 0"),
        (line("dense.x86", [], TILED, [0.1]), "has 0 arguments, and more were expected"),
    ],
)
def test_a_broken_line_costs_one_line(tmp_path: Path, wrong: Any, message: str) -> None:
    log = AUTOTVM.read(write(tmp_path / "log.json", wrong, line("conv2d_NCHWc.x86", CONV, TILED, [0.001])))
    assert len(log.entries) == 1
    (problem,) = log.problems
    assert message in str(problem)


def test_a_log_of_autotvm_can_be_written_again(tmp_path: Path) -> None:
    cuda = "cuda -keys=cuda,gpu -max_num_threads=1024"
    records = [
        line("conv2d_NCHWc.x86", CONV, [*TILED, ["ann", "an", ["none", "vec"]], ["order", "re", [0, 2, 1]]], [0.001]),
        line("dense_large_batch.gpu",
             [["TENSOR", [128, 768], "float32"], ["TENSOR", [3072, 768], "float32"], None, "float32"],
             [["tile_x", "sp", [-1, 8, 16, 1]]], [0.0003], target=cuda),
    ]  # fmt: skip
    first = AUTOTVM.read(write(tmp_path / "log.json", *records))
    texts, left_out = AUTOTVM.files(first.entries)
    assert not left_out
    written = [json.loads(one) for one in texts["autotvm.json"].splitlines()]
    for record, again in zip(records, written, strict=True):
        assert again == {**record, "result": [record["result"][0], 0, 0.0, 1660884054.5]}
    again_path = tmp_path / "autotvm.json"
    again_path.write_text(texts["autotvm.json"])
    assert AUTOTVM.read(again_path).entries == first.entries


def _own(op: str = "conv2d", **more: Any) -> TunedEntry:
    params = {"batch": 1, "in_channels": 8, "image": [7, 7], "out_channels": 8, "kernel": [3, 3], "stride": 1,
              "padding": 1, "dilation": 1, "groups": 1, "dtype": "float32"}  # fmt: skip
    usual: dict[str, Any] = {
        "op": op, "params": params, "case": "0" * 16, "backend": "tvm-cpu", "implementation": "tvm",
        "configuration": {"tile_m": (4, 2), "vectorize": True}, "target": TuningTarget("cpu", "Some CPU @ 2.0"),
        "tuned_seconds": 0.5,
    }  # fmt: skip
    return TunedEntry(**{**usual, **more})


def test_entries_of_opmark_become_lines_of_autotvm_or_are_named() -> None:
    stays = _own(configuration={}, implementation="")
    others = _own(backend="openvino-cpu"), _own(configuration={"metaschedule": "[]"})
    texts, left_out = AUTOTVM.files([_own(), stays, _own("softmax", params={"shape": [4, 4]}), *others])
    (one,) = [json.loads(text) for text in texts["autotvm.json"].splitlines()]
    assert one["input"][:2] == ["llvm -model=Some_CPU_2.0", "conv2d.tvm"]
    assert one["config"]["entity"] == [["tile_m", "sp", [4, 2]], ["vectorize", "ot", True]]
    assert left_out == [
        "conv2d on tvm-cpu: nothing is faster than the default", "softmax on tvm-cpu: AutoTVM has no task for softmax",
        "conv2d on openvino-cpu: it is not TVM's",
        "conv2d on tvm-cpu: its trace is one of MetaSchedule: -f metaschedule",
    ]  # fmt: skip


# Lorien.


def _item(*configs: Any, **more: Any) -> dict[str, Any]:
    return {"Target": LLVM, "PrimaryRangeKey": "conv2d", "BestConfigs": list(configs), **more}


def _config(seconds: float) -> dict[str, Any]:
    text = json.dumps(line("conv2d_NCHWc.x86", CONV, TILED, [seconds]))
    return {"config": text, "latency": seconds, "log_path": " ", "framework_build_config": {"tvm": "0.8"}}


@pytest.mark.parametrize("form", ["dynamodb", "json", "yaml"])
def test_items_of_lorien_give_the_fastest_configuration(tmp_path: Path, form: str) -> None:
    import yaml

    item = _item(_config(0.003), _config(0.001), _config(0.002))
    path = tmp_path / ("items.yaml" if form == "yaml" else "items.json")
    if form == "dynamodb":
        path.write_text(json.dumps({"Items": [{name: typed_value(value) for name, value in item.items()}]}))
    else:
        path.write_text(yaml.safe_dump([item]) if form == "yaml" else json.dumps([item]))
    assert LORIEN.recognises(path, path.read_bytes())
    log = LORIEN.read(path)
    (entry,) = log.entries
    assert (entry.op, entry.tuned_seconds, entry.trials, entry.origin) == ("conv2d", 0.001, 3, "lorien")


def test_broken_items_of_lorien_are_named_by_their_place(tmp_path: Path) -> None:
    ansor = {"config": json.dumps({"i": [["[]", "llvm"]], "r": [[0.1], 0, 1, 1], "v": "v0.6"})}
    path = tmp_path / "items.json"
    path.write_text(json.dumps([{"Target": LLVM, "PrimaryRangeKey": "x"}, _item(ansor, {"config": "{"}, _config(0.1))]))
    log = LORIEN.read(path)
    assert len(log.entries) == 1
    assert [problem.where for problem in log.problems] == [
        "items.json: $.Items[0]", "items.json: $.Items[1].BestConfigs[0]", "items.json: $.Items[1].BestConfigs[1]",
    ]  # fmt: skip
    assert "Ansor" in log.problems[1].message


def test_items_of_lorien_can_be_written_again(tmp_path: Path) -> None:
    first = AUTOTVM.read(write(tmp_path / "log.json", line("conv2d_NCHWc.x86", CONV, TILED, [0.001])))
    texts, left_out = LORIEN.files(first.entries)
    assert not left_out
    path = tmp_path / "lorien.json"
    path.write_text(texts["lorien.json"])
    (item,) = plain(json.loads(texts["lorien.json"]))["Items"]
    assert item["TargetIDKeys"] == "llvm_cpu"
    assert item["PrimaryRangeKey"].startswith("conv2d_NCHWc.x86#_TENSOR__1_512_7_7__float32_#")
    (again,) = LORIEN.read(path).entries
    (before,) = first.entries
    assert (again.case, again.configuration, again.tuned_seconds) == (
        before.case, before.configuration, before.tuned_seconds,
    )  # fmt: skip


# MetaSchedule.

STEPS = [["GetSBlock", [], ["C", "main"], ["b0"]], ["GetLoops", ["b0"], [], ["l1"]]]
ARGS = [["TENSOR", "float32", [64, 32]], ["TENSOR", "float32", [32, 16]], ["TENSOR", "float32", [64, 16]]]
TARGET = {"kind": "llvm", "mcpu": "skylake", "num-cores": 2, "keys": ["cpu"], "tag": ""}


def _database(folder: Path, *records: Any) -> Path:
    folder.mkdir()
    write(folder / WORKLOADS, ["123", "cHJvZ3JhbQ=="])
    write(folder / RECORDS, *records)
    return folder


def test_a_database_of_metaschedule_is_read_and_written_again(tmp_path: Path) -> None:
    slow, fast = ([0, [[STEPS, [[1, [8, size]]]], [seconds], TARGET, ARGS]] for size, seconds in ((2, 0.2), (4, 0.1)))
    failed = [0, [[STEPS, [[1, [8, 16]]]], [1e10], TARGET, ARGS]]
    folder = _database(tmp_path / "work", slow, fast, failed)
    assert METASCHEDULE.recognises(folder, b"")
    assert METASCHEDULE.recognises(folder / RECORDS, b"")
    log = METASCHEDULE.read(folder)
    (entry,) = log.entries
    assert not log.problems
    assert (entry.op, entry.tuned_seconds, entry.trials, entry.target.chip, entry.target.threads) == (
        "tvm:C", 0.1, 3, "skylake", 2,
    )  # fmt: skip
    texts, left_out = METASCHEDULE.files([*log.entries, _own()])
    assert json.loads(texts[WORKLOADS]) == ["123", "cHJvZ3JhbQ=="]
    assert json.loads(texts[RECORDS]) == fast
    assert left_out == ["conv2d on tvm-cpu: it has no trace and no program of MetaSchedule"]


def test_what_metaschedule_found_here_is_written_for_metaschedule(tmp_path: Path) -> None:
    """A model has a record for each of its kernels."""
    pairs = [{"workload": [key, f"program {key}"], "record": [[STEPS, []], [0.1], TARGET, ARGS]} for key in "12"]
    here = _own("matmul", configuration={"metaschedule": json.dumps(pairs)}, implementation="onnx")
    texts, left_out = METASCHEDULE.files([here, here])
    assert not left_out
    assert [json.loads(text) for text in texts[WORKLOADS].splitlines()] == [["1", "program 1"], ["2", "program 2"]]
    assert [json.loads(text)[0] for text in texts[RECORDS].splitlines()] == [0, 1, 0, 1]
    _database(tmp_path / "work")
    for name, text in texts.items():
        (tmp_path / "work" / name).write_text(text)
    log = METASCHEDULE.read(tmp_path / "work")
    assert (len(log.entries), log.problems) == (2, [])


def test_broken_records_of_metaschedule_are_named_by_their_line(tmp_path: Path) -> None:
    good = [0, [[STEPS, []], [0.1], TARGET, ARGS]]
    log = METASCHEDULE.read(_database(tmp_path / "work", good, [5, good[1]], "[0, [[", {"a": 1}))
    assert [str(problem).partition("\n")[0] for problem in log.problems] == [
        "database_tuning_record.json: line 2: there is no program 5 in database_workload.json",
        "database_tuning_record.json: line 3: expected [number, [trace, seconds, target, arguments]]",
        "database_tuning_record.json: line 4: expected [number, [trace, seconds, target, arguments]]",
    ]
    (tmp_path / "work" / WORKLOADS).unlink()
    with pytest.raises(UserError, match=r"has no database_workload\.json"):
        METASCHEDULE.read(tmp_path / "work")


# Triton.

WARPS = {"num_ctas": 1, "num_stages": 3, "maxnreg": None, "pre_hook": None}


def test_the_cache_of_triton_is_read_and_written_again(tmp_path: Path) -> None:
    key = [1024, 512, "torch.float16"]
    timings = [
        [{"kwargs": {"BLOCK_M": 64}, "num_warps": 4, **WARPS}, [0.2, 0.19, 0.21]],
        [{"kwargs": {"BLOCK_M": 128}, "num_warps": 8, **WARPS}, [0.1, 0.09, 0.11]],
        [{"kwargs": {"BLOCK_M": 256}, "num_warps": 8, **WARPS}, [float("inf")] * 3],
        "nothing",
    ]
    path = tmp_path / "matmul_kernel.autotune.json"
    path.write_text(json.dumps({"key": key, "configs_timings": timings}))
    assert TRITON.recognises(path, b"")
    log = TRITON.read(path)
    (entry,) = log.entries
    assert (entry.op, entry.dtype, entry.trials) == ("triton:matmul_kernel", "float16", 3)
    assert entry.configuration == {"BLOCK_M": 128, "num_warps": 8, "num_ctas": 1, "num_stages": 3}
    assert entry.tuned_seconds == pytest.approx(0.0001)
    assert [problem.where for problem in log.problems] == ["matmul_kernel.autotune.json: $.configs_timings[3]"]
    texts, left_out = TRITON.files([*log.entries, _own()])
    ((name, text),) = texts.items()
    assert name == f"{entry.case}/matmul_kernel.autotune.json"
    written = json.loads(text)
    assert written["key"] == key
    assert written["configs_timings"][0][0]["kwargs"] == {"BLOCK_M": 128}
    assert left_out == ["conv2d on tvm-cpu: no configuration of a GPU with a time"]


PRINTED = """\
Triton autotuning for function add_kernel,
with key as (1024, 'torch.float32'),
finished after 0.48s,
best config selected: BLOCK_SIZE: 128, num_warps: 4, num_ctas: 1, num_stages: 2, maxnreg: None;
"""


def test_what_triton_prints_has_a_configuration_and_no_time(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(PRINTED)
    log = TRITON.read(path)
    (entry,) = log.entries
    assert entry.configuration == {"BLOCK_SIZE": 128, "num_warps": 4, "num_ctas": 1, "num_stages": 2}
    assert entry.params["key"] == json.dumps("(1024, 'torch.float32')")
    assert entry.tuned_seconds is None
    assert log.notes == ["what Triton prints has the chosen configuration and no time"]
    path.write_text("nothing of interest\n")
    assert "no line of Triton's autotuner" in TRITON.read(path).problems[0].message


# OpBench's tables.


def test_costs_of_a_task_of_opbench(tmp_path: Path) -> None:
    folder = tmp_path / "bert_xgb_knob_cuda"
    folder.mkdir()
    path = folder / "3.csv"
    path.write_text(
        "task_name,trial,costs,all_cost,best_cost,best_all_cost,cmp\n"
        "dense_small_batch.gpu,1,4.5e-06,1.4,4.3e-06,1.4,0.9\n"
        "dense_small_batch.gpu,2,4.3e-06,1.4,4.3e-06,1.4,1.0\n"
        "dense_small_batch.gpu,3,1000000000.0,1.4,4.3e-06,1.4,0.0\n"
        "dense_small_batch.gpu,four,1,1,1,1,1\n"
    )
    assert OPBENCH_TABLES.recognises(path, path.read_bytes())
    log = OPBENCH_TABLES.read(path)
    (entry,) = log.entries
    assert (entry.op, entry.params, entry.tuner) == (
        "autotvm:dense_small_batch.gpu", {"model": "bert", "task": "3"}, "xgb_knob",
    )  # fmt: skip
    assert (entry.tuned_seconds, entry.configuration, entry.trials) == (4.3e-06, {"trial": 2}, 3)
    assert [problem.where for problem in log.problems] == ["3.csv: line 5"]


def test_times_of_models_of_opbench_are_corrected(tmp_path: Path) -> None:
    path = tmp_path / "cuda.csv"
    path.write_text("modelname,tuner,0,100,3000\nresnet-18,xgb,0.21,0.25,0.22\nyolov3,ga,2.0,1.0,0.5\nbert,xgb,,1,2\n")
    log = OPBENCH_TABLES.read(path)
    resnet, yolo = log.entries
    assert (resnet.op, resnet.tuned_seconds) == ("model:resnet-18", 0.0022)
    assert resnet.default_seconds == pytest.approx(0.0021)
    assert resnet.note.endswith("slower than the default at the end")
    assert (yolo.op, yolo.tuned_seconds, yolo.configuration) == ("model:yolov3-tiny", 0.005, {"trials": 3000})
    assert [problem.where for problem in log.problems] == ["cuda.csv: line 4"]
    texts, _ = OPBENCH_TABLES.files(log.entries)
    path.write_text(texts["cuda.csv"])
    assert [(one.op, one.default_seconds) for one in OPBENCH_TABLES.read(path).entries] == [
        ("model:resnet-18", pytest.approx(0.0021)),
        ("model:yolov3-tiny", 0.02),
    ]


def test_another_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b,c\n1,2,3\n")
    assert not OPBENCH_TABLES.recognises(path, path.read_bytes())
    with pytest.raises(UserError, match="expected a table with the columns task_name, trial, costs or modelname"):
        OPBENCH_TABLES.read(path)


def test_every_format_is_registered_and_recognises_its_own_files_alone(tmp_path: Path) -> None:
    formats = tuning_formats()
    assert {"autotvm", "lorien", "metaschedule", "opbench", "triton"} <= formats.keys()
    log = write(tmp_path / "log.json", line("conv2d", CONV, TILED, [1.0]))
    assert [name for name, one in formats.items() if one.recognises(log, log.read_bytes())] == ["autotvm"]


def test_attributes_of_a_target() -> None:
    assert split_target("llvm -mcpu=x -mattr +a,+b -flag") == ("llvm", {"mcpu": "x", "mattr": "+a,+b", "flag": ""})


def test_logs_go_into_the_store_and_out_again(tmp_path: Path) -> None:
    good = line("conv2d_NCHWc.x86", CONV, TILED, [0.001])
    path, db = write(tmp_path / "log.json", good, "{"), tmp_path / "store.db"
    read = import_tuned(path, db=db)
    assert (read.entries, read.new, len(read.problems)) == (1, 1, 1)
    assert import_tuned(path, db=db).new == 0
    (found,) = tuned("conv2d", db=db)
    assert found.stale  # it was tuned on another machine, and is not applied
    assert export_tuned(tmp_path / "out.json", format="autotvm", db=db) == (1, [])
    assert json.loads((tmp_path / "out.json").read_text())["config"] == good["config"]
    _, left_out = export_tuned(tmp_path / "work", format="metaschedule", db=db)
    assert len(left_out) == 1
    with pytest.raises(UserError, match="no format of tuning logs named `ansor`"):
        import_tuned(path, format="ansor", db=db)


def test_what_was_imported_goes_through_a_file_of_opmark_and_one_kernel_of_triton_keeps_its_name(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    cache = tmp_path / "mine_kernel.autotune.json"
    config = {"kwargs": {"BLOCK": 64}, "num_warps": 4, "num_ctas": 1, "num_stages": 3}
    cache.write_text(json.dumps({"key": ["1024"], "configs_timings": [[config, [0.01, 0.01, 0.01]]]}))
    log = write(tmp_path / "log.json", line("conv2d_NCHWc.x86", CONV, TILED, [0.001]))
    import_tuned(log, cache, db=first)
    assert export_tuned(tmp_path / "own.json", db=first) == (2, [])
    again = import_tuned(tmp_path / "own.json", db=second)
    assert (again.new, again.problems) == (2, [])

    export_tuned(tmp_path / "triton", format="triton", db=first)
    (file,) = (tmp_path / "triton").rglob("*.*")
    assert import_tuned(file, db=tmp_path / "third.db").new == 1
    (found,) = tuned(db=tmp_path / "third.db")
    assert found.entry.op == "triton:mine_kernel"


def test_a_format_that_can_express_nothing_writes_no_file(tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    import_tuned(write(tmp_path / "log.json", line("conv2d_NCHWc.x86", CONV, TILED, [0.001])), db=db)
    count, left_out = export_tuned(tmp_path / "out", format="metaschedule", db=db)
    assert (count, len(left_out), (tmp_path / "out").exists()) == (0, 1, False)


def test_names_in_imported_entries_do_not_lead_out_of_the_folder_of_an_export(tmp_path: Path) -> None:
    cache, own, db = tmp_path / "mine.autotune.json", tmp_path / "own.json", tmp_path / "store.db"
    config = {"kwargs": {"BLOCK": 64}, "num_warps": 4, "num_ctas": 1, "num_stages": 3}
    cache.write_text(json.dumps({"key": ["1024"], "configs_timings": [[config, [0.01, 0.01, 0.01]]]}))
    import_tuned(cache, db=tmp_path / "first.db")
    export_tuned(own, db=tmp_path / "first.db")
    own.write_text(own.read_text().replace("triton:mine", "triton:../../mine"))
    assert import_tuned(own, db=db).new == 1
    with pytest.raises(UserError, match="outside of"):
        export_tuned(tmp_path / "out", format="triton", db=db)
    assert sorted(tmp_path.glob("mine*")) == [cache]
