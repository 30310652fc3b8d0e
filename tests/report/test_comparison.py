"""A comparison as a table, in Markdown and as plain data."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from io import StringIO

import msgspec
import pytest
from checks import checked, compared, finding, pairing
from rich.console import Console

from opmark.errors import UnknownName
from opmark.report.comparison import check_words, comparison_view, word
from opmark.report.console.comparison import comparison_text, print_checked, print_comparison
from opmark.report.formats.junit import junit_xml
from opmark.report.formats.markdown import comparison_markdown, escape_markdown, summary_markdown
from opmark.report.html.comparison import versus_table
from opmark.report.text import sortable
from opmark.schema.comparison import Compared, Geomean, PairCycles


def lines(*pairs: object, **more: object) -> list[str]:
    only = more.pop("only", ())
    return comparison_text(compared(*pairs, **more), only).splitlines()  # type: ignore[arg-type]


def test_a_row_has_both_times_the_ratio_its_interval_and_the_verdict() -> None:
    printed = lines(pairing())
    assert printed[0] == (
        "A main (20300101-000000-aaaa), B now (20300102-000000-bbbb): two sessions, which may differ by 2.0 % for the "
        "same code"
    )
    assert printed[1] == "torch-cpu ×2"
    assert printed[2].split() == ["operator", "parameters", "A", "B", "B/A", "interval", "verdict"]
    cells = [cell.strip() for cell in printed[3].split("  ") if cell]
    assert cells == ["exp", "4x8 float32", "1.00 ms", "1.10 ms", "1.100x", "1.090–1.110", "slower"]
    assert printed[4] == "1 slower; geometric mean 1.050x (1.010–1.090) over 1 case"
    assert printed[5].startswith("B/A above 1 is slower; intervals hold in 99% of comparisons; up to 1.0 %")
    assert len(printed) == 6


def test_what_rows_have_in_common_stands_above_and_the_rest_in_columns_of_a_table_per_quantity() -> None:
    other = pairing(phase="backward", where=("torch-cpu ×2", "numpy-cpu ×1"), quantity="energy", a=2.0, b=4.0)
    printed = lines(pairing(), other)
    assert printed[1] == "no way to compute has the same name on both sides, so they are matched by case"
    assert printed[2].split()[:5] == ["operator", "parameters", "phase", "where", "quantity"]
    assert "latency warm  1.00 ms" in printed[3]
    assert printed[4] == ""
    assert printed[5].split() == printed[2].split()
    assert "backward  torch-cpu ×2 -> numpy-cpu ×1  energy warm" in printed[6]
    assert "2.00 J  4.00 J" in printed[6]


def test_one_other_name_is_said_above() -> None:
    pair = pairing(where=("torch-cpu ×2", "torch-cpu ×4"))
    assert lines(pair)[1].startswith("torch-cpu ×2 -> torch-cpu ×4: no way to compute has the same name")
    assert "matched by case" not in "".join(lines(pair, runs=("one", "one")))


def test_how_it_was_measured_and_what_else_differs() -> None:
    assert lines(pairing(), paired=True)[0].endswith("measured in turns")
    assert lines(pairing(), drift=0.0)[0].endswith("two sessions, clocks locked")
    assert lines(pairing(), differing={"torch": ("2.11", "2.12"), "cudnn": (None, 9)})[2] == (
        "differs: torch 2.11 -> 2.12; cudnn unknown -> 9"
    )


def test_what_failed_is_called_that_and_what_failed_on_both_sides_is_counted() -> None:
    broken = pairing(ratio=None, a=None, verdict="undecided", statuses=("ok", "error"), note="failed in now: error: x")
    neither = pairing("tanh", ratio=None, a=None, verdict="undecided", statuses=("error", "skipped"))
    printed = lines(broken, neither, pairing(verdict="same"))
    assert printed[3].split()[-6:] == ["failed", "failed", "in", "now:", "error:", "x"]
    assert not any("tanh" in line for line in printed)
    assert printed[5].startswith("1 same, 1 failed; geometric mean")
    assert printed[6] == "1 case without a number on either side"
    assert any("tanh" in line for line in lines(broken, neither, only=["failed"]))


def test_what_only_one_side_has_is_listed_up_to_a_few() -> None:
    printed = lines(pairing(), only=(), differing={})
    assert not any(" only: " in line for line in printed)
    many = comparison_text(compared(pairing(), only=(tuple(f"exp {n}" for n in range(7)), ("tanh 1",)))).splitlines()
    assert "7 cases in A only: exp 0; exp 1; exp 2; exp 3; exp 4; ..." in many
    assert "1 case in B only: tanh 1" in many


def test_an_interval_without_ends_is_left_out() -> None:
    row = lines(pairing(low=0.0, high=math.inf, verdict="undecided"))[3]
    assert row.split() == ["exp", "4x8", "float32", "1.00", "ms", "1.10", "ms", "1.100x", "undecided"]


def test_words_choose_rows_and_an_unknown_one_is_refused() -> None:
    assert check_words(["slower", "failed"]) == ["slower", "failed"]
    with pytest.raises(UnknownName, match="no verdict named `slow`"):
        check_words(["slow"])
    printed = lines(pairing(), pairing("tanh", verdict="same"), only=["same"])
    assert [line.split()[0] for line in printed[3:4]] == ["tanh"]
    assert any(line.startswith("1 slower, 1 same") for line in printed)


def test_the_word_of_a_pair() -> None:
    assert word(pairing()) == "slower"
    assert word(pairing(statuses=("oom", "ok"))) == "failed"
    assert word(pairing(statuses=("ok", "skipped"))) == "skipped"


def test_plain_data_has_everything_and_an_open_interval_has_null() -> None:
    found = compared(pairing(low=0.0, high=math.inf), pairing("tanh", verdict="same"))
    plain = json.loads(msgspec.json.encode(comparison_view(found)))
    assert plain["pairs"][0]["high"] is None
    assert plain["counts"] == {"slower": 1, "same": 1}
    assert [pair["op"] for pair in comparison_view(found, ["same"])["pairs"]] == ["tanh"]
    assert comparison_view(found, ["same"])["counts"] == {"slower": 1, "same": 1}


def test_markdown_is_a_table_and_its_text_is_only_text() -> None:
    found = compared(pairing("a|b<script>", note="`x`\n| y |"), a="main_*_[x](y)")
    text = comparison_markdown(found)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows[0] == "| operator | parameters | quantity | A | B | B/A | interval | verdict |  |"
    assert rows[1] == "| --- | --- | --- | ---: | ---: | ---: | ---: | --- | --- |"
    assert rows[2].startswith("| a\\|b&lt;script&gt; | 4x8 float32 | latency warm | 1.00 ms |")
    assert rows[2].endswith("| \\`x\\` \\| y \\| |")
    assert len(rows) == 3
    assert "main\\_\\*\\_\\[x\\]" in text
    assert escape_markdown("plain text 4x8 ×2") == "plain text 4x8 ×2"


def test_nothing_to_show_is_said() -> None:
    printed = comparison_text(compared(geomean=None)).splitlines()
    assert printed[1] == "nothing to compare"


@pytest.mark.parametrize("many", [3, 300])
def test_a_narrow_terminal_folds_the_case_and_keeps_every_figure_in_its_column(many: int) -> None:
    out = Console(file=StringIO(), width=60, force_terminal=True, color_system=None)
    print_comparison(compared(*[pairing()] * many), out)
    printed = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, printed)) <= 60
    row = ["exp", "4x8", "1.00", "ms", "1.10", "ms", "1.100x", "1.090–1.110", "slower"]
    assert [line.split() for line in printed].count(row) == many
    assert sum(line.rstrip() == "  float32" for line in printed) == many


# Cycles beside seconds, where the clock moved.

MOVED = PairCycles(2e6, 2.002e6, 1.001, (2e9, 1.82e9))
STILL = PairCycles(512.0, 563.0, 1.1, (2e9, 2e9))


def test_where_the_clock_moved_cycles_stand_beside_seconds() -> None:
    printed = lines(pairing(cycles=MOVED), pairing("add", cycles=STILL), pairing("neg"))
    heads = [cell for cell in printed[2].split("  ") if cell.strip()]
    assert [head.strip() for head in heads][2:] == [
        "A", "B", "B/A", "A cycles", "B cycles", "B/A cycles", "interval", "verdict",
    ]  # fmt: skip
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in printed[3:6]]
    assert cells[0][4:8] == ["1.100x", "2.00M", "2.00M", "1.001x"]
    assert cells[1][4:8] == ["1.100x", "512", "563", "1.100x"]
    assert cells[2][4:] == ["1.100x", "1.090–1.110", "slower"]
    (line,) = [line for line in printed if line.startswith("the clock moved")]
    assert line.startswith("the clock moved in 1 of 2 cases, most in exp: from 2000 MHz in A to 1820 MHz in B")
    assert "what waits for memory does not follow that clock" in line


def test_of_one_case_the_line_names_none() -> None:
    assert any(line.startswith("the clock moved from 2000 MHz in A") for line in lines(pairing(cycles=MOVED)))


def test_where_the_clock_stood_still_nothing_is_said_of_it() -> None:
    printed = "\n".join(lines(pairing(cycles=STILL)))
    assert "cycles" not in printed
    assert "clock" not in printed


def test_markdown_and_json_have_the_cycles_too() -> None:
    found = compared(pairing(cycles=MOVED))
    text = comparison_markdown(found)
    assert "| A | B | B/A | A cycles | B cycles | B/A cycles | interval | verdict |" in text
    assert "the clock moved from 2000 MHz" in text
    (view,) = json.loads(msgspec.json.encode(comparison_view(found)))["pairs"]
    assert view["cycles"] == {"a": 2e6, "b": 2.002e6, "ratio": 1.001, "clocks": [2e9, 1.82e9]}


def test_a_narrow_terminal_drops_the_cycles_before_the_times() -> None:
    def shown(width: int) -> str:
        out = StringIO()
        print_comparison(compared(pairing(cycles=MOVED)), Console(file=out, width=width, force_terminal=True))
        return out.getvalue()

    assert "2.00M" in shown(160)
    narrow = shown(80)
    assert "2.00M" not in narrow
    assert "1.001x" in narrow
    assert "1.10 ms" in narrow
    assert "no room for A cycles, B cycles" in narrow


def test_the_verdict_of_a_gate_says_that_the_clock_moved() -> None:
    pair = pairing(cycles=MOVED)
    found = checked(finding("slower", pair=pair), finding("same", "add", pair=pairing("add", 1.0, cycles=STILL)))
    out = StringIO()
    print_checked(found, Console(file=out, width=400))
    assert "B/A cycles" in out.getvalue()
    assert "the clock moved in 1 of 2 cases" in out.getvalue()
    assert "the clock moved in 1 of 2 cases" in summary_markdown(found)
    assert "1.00 ms -&gt; 1.10 ms, in cycles 1.001x" in junit_xml(found)


def test_the_table_of_a_page_has_columns_of_cycles_that_can_be_sorted() -> None:
    page = str(versus_table(compared(pairing(cycles=MOVED), pairing("add")), 1, {}))
    assert "B/A cycles" in page
    assert f'data-v="{sortable(2e6)}">2.00M' in page
    assert page.count("<td class=n") == 12
    assert "cycles" not in str(versus_table(compared(pairing(cycles=STILL)), 1, {}))


@pytest.mark.parametrize("write", [comparison_text, comparison_markdown])
def test_each_quantity_has_a_table_of_its_own(write: Callable[[Compared], str]) -> None:
    energy = pairing("sin", quantity="energy", a=2.0, b=4.0)
    failed = pairing("cos", None, quantity="", cache=None, a=None, statuses=("ok", "error"))
    text = write(
        compared(failed, pairing(), energy, pairing("tan"), geomean=Geomean(1.05, 1.0, 1.1, 2, "latency", "warm"))
    )
    first, second = (part for part in re.split(r"\n\s*\n", text) if "verdict" in part)
    assert [op in first for op in ("exp", "sin", "tan", "cos")] == [True, False, True, True]
    assert "sin" in second
    assert "over 2 cases by latency warm" in text
