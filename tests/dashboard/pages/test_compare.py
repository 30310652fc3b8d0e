"""The page that compares two runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from checks import compared, pairing
from rendered_pages import ask
from showcase import CPU, GPU, Again, Maker, fill, run, several, showcase

from opmark.dashboard.pages import compare
from opmark.dashboard.reader import Reader
from opmark.errors import UnknownName, UserError
from opmark.schema.comparison import PairCycles

_HOSTILE = '"><script>alert(1)</script>&/?#'


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    path = tmp_path_factory.mktemp("compare") / "showcase.db"
    showcase(path)
    reader = Reader(path)
    yield reader
    reader.close()


def test_without_runs_there_is_a_form_with_all_of_them(reader: Reader) -> None:
    shown = ask(reader, compare.COMPARE_ENDPOINT)
    assert shown.answer.verdicts is None
    assert len(shown.answer.runs) == 35
    assert shown.html.count("<option value=") > 35
    assert 'list="runs"' in shown.html


def test_one_run_is_kept_while_the_other_is_chosen(reader: Reader) -> None:
    shown = ask(reader, compare.COMPARE_ENDPOINT, a="base")
    assert shown.answer.a.label == "base"
    assert f'value="{shown.answer.a.id}"' in shown.html


def test_the_slowest_come_first_with_their_verdicts(reader: Reader) -> None:
    shown = ask(reader, compare.COMPARE_ENDPOINT, a="base", b="new")
    found = shown.answer.verdicts
    assert (found.counts["slower"], found.counts["faster"]) == (2, 1)
    assert [row.pair.op for row in found.rows[:2]] == ["softmax", "softmax"]
    assert [row.pair.ratio for row in found.rows] == sorted((row.pair.ratio for row in found.rows), reverse=True)
    assert found.geomean.cases == 10
    assert found.chart.id == "ratios"
    assert f'href="/cases/{found.rows[0].pair.case}"' in shown.html
    assert "<svg" in shown.html


def test_verdicts_can_be_chosen_and_links_keep_what_was_asked(reader: Reader) -> None:
    shown = ask(reader, compare.COMPARE_ENDPOINT, a="base", b="new", only="faster", margin="0.05")
    assert {row.word for row in shown.answer.verdicts.rows} == {"faster"}
    assert "a=new&amp;b=base&amp;margin=0.05&amp;only=faster" in shown.html  # the other way around
    assert shown.answer.verdicts.margin == 0.05


def test_long_tables_have_pages(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "ROWS", 4)
    shown = ask(reader, compare.COMPARE_ENDPOINT, a="base", b="new", page="3")
    assert len(shown.answer.verdicts.rows) == 2
    assert "/compare?a=base&amp;b=new&amp;page=2" in shown.html


def test_unlike_machines_are_refused_with_a_link_that_compares_them_all_the_same(tmp_path: Path) -> None:
    params = {"shape": [1 << 20]}
    fill(
        tmp_path / "two.db",
        [
            run(1, "cpu", [Maker(1).record("add", params, "torch-cpu", CPU)]),
            run(2, "gpu", [Maker(1).record("add", params, "torch-cuda", GPU)]),
        ],
    )
    reader = Reader(tmp_path / "two.db")
    shown = ask(reader, compare.COMPARE_ENDPOINT, a="cpu", b="gpu", quantity="latency")
    assert shown.answer.verdicts is None
    assert "cpu" in {fact.name for fact in shown.answer.refused}
    link = "/compare?a=cpu&amp;b=gpu&amp;quantity=latency&amp;unlike=true"
    assert link in shown.html
    assert ask(
        reader, compare.COMPARE_ENDPOINT, a="cpu", b="gpu", quantity="latency", unlike="true"
    ).answer.verdicts.rows
    reader.close()


def test_a_comparison_is_made_once_until_a_run_has_more_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, new = list(several(Again(1), {})), list(several(Again(2), {}))
    made_b = run(2, "b", new)
    fill(tmp_path / "grows.db", [run(1, "a", base), (made_b[0], new[:40])])
    reader, calls = Reader(tmp_path / "grows.db"), []
    whole = compare.compare_sides
    monkeypatch.setattr(compare, "compare_sides", lambda *sides, **how: calls.append(how) or whole(*sides, **how))
    first = [ask(reader, compare.COMPARE_ENDPOINT, a="a", b="b").answer.verdicts.page.rows for _ in range(2)]
    assert (first, len(calls)) == ([5, 5], 1)
    ask(reader, compare.COMPARE_ENDPOINT, a="a", b="b", margin="0.2")
    assert len(calls) == 2
    from contextlib import closing

    from opmark.store.sql import open_sql

    with closing(open_sql(tmp_path / "grows.db")) as store:
        store.extend(made_b[0].id, new[40:])
    assert ask(reader, compare.COMPARE_ENDPOINT, a="a", b="b").answer.verdicts.page.rows == 10
    reader.close()


def test_labels_are_escaped(tmp_path: Path) -> None:
    record = Maker(1).record("add", {"shape": [64]}, "torch-cpu", CPU)
    fill(tmp_path / "hostile.db", [run(1, _HOSTILE, [record]), run(2, "b", [record])])
    reader = Reader(tmp_path / "hostile.db")
    html = ask(reader, compare.COMPARE_ENDPOINT, a=_HOSTILE, b="b").html
    assert "<script>alert" not in html
    assert "a=%22%3E%3Cscript%3E" in html
    reader.close()


def test_what_cannot_be_compared_is_said(reader: Reader, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no run named `nothing`"):
        ask(reader, compare.COMPARE_ENDPOINT, a="base", b="nothing")
    with pytest.raises(UnknownName):  # a file of the server is no run
        ask(reader, compare.COMPARE_ENDPOINT, a="base", b=str(reader.db))
    with pytest.raises(UserError, match="no case in common"):
        ask(reader, compare.COMPARE_ENDPOINT, a="base", b="one")
    with pytest.raises(UserError, match="margin"):
        ask(reader, compare.COMPARE_ENDPOINT, a="base", b="new", margin="1.5")
    with pytest.raises(UserError, match="margin"):
        ask(reader, compare.COMPARE_ENDPOINT, a="base", b="new", margin="nan")
    assert "holds no run yet" in ask(Reader(tmp_path / "none.db"), compare.COMPARE_ENDPOINT).html


def test_what_two_sessions_leave_open_says_what_to_type(reader: Reader) -> None:
    shown = ask(reader, compare.COMPARE_ENDPOINT, a="base", b="new", only="undecided")
    commands = [row.pair.in_turns for row in shown.answer.verdicts.rows]
    assert any(commands)
    assert all(command == "" or command.startswith("opmark ab ") for command in commands)
    assert shown.html.count("measure in turns: <code>opmark ab ") == sum(map(bool, commands))


def test_where_the_clock_moved_cycles_stand_beside_times(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "A cycles" not in ask(reader, compare.COMPARE_ENDPOINT, a="base", b="new").html
    moved = PairCycles(2e6, 2.002e6, 1.001, (2e9, 1.82e9))
    found = compared(pairing(cycles=moved), pairing("add"))
    monkeypatch.setattr(compare, "compare_runs", lambda *asked: found)
    shown = ask(reader, compare.COMPARE_ENDPOINT, a="base", b="new")
    assert "The clock moved from 2000 MHz in A to 1820 MHz in B" in shown.html
    assert '<td class="n">2.00M</td><td class="n">2.00M</td><td class="n">1.001×</td>' in shown.html
    assert shown.answer.verdicts.rows[0].pair.cycles == moved


def test_each_quantity_has_a_table_of_its_own(tmp_path: Path) -> None:
    record = Maker(1).record("add", {"shape": [1 << 20]}, "torch-cuda", GPU)
    fill(tmp_path / "device.db", [run(1, "a", [record]), run(2, "b", [record])])
    reader = Reader(tmp_path / "device.db")
    shown = ask(reader, compare.COMPARE_ENDPOINT, a="a", b="b", quantity="all")
    keys = {(row.pair.quantity, row.pair.cache) for row in shown.answer.verdicts.rows}
    assert len(keys) > 2
    assert shown.html.count('aria-label="Cases: ') == len(keys)
    for quantity, cache in keys:
        assert f'aria-label="Cases: {quantity} {cache}"' in shown.html
    mean = shown.answer.verdicts.geomean
    assert (mean.quantity, mean.cache, mean.cases) == ("device_time", "cold", 1)
    reader.close()
