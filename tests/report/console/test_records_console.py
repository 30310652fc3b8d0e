"""Records as a table."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from rich.console import Console

from opmark.analysis.rows import MachineFacts, rows_of_records
from opmark.report.console.records import print_records
from opmark.report.row_view import row_view
from opmark.schema import Caution, Compilation, Measurement, Memory, Record
from opmark.schema.measurement import PREEMPTED

MakeRecord = Callable[..., Record]


def parameters(record: Record) -> str:
    return rows_of_records([record])[0].parameters


MakeMeasurement = Callable[..., Measurement]
Printed = Callable[..., str]

COLUMNS = [
    "operator", "parameters", "backend", "phase", "median", "interval", "noise", "GB/s", "GFLOP/s", "memory", "status",
]  # fmt: skip
FIGURES = ["1.03 ms", "1.00–1.06", "2.9 %", "2.06", "4.12", "3.00 MiB", "ok"]


def words(text: str) -> str:
    """With one blank wherever there are several, or a line ends."""
    return " ".join(text.split())


def test_the_table_has_the_columns_that_are_asked_for(make_record: MakeRecord, printed: Printed) -> None:
    assert printed([make_record()]).splitlines()[0].split() == COLUMNS


def test_a_row_has_every_figure_of_its_record(make_record: MakeRecord, printed: Printed) -> None:
    row = printed([make_record()]).splitlines()[1]
    cells = re.split(r"\s{2,}", row.strip())
    assert cells == ["matmul", "M=256 N=128 K=64 float32", "null ×2", "forward", *FIGURES]


def test_a_record_without_a_number_shows_none(make_record: MakeRecord, printed: Printed) -> None:
    row = printed([make_record(status="error", reason="it broke")]).splitlines()[1]
    assert re.split(r"\s{2,}", row.strip()) == ["matmul", "M=256 N=128 K=64 float32", "null ×2", "forward", "error"]


def test_a_record_without_a_cost_has_no_rate(make_record: MakeRecord, printed: Printed) -> None:
    row = printed([make_record(cost=None)]).splitlines()[1]
    assert "1.03 ms" in row
    assert "2.06" not in row


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        (Memory(0, 0, "s", 4096), "<4.00 KiB"),
        (Memory(4095, 0, "s", 4096), "<4.00 KiB"),
        (Memory(4096, 0, "s", 4096), "4.00 KiB"),
        (Memory(3 * 2**30, 0, "s", 512), "3.00 GiB"),
    ],
)
def test_memory_below_what_the_counter_sees_is_not_zero(
    make_record: MakeRecord, printed: Printed, memory: Memory, text: str
) -> None:
    row = printed([make_record(memory=memory)]).splitlines()[1]
    assert re.split(r"\s{2,}", row.strip())[-2] == text


# Other quantities, several processes.


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def test_where_the_headline_is_no_latency_it_is_named(
    make_record: MakeRecord, make_measurement: MakeMeasurement, printed: Printed
) -> None:
    record = make_record(measurements=(make_measurement("device_time", "cold", [2e-6] * 9),))
    head, row = printed([record]).splitlines()
    assert head.split()[4:6] == ["quantity", "median"]
    assert cells(row)[4:6] == ["device_time cold", "2.00 µs"]


def test_a_row_without_a_number_does_not_make_the_headline_worth_naming(
    make_record: MakeRecord, printed: Printed
) -> None:
    head, *_ = printed([make_record(), make_record(status="error", reason="it broke")]).splitlines()
    assert head.split() == COLUMNS


def test_every_other_quantity_has_a_column_of_its_own(
    make_record: MakeRecord, make_measurement: MakeMeasurement, printed: Printed
) -> None:
    both = make_record(
        measurements=(
            make_measurement("device_time", "cold", [3e-6] * 9),
            make_measurement("device_time", "warm", [2e-6] * 9),
            make_measurement("latency", "warm", [9e-6] * 9),
        )
    )
    one = make_record("exp", {"shape": [4]}, measurements=(make_measurement("latency", "warm", [7e-6] * 9),))
    failed = make_record("exp", {"shape": [8]}, status="error", reason="no", backend="torch-cpu")
    head, first, last, empty, other_head, second, *_ = printed([both, one, failed]).splitlines()
    assert cells(head)[4:10] == ["quantity", "median", "interval", "noise", "device_time warm", "latency warm"]
    assert cells(first)[4:10] == ["device_time cold", "3.00 µs", "3.00–3.00", "0 %", "2.00 µs", "9.00 µs"]
    assert cells(second)[4:6] == ["latency warm", "7.00 µs"]
    assert second.count("µs") == 1
    assert cells(last)[-1] == "error", "it has no number, and stays with the first"
    assert empty == ""
    assert cells(other_head)[4:7] == ["quantity", "median", "interval"], "no column has two quantities"
    assert "device_time warm" not in other_head


def test_energy_is_in_joules_and_has_no_rate(
    make_record: MakeRecord, make_measurement: MakeMeasurement, printed: Printed
) -> None:
    row = printed([make_record(measurements=(make_measurement("energy", "warm", [0.002] * 9),))]).splitlines()[1]
    assert cells(row)[4:] == ["energy warm", "2.00 mJ", "2.00–2.00", "0 %", "3.00 MiB", "ok"]


def test_the_cases_of_several_processes_are_one_row(
    make_record: MakeRecord, make_measurement: MakeMeasurement, printed: Printed
) -> None:
    """1.0, 1.1 and 1.2 ms: their interval is that of Student's t on the logarithms."""
    records = [
        make_record(measurements=(make_measurement("latency", "warm", [value] * 9),), process=i)
        for i, value in enumerate((1.0e-3, 1.2e-3, 1.1e-3))
    ]
    lines = printed(records).splitlines()
    assert sum(line.startswith("matmul") for line in lines) == 1
    assert "! processes-differ" in lines[3]
    assert "between 1.00 ms and 1.20 ms" in lines[3]
    assert cells(lines[1])[2:6] == ["null ×2 in 3 processes", "forward", "1.10 ms", "0.875–1.38"]


