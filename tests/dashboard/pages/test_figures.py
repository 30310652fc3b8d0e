"""The figures and the roofline of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rendered_pages import ask
from showcase import showcase

import opmark
from opmark.dashboard.pages import figures
from opmark.dashboard.reader import Reader
from opmark.errors import UnknownName


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    path: Path = tmp_path_factory.mktemp("roofline") / "showcase.db"
    showcase(path)
    reader = Reader(path)
    yield reader
    reader.close()


def test_dots_are_linked_to_items(reader: Reader) -> None:
    shown = ask(reader, figures.ROOFLINE_ENDPOINT, {"run": "showcase"})
    kinds = [chart.id.partition("-")[0] for chart in shown.answer.charts]
    assert "roofline" in kinds
    assert any(chart.kind == "heatmap" for chart in shown.answer.charts)
    link = next(mark.link for _, mark in shown.answer.charts[0].marks() if mark.link)
    assert f"/runs/{shown.answer.run.id}/items/{link}" in shown.html


def test_filters_leave_what_was_asked_for(reader: Reader) -> None:
    whole = ask(reader, figures.ROOFLINE_ENDPOINT, {"run": "showcase"}).answer
    some = ask(
        reader, figures.ROOFLINE_ENDPOINT, {"run": "showcase"}, op="matmul", dtype="float16", backend="torch-cuda"
    )
    assert (whole.items, some.answer.items) == (len(reader.run_view(whole.run).rows), 6)
    names = {mark.label for chart in some.answer.charts for series, mark in chart.marks() if series.role == "data"}
    assert names
    assert all("matmul" in name for name in names if name)


def test_an_answer_is_made_once(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask(reader, figures.ROOFLINE_ENDPOINT, {"run": "showcase"}, op="exp")
    monkeypatch.setattr(figures, "roofline", lambda *arguments: pytest.fail("made again"))
    assert ask(reader, figures.ROOFLINE_ENDPOINT, {"run": "showcase"}, op="exp").answer.charts == first.answer.charts


def test_failures_only_is_a_page_that_says_so(reader: Reader) -> None:
    assert "There is nothing to draw" in ask(reader, figures.ROOFLINE_ENDPOINT, {"run": "failures"}).html


def test_an_unknown_run_is_said(reader: Reader) -> None:
    with pytest.raises(UnknownName, match="no run named `nothing`"):
        ask(reader, figures.ROOFLINE_ENDPOINT, {"run": "nothing"})


def test_a_load_has_the_figures_of_the_report(tmp_path: Path) -> None:
    path = tmp_path / "load.db"
    opmark.run(
        "softmax", size="small", backend="null", clients=[1, 2], requests=400, processes=1, db=path, label="load"
    )
    reader = Reader(path)
    try:
        for figure in ("load", ""):
            charts = ask(reader, figures.FIGURES_ENDPOINT, {"run": "load"}, figure=figure).answer.charts
            over_clients = [chart for chart in charts if "over clients" in chart.title]
            # Whether there is a p99 as well depends on how quiet the machine was; test_load.py draws it from made-up
            # records.
            assert over_clients[0].title == "softmax: throughput over clients"
            assert [mark.x for mark in over_clients[0].series[0].marks] == [1, 2]
    finally:
        reader.close()
