from __future__ import annotations

import math
from typing import Any

import pytest
from charted import HOSTILE, check
from showcase import showcase

from opmark.api.history import history
from opmark.report.charts.history import history_chart
from opmark.schema.history import History, HistoryPoint, LevelChange, Outage, RunAt


def run(day: int, hour: int = 3, label: str = "") -> RunAt:
    started = f"{2030 + day // 336}-{day // 28 % 12 + 1:02}-{day % 28 + 1:02}T{hour:02}:00:00"
    return RunAt(f"r{day:04}-{hour}", started, label)


def point(day: int, value: float, **more: Any) -> HistoryPoint:
    return HistoryPoint(
        more.pop("run", run(day)), value, 3, "here", more.pop("low", 0.9 * value), more.pop("high", 1.1 * value)
    )


def change(before: int, after: int, old: float, new: float, **more: Any) -> LevelChange:
    return LevelChange(run(before), run(after), old, new, new / old, 1.0, 1.2, 1e-6, **more)


def made(*points: HistoryPoint, **more: Any) -> History:
    given = {"op": "add", "params": "4", "phase": "forward", "level": 1.0, **more}
    return History(case="case1", backend="torch-cpu", implementation="torch", threads=2, quantity="latency",
                   cache="warm", chip="a chip", points=points, **given)  # fmt: skip


def test_a_step_is_a_level_a_rule_and_an_alarm():
    facts = {"torch": ("2.1", "2.2")}
    points = [point(i, value) for i, value in enumerate((1.0, 1.0, 1.1, 1.1))]
    chart = check(history_chart(made(*points, changes=(change(1, 2, 1.0, 1.1, differing=facts),), level=1.1)))
    assert chart.x.names == ("2030-01-01", "2030-01-02", "2030-01-03", "2030-01-04")
    values, levels, turns = chart.series
    assert [(mark.x, mark.y, mark.low, mark.link) for mark in values.marks][2] == (2, 1.1, 0.9 * 1.1, "r0002-3")
    assert [(mark.x, mark.y) for mark in levels.marks] == [(0, 1.0), (2, 1.1), (3, 1.1)]
    assert (levels.shape, turns.role) == ("steps", "alarm")
    assert turns.marks[0].label == "+10.0 % slower since 2030-01-03"
    assert turns.marks[0].note == "between r0001-3 and r0002-3; torch 2.1 -> 2.2"
    assert [(rule.across, rule.at, rule.name) for rule in chart.rules] == [("x", 1.5, "+10.0 %")]


def test_a_run_without_a_value_is_a_gap_and_a_note():
    chart = check(history_chart(made(point(0, 1.0), point(2, 1.0), outages=(Outage(run(1), "timeout"),))))
    assert [mark.x for mark in chart.series[0].marks] == [0, 2]
    assert chart.notes == ("no value in 1 run, the newest first: 2030-01-02 timeout",)


def test_one_run_has_one_dot_and_its_level():
    chart = check(history_chart(made(point(0, 1.0, low=None, high=None))))
    assert [len(one.marks) for one in chart.series] == [1, 1]
    assert chart.rules == ()


def test_several_runs_of_a_day_are_told_by_the_minute():
    chart = check(history_chart(made(point(0, 1.0), point(0, 1.0, run=run(0, 5)), point(1, 1.0))))
    assert chart.x.names == ("2030-01-01 03:00", "2030-01-01 05:00", "2030-01-02")


def test_a_thousand_runs_have_a_place_each():
    chart = check(history_chart(made(*(point(day, 1.0 + day % 3) for day in range(1000)))))
    assert len(set(chart.x.names)) == 1000
    assert [mark.x for mark in chart.series[0].marks] == list(range(1000))


def test_what_is_doubtful_is_said():
    doubted = change(1, 2, 1.0, 4.0, sure=False)
    points = [point(0, 1.0), point(1, 1.0), point(2, 4.0), point(3, math.nan, low=None, high=None)]
    chart = check(history_chart(made(*points, changes=(doubted,), warning=True)))
    assert chart.rules[0].name == "4.00x ?"
    assert chart.series[2].marks[0].label.endswith("perhaps by chance")
    assert chart.notes == (
        "the newest runs are out of line: too few for a change yet",
        "1 run left out: the value is not a number",
    )


def test_names_of_any_kind_go_through_as_they_are():
    chart = check(history_chart(made(point(0, 1.0, run=run(0, label=HOSTILE)), op=HOSTILE, phase="backward")))
    assert chart.title.startswith(f"{HOSTILE} 4 backward on torch-cpu ×2")
    assert HOSTILE in chart.series[0].marks[0].label


def test_of_a_store_the_step_of_a_tenth_is_found(tmp_path):
    showcase(tmp_path / "db")
    series = [found for found in history(db=tmp_path / "db", everything=True) if len(found.points) > 9]
    charts = {found.op: check(history_chart(found)) for found in series}
    assert [rule.at for rule in charts["add"].rules] == [19.5]
    assert charts["add"].series[1].marks[-1].y / charts["add"].series[1].marks[0].y == pytest.approx(1.1, abs=0.01)
    assert charts["exp"].rules == ()