def test_a_process_that_failed_is_what_is_told(make_record: MakeRecord, printed: Printed) -> None:
    text = printed([make_record(process=0), make_record(process=1, status="timeout", reason="too long")])
    assert cells(text.splitlines()[1])[-1] == "timeout"
    assert "timeout: too long" in text


def test_gradients_of_some_inputs_are_part_of_the_phase(make_record: MakeRecord, printed: Printed) -> None:
    row = printed([make_record(phase="backward", wrt=("a", "b"))]).splitlines()[1]
    assert cells(row)[3] == "backward da db"


def test_what_could_not_be_had_is_said_once(make_record: MakeRecord, printed: Printed) -> None:
    note = "device_time: null has no clock of its own on a device"
    records = [make_record(params={"M": m, "N": 1, "K": 1}, notes=(note,), process=i) for m in (1, 2) for i in (0, 1)]
    below = printed(records).split("\n\n")[1].splitlines()
    assert below == [f"matmul M=1 N=1 K=1 float32 and 1 more: not measured: {note}"]


def test_a_doubt_says_of_which_quantity_it_is_where_there_are_several(
    make_record: MakeRecord, make_measurement: MakeMeasurement, printed: Printed
) -> None:
    noisy = Caution("noisy", "by 20 %")
    measurements = (
        make_measurement("device_time", "warm", [2e-6] * 9),
        make_measurement("latency", "warm", [9e-6] * 9, cautions=(noisy,)),
    )
    text = printed([make_record(measurements=measurements)])
    assert "! noisy: matmul M=256 N=128 K=64 float32: latency warm: by 20 %" in text.splitlines()


def test_a_doubt_about_another_phase_than_forward_names_it(make_record: MakeRecord, printed: Printed) -> None:
    noisy = Caution("noisy", "by 20 %")
    text = printed([make_record(), make_record(phase="backward", cautions=[noisy])])
    assert "! noisy: matmul M=256 N=128 K=64 float32 backward: by 20 %" in text.splitlines()


def test_a_number_that_is_the_schedulers_is_marked_twice(make_record: MakeRecord, printed: Printed) -> None:
    row = printed([make_record(cautions=[Caution("preempted", "m")])]).splitlines()[1]
    assert cells(row)[-1] == "ok !!"


# What is written in brackets is no markup.


MARKUP = "[red]not red[/red] [/] [torch]"


@pytest.mark.parametrize("width", [None, 60], ids=["file", "narrow"])
def test_markup_is_printed_as_it_is(make_record: MakeRecord, printed: Printed, width: int | None) -> None:
    caution = Caution(f"code{MARKUP}", f"message {MARKUP}", f"hint {MARKUP}")
    records = [
        make_record(f"op{MARKUP}", {"name": MARKUP}, backend=f"backend{MARKUP}", cautions=[caution]),
        make_record(status="skipped", reason=f"reason {MARKUP}"),
    ]
    found = words(printed(records, width))
    for part in ("op", "name=", "backend", "reason ", "code", "message ", "hint "):
        assert f"{part}{MARKUP}" in found


