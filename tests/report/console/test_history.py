"""Histories for people and for programs."""

from __future__ import annotations

import io

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from opmark.report.console.history import history_view, print_history
from opmark.report.formats.markdown import history_markdown
from opmark.schema.history import Histories, History, HistoryPoint, LevelChange, Outage, RunAt


def run(number: int, label: str = "nightly") -> RunAt:
    return RunAt(f"run-{number}", f"2030-01-{number + 1:02}T03:00:00.000+00:00", label, f"{number:040x}")


CHANGE = LevelChange(run(4), run(5), 1e-3, 1.05e-3, 1.05, 1.04, 1.06, 2e-9, {"torch": ("2.12", "2.13")})
HISTORY = History(
    case="0123456789abcdef", op="exp", params="4 float32", phase="forward", backend="torch-cpu",
    implementation="torch", threads=2, quantity="latency", cache="warm", chip="a processor",
    points=tuple(HistoryPoint(run(i), 1e-3 if i < 5 else 1.05e-3, 3, "e", 0.9e-3, 1.1e-3) for i in range(10)),
    level=1.05e-3, changes=(CHANGE,), floor=0.004,
)  # fmt: skip
QUIET = replace(HISTORY, op="add", changes=(), level=1e-3)


def printed(found: Histories, *, named: bool, width: int | None = None) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width or 1000, force_terminal=width is not None, color_system=None)
    print_history(found, console, named=named)
    return out.getvalue()


def test_what_was_named_is_told_in_full() -> None:
    lines = printed(Histories([HISTORY], 1), named=True).splitlines()
    assert lines[0] == "exp 4 float32, torch-cpu ×2, latency warm, a processor"
    assert lines[1] == "  10 runs, 2030-01-01 to 2030-01-10: 1.00 ms to 1.05 ms  ▁▁▁▁▁█████"
    assert lines[2] == "  2030-01-06  +5.0 % slower (+4.0 % to +6.0 %, p 2e-09): 1.00 ms -> 1.05 ms"
    assert lines[3] == "      between run-4 nightly 0000000000 and run-5 nightly 0000000000"
    assert lines[4] == "      changed there: torch 2.12 -> 2.13"
    assert lines[5] == "  last: 1.05 ms, +0.0 % against its level; processes differ by 0.40 %"


def test_what_did_not_change_failed_or_is_out_of_line_is_said() -> None:
    outages = (Outage(run(1), "timeout"), Outage(run(2), "timeout"), Outage(run(3), "preempted"))
    text = printed(Histories([replace(QUIET, outages=outages, warning=True)], 1), named=True)
    assert "no change of its level" in text
    assert "the newest runs are out of line" in text
    assert "not counted: 2 timeout, 1 preempted, last in run-3 nightly" in text
    assert "+5.0 % against its level" in text


def test_a_table_has_a_change_a_row_the_newest_first() -> None:
    later = replace(CHANGE, before=run(7), after=run(8), ratio=0.4, low=0.3, high=0.5, p=1e-30, sure=False)
    twice = replace(HISTORY, changes=(CHANGE, later))
    lines = printed(Histories([twice, QUIET], 12, short=3, unsure=1, by_chance=2.4), named=False).splitlines()
    assert lines[0].split() == ["since", "operator", "parameters", "backend", "change", "interval", "p", "before",
                                "after", "history"]  # fmt: skip
    assert "0.400x faster ?" in lines[1]
    assert "<1e-12" in lines[1]
    assert "+5.0 % slower" in lines[2]
    assert lines[2].endswith("torch 2.12 -> 2.13")
    assert lines[4].startswith("add")
    assert lines[5] == "12 series of 6 runs or more, 1 with a change; 3 shorter"
    assert lines[6] == "among so many series, up to about 2 of them by chance; `opmark ab` decides"
    assert lines[7].startswith("1 change may be chance among so many series")


