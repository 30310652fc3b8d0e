"""Plans: tasks that would run, and tasks that would be skipped."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from rich.console import Console, RenderableType

from opmark.report.console.runs import plan_rows, plan_table
from opmark.schema import Record

MakeRecord = Callable[..., Record]


def text(item: RenderableType, width: int = 200) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(item)
    return out.getvalue()


def test_a_row_says_what_it_is_and_what_becomes_of_it(make_record: MakeRecord) -> None:
    run, skipped = make_record(), make_record("exp", {"shape": [4]}, status="skipped", reason="no GPU")
    rows = list(plan_rows([run.task], [skipped]))
    assert rows[0] == {
        "case": run.task.case.id,
        "op": "matmul",
        "params": run.task.case.params,
        "phase": "forward",
        "backend": "null",
        "implementation": "null",
        "threads": 2,
        "effort": "quick",
        "processes": 1,
        "skipped": None,
    }
    assert (rows[1]["op"], rows[1]["skipped"]) == ("exp", "no GPU")


def test_the_table_counts_and_gives_reasons(make_record: MakeRecord) -> None:
    run, skipped = make_record(), make_record("exp", {"shape": [4]}, status="skipped", reason="no GPU")
    lines = text(plan_table([run.task], [skipped])).splitlines()
    assert lines[0].split() == ["operator", "parameters", "backend", "phase", "plan"]
    assert lines[1].split() == ["matmul", "M=256", "N=128", "K=64", "float32", "null", "×2", "forward", "quick"]
    assert "skipped: no GPU" in lines[2]
    assert lines[-1].strip() == "1 task to run, 1 skipped"


def test_a_case_in_several_processes_is_one_row(make_record: MakeRecord) -> None:
    task = make_record().task
    again = replace(task, settings=replace(task.settings, process=1))
    lines = text(plan_table([task, again], [])).splitlines()
    assert len(lines) == 3
    assert "null ×2 in 2 processes" in lines[1]
    assert lines[-1].strip() == "1 task to run, some in several processes, 0 skipped"
    assert [row["processes"] for row in plan_rows([task, again], [])] == [2]


@pytest.mark.parametrize("width", [200, 40])
def test_brackets_are_no_markup(make_record: MakeRecord, width: int) -> None:
    """The way to install a framework has brackets: pip install 'opmark[torch]'."""
    reason = "torch is not installed (pip install 'opmark[torch]')"
    skipped = make_record("op[red]", {"name": "[b]"}, status="skipped", reason=reason, backend="b[i]")
    found = "".join(text(plan_table([], [skipped]), width).split())
    for part in ("opmark[torch]", "op[red]", "name=[b]", "b[i]"):
        assert width == 40 or part in found
    # On a narrow terminal cells fold into each other's lines: what can be told is that no character is lost.
    assert found.count("[") == 4