def test_a_terminal_gets_its_colours(make_record: MakeRecord) -> None:
    out = io.StringIO()
    print_records([make_record(status="wrong")], Console(file=out, width=60, force_terminal=True, no_color=False))
    assert "\x1b[" in out.getvalue()


# What stands below the table.


def test_a_reason_is_given_once_for_all_that_share_it(make_record: MakeRecord, printed: Printed) -> None:
    records = [make_record(params={"M": m, "N": 1, "K": 1}, status="skipped", reason="no GPU") for m in (1, 2, 3)]
    text = printed([*records, make_record(status="error", reason="no GPU")])
    below = text.split("\n\n")[1].splitlines()
    assert below == [
        "matmul M=1 N=1 K=1 float32 and 2 more: skipped: no GPU",
        "matmul M=256 N=128 K=64 float32: error: no GPU",
    ]


def test_a_doubt_is_said_once_a_kind_with_what_to_do(make_record: MakeRecord, printed: Printed) -> None:
    coarse, above = Caution("coarse", "timed by events", "use another timer"), Caution("stray-work", "by nobody")
    records = [make_record(cautions=[coarse]), make_record("exp", {"shape": [8]}, cautions=[coarse, above])]
    text = printed(records)
    assert text.split("\n\n")[1].splitlines() == [
        "! coarse, 2 of 2 rows: matmul M=256 N=128 K=64 float32: timed by events",
        "  hint: use another timer",
        "! stray-work: exp 8 float32: by nobody",
    ]
    assert text.count("ok !") == 2


def test_what_other_work_does_to_a_row_is_one_doubt_with_one_hint(make_record: MakeRecord, printed: Printed) -> None:
    """Seven kinds under one row would be noise: the cause is said, and its consequences are listed."""
    codes = ("outliers", "imprecise", "noisy", "drifting", "unsettled", "interrupted", "loaded")
    record = make_record(cautions=[Caution(code, f"it is {code}", f"mend {code}") for code in codes])
    assert printed([record]).split("\n\n")[1].splitlines() == [
        "! loaded: matmul M=256 N=128 K=64 float32: it is loaded",
        "! in the same rows also: interrupted, drifting, unsettled, noisy, outliers, imprecise",
        "  hint: mend loaded",
    ]


def test_several_kinds_of_other_work_share_a_hint(make_record: MakeRecord, printed: Printed) -> None:
    loaded, noisy = Caution("loaded", "by 2 cores", "stop them"), Caution("noisy", "by 20 %", "look for load")
    cases = [{"M": m, "N": 1, "K": 1} for m in range(1, 6)]
    kinds = [(noisy,), (noisy, loaded), (loaded,), (loaded, Caution("coarse", "timed by events", "time it")), ()]
    records = [make_record(params=params, cautions=own) for params, own in zip(cases, kinds, strict=True)]
    assert printed(records).split("\n\n")[1].splitlines() == [
        "! loaded, 3 of 5 rows: matmul M=2 N=1 K=1 float32: by 2 cores",
        "! noisy, 2 of 5 rows: matmul M=1 N=1 K=1 float32: by 20 %",
        "  hint: stop other work (`opmark doctor` names it) and measure again, if need be with a higher --effort",
        "! coarse: matmul M=4 N=1 K=1 float32: timed by events",
        "  hint: time it",
    ]


def test_a_kind_of_doubt_is_counted_in_one_line_only(make_record: MakeRecord, printed: Printed) -> None:
    """`loaded` is the cause in one row, and stands beside a worse one in the other."""
    loaded, noisy = Caution("loaded", "by 2 cores", "stop them"), Caution("noisy", "by 20 %", "look for load")
    preempted = Caution(PREEMPTED, "55 times in 66 samples", "use fewer threads")
    records = [make_record(cautions=[loaded]), make_record("exp", {"shape": [8]}, cautions=[loaded, preempted, noisy])]
    text = printed(records)
    assert text.count("loaded") == 1
    assert text.split("\n\n")[-1].splitlines()[:3] == [
        "! loaded, 2 of 2 rows: matmul M=256 N=128 K=64 float32: by 2 cores",
        "! preempted: exp 8 float32: 55 times in 66 samples",
        "! in the same rows also: noisy (1)",
    ]


