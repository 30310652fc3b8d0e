"""ByteMicroPerf's report of 2026 (xpu-perf): its tree, its lines, its table, its formulas."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from opmark.catalogue.expansion import expand
from opmark.interop.bytemicroperf.importer import BYTEMICROPERF
from opmark.interop.bytemicroperf.report_v3 import REPORT, TARGETS, V3Report
from opmark.plugin import Results
from opmark.plugin.registry import operator
from opmark.schema import EFFORTS, Case, Kernel, Measurement, Record, Run, Settings, Task, Verification, Workload
from opmark.schema.machine import Level, Peaks

RUN = Run("20300101-000000-abcd", "2030-01-01T00:00:00.000+00:00", "plan", 1, version="9.9")
GPU = "NVIDIA H100 80GB HBM3"
FACTS = {"cpu": "a host", "gpu": GPU, "device": "cuda", "gpu_memory": 80 << 30, "torch": "2.0", "cuda": "12.1"}
FOLDER = f"GPU/{GPU}"


def make(op: str, params: dict[str, Any], samples: list[float] | None = None, **fields: Any) -> Record:
    case = Case.of(op, operator(op).complete(params), fields.pop("phase", "forward"))
    backend, provider = fields.pop("backend", "torch-cuda"), fields.pop("provider", "torch")
    task = Task(case, backend, provider, Settings(1, "quick", EFFORTS["quick"]))
    if samples is None:
        return Record(task, "oom", "too large", environment="here")
    kernels = (Kernel("first", 1, 1e-6), Kernel("second", 2, 1e-6))
    taken = Measurement("device_time", "cold", "cupti", samples, 1, 0.0, 10, 0.0, "precise", kernels=kernels)
    cost = operator(op).cost(case.params)
    return Record(task, "ok", measurements=(taken,), cost=cost, verification=Verification("full"), environment="here")


def files(*records: Record, exporter: V3Report = REPORT) -> dict[str, str]:
    return dict(exporter.files(Results(RUN, records, {"here": FACTS}, {})))


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


GEMM = {"M": 128, "K": 64, "N": 32, "dtype": "float16"}


def test_the_tree() -> None:
    assert sorted(files(make("matmul", GEMM, [1e-6]))) == [
        f"{FOLDER}/gemm/torch/gemm-torch.csv", f"{FOLDER}/gemm/torch/gemm-torch.jsonl", f"{FOLDER}/info.json",
    ]  # fmt: skip


def test_a_line_has_its_keys_and_its_formulas() -> None:
    (line,) = lines(files(make("matmul", GEMM, [1e-6, 3e-6]))[f"{FOLDER}/gemm/torch/gemm-torch.jsonl"])
    assert list(line)[:5] == ["sku_name", "op_name", "provider", "arguments", "targets"]
    assert (line["sku_name"], line["op_name"], line["provider"]) == (GPU, "gemm", "torch")
    assert line["arguments"] == {"arg_type": "default", "M": 128, "K": 64, "N": 32, "dtype": "float16"}
    read, write, flops = 2 * (128 * 64 + 64 * 32), 2 * 128 * 32, 2 * 128 * 64 * 32
    assert line["targets"] == {
        "latency(us)": 2.0,
        "read_bytes(B)": read,
        "write_bytes(B)": write,
        "io_bytes(B)": read + write,
        "mem_bw(GB/s)": pytest.approx((read + write) / 2e-6 / 1e9, rel=1e-3),
        "calc_flops": flops,
        "calc_flops_power(tflops)": pytest.approx(flops / 2e-6 / 1e12, rel=1e-3),
        "calc_mem_ratio": pytest.approx(flops / (read + write), rel=1e-3),
        "kernels": ["first", "second"],
    }
    assert tuple(line["targets"]) == TARGETS
    beside = line["opmark"]
    assert (beside["quantity"], beside["cache"], beside["median(us)"], beside["samples"]) == (
        "device_time",
        "cold",
        2.0,
        2,
    )
    assert beside["verified"] == "full"
    (once,) = lines(files(make("matmul", GEMM, [1e-6]))[f"{FOLDER}/gemm/torch/gemm-torch.jsonl"])
    assert [once["opmark"][name] for name in ("low(us)", "high(us)", "noise(%)")] == [None] * 3


@given(st.integers(1, 4096), st.integers(1, 4096), st.floats(1e-9, 10.0))
def test_the_rates_follow_from_what_the_line_itself_says(rows: int, width: int, seconds: float) -> None:
    text = files(make("exp", {"shape": [rows, width], "dtype": "float32"}, [seconds]))
    (line,) = lines(text[f"{FOLDER}/exp/torch/exp-torch.jsonl"])
    found = line["targets"]
    assert found["io_bytes(B)"] == found["read_bytes(B)"] + found["write_bytes(B)"] == 8 * rows * width
    assert found["latency(us)"] == pytest.approx(seconds * 1e6, rel=1e-3)
    assert found["mem_bw(GB/s)"] == pytest.approx(found["io_bytes(B)"] / seconds / 1e9, rel=1e-3)
    assert found["calc_flops_power(tflops)"] == pytest.approx(found["calc_flops"] / seconds / 1e12, rel=1e-3)


def test_a_failed_case_is_a_line_with_its_reason_and_no_targets() -> None:
    text = files(make("exp", {"shape": [1, 2], "dtype": "float32"}))
    (line,) = lines(text[f"{FOLDER}/exp/torch/exp-torch.jsonl"])
    assert (line["targets"], line["error"]) == ({}, "oom: too large")
    (row,) = table(text[f"{FOLDER}/exp/torch/exp-torch.csv"])
    assert (row["error"], row["latency(us)"]) == ("oom: too large", "")


def test_the_table_says_what_the_lines_say_in_columns_that_stay() -> None:
    records = [make("matmul", GEMM, [1e-6]), make("matmul", {**GEMM, "M": 1}), make("matmul", {**GEMM, "M": 2}, [2e-6])]
    text = files(*records)
    found, said = (
        table(text[f"{FOLDER}/gemm/torch/gemm-torch.csv"]),
        lines(text[f"{FOLDER}/gemm/torch/gemm-torch.jsonl"]),
    )
    columns = list(found[0])
    arguments = list(said[0]["arguments"])
    assert columns[: 3 + len(arguments) + len(TARGETS) + 1] == [
        "sku_name", "op_name", "provider", *arguments, *TARGETS, "error",
    ]  # fmt: skip
    for row, line in zip(found, said, strict=True):
        assert row["M"] == str(line["arguments"]["M"])
        assert row["latency(us)"] == str(line["targets"].get("latency(us)", ""))
    assert json.loads(found[0]["kernels"]) == ["first", "second"]
    alone = table(files(records[2])[f"{FOLDER}/gemm/torch/gemm-torch.csv"])
    assert [name for name in columns if name in alone[0]] == list(alone[0])


def test_a_gradient_stands_next_to_its_operator_and_no_column_twice() -> None:
    forward, backward = make("matmul", GEMM, [1e-6]), make("matmul", GEMM, [2e-6], phase="backward")
    both, alone = files(forward, backward), files(forward)
    assert both.keys() == alone.keys()
    first, second = lines(both[f"{FOLDER}/gemm/torch/gemm-torch.jsonl"])
    assert {line["op_name"] for line in (first, second)} == {"gemm"}
    assert second["arguments"] == {**first["arguments"], "phase": "backward"}
    text = both[f"{FOLDER}/gemm/torch/gemm-torch.csv"]
    header = text.splitlines()[0]
    assert header == alone[f"{FOLDER}/gemm/torch/gemm-torch.csv"].splitlines()[0]
    assert len(set(header.split(","))) == len(header.split(","))
    assert [row["phase"] for row in table(text)] == ["forward", "backward"]


def test_an_argument_that_is_called_as_a_column_has_one_of_its_own() -> None:
    record = make("exp", {"shape": [2, 3]}, [1e-6])
    case = Case.of("torch.something", {"samples": 3, "phase": "x"}, "forward")
    record = replace(record, task=replace(record.task, case=case))
    (row,) = table(files(record)[f"{FOLDER}/torch.something/torch/torch.something-torch.csv"])
    assert (row["arguments.samples"], row["samples"]) == ("3", "1")
    assert (row["arguments.phase"], row["phase"]) == ("x", "forward")


def test_a_chip_that_was_not_measured_is_noted() -> None:
    record = make("exp", {"shape": [2, 3]}, [1e-6])
    for name, noted in ((GPU, False), ("Other", True)):
        chips = {"here": Peaks(name, "me", {}, [Level("memory", 1e12)])}
        info = REPORT.files(Results(RUN, [record], {"here": FACTS}, chips))[f"{FOLDER}/info.json"]
        notes = json.loads(info)["opmark"]["notes"]
        assert (f"the utilisation is against `{name}`, but `{GPU}` was measured" in notes) == noted


@pytest.mark.parametrize(
    ("task", "point"),
    [
        ("rms_norm", {"arg_type": "llm", "num_tokens": 8, "hidden_size": 64, "dtype": "bfloat16"}),
        ("rms_norm", {"arg_type": "default", "batch_size": 8, "dim_size": 64, "dtype": "bfloat16"}),
        ("layer_norm", {"arg_type": "llm", "num_tokens": 8, "hidden_size": 64, "dtype": "bfloat16"}),
        ("rms_norm", {"arg_type": "default", "batch_size": 8, "dim_size": 64, "dtype": "bfloat16",
                      "add_residual": True}),
        ("gemm", {"arg_type": "llm", "num_tokens": 8, "hidden_size": 64, "new_hidden_size": 32, "dtype": "bfloat16"}),
        ("gemm", {"arg_type": "default", "M": 8, "K": 64, "N": 32, "dtype": "int8", "dst_dtype": "bfloat16"}),
        # The second generation: other names, and arguments that change nothing here.
        ("flash_attention", {"arg_type": "llm", "dtype": "bfloat16", "cache_dtype": "int8", "mode": "prefill",
                             "q_head_num": 8, "kv_head_num": 1, "head_dim": 128, "batch_size": 1, "cache_len": 0,
                             "q_seq_len": 128}),
        ("moe_quant_matmul", {"arg_type": "llm", "dtype": "int8", "dst_dtype": "bfloat16", "hidden_size": 64,
                              "new_hidden_size": 32, "sp_size": 1, "num_tokens": 8}),
        ("moe_quant_group_gemm", {"arg_type": "llm", "dtype": "int8", "dst_dtype": "bfloat16", "world_size": 8,
                                  "rank": 0, "num_shared_experts": 0, "dp_size": 1, "sp_size": 1, "num_experts": 64,
                                  "topk": 4, "ep_size": 8, "hidden_size": 64, "new_hidden_size": 32,
                                  "num_tokens": 32}),
        # The third generation: no argument is lost, and none is gained.
        ("flash_attention", {"arg_type": "llm", "attn_mode": "prefill", "dtype": "bfloat16", "cache_dtype": "bfloat16",
                             "qk_compute_dtype": "bfloat16", "pv_compute_dtype": "bfloat16", "dst_dtype": "bfloat16",
                             "q_head_num": 8, "kv_head_num": 1, "head_dim": 128, "block_size": 512, "batch_size": 1,
                             "cache_len": 0, "q_len": 64}),
        ("moe_quant_group_gemm_combine", {"arg_type": "llm", "dtype": "int8", "w_dtype": "int8",
                                          "compute_dtype": "int8", "dst_dtype": "bfloat16", "num_experts": 8,
                                          "topk": 2, "ep_size": 4, "hidden_size": 64, "new_hidden_size": 32,
                                          "num_tokens": 16}),
        ("quant_matmul", {"arg_type": "llm", "dtype": "int8", "w_dtype": "int8", "compute_dtype": "int8",
                          "dst_dtype": "bfloat16", "sp_size": 1, "hidden_size": 64, "new_hidden_size": 32,
                          "num_tokens": 8}),
        ("add", {"arg_type": "default", "dtype": "half", "batch_size": 8, "dim_size": 64, "vendor": "mine"}),
    ],
)  # fmt: skip
def test_arguments_are_reported_word_for_word(task: str, point: dict[str, Any]) -> None:
    (line,) = lines(files(imported({task: [point]}))[f"{FOLDER}/{task}/torch/{task}-torch.jsonl"])
    assert (line["op_name"], line["arguments"]) == (task, point)


def imported(file: dict[str, Any]) -> Record:
    """A record of the only case of a file."""
    entries = BYTEMICROPERF.read(Path("x.json"), file, 0).entries
    (case,) = expand(Workload(1, "x", list(entries)), operator)
    record = make("exp", {"shape": [2, 3]}, [1e-6])
    return replace(record, task=replace(record.task, case=case))


def test_points_that_are_one_case_have_a_line_each() -> None:
    tokens = {"arg_type": "llm", "num_tokens": 8, "hidden_size": 64, "dtype": "bfloat16"}
    rows = {"arg_type": "default", "batch_size": 8, "dim_size": 64, "dtype": "bfloat16", "add_residual": True}
    found = files(imported({"rms_norm": [rows, {**tokens, "add_residual": True}], "add_rms_norm": [tokens, tokens]}))
    first, second = lines(found[f"{FOLDER}/rms_norm/torch/rms_norm-torch.jsonl"])
    (other,) = lines(found[f"{FOLDER}/add_rms_norm/torch/add_rms_norm-torch.jsonl"])
    assert [line["arguments"] for line in (first, second, other)] == [rows, {**tokens, "add_residual": True}, tokens]
    assert len({line["opmark"]["case"] for line in (first, second, other)}) == 1
    results = Results(RUN, [imported({"add_rms_norm": [tokens]})], {"here": FACTS}, {})
    assert not [path for path in REPORT.files(results, "rms_norm") if path.endswith("jsonl")]


def test_an_operator_without_flops_has_none_and_not_an_unknown_number() -> None:
    text = files(make("copy", {"n": 1024, "dtype": "float32"}, [1e-6]))
    (line,) = lines(text[f"{FOLDER}/device2device/torch/device2device-torch.jsonl"])
    assert (line["targets"]["calc_flops"], line["targets"]["calc_flops_power(tflops)"]) == (0, 0.0)
    assert line["targets"]["calc_mem_ratio"] == 0


def test_what_it_does_not_have_goes_by_our_name_and_parameters() -> None:
    params = {"shape": [2, 3], "dtype": "float32"}
    (line,) = lines(files(make("tanh", params, [1e-6]))[f"{FOLDER}/tanh/torch/tanh-torch.jsonl"])
    assert line["arguments"] == operator("tanh").complete(params)
    backward = files(make("exp", params, [1e-6], phase="backward"))
    (line,) = lines(backward[f"{FOLDER}/exp/torch/exp-torch.jsonl"])
    assert line["arguments"]["phase"] == "backward"


def test_providers_have_folders_of_their_own() -> None:
    found = files(make("exp", {"shape": [2, 3]}, [1e-6]), make("exp", {"shape": [2, 3]}, [1e-6], provider="compiled"))
    assert {path.split("/")[3] for path in found if path.endswith("jsonl")} == {"torch", "compiled"}


def test_the_folder_can_be_called_as_the_command_line_did() -> None:
    found = files(make("exp", {"shape": [2, 3]}, [1e-6]), exporter=V3Report("NPU"))
    assert {path.split("/")[0] for path in found} == {"NPU"}


def test_the_machine_is_described() -> None:
    info = json.loads(files(make("exp", {"shape": [2, 3]}, [1e-6]))[f"{FOLDER}/info.json"])
    assert info["backend_type"] == "GPU"
    assert info["provider"] == {"torch": "2.0"}
    assert info["backend"] == {
        "device_name": GPU, "device_memory_mb": 81920, "torch_version": "2.0", "torch_cuda_version": "12.1",
    }  # fmt: skip
    assert info["opmark"]["run"] == RUN.id
    assert info["opmark"]["notes"]


def test_a_name_with_a_slash_stays_one_folder() -> None:
    record = make("exp", {"shape": [2, 3]}, [1e-6], provider="a/b:c")
    assert f"{FOLDER}/exp/a_b_c/exp-a_b_c.jsonl" in files(record)
