"""ByteMicroPerf's report of 2024: its tree, its keys, its formulas, and where it was wrong."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from opmark.interop.bytemicroperf.report_v1 import REPORT, V1Report
from opmark.plugin import Results
from opmark.plugin.registry import operator
from opmark.schema import EFFORTS, Case, Caution, Cost, Measurement, Record, Run, Settings, Task, Verification
from opmark.schema.machine import Level, Peaks

RUN = Run("20300101-000000-abcd", "2030-01-01T00:00:00.000+00:00", "plan", 1, version="9.9")
HOST, GPU = "Intel(R) Xeon(R) Platinum 8336C CPU @ 2.30GHz", "NVIDIA A800-SXM4-80GB"
FACTS = {"cpu": HOST, "gpu": GPU, "device": "cuda"}
CHIP = Peaks(GPU, "datasheet", {}, [Level("L2", 1e13, 1 << 25), Level("memory", 2039e9)])

ORIGINAL = [
    "Dtype", "Tensor Shapes", "Read IO Size(MB)", "Write IO Size(MB)", "Memory Size(MB)", "Kernel bandwidth(GB/s)",
    "Bandwidth Utilization(%)", "Avg latency(us)", "QPS",
]  # fmt: skip


def measured(quantity: str, cache: str, samples: list[float]) -> Measurement:
    return Measurement(quantity, cache, "virtual", samples, 1, 0.0, 10, 0.0, "count")  # type: ignore[arg-type]


def make(op: str, params: dict[str, Any], samples: list[float] | None = None, **fields: Any) -> Record:
    """A record on a GPU, with the cost that the catalogue knows."""
    case = Case.of(op, operator(op).complete(params), fields.pop("phase", "forward"), (), (), fields.pop("sources", ()))
    settings = Settings(1, "quick", EFFORTS["quick"], process=fields.pop("process", 0))
    task = Task(case, fields.pop("backend", "torch-cuda"), "torch", settings)
    if samples is None:
        return Record(task, fields.pop("status", "oom"), fields.pop("reason", "too large"), **fields)
    taken = fields.pop("measurements", (measured("device_time", "cold", samples),))
    cost = fields.pop("cost", operator(op).cost(case.params))
    return Record(
        task, "ok", measurements=taken, cost=cost, verification=Verification("full"), environment="here", **fields
    )


def report(*records: Record, chip: Peaks | None = CHIP, exporter: V1Report = REPORT) -> dict[str, Any]:
    chips = {"here": chip} if chip else {}
    return {p: json.loads(t) for p, t in exporter.files(Results(RUN, records, {"here": FACTS}, chips)).items()}


def entry(*records: Record, **more: Any) -> dict[str, Any]:
    (found,) = report(*records, **more).values()
    (only,) = found["Performance"]
    return dict(only)


EXP = {"shape": [256, 8192], "dtype": "float32"}


def test_the_example_of_the_readme_with_the_right_qps() -> None:
    found = report(make("exp", EXP, [9.37e-6]))
    whole = found["GPU/exp/result-float32.json"]
    header = {key: whole[key] for key in ("Operator", "Backend", "Host Info", "Device Info")}
    assert header == {"Operator": "EXP", "Backend": "GPU", "Host Info": HOST, "Device Info": GPU}
    (performance,) = whole["Performance"]
    assert {key: performance[key] for key in ORIGINAL} == {
        "Dtype": "float32",
        "Tensor Shapes": [[256, 8192]],
        "Read IO Size(MB)": 8.0,
        "Write IO Size(MB)": 8.0,
        "Memory Size(MB)": 16.0,
        "Kernel bandwidth(GB/s)": 1790.52,
        "Bandwidth Utilization(%)": 87.81,
        "Avg latency(us)": 9.37,
        "QPS": pytest.approx(27_321_238, abs=0.5),
    }
    assert list(performance)[: len(ORIGINAL)] == ORIGINAL
    assert any("27321.24" in note for note in whole["Notes"])


def test_the_latency_is_the_mean_and_the_median_stands_beside_it() -> None:
    found = entry(make("exp", EXP, [1e-6, 2e-6, 9e-6]))
    assert (found["Avg latency(us)"], found["Median latency(us)"], found["Samples"]) == (4.0, 2.0, 3)
    assert found["Interval(us)"] == [1.0, 9.0]
    assert (found["Verified"], found["Implementation"]) == ("full", "torch")


def test_one_sample_has_no_interval_and_no_noise() -> None:
    found = entry(make("exp", EXP, [3e-6]))
    assert (found["Median latency(us)"], found["Samples"]) == (3.0, 1)
    assert (found["Interval(us)"], found["Noise(%)"]) == (None, None)
    several = entry(make("exp", EXP, [3e-6]), make("exp", EXP, [4e-6], process=1))
    assert several["Interval(us)"] is not None
    assert several["Noise(%)"] is None


def test_doubts_are_named() -> None:
    taken = replace(measured("latency", "warm", [1e-6]), cautions=(Caution("noisy", "it was"),))
    assert entry(make("exp", EXP, [], measurements=(taken,)))["Warnings"] == ["noisy"]
    assert entry(make("exp", EXP, [1e-6]))["Warnings"] == []


def test_several_processes_are_one_entry() -> None:
    found = entry(make("exp", EXP, [1e-6, 3e-6]), make("exp", EXP, [4e-6, 6e-6], process=1))
    assert found["Avg latency(us)"] == 3.5


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([("device_time", "cold", 2e-6), ("device_time", "warm", 1e-6)], ("device_time", "cold", 2.0)),
        ([("device_time", "warm", 1e-6), ("latency", "cold", 9e-6)], ("device_time", "warm", 1.0)),
        ([("latency", "warm", 9e-6), ("throughput", "warm", 1e-6)], ("latency", "warm", 9.0)),
        ([("device_span", "warm", 3e-6), ("event_time", "cold", 5e-6)], ("device_span", "warm", 3.0)),
        ([("event_time", "cold", 5e-6)], ("event_time", "cold", 5.0)),
    ],
)  # fmt: skip
def test_the_quantity_that_is_reported_is_named(taken: list[Any], expected: tuple[str, str, float]) -> None:
    measurements = tuple(measured(quantity, cache, [seconds]) for quantity, cache, seconds in taken)
    found = entry(make("exp", EXP, [], measurements=measurements))
    assert (found["Quantity"], found["Cache"], found["Avg latency(us)"]) == expected


def test_without_a_datasheet_there_is_no_utilization_and_the_notes_say_why() -> None:
    (whole,) = report(make("exp", EXP, [1e-6]), chip=None).values()
    (performance,) = whole["Performance"]
    assert (performance["Bandwidth Utilization(%)"], performance["Compute Utilization(%)"]) == (None, None)
    assert any(f"no datasheet of `{GPU}` is known" in note and "--vendor_path" in note for note in whole["Notes"])


GEMM = {"M": 512, "K": 512, "N": 512, "dtype": "float16"}
FULL = replace(CHIP, flops={"float16": 312e12, "float32": 19.5e12})


def test_the_rate_of_arithmetic_its_share_of_the_peak_and_what_limits_it() -> None:
    large = {**GEMM, "M": 8192, "K": 8192, "N": 8192}
    found = entry(make("matmul", large, [5e-3]), chip=FULL)
    rate = 2 * 8192**3 / 5e-3 / 1e12
    assert found["FLOP rate(TFLOP/s)"] == pytest.approx(rate, rel=1e-3)
    assert found["Compute Utilization(%)"] == pytest.approx(100 * rate / 312, rel=1e-3)
    assert found["Bound"] == "compute"
    assert entry(make("exp", EXP, [1e-5]), chip=FULL)["Bound"] == "memory"


def test_calibrated_peaks_have_keys_of_their_own() -> None:
    measured_peaks = Peaks(GPU, "calibrate", {"float32": 15e12}, [Level("memory", 1800e9)])
    record = make("exp", EXP, [9.37e-6])
    for chips in ({"here": FULL}, {}):
        results = Results(RUN, [record], {"here": FACTS}, chips, {"here": measured_peaks})
        (found,) = json.loads(REPORT.files(results)["GPU/exp/result-float32.json"])["Performance"]
        assert found["Calibrated bandwidth(GB/s)"] == 1800
        assert found["Calibrated Utilization(%)"] == pytest.approx(100 * 1790.52 / 1800, rel=1e-4)
        assert found["Bound"] == "memory"
        assert found["Bandwidth Utilization(%)"] == (87.81 if chips else None)


@pytest.mark.parametrize(
    ("record", "chip", "says"),
    [
        (make("exp", EXP, [1e-6]), CHIP, "has no peak for float32"),
        (make("exp", EXP, [1e-6]), replace(FULL, levels=[]), "has no bandwidth of the memory"),
        (make("copy", {"n": 4096, "dtype": "float32"}, [1e-6]), FULL, "without arithmetic"),
        (make("exp", EXP, [1e-6], view=True), FULL, "the bytes that a case moves are not known"),
    ],
)
def test_an_empty_utilisation_says_why(record: Record, chip: Peaks, says: str) -> None:
    (whole,) = report(record, chip=chip).values()
    assert any("is empty" in note and says in note for note in whole["Notes"])


def test_nothing_is_said_to_be_empty_that_is_not() -> None:
    (whole,) = report(make("exp", EXP, [1e-6]), chip=FULL).values()
    assert not any("empty" in note for note in whole["Notes"])


def test_the_header_has_nodes_and_a_date_as_bytemicroperf_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FACTS, "numa", "2;0-31;32-63")
    (whole,) = report(make("exp", EXP, [1e-6])).values()
    assert list(whole)[:7] == [
        "Operator", "Backend", "Host Info", "Numa Info", "Device Info", "Version", "Execution Date",
    ]  # fmt: skip
    assert whole["Numa Info"] == "2;0-31;32-63"
    written = datetime.strptime(whole["Execution Date"], "%Y-%m-%d %H:%M:%S").astimezone()
    assert written == datetime.fromisoformat(RUN.started)


@pytest.mark.parametrize(
    ("op", "params", "name", "shapes", "batch"),
    [
        ("matmul", {"M": 4, "K": 8, "N": 16}, "gemm", [[4, 8], [8, 16]], 4),
        ("gemv", {"M": 16, "K": 8}, "gemv", [[1, 8], [8, 16]], 1),
        ("batched_matmul", {"B": 3, "M": 4, "K": 8, "N": 16}, "batch_gemm", [[3, 4, 8], [3, 8, 16]], 3),
        ("grouped_gemm", {"M": [1, 2], "K": 8, "N": 16}, "group_gemm", [[[1, 8], [8, 16]], [[2, 8], [8, 16]]], 1),
        ("add", {"shape": [4, 8]}, "add", [[4, 8], [4, 8]], 4),
        ("layer_norm", {"shape": [4, 8]}, "layernorm", [[4, 8]], 4),
        ("random_exponential", {"shape": [4, 8]}, "exponential", [[4, 8]], 4),
        ("topk", {"shape": [4, 8], "k": 2}, "topk", [[4, 8], [4, 2]], 4),
        ("scatter_rows_inplace", {"shape": [4, 8], "indices": 4}, "scatter", [[4, 8]], 4),
        ("gather_rows", {"shape": [4, 8], "indices": 2}, "gather", [[4, 8], [2, 8]], 4),
        ("index_add_inplace", {"shape": [4, 8], "indices": 2}, "index_add", [[4, 8], [2, 8]], 4),
        ("hash_table", {"entries": 64, "dim": 8, "batch": 5, "lookups": 3}, "hash_table", [[64, 8], [5, 3]], 5),
        ("copy", {"n": 4096}, "device2device", [[4, 1024]], 4),
    ],
)
def test_operators_go_by_its_names_with_its_shapes_and_its_batch(
    op: str, params: dict[str, Any], name: str, shapes: list[Any], batch: int
) -> None:
    found = report(make(op, {**params, "dtype": "float32"}, [2e-6]))
    assert list(found) == [f"GPU/{name}/result-float32.json"]
    (whole,) = found.values()
    (performance,) = whole["Performance"]
    assert (whole["Operator"], performance["Tensor Shapes"]) == (name.upper(), shapes)
    assert (performance["Batch"], performance["QPS"]) == (batch, batch * 5e5)


def test_where_its_bytes_are_others_a_note_says_so() -> None:
    (whole,) = report(make("topk", {"shape": [1024, 131072], "k": 2, "dtype": "float32"}, [1e-3])).values()
    (performance,) = whole["Performance"]
    assert performance["Write IO Size(MB)"] == pytest.approx(24_576 / 2**20, rel=1e-3)
    assert any("whatever k" in note for note in whole["Notes"])


@pytest.mark.parametrize("op", ["gather_rows", "scatter_rows_inplace"])
def test_rows_by_index_move_the_bytes_that_it_counts(op: str) -> None:
    """An index a row, 8 bytes each, as in its formula: there is nothing to note."""
    (whole,) = report(make(op, {"shape": [4096, 256], "indices": 4096, "dtype": "float32"}, [1e-3])).values()
    (performance,) = whole["Performance"]
    moved = 4096 * 256 * 4
    assert performance["Read IO Size(MB)"] == pytest.approx((moved + 8 * 4096) / 2**20, rel=1e-2)
    assert performance["Write IO Size(MB)"] == pytest.approx(moved / 2**20, rel=1e-3)
    assert not any("index" in note for note in whole["Notes"])


def test_small_figures_keep_their_digits() -> None:
    found = entry(make("exp", {"shape": [1, 64], "dtype": "float32"}, [1.2343e-9]))
    assert found["Avg latency(us)"] == 0.001234
    assert found["Read IO Size(MB)"] == pytest.approx(256 / 2**20, rel=1e-3)


def test_each_element_type_has_a_file_and_each_backend_a_folder() -> None:
    half = make("exp", {**EXP, "dtype": "float16"}, [1e-6])
    found = report(make("exp", EXP, [1e-6]), half, make("exp", EXP, [1e-6], backend="numpy-cpu"))
    assert sorted(found) == [
        "GPU/exp/result-float16.json", "GPU/exp/result-float32.json", "numpy-cpu/exp/result-float32.json",
    ]  # fmt: skip


def test_the_folder_can_be_called_as_the_command_line_did() -> None:
    found = report(make("exp", EXP, [1e-6]), exporter=V1Report("NPU"))
    assert found["NPU/exp/result-float32.json"]["Backend"] == "NPU"


def test_a_failed_case_is_in_a_list_of_its_own_with_its_reason() -> None:
    (whole,) = report(make("exp", EXP, [1e-6]), make("exp", {"shape": [1, 2], "dtype": "float32"})).values()
    assert len(whole["Performance"]) == 1
    assert whole["Failed"] == [
        {"Dtype": "float32", "Tensor Shapes": [[1, 2]], "Status": "oom", "Reason": "too large"},
    ]  # fmt: skip


def test_what_ran_nowhere_has_no_made_up_device() -> None:
    (whole,) = report(make("exp", EXP, status="skipped", reason="no such type")).values()
    assert (whole["Host Info"], whole["Device Info"], whole["Performance"]) == (None, None, [])


def test_what_it_does_not_have_goes_by_our_name_and_parameters() -> None:
    params = {"shape": [2, 3], "dtype": "float32"}
    found = report(make("tanh", params, [1e-6]))
    (performance,) = found["GPU/tanh/result-float32.json"]["Performance"]
    assert performance["Parameters"] == operator("tanh").complete(params)


def test_a_backward_phase_is_told_apart() -> None:
    found = entry(make("exp", EXP, [1e-6], phase="backward"))
    assert found["Phase"] == "backward"


def test_a_view_and_an_unknown_cost_have_no_bandwidth() -> None:
    for record in (make("exp", EXP, [1e-6], view=True), make("exp", EXP, [1e-6], cost=None)):
        found = entry(record)
        assert {found[key] for key in ORIGINAL if "(MB)" in key or "andwidth" in key} == {None}
        assert found["QPS"] == 256e6


def test_no_time_at_all_is_no_infinite_speed() -> None:
    found = entry(make("exp", EXP, [0.0], cost=Cost(0, 4, 4)))
    assert (found["Avg latency(us)"], found["Kernel bandwidth(GB/s)"], found["QPS"]) == (0.0, None, None)


def test_a_callable_is_a_file_too() -> None:
    params = {"args": ["8x64 float32", "8x64 float32"], "kwargs": {}, "build": None}
    task = Task(Case.of("torch.add", params, "forward"), "torch-cpu", "torch", Settings(1, "quick", EFFORTS["quick"]))
    found = report(Record(task, "ok", measurements=(measured("latency", "warm", [1e-6]),), environment="here"))
    (performance,) = found["CPU/torch.add/result.json"]["Performance"]
    assert (performance["Dtype"], performance["Tensor Shapes"]) == (None, [[8, 64], [8, 64]])


def test_an_operator_that_is_no_longer_there_is_exported_all_the_same() -> None:
    case = Case.of("of_a_plug_in_that_is_gone", {"shape": [2, 3], "dtype": "float32"}, "forward")
    record = Record(Task(case, "null", "null", Settings(1, "quick", EFFORTS["quick"])), "error", "it broke")
    (whole,) = report(record).values()
    assert whole["Failed"][0]["Tensor Shapes"] == [[2, 3]]


@pytest.mark.parametrize(
    "source", ["gemm.json#$", "basic_gemm.json#$.cases[0]", "mine.json#gemm[0]", "x/gemm.json, int8"]
)
def test_int8_products_of_its_gemm_stay_gemm(source: str) -> None:
    params = {"num_tokens": 4, "hidden_size": 64, "new_hidden_size": 32, "dtype": "int8"}
    found = report(make("quant_matmul", params, [1e-6], sources=(source,)))
    assert list(found) == ["GPU/gemm/result-int8.json"]
    assert list(report(make("quant_matmul", params, [1e-6]))) == ["GPU/quant_matmul/result-int8.json"]