def test_a_task_that_no_worker_tried_is_called_so(make_record: MakeRecord, printed: Printed) -> None:
    why = "null cannot start: its process was killed (SIGKILL) while starting"
    charged = make_record(status="killed", reason=why)
    untried = [replace(make_record("exp", {"shape": [n]}, status="killed", reason=why), untried=True) for n in (4, 8)]
    for width in (None, 80):
        text = printed([charged, *untried], width)
        assert re.findall(r"^(?:matmul|exp) .*  (killed|not tried)$", text, re.MULTILINE) == [
            "killed", "not tried", "not tried",
        ]  # fmt: skip
        said = " ".join(text.split())
        assert f"matmul M=256 N=128 K=64 float32: killed: {why}" in said
        assert f"exp 4 float32 and 1 more: not tried: {why}" in said
    assert [row_view(row)["untried"] for row in rows_of_records([charged, *untried])] == [False, True, True]


def test_a_process_that_never_tried_a_task_does_not_spoil_what_others_measured(
    make_record: MakeRecord, printed: Printed
) -> None:
    never = replace(make_record(process=1, status="killed", reason="cannot start"), untried=True)
    text = printed([make_record(process=0), never])
    assert text.splitlines()[1].endswith("  ok")
    assert "killed" not in text


def test_without_reasons_and_doubts_there_is_only_the_table(make_record: MakeRecord, printed: Printed) -> None:
    assert len(printed([make_record()]).splitlines()) == 2


def test_no_record_is_a_table_with_its_head_only(printed: Printed) -> None:
    assert printed([]).split() == COLUMNS


# Parameters, short.


@pytest.mark.parametrize(
    ("op", "given", "text"),
    [
        ("matmul", {"M": 1, "N": 2, "K": 3, "dtype": "bfloat16"}, "M=1 N=2 K=3 bfloat16"),
        ("exp", {"shape": [32, 64]}, "32x64 float32"),
        ("layer_norm", {"shape": [8, 8]}, "8x8 float32"),
        ("fault", {"kind": "none", "n": 16}, "kind=none float32"),
        ("fault", {"kind": "none", "n": 17}, "kind=none n=17 float32"),
        ("stranger", {"flag": True, "eps": 1e-05, "axes": [0, 1], "name": "x"}, "flag=true eps=1e-05 axes=0x1 name=x"),
        ("stranger", {}, ""),
    ],
)
def test_parameters_are_short_and_defaults_left_out(
    make_record: MakeRecord, op: str, given: dict[str, object], text: str
) -> None:
    assert parameters(make_record(op, given)) == text


def test_an_element_type_that_is_not_the_only_one_is_named(make_record: MakeRecord) -> None:
    from opmark.plugin.registry import operator

    cast = operator("cast")
    params = cast.complete({"shape": [4], "dtype": "float32", "to": "float16"})
    assert parameters(make_record("cast", params)) == "4 float32 to=float16"


# Calls and views.


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"args": ["8x64 float32", 2], "kwargs": {}, "build": None}, "8x64 float32, 2"),
        ({"args": ["4 int64"], "kwargs": {"dim": 1, "mode": "reflect"}, "build": None}, "4 int64, dim=1, mode=reflect"),
        ({"args": [["2 int8", "3 int8"]], "kwargs": {}, "build": None}, '["2 int8","3 int8"]'),
        ({"args": ["2x4 float32"], "kwargs": {}, "build": [4, 3]}, "(4, 3)(2x4 float32)"),
        (
            {"args": ["2x4 float32"], "kwargs": {}, "build": {"args": [4], "kwargs": {"bias": False}}},
            "(4, bias=false)(2x4 float32)",
        ),
        ({"args": ["3 float32"], "kwargs": {}, "build": []}, "()(3 float32)"),
        ({"args": [], "kwargs": {}, "build": None}, ""),
    ],
)
def test_a_call_is_written_as_a_call(make_record: MakeRecord, params: dict[str, object], text: str) -> None:
    assert parameters(make_record("torch.something", params)) == text


def test_what_a_foreign_call_was_called_with_stands_before_its_parameters(make_record: MakeRecord) -> None:
    params = {"sample": "own", "dtype": "auto"}
    record = make_record("opinfo:exp", params, called="20x20 float32")
    assert parameters(record) == "20x20 float32 sample=own"
    assert parameters(make_record("opinfo:exp", {"sample": "enlarged", "dtype": "auto"})) == ""


def test_an_operator_that_is_not_installed_any_more_is_shown(make_record: MakeRecord) -> None:
    assert parameters(make_record("gone", {"n": 3, "shape": [2, 3]})) == "n=3 2x3"
    assert parameters(make_record("gone.framework.f", {"n": 3})) == "n=3"


def test_a_view_has_no_bandwidth_and_says_so(make_record: MakeRecord, printed: Printed) -> None:
    head, row, *_ = printed([make_record(view=True, cost=None)]).splitlines()
    assert row[: head.index("GB/s") + 4].split()[-1] == "view"
    assert "view" not in printed([make_record()])


# Implementations beside each other


