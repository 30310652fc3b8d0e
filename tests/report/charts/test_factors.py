"""Charts of what decides the time."""

from __future__ import annotations

import pytest
from factor_laws import RUN, saturating, study_records
from handmade import sound
from msgspec.structs import replace

from opmark.analysis.rows import RunView, rows_of_records
from opmark.report.charts.factors import factors
from opmark.report.charts.tuning import tuning
from opmark.schema.chart import Chart


def view(records, run=RUN) -> RunView:
    return RunView(run, tuple(rows_of_records(records, run.id)))


@pytest.fixture(scope="module")
def charts() -> list[Chart]:
    return factors(view(study_records(saturating, watts=50.0)))


def test_every_outcome_has_shares_curves_and_pairs(charts):
    sound(charts)
    kinds = [chart.id.partition("-")[0] for chart in charts]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"factors": 3, "factor": 9, "interactions": 3}


def test_a_knee_is_marked_with_its_interval(charts):
    (threads,) = (chart for chart in charts if chart.id.endswith("time-threads"))
    knee, interval = threads.rules
    assert knee.at == pytest.approx(6, rel=0.15)
    assert interval.to is not None
    assert interval.at <= 6 <= interval.to
    assert any("stops paying" in note for note in threads.notes)
    assert [mark.x for mark in threads.series[0].marks] == [1, 2, 3, 4, 6, 8, 12, 16]


def test_marks_lead_to_the_items_of_the_run(charts):
    run_view = view(study_records(saturating))
    keys = {row.key for row in run_view.rows}
    links = {mark.link for chart in factors(run_view) for _, mark in chart.marks() if mark.link}
    assert links
    assert links <= keys


def test_other_runs_have_none():
    assert factors(view(study_records(saturating), replace(RUN, session=""))) == []
    assert factors(view(study_records(saturating, processes=1))) == []


def test_the_knobs_of_a_study_are_no_tuning():
    records = [
        replace(one, task=replace(one.task, settings=replace(one.task.settings, configuration=(("unroll", 4),))))
        for one in study_records(saturating)
    ]
    assert tuning(view(records)) == []
