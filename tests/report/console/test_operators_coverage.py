"""The coverage of a framework, as a table and as data."""

from __future__ import annotations

import io
import json
from typing import Any

from rich.console import Console

from opmark.report.console.operators import coverage_text, coverage_view
from opmark.schema.coverage import TIERS, Coverage, CoveredOperator

OPERATORS = [
    CoveredOperator("add", "add", [1, 2, 3], ["add"], True, {"forward": "ok", "backward": "ok"}),
    CoveredOperator("pad/reflect", "pad", [2, 3], [], True, {"forward": "ok", "backward": "error: no gradient"}),
    CoveredOperator("pad/constant", "pad", [2, 3], [], True, {"forward": "timeout: after [60] s"}),
    CoveredOperator("eq", "eq", [2], [], False),
    CoveredOperator("odd", "odd", [], [], False),
]
RUN = Coverage("torch", OPERATORS, "20300101-000000-aaaa")
NONE = Coverage(
    "torch", [CoveredOperator(c.name, c.function, c.tiers, c.catalogue, c.differentiable) for c in OPERATORS]
)


def printed(found: Coverage) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=300, color_system=None).print(coverage_text(found))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def cells(found: Coverage) -> dict[str, list[str]]:
    """The table by its first column; figures only."""
    lines = [line.split() for line in printed(found)[1:]]
    return {line[0]: [word for word in line[1:] if word.isdecimal()] for line in lines if line}


def test_the_table_counts_every_tier_all_and_none() -> None:
    found = cells(RUN)
    assert found["1"] == ["1", "1", "1", "1"]
    assert found["2"] == ["4", "3", "2", "1"]
    assert found["3"] == ["3", "3", "2", "1"]
    assert found["all"] == ["5", "3", "2", "1"]
    assert found["none"] == ["1", "0", "0", "0"]


def test_without_a_run_nothing_is_said_of_measured_ones() -> None:
    found = cells(NONE)
    assert found["2"] == ["4", "3"]
    assert found["all"] == ["5", "3"]


def test_the_first_line_counts_operators_and_functions() -> None:
    assert printed(RUN)[0] == "torch: 5 operators, 4 functions"
    assert printed(Coverage("numpy", OPERATORS[:1]))[0] == "numpy: 1 operator, 1 function"


def test_what_each_tier_is_stands_beside_it() -> None:
    text = "\n".join(printed(RUN))
    assert all(what in text for what in TIERS.values())
    assert "not covered" in text


def test_everything_that_is_not_covered_is_named_with_its_reason_as_it_is() -> None:
    """Brackets are no markup."""
    lines = printed(RUN)
    assert "pad/constant: timeout: after [60] s" in lines
    assert any(line.startswith("odd: the framework names no function for it") for line in lines)
    assert not any(line.startswith(("add:", "eq:", "pad/reflect:")) for line in lines)


def test_the_last_line_says_where_the_numbers_are_from_or_how_to_get_them() -> None:
    assert printed(RUN)[-1] == "measured: in run 20300101-000000-aaaa"
    assert "--suite torch-all" in printed(NONE)[-1]
    assert "torch" not in printed(Coverage("numpy", OPERATORS[:1]))[-1]


def test_the_same_as_data() -> None:
    found: dict[str, Any] = json.loads(json.dumps(coverage_view(RUN)))
    assert (found["framework"], found["run"], found["operators"], found["functions"]) == (
        "torch", "20300101-000000-aaaa", 5, 4,
    )  # fmt: skip
    assert found["tiers"]["2"] == {
        "operators": 4, "differentiable": 3, "forward_measured": 2, "backward_measured": 1,
    }  # fmt: skip
    assert set(found["tiers"]) == {"1", "2", "3"}
    assert set(found["uncovered"]) == {"pad/constant", "odd"}
    assert found["uncovered"]["pad/constant"] == "timeout: after [60] s"
    assert found["details"][0] == {
        "name": "add", "function": "add", "tiers": [1, 2, 3], "catalogue": ["add"], "differentiable": True,
        "outcomes": {"forward": "ok", "backward": "ok"},
    }  # fmt: skip
    assert len(found["details"]) == 5


def test_a_framework_without_operators_is_no_obstacle() -> None:
    assert printed(Coverage("numpy", []))[0] == "numpy: 0 operators, 0 functions"
    assert coverage_view(Coverage("numpy", []))["uncovered"] == {}