def by(implementation: str, record: Record, backend: str = "torch-cpu") -> Record:
    return replace(record, task=replace(record.task, implementation=implementation, backend=backend))


def cells_of(text: str) -> list[dict[str, str]]:
    """Rows by the columns that they stand below."""
    head, *lines = text.partition("\n\n")[0].splitlines()
    ends = [match.span() for match in re.finditer(r"\S+(?: \S+)*", head)]
    found = []
    for line in [line for line in lines if line.startswith("matmul")]:
        spans = [match.span() for match in re.finditer(r"\S+(?: \S+)*", line)]
        found.append({
            head[start:end]: line[a:b] for start, end in ends for a, b in spans if a < end and start < b
        })  # fmt: skip
    return found


def test_an_implementation_stands_behind_a_slash_where_the_framework_has_several(
    make_record: MakeRecord, printed: Printed
) -> None:
    text = printed([by("unfused", make_record()), by("fused", make_record(samples=[5e-4] * 7))])
    first, second = cells_of(text)
    assert first["backend"] == "torch-cpu/unfused ×2"
    assert second["backend"] == "torch-cpu/fused ×2"


@pytest.mark.parametrize(
    ("implementation", "backend", "said"),
    [
        ("torch", "torch-cpu", "torch-cpu ×2"),
        ("torch", "torch-cuda", "torch-cuda ×2"),
        ("numpy", "numpy-cpu", "numpy-cpu ×2"),
        ("null", "null", "null ×2"),
        ("", "torch-cpu", "torch-cpu ×2"),
        ("torch-cpu", "torch-cpu", "torch-cpu ×2"),
        ("torch-foreach", "torch-cpu", "torch-cpu/torch-foreach ×2"),
        ("numpy", "torch-cpu", "torch-cpu/numpy ×2"),
        ("mine", "no-longer-installed", "no-longer-installed/mine ×2"),
    ],
)
def test_the_framework_itself_is_not_said_twice(
    make_record: MakeRecord, printed: Printed, implementation: str, backend: str, said: str
) -> None:
    (row,) = cells_of(printed([by(implementation, make_record(), backend)]))
    assert row["backend"] == said


def test_a_gain_is_a_factor_in_a_column_of_its_own(make_record: MakeRecord, printed: Printed) -> None:
    records = [
        by("unfused", make_record(samples=[4e-3] * 7)),
        by("fused", make_record(samples=[2e-3] * 7)),
        by("compiled", make_record(samples=[16e-3] * 7)),
        by("broken", make_record(status="error", reason="no")),
    ]
    text = printed(records)
    head = text.splitlines()[0].split()
    assert head == [*COLUMNS[:-2], "gain", *COLUMNS[-2:]]
    assert [row.get("gain", "") for row in cells_of(text)] == ["1.00x", "2.00x", "0.250x", ""]


def test_without_anything_to_compare_there_is_no_column_for_gains(make_record: MakeRecord, printed: Printed) -> None:
    text = printed([by("unfused", make_record()), by("fused", make_record(phase="backward"))])
    assert "gain" not in text.splitlines()[0]


def test_compiling_has_a_column_where_something_was_compiled(make_record: MakeRecord, printed: Printed) -> None:
    records = [by("torch", make_record(compilation=Compilation(cold=2.1))), by("torch", make_record(), "numpy-cpu")]
    text = printed(records)
    assert text.splitlines()[0].split() == [*COLUMNS[:7], "compile", *COLUMNS[7:]]
    assert [row.get("compile", "") for row in cells_of(text)] == ["2.10 s", ""]


@pytest.mark.parametrize("width", [None, 300, 105])
def test_many_rows_look_as_few_do(
    make_record: MakeRecord, printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch, width: int | None
) -> None:
    """They are written by hand, since Rich would measure every cell of thousands."""
    records = [make_record(params={"M": n, "N": 128, "K": 64}, samples=[n * 1e-6] * 7) for n in range(1, 9)]
    few = printed(records, width)
    monkeypatch.setattr("opmark.report.console.table.MANY", 7)
    many = printed(records, width)
    assert [line.rstrip() for line in few.splitlines()] == [line.rstrip() for line in many.splitlines()]


def test_peaks_of_another_number_of_threads_are_said_to_be_missing(make_record: MakeRecord) -> None:
    out = io.StringIO()
    record = make_record()
    machines = {record.environment: MachineFacts(calibrated_threads=8)}
    print_records([record], Console(file=out, width=200), machines)
    threads = record.task.settings.threads
    assert f"the peaks were measured with 8; `opmark calibrate --threads {threads}` measures these" in out.getvalue()
