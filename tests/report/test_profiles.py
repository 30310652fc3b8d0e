"""Profiles below a table and in the JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from opmark.analysis.rows import rows_of_records
from opmark.report.row_view import row_view
from opmark.schema import KernelMetrics, Profile, Record

MakeRecord = Callable[..., Record]
Printed = Callable[..., str]


def profile(file: str, profiler: str = "ncu") -> Profile:
    return Profile(profiler, file, (KernelMetrics("work", {"time [ns]": 3.0}),), "ncu python")


def test_the_json_has_everything(make_record: MakeRecord) -> None:
    first, second = make_record(profiles=(profile("a"),)), make_record(process=1)
    assert json.loads(json.dumps(row_view(rows_of_records([first, second])[0])["profiles"])) == [
        {
            "profiler": "ncu",
            "file": "a",
            "kernels": [{"name": "work", "metrics": {"time [ns]": 3.0}}],
            "command": "ncu python",
        }
    ]


def test_a_line_a_profiler_says_where_the_files_are(make_record: MakeRecord, printed: Printed) -> None:
    records = [
        make_record("exp", {"shape": [n]}, profiles=(profile(f"{n // 3}"), profile("t", "trace"))) for n in (1, 2, 3)
    ]
    lines = printed(records).splitlines()
    assert "ncu profile of 3 cases: 0 and 1 more file" in lines
    assert "trace profile of 3 cases: t" in lines


def test_why_there_is_none_is_said_in_its_own_words(make_record: MakeRecord, printed: Printed) -> None:
    notes: Sequence[str] = (
        "no profile by ncu: killed",
        "part of a profile by ncu: killed",
        "in sequence, exp has 1 thread",
        "energy: no sensor",
    )
    lines = printed([make_record("exp", {"shape": [4]}, notes=tuple(notes))]).splitlines()
    assert [line.partition(": ")[2] for line in lines if line.startswith("exp 4 float32: ")] == [
        "no profile by ncu: killed",
        "part of a profile by ncu: killed",
        "in sequence, exp has 1 thread",
        "not measured: energy: no sensor",
    ]
