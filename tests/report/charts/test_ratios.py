from __future__ import annotations

import math
from typing import Any

import pytest
from charted import HOSTILE, check
from hypothesis import given
from hypothesis import strategies as st

from opmark.report.charts.ratios import ratios
from opmark.schema.comparison import Compared, Geomean, Pairing

VERDICTS = ("slower", "faster", "same", "undecided")


def pair(ratio: float | None, verdict: Any = "same", n: int = 1, **more: Any) -> Pairing:
    low, high, here = ratio and 0.9 * ratio, ratio and 1.1 * ratio, "torch-cpu ×2"
    given = {
        "case": f"case{n}", "op": "add", "params": str(n), "phase": "forward", "where": (here, here),
        "quantity": "latency", "cache": "warm", "a": 1.0, "b": ratio, "processes": (5, 5), "ratio": ratio, "low": low,
        "high": high, "p": 0.5, "verdict": verdict, "floor": 0.0, **more,
    }  # fmt: skip
    return Pairing(**given)


def compared(*pairs: Pairing, geomean: Geomean | None = None, **more: Any) -> Compared:
    given = {"margin": 0.01, "drift": 0.0, **more}
    return Compared(a="main", b="new", runs=("r1", "r2"), paired=False, pairs=pairs, geomean=geomean, **given)


def test_the_slowest_comes_first_and_each_verdict_is_a_series():
    pairs = pair(0.5, "faster", 1), pair(1.2, "slower", 2), pair(2.0, "slower", 3), pair(1.0, "same", 4)
    chart = check(ratios(compared(*pairs, geomean=Geomean(1.1, 1.05, 1.15, 4))))
    assert (chart.kind, chart.x.scale, chart.title) == ("bars", "log", "new against main")
    assert chart.y.names == ("add 3", "add 2", "add 4", "add 1", "geometric mean of 4 cases")
    assert [(one.name, one.role, one.shape) for one in chart.series] == [
        ("slower", "alarm", "points"),
        ("faster", "data", "points"),
        ("same", "data", "points"),
        ("geometric mean", "guide", "points"),
    ]
    first = chart.series[0].marks[0]
    assert (first.x, first.y, first.low, first.high, first.link) == (2.0, 0, 1.8, 2.2, "case3")
    mean = chart.series[-1].marks[0]
    assert (mean.x, mean.y, mean.low, mean.high) == (1.1, 4, 1.05, 1.15)


def test_the_stretch_of_what_is_called_the_same_is_drawn():
    one, stretch = ratios(compared(pair(1.0))).rules
    assert (one.at, one.to) == (1.0, None)
    assert (stretch.at, stretch.to, stretch.name) == (1 / 1.01, 1.01, "called the same: up to 1.0 %")
    drifting = ratios(compared(pair(1.0), drift=0.02, resolution=0.04)).rules[1]
    assert (drifting.at, drifting.to) == (1 / 1.04, 1.04)


def test_where_and_what_are_told_where_they_differ():
    pairs = pair(1.0, n=1), pair(1.0, n=2, where=("a ×1", "b ×1"), cache="cold", phase="backward")
    assert ratios(compared(*pairs)).y.names == (
        "add 1 on torch-cpu ×2 latency warm",
        "add 2 backward on a ×1 -> b ×1 latency cold",
    )


def test_what_has_no_ratio_is_named_with_its_reason():
    pairs = (
        pair(None, n=1, statuses=("ok", "error"), note="RuntimeError: gone"),
        pair(None, n=2, statuses=("oom", "timeout")),
        pair(None, n=3, statuses=("skipped", "ok")),
        pair(math.nan, n=4, note="preempted"),
    )
    chart = check(ratios(compared(*pairs, only=(("exp 4",), ()))))
    assert chart.series == ()
    assert chart.notes == (
        "1 case without a ratio, failed in B: add 1 on torch-cpu ×2 (RuntimeError: gone)",
        "1 case without a ratio, failed on both sides: add 2 on torch-cpu ×2",
        "1 case without a ratio, skipped in A: add 3 on torch-cpu ×2",
        "1 case without a ratio, no usable number: add 4 on torch-cpu ×2 (preempted)",
        "1 case in main only: exp 4",
    )


def test_all_that_is_slower_is_drawn_before_larger_effects():
    pairs = [pair(1.01 + n / 1e4, "slower", n) for n in range(20)] + [pair(0.5, "faster", n) for n in range(100)]
    chart = check(ratios(compared(*pairs)))
    assert [len(one.marks) for one in chart.series] == [20, 40]
    assert chart.notes == ("60 more cases not drawn, as slower ones come first, then faster ones: 60 faster",)


def test_what_is_decided_is_drawn_before_what_is_not():
    pairs = [pair(1.1, "slower", 1), pair(0.9, "faster", 2), pair(50.0, "undecided", 3), pair(1.0, "same", 4)]
    chart = check(ratios(compared(*pairs), most=2))
    assert [one.name for one in chart.series] == ["slower", "faster"]
    (note,) = chart.notes
    assert note.startswith("2 more cases not drawn")
    assert note.endswith(": 1 undecided, 1 same")


def test_ends_that_cannot_be_drawn_are_left_away_and_names_stay_as_they_are():
    chart = check(ratios(compared(pair(1.0, low=0.0, high=math.inf, op=HOSTILE, note=HOSTILE))))
    (mark,) = chart.series[0].marks
    assert (mark.low, mark.high, mark.note, mark.unsure) == (None, None, HOSTILE, True)
    assert chart.notes == ("1 case without an interval, hollow: one process says nothing of the next",)
    assert not ratios(compared(pair(1.0))).series[0].marks[0].unsure
    assert HOSTILE in chart.y.names[0]


def test_nothing_to_compare():
    chart = check(ratios(compared()))
    assert (chart.series, chart.y.names, chart.notes) == ((), (), ())


@given(st.lists(st.tuples(st.floats(1e-6, 1e6), st.sampled_from(VERDICTS)), max_size=90), st.integers(1, 60))
def test_rows_are_sorted_and_slower_ones_are_never_left_for_others(found: list[tuple[float, str]], most: int):
    chart = check(ratios(compared(*(pair(ratio, verdict, n) for n, (ratio, verdict) in enumerate(found))), most=most))
    by_place = sorted((mark.y, mark.x) for _, mark in chart.marks())
    values = [x for _, x in by_place]
    assert values == sorted(values, reverse=True)
    assert [y for y, _ in by_place] == list(range(min(most, len(found))))
    slower = sum(verdict == "slower" for _, verdict in found)
    assert sum(len(one.marks) for one in chart.series if one.name == "slower") == min(slower, most)


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.inf])
def test_ratios_that_are_none_have_no_row(ratio: float):
    assert check(ratios(compared(pair(ratio)))).series == ()
