"""Rows in a report: key numbers, columns of the table, details, and the picture of samples."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from opmark.analysis.metrics import PeakShare
from opmark.analysis.rows import MachineFacts, Row, RunView, Timing, rows_of_records
from opmark.report.html.items import COLUMNS, HEIGHT, ItemStyle, row_details, row_table, strip
from opmark.report.html.page import page
from opmark.report.summary import Content, ItemAnchors, RunSection, doubts, keys
from opmark.report.text import interval
from opmark.schema import EFFORTS, Case, Caution, Cost, Measurement, Record, Run, Settings, Task
from opmark.schema.machine import Level, Peaks
from opmark.schema.measurement import PREEMPTED

RUN = Run("20300101-000000-00000001", "2030-01-01T00:00:00.000+00:00", "plan", 9, "night")
PLACE = ItemAnchors(1, frozenset())


def timing(
    median: float | None = 2e-3, quantity: str = "device_time", cache: Any = "cold", cautions: tuple[str, ...] = ()
) -> Timing:
    low, high = (None, None) if median is None else (median * 0.9, median * 1.1)
    return Timing(quantity, cache, "s", median, low, high, 7, 1, cautions)


def item(number: int = 1, timings: tuple[Timing, ...] | None = None, **fields: Any) -> Row:
    given: dict[str, Any] = {
        "key": f"key{number}", "run": RUN.id, "case": f"case{number}", "op": f"op{number}", "phase": "forward",
        "params": {"dtype": "float32"}, "parameters": "4x8", "backend": "torch-cuda", "implementation": "torch",
        "where": "torch-cuda ×2", "threads": 2, "processes": 1, "effort": "quick", "mode": "", "status": "ok",
        "reason": "", "timings": (timing(),) if timings is None else timings, "environment": "e", "started": "",
        "duration": 1.0,
    }  # fmt: skip
    return Row(**{**given, **fields})


def told(*items: Row) -> dict[str, tuple[str, str]]:
    return {key.name: (key.value, key.about) for key in keys(RunView(RUN, items), {})}


def test_the_largest_of_each_is_told() -> None:
    small = item(1, bytes_per_second=1e9, flops_per_second=1e12, memory=1 << 10)
    large = item(2, (timing(4e-3),), bytes_per_second=2e9, flops_per_second=2e12, memory=1 << 20)
    found = told(small, large)
    for name in ("most bandwidth", "most arithmetic", "most memory", "longest call"):
        assert found[name][1] == "op2 4x8", name
    assert found["longest call"][0] == "4.00 ms"


def test_what_the_scheduler_spoilt_is_no_key_number() -> None:
    spoilt = item(1, (timing(9.0, cautions=(PREEMPTED,)),), bytes_per_second=8e15, of_peak=PeakShare(0.99, "memory"))
    good = item(2, bytes_per_second=2e9, of_peak=PeakShare(0.5, "memory"))
    found = told(spoilt, good)
    assert (
        found["most bandwidth"][1] == found["longest call"][1] == found["nearest to the measured peak"][1] == good.name
    )
    assert found["of the measured peak"] == ("50 %", "in the middle of 1 case, device_time cold")


def test_more_than_is_possible_is_not_nearest_and_is_counted() -> None:
    shares = (0.4, 0.9, 1.5, 93206.0)
    found = told(*(item(i, of_peak=PeakShare(share, "memory")) for i, share in enumerate(shares)))
    assert found["nearest to the measured peak"] == ("90 %", "op1 4x8")
    assert found["above the measured peak"][0] == "2"
    assert "above the measured peak" not in told(item(1, of_peak=PeakShare(1.0, "memory")))


def test_as_many_are_counted_above_the_peak_as_the_caution_is_of() -> None:
    """A peak is a measurement, too: a share of 103 % is no reason to doubt it."""
    records = [
        replace(one, task=replace(one.task, case=Case.of(f"op{n}", {"dtype": "float32"}, "forward")),
                cost=Cost(1, 10**9, 0), environment="e")
        for n, share in enumerate((0.5, 1.03, 1.2, 2.0)) for one in [record(*[1e-3 / share] * 7)]
    ]  # fmt: skip
    peaks = Peaks("chip", "calibrate", {"float32": 1e15}, [Level("memory", 1e12)])
    rows = rows_of_records(records, RUN.id, {"e": MachineFacts(peaks)})
    (doubt,) = doubts(RunView(RUN, tuple(rows)), PLACE)
    assert (doubt.code, doubt.total) == ("above-peak", 2)
    assert told(*rows)["above the measured peak"][0] == "2"
    spoilt = item(9, (timing(cautions=(PREEMPTED, "above-peak")),), of_peak=PeakShare(3.0, "memory"))
    assert doubts(RunView(RUN, (*rows, spoilt)), PLACE)[0].total == 3
    assert told(*rows, spoilt)["above the measured peak"][0] == "3"


def test_shares_in_the_middle_are_of_one_quantity_and_not_of_launches() -> None:
    launched = [item(i, (timing(2e-3, "latency", "warm"),), of_peak=PeakShare(0.1, "memory")) for i in range(5)]
    device = [item(i, of_peak=PeakShare(0.6, "memory")) for i in range(10, 12)]
    assert told(*launched, *device)["of the measured peak"] == ("60 %", "in the middle of 2 cases, device_time cold")
    assert told(*launched)["of the measured peak"] == ("10 %", "in the middle of 5 cases, latency warm")


def test_without_a_calibration_shares_are_of_the_datasheet() -> None:
    found = told(item(of_datasheet=PeakShare(0.25, "memory")))
    assert found["of the datasheet"][0] == found["nearest to the datasheet"][0] == "25 %"
    both = told(item(of_peak=PeakShare(0.5, "memory"), of_datasheet=PeakShare(0.25, "memory")))
    assert both["of the measured peak"][0] == "50 %"
    assert "of the datasheet" not in both


def test_a_caution_counts_where_the_headline_has_it() -> None:
    other = item(1, (timing(), timing(1e-3, "latency", "warm", ("noisy",))))
    own = item(2, (timing(cautions=("drifting",)), timing(1e-3, "latency", "warm")))
    assert told(other, own)["with cautions"][0] == "1"
    shown = {column.head: column.text for column in COLUMNS}["cautions"]
    assert (shown(other), shown(own)) == ("", "drifting")


@pytest.mark.parametrize(
    ("head", "fields", "text", "number"),
    [
        ("median", {}, "2.00 ms", 2e-3),
        ("interval", {}, "1.80–2.20 ms", 0.2),
        ("bandwidth", {"bytes_per_second": 1e9}, "1.00 GB/s", 1e9),
        ("bandwidth", {"bytes_per_second": 1e9, "bus_bandwidth": 5e9}, "5.00 GB/s", 5e9),
        ("arithmetic", {"flops_per_second": 3e12}, "3.00 TFLOP/s", 3e12),
        ("of peak", {"of_peak": PeakShare(0.5, "memory"), "of_datasheet": PeakShare(0.2, "memory")}, "50 %", 0.5),
        ("of datasheet", {"of_peak": PeakShare(0.5, "memory"), "of_datasheet": PeakShare(0.2, "memory")}, "20 %", 0.2),
        ("of peak", {"of_datasheet": PeakShare(0.2, "memory")}, "", None),
        ("memory", {"memory": 8192, "memory_resolution": 4096}, "8.00 KiB", 8192),
        ("memory", {"memory": 100, "memory_resolution": 4096}, "<4.00 KiB", 100),
        ("phase", {"phase": "backward", "wrt": ("x", "w")}, "backward dx dw", None),
        ("phase", {"phase": "forward"}, "", None),
        ("quantity", {}, "device_time cold", None),
    ],
)
def test_columns_tell_what_they_are_named_for(
    head: str, fields: dict[str, Any], text: str, number: float | None
) -> None:
    (column,) = (column for column in COLUMNS if column.head == head)
    one = item(**fields)
    assert column.text(one) == text
    assert (column.number(one) if column.number else None) == (None if number is None else pytest.approx(number))


def test_two_gradients_of_one_operator_have_two_names() -> None:
    names = [item(phase="backward", wrt=wrt).name for wrt in (("x",), ("w",), ())]
    assert names == ["op1 4x8 backward dx", "op1 4x8 backward dw", "op1 4x8 backward"]


def record(*samples: float, process: int = 0, cautions: tuple[Caution, ...] = ()) -> Record:
    case = Case.of("op1", {}, "forward")
    measured = Measurement("device_time", "cold", "virtual", list(samples), 1, 0.0, 1, 0.1, "precise", cautions)
    settings = Settings(2, "quick", EFFORTS["quick"], process=process)
    return Record(Task(case, "torch-cuda", "torch", settings), "ok", measurements=(measured,))


def with_records(row: Row, *records: Record) -> Row:
    row.__dict__["_records"] = records
    return row


def test_details_tell_the_fastest_and_the_slowest() -> None:
    text = row_details(with_records(item(), record(3e-3, 1e-3, 2e-3)), PLACE, ItemStyle())
    row = re.search("<tr><th scope=row>device_time cold(.*?)<td><svg", text)
    assert row is not None
    assert row[1].split("<td>")[3:5] == ["1.00 ms", "3.00 ms"]
    assert 'aria-label="Quantities: op1 4x8 on torch-cuda ×2"' in text


def test_doubts_of_several_processes_have_the_words_that_a_terminal_has() -> None:
    unsure = (Caution("imprecise", "only known to 9 %", "wait"),)
    records = [record(*[1e-3 * (1 + i)] * 7, process=i, cautions=unsure) for i in range(3)]
    first = timing(2e-3, cautions=("processes-differ", "above-peak"))
    one = with_records(item(1, (first,), of_peak=PeakShare(1.5, "memory"), processes=3), *records)
    told = {caution.code: caution.message for _, caution in one.warnings()}
    assert [*told] == ["processes-differ", "above-peak"]
    assert told["processes-differ"].startswith("the medians of 3 processes lie between 1.00 ms and 3.00 ms")
    assert told["above-peak"] == "150 % of the measured peak (memory); at most 100 % is possible"
    assert "imprecise" not in row_details(one, PLACE, ItemStyle())
    assert "150 % of the measured peak" in row_details(one, PLACE, ItemStyle())


def test_a_doubt_says_which_number_it_is_of() -> None:
    noisy = (Caution("noisy", "spreads", "wait"),)
    one = item(1, (timing(cautions=("noisy",)), timing(1e-3, "latency", "warm")))
    one = with_records(one, record(1e-3, 2e-3, cautions=noisy))
    (told,) = doubts(RunView(RUN, (one,)), PLACE)
    assert told.message == "device_time cold: spreads"


def test_what_to_do_is_said_once() -> None:
    cautions = [(Caution("noisy", "spreads", hint),) for hint in ("close others", "wait")]
    items = [
        with_records(item(i, (timing(cautions=("noisy",)),)), record(1e-3, 2e-3, cautions=own))
        for i, own in enumerate(cautions)
    ]
    text = page(Content("", (RunSection(RunView(RUN, tuple(items)), ()),)))
    assert text.count("what to do: ") == 1
    assert "what to do: close others; or: wait" in text


def test_every_row_is_named_by_its_first_cell() -> None:
    text = str(row_table([item(1), item(2)], PLACE, "run night"))
    assert text.count("<th scope=row><a href=") == 2
    assert 'aria-label="All cases of run night"' in text


def test_the_slow_are_above_in_a_strip_and_in_its_histogram() -> None:
    text = strip([1.0, 1.0, 1.0, 1.1])
    dots = re.search(r'<path d="M\d+ (\d+)h0', text)
    bars = re.search(r'class=h d="(.*?)"', text)
    assert dots is not None
    assert bars is not None
    assert int(dots[1]) == HEIGHT - 1
    (top, few), (bottom, many) = re.findall(r"M\d+ (\d+)h(\d+)", bars[1])
    assert int(top) < int(bottom)
    assert int(few) < int(many)


def test_a_straggler_does_not_press_the_others_into_a_line() -> None:
    usual = [1.0 + i % 10 / 100 for i in range(40)]
    calm, disturbed = strip(usual), strip([*usual[:-1], 100.0])
    median_of = [re.search(r'class=m d="M0 (\d+)H', text) for text in (calm, disturbed)]
    assert median_of[0] is not None
    assert median_of[1] is not None
    assert abs(int(median_of[0][1]) - int(median_of[1][1])) <= 1
    assert "class=far" not in calm
    assert disturbed.count("class=far") == 1


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(1.5e-3, 2e-3, "1.50–2.00 ms"), (3.33e-9, 3.84e-3, "3.33 ns–3.84 ms"), (0.0, 2e-3, "0–2.00 ms"), (None, 1.0, "")],
)
def test_ends_that_are_far_apart_have_a_unit_each(low: float | None, high: float, text: str) -> None:
    assert interval(low, high, "s") == text


def test_each_headline_has_a_table_with_filters_of_its_own() -> None:
    latency = item(2, (timing(1e-6, "latency", "warm"),), backend="torch-cpu")
    text = str(row_table([item(1), latency, item(3)], PLACE, "run night"))
    tables = re.findall(r"<table id=(\S+) .*?</table>", text, re.DOTALL)
    assert tables == ["items-1-1", "items-1-2"]
    for name in tables:
        assert text.count(f"data-for={name} ") == 2, "filters, and the number of rows that are left"
    first, second = text.split("</table>")[:2]
    assert ("op1" in first, "op2" in first, "op3" in first) == (True, False, True)
    assert ("<p>device_time cold</p>" in first, "<p>latency warm</p>" in second) == (True, True)
    assert 'aria-label="All cases of latency warm, run night"' in second


def test_key_numbers_are_of_one_quantity() -> None:
    """A latency on a processor is longer than what a device takes, and says nothing of it."""
    slow = item(1, (timing(9.0, "latency", "warm"),), bytes_per_second=9e12, memory=1 << 30)
    found = told(slow, item(2, bytes_per_second=2e9, memory=1 << 10))
    assert found["longest call"] == ("2.00 ms", "op2 4x8")
    assert found["most bandwidth"][1] == "op2 4x8"
    assert found["most memory"][1] == "op1 4x8", "memory is of no quantity"
