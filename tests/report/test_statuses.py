"""The statuses `unchecked` and `disturbed` in every form that a run is shown in."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import get_args

import pytest

from opmark.analysis.rows import NOT_TRIED, RunView, rows_of_records
from opmark.dashboard.items import StatusFilter
from opmark.dashboard.pages import runs
from opmark.plugin import Results
from opmark.report.console.table import STYLES
from opmark.report.formats.run_table import markdown_of, result_rows
from opmark.report.html.items import row_table
from opmark.report.row_view import row_view
from opmark.report.summary import WORDS, ItemAnchors, keys, sentence
from opmark.schema import Caution, Record, Run
from opmark.schema.measurement import PREEMPTED
from opmark.schema.record import STATUSES, severity

MakeRecord = Callable[..., Record]
Printed = Callable[..., str]
RUN = Run("r", "2030-01-01T00:00:00.000+00:00", "p", 2)
SPOILT = {"status": "disturbed", "reason": "the core was taken away", "cautions": [Caution(PREEMPTED, "taken", "wait")]}


def test_every_status_has_a_word_and_a_style_and_can_be_filtered_by() -> None:
    assert set(WORDS) == set(STATUSES)
    assert set(STYLES) == {NOT_TRIED, *STATUSES}
    assert set(get_args(runs.Status)) == {"", *STATUSES}
    assert set(get_args(StatusFilter)) == {"", "failed", *STATUSES}


def test_a_failure_stands_for_several_processes_before_a_disturbance_and_ok_last() -> None:
    order = ["ok", "unchecked", "error", "disturbed"]
    assert sorted(order, key=severity) == ["error", "disturbed", "unchecked", "ok"]  # type: ignore[arg-type]


def test_a_disturbed_number_stands_in_brackets_without_interval_noise_and_rates(
    make_record: MakeRecord, printed: Printed
) -> None:
    text = printed([make_record(**SPOILT)])
    row = re.split(r"\s{2,}", text.splitlines()[1].strip())
    assert row[3:] == ["forward", "(1.03 ms)", "3.00 MiB", "disturbed !!"]
    assert "the core was taken away" in text


def test_an_unchecked_number_is_shown_with_the_word(make_record: MakeRecord, printed: Printed) -> None:
    row = re.split(r"\s{2,}", printed([make_record(status="unchecked")]).splitlines()[1].strip())
    assert row[4:] == ["1.03 ms", "1.00–1.06", "2.9 %", "2.06", "4.12", "3.00 MiB", "unchecked"]


@pytest.mark.parametrize("status", ["disturbed", "unchecked"])
def test_files_for_people_and_programs_have_the_word(make_record: MakeRecord, status: str) -> None:
    fields = SPOILT if status == "disturbed" else {"status": status}
    results = Results(RUN, [make_record(**fields)], {}, {}, {})
    (cells,) = result_rows(results)
    assert cells["status"] == status
    assert cells["median"] == pytest.approx(1.03e-3)
    assert (cells["bytes_per_second"] is None, cells["flops_per_second"] is None) == (status == "disturbed",) * 2
    (row,) = rows_of_records(results.records)
    assert row_view(row)["status"] == status
    assert (row_view(row)["metrics"]["bytes_per_second"] is None) is (status == "disturbed")
    assert ("(1.03 ms)" in markdown_of(results)) is (status == "disturbed")
    page = row_table([row], ItemAnchors(1, frozenset([row.key])))
    assert f"<td>{status}" in page
    assert ("(1.03 ms)" in page) is (status == "disturbed")


def test_key_figures_count_unchecked_numbers_and_no_disturbed_ones(make_record: MakeRecord) -> None:
    slow = [value * 1000 for value in (1e-3, 1.01e-3, 1.02e-3)]
    records = [make_record(), make_record(params={"M": 1, "N": 1, "K": 1}, status="unchecked")]
    records.append(make_record(params={"M": 2, "N": 1, "K": 1}, samples=slow, **SPOILT))
    view = RunView(RUN, tuple(rows_of_records(records)))
    found = {key.name: key.value for key in keys(view, {})}
    assert found["measured"] == "2"
    assert found["longest call"] == "1.03 ms"
    assert sentence(view) == "3 cases: 1 measured, 1 unchecked, 1 disturbed"


def test_one_disturbed_process_of_several_makes_the_row_disturbed(make_record: MakeRecord) -> None:
    (row,) = rows_of_records([make_record(process=0), make_record(process=1, **SPOILT), make_record(process=2)])
    assert (row.status, row.usable, row.bytes_per_second) == ("disturbed", False, None)
    (row,) = rows_of_records([make_record(process=0, **SPOILT), make_record(process=1, status="error", reason="no")])
    assert (row.status, row.reason) == ("error", "no")
