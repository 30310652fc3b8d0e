"""The pictures and the PDF of a task's report, made by opmark's own report of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opmark.api.items import view_stored_run
from opmark.api.report import charts_of, make_report
from opmark.api.result import open_store
from opmark.errors import UserError
from opmark.interop.general_perf.resolution import BackendChoice, ResolvedTask
from opmark.report.html.figure import standalone
from opmark.report.html.page import draw_png
from opmark.schema.chart import Chart
from opmark.schema.options import PathLike
from opmark.store.runs import find_run
from opmark.store.sql import SqlStore

_KINDS = {"differences": "", "load": "-load", "scaling": "-load"}
"""What the file of a chart is called, by the beginning of its id."""


def draw_pictures(
    task: ResolvedTask, choice: BackendChoice, runs: Sequence[str], folder: Path, db: PathLike | None
) -> tuple[dict[str, str], list[str]]:
    """Write the pictures and the PDF of the runs of a task; return the name of each file, and a note for each that
    could not be made: without a browser, the picture is an SVG and the report is HTML."""
    if not runs:
        return {}, []
    stem = f"{task.name}-to-{task.precision.lower()}"
    found: dict[str, str] = {}
    notes: list[str] = []
    for kind, charts in _charts(runs[0], db).items():
        drawing = standalone(charts)
        name = f"{stem}{'' if kind == 'differences' else '-' + kind}"
        try:
            (folder / f"{name}.png").write_bytes(draw_png(drawing))
            found[kind] = f"{name}.png"
        except UserError as error:
            (folder / f"{name}.svg").write_text(drawing, encoding="utf-8")
            found[kind] = f"{name}.svg"
            notes.append(f"{name}.svg stands for a PNG: {error.message}")
    title = f"{task.name} on {choice.backend}"
    try:
        (folder / f"{stem}.pdf").write_bytes(_bytes(make_report(runs[:1], format="pdf", title=title, db=db)))
        found["report"] = f"{stem}.pdf"
    except UserError as error:
        (folder / f"{stem}.html").write_bytes(_bytes(make_report(runs[:1], format="html", title=title, db=db)))
        found["report"] = f"{stem}.html"
        notes.append(f"{stem}.html stands for a PDF: {error.message}")
    return found, notes


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _charts(run: str, db: PathLike | None) -> dict[str, list[Chart]]:
    """Return the charts of differences and of load, by kind."""
    store = open_store(db)
    try:
        assert isinstance(store, SqlStore), "a store that is opened for reading is an SqlStore"
        charts, _ = charts_of(view_stored_run(store, find_run(store, run), whole=True))
    finally:
        store.close()
    kinds = {"differences": "differences", "load": "load", "scaling": "load"}
    found: dict[str, list[Chart]] = {}
    for chart in charts:
        kind = next((kind for prefix, kind in kinds.items() if chart.id.startswith(prefix)), None)
        if kind:
            found.setdefault(kind, []).append(chart)
    return found