def test_a_narrow_terminal_has_it_in_two_lines() -> None:
    text = printed(Histories([HISTORY], 1), named=False, width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "+5.0 % slower" in " ".join(text.split())


def test_nothing_changed_is_a_line() -> None:
    assert printed(Histories([], 7), named=False) == "7 series of 6 runs or more, 0 with a change\n"


def test_many_facts_are_counted() -> None:
    many = replace(CHANGE, differing={f"fact{i}": (i, None) for i in range(5)})
    text = printed(Histories([replace(HISTORY, changes=(many,))], 1), named=True)
    assert "fact0 0 -> none; fact1 1 -> none; fact2 2 -> none; and 2 more facts" in text


def test_markdown_is_text_whatever_a_label_holds() -> None:
    hostile = replace(CHANGE, after=run(5, "<script>|`x`\n*"))
    text = history_markdown(Histories([replace(HISTORY, changes=(hostile,))], 1))
    assert "<script>" not in text
    header, rule, row = (line for line in text.splitlines() if line.startswith("|"))
    assert len(rule.split("|")) == len(header.split("|"))
    assert row.replace("\\|", "").count("|") == header.count("|")
    assert history_markdown(Histories([], 3)) == "3 series of 6 runs or more, 0 with a change  \n"


def test_what_did_not_change_has_a_table_too() -> None:
    text = history_markdown(Histories([replace(HISTORY, changes=())], 1))
    assert "history, no change" in text
    assert "| exp |" in text


def test_a_commit_with_changed_files_says_so() -> None:
    changed = replace(CHANGE, after=replace(run(5), revision=f"{5:040x}+"))
    told = printed(Histories([replace(HISTORY, changes=(changed,))], 1), named=True)
    assert f"and run-5 nightly {'0' * 10}+" in told
    assert f"between run-4 nightly {'0' * 10} and" in told


def test_a_series_that_is_too_short_is_not_said_to_be_without_a_change() -> None:
    short = replace(HISTORY, changes=(), points=HISTORY.points[:5])
    assert "too few runs" in printed(Histories([short], 0), named=True)


def test_a_terminal_is_not_steered_by_a_label() -> None:
    hostile = replace(CHANGE, after=run(5, "\x1b[2Jgone"))
    for named in (True, False):
        assert "\x1b" not in printed(Histories([replace(HISTORY, changes=(hostile,))], 1), named=named)


@pytest.mark.parametrize(("quantity", "shown"), [("latency", "1.05 ms"), ("energy", "1.05 mJ")])
def test_values_have_their_unit(quantity: str, shown: str) -> None:
    assert f"last: {shown}" in printed(Histories([replace(HISTORY, quantity=quantity)], 1), named=True)


def test_plain_data_have_what_people_are_told() -> None:
    view = msgspec.json.decode(msgspec.json.encode(history_view(HISTORY)))
    assert view["changes"][0]["direction"] == "slower"
    assert view["changes"][0]["differing"] == {"torch": ["2.12", "2.13"]}
    assert view["last_over_level"] == pytest.approx(1.0)
    assert view["points"][0]["run"]["id"] == "run-0"


def test_a_clock_that_moved_with_the_level_is_said_with_the_change_in_cycles() -> None:
    moved = replace(HISTORY, changes=(replace(CHANGE, clocks=(2e9, 1.9e9)),))
    told = "the clock moved too, 2000 -> 1900 MHz: -0.2 % in cycles"
    assert f"      {told}" in printed(Histories([moved], 1), named=True).splitlines()
    assert told in printed(Histories([moved], 1), named=False)
    assert told in history_markdown(Histories([moved], 1)).replace("\\", "").replace("&gt;", ">")
    assert history_view(moved)["changes"][0]["cycles_ratio"] == pytest.approx(1.05 * 0.95)
    still = replace(HISTORY, changes=(replace(CHANGE, clocks=(2e9, 1.99e9)),))
    for found in (HISTORY, still):
        assert "clock" not in printed(Histories([found], 1), named=True)
        assert history_view(found)["changes"][0]["cycles_ratio"] is None
