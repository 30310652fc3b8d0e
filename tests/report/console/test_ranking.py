"""Tables of rankings."""

from __future__ import annotations

import io
import re

import pytest
from msgspec.structs import replace
from rich.console import Console

from opmark.report.console.ranking import ranking_text
from opmark.schema.case import PLUGIN_OPERATOR
from opmark.schema.ranking import (
    Accuracy,
    Best,
    LeftOut,
    OperatorDefaults,
    RankedCase,
    RankedImplementation,
    Ranking,
    RankingGroup,
    Tally,
)

CHIP = "a processor"
BY = ("latency", "warm")


def one(backend: str, median: float, ratio: float, *, behind: bool = True) -> RankedImplementation:
    return RankedImplementation(
        backend, backend.partition("-")[0], "", "", median, (median, median), 1, ratio, behind, "full", Accuracy(),
        None, None, "run", "here",
    )  # fmt: skip


def place(op: str, *order: RankedImplementation, decided: bool = True) -> RankedCase:
    first = order[0]
    return RankedCase(
        op, {"shape": [4], "dtype": "float32"}, "float32", "forward", (), 2, "cpu", CHIP, *BY, "id",
        Best(first.backend, first.implementation, "", "", first.median, decided), list(order), [],
    )  # fmt: skip


FIRST = one("torch-cpu", 1e-3, 1.0, behind=False)
TALLIES = [Tally("torch-cpu", "torch", 2, 1, 1.0, 1.0), Tally("jax-cpu", "jax", 1, 0, None, 2.5)]
FOUND = Ranking(
    1, "2030", "0", ["20300101-000000-aaaa"], [CHIP], {}, {"exp": OperatorDefaults((), {})},
    [
        place("exp", FIRST, one("jax-cpu", 2.5e-3, 2.5)),
        place("sin", FIRST, one("jax-cpu", 1.01e-3, 1.01, behind=False), decided=False),
    ],
    [RankingGroup("all", {}, CHIP, 2, "forward", 2, 2, 1, 1, TALLIES, *BY)],
    [
        RankingGroup("operator", {"op": "exp"}, CHIP, 2, "forward", 1, 1, 0, 1, [replace(TALLIES[0], wins=1)], *BY),
        RankingGroup("operator", {"op": "sin"}, CHIP, 2, "forward", 1, 1, 1, 1, TALLIES, *BY),
    ],
)  # fmt: skip


def printed(found: Ranking, by: str, width: int = 300) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(ranking_text(found, by))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line)


def test_the_title_says_where_all_of_it_was_measured() -> None:
    title = "a processor, 2 threads, forward, backends NAME-cpu, by latency warm: 2 cases, 2 with more than one backend"
    assert printed(FOUND, "case")[0] == title


@pytest.mark.parametrize("by", ["operator", "case"])
def test_each_quantity_has_tables_of_its_own(by: str) -> None:
    other = {"quantity": "device_time", "cache": "cold"}
    sin = replace(FOUND.cases[1], **other, order=[replace(FIRST, median=5e-6)])
    found = replace(
        FOUND, cases=[FOUND.cases[0], sin], summary=[*FOUND.summary, replace(FOUND.summary[0], **other)],
        groups=[FOUND.groups[0], replace(FOUND.groups[1], **other, backends=TALLIES[:1])],
    )  # fmt: skip
    found.summary[1] = replace(found.summary[1], backends=TALLIES[:1])
    text = "\n".join(printed(found, by))
    first, _, rest = text.partition("by device_time cold: ")
    assert "by latency warm: " in first
    assert ("exp" in first, "sin" in first) == (True, False)
    assert ("exp" in rest, "sin" in rest) == (False, True)
    assert "each case by what all of its backends have" in rest


def test_cases_without_what_was_asked_for_are_counted() -> None:
    found = replace(FOUND, quantity="latency", cache="warm", without=3)
    assert "3 cases not ranked: no verified latency warm of any backend" in printed(found, "case")


def test_by_case_the_best_stands_before_the_others() -> None:
    _, _, first, second, *_ = printed(FOUND, "case")
    assert cells(first) == ["exp", "4 float32", "torch", "1.00 ms", "jax 2.50x"]
    assert cells(second) == ["sin", "4 float32", "torch?", "1.00 ms", "jax 1.01x?"]
    assert any(line.startswith("? not apart") for line in printed(FOUND, "case"))


def test_a_registered_operator_is_named_as_such() -> None:
    built = ["mine.scale", {"value": []}, {"value": None}, {"value": None}]
    case = replace(
        FOUND.cases[0], op=PLUGIN_OPERATOR, params={"args": ["4 float32"], "kwargs": {}, "build": {"args": built}}
    )
    group = replace(FOUND.groups[0], by="size", key={"op": case.op, "params": case.params})
    found = replace(FOUND, cases=[case], groups=[group])
    assert cells(printed(found, "case")[2])[:2] == ["mine.scale", "4 float32"]
    assert cells(printed(found, "size")[2])[0] == "mine.scale 4 float32"


def test_by_group_wins_are_counted() -> None:
    _, _, first, second, *_ = printed(FOUND, "operator")
    assert cells(first) == ["exp", "1", "0", "torch 1 (1.00x)"]
    assert cells(second) == ["sin", "1", "1", "torch 1 (1.00x), jax 0"]


def test_all_together_stands_below() -> None:
    lines = printed(FOUND, "operator")
    at = next(i for i, line in enumerate(lines) if line.startswith("backend"))
    assert [cells(line) for line in lines[at + 1 : at + 3]] == [
        ["torch", "1", "2", "1.00x", "1.00x"],
        ["jax", "0", "1", "2.50x"],
    ]


def test_the_runs_are_named() -> None:
    assert any("from 20300101-000000-aaaa;" in line for line in printed(FOUND, "case"))
    assert any("from 2 runs" in line for line in printed(replace(FOUND, runs=["a", "b"]), "case"))


def test_what_is_not_in_the_order_is_counted() -> None:
    out = replace(FOUND.cases[0], left_out=[LeftOut("numpy-cpu", "numpy", "wrong: far off", "run")])
    assert any(line.startswith("1 number not in the order") for line in printed(replace(FOUND, cases=[out]), "case"))


def test_nothing_is_said_to_be_nothing() -> None:
    empty = replace(FOUND, cases=[], summary=[], groups=[])
    assert printed(empty, "case") == [
        "nothing in these runs was verified and measured undisturbed; `opmark show` says why"
    ]


@pytest.mark.parametrize("by", ["operator", "case"])
def test_a_narrow_terminal_cuts_nothing_off(by: str) -> None:
    narrow, wide = printed(FOUND, by, 60), printed(FOUND, by)
    assert max(map(len, narrow)) <= 60
    assert sorted("".join("".join(narrow).split())) == sorted("".join("".join(wide).split()))
