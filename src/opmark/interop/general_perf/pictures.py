"""The pictures and the PDF of a task's report, made by opmark's own report of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from opmark.api.items import view_stored_run
from opmark.api.report import make_report
from opmark.api.result import open_store
from opmark.errors import UserError
from opmark.interop.general_perf.resolution import ResolvedTask
from opmark.report.charts.gallery import FIGURES
from opmark.report.html.figure import standalone
from opmark.report.html.page import draw_png
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark, Unit
from opmark.schema.options import PathLike
from opmark.store.runs import find_run
from opmark.store.sql import SqlStore
from opmark.units import count_noun


def load_charts(title: str, lines: Sequence[Mapping[str, Any]], reference: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Return throughput and latency over batch sizes, one line per number of clients, with the reference machines
    beside them."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        groups.setdefault(count_noun(line.get("Clients") or 1, "client"), []).append(line)
    for one in reference:
        for line in one["Performance"]:
            clients = count_noun(line.get("Clients") or 1, "client")
            busy = ", on a busy machine" if any(text.startswith("loaded") for text in line.get("Cautions", ())) else ""
            whose = f"{one['Backend']}, opmark {one['opmark']}, {clients}{busy}" if "opmark" in one else one["Source"]
            place = f"reference: {one['Machine']}, {whose}"
            groups.setdefault(place, []).append(line)
    known = {name: [line for line in found if line["QPS"]] for name, found in groups.items()}
    known = {name: found for name, found in known.items() if found}
    if not known:
        return []
    return [
        Chart(
            id=f"general-perf-{key.lower().replace(' ', '-')}",
            title=f"{words} of {title} over batch sizes",
            about=about,
            kind="plot",
            x=Axis("batch size", "count", "log2"),
            y=Axis(words.lower(), unit, "log"),
            series=tuple(
                ChartSeries(name, tuple(_mark(line, key, factor, name) for line in found), "band",
                            stated=name.startswith("reference"))
                for name, found in known.items()
            ),
        )
        for key, words, unit, factor, about in _CURVES
    ]  # fmt: skip


_CURVES: tuple[tuple[str, str, Unit, float, str], ...] = (
    ("QPS", "Samples per second", "", 1.0, "Samples of all clients together, with the interval of the mean."),
    ("AVG Latency", "Mean latency", "s", 1e-3, "What a request waits for on average; a larger batch takes longer."),
)
"""Key of a line, and how it is drawn: title, unit, factor to the base unit, how to read it."""


def _mark(line: Mapping[str, Any], key: str, factor: float, name: str) -> Mark:
    low, high = line.get(f"{key} Interval") or (None, None)
    return Mark(
        line["BS"], line[key] * factor, f"{name}, batch {line['BS']}",
        low and low * factor, high and high * factor, unsure=low is None,
    )  # fmt: skip


def draw_pictures(
    task: ResolvedTask, load: Sequence[Chart], runs: Sequence[str], folder: Path, db: PathLike | None
) -> tuple[dict[str, str], list[str]]:
    """Write the pictures and the PDF of the runs of a task; return the name of each file, and a note for each that
    could not be made: without a browser, the picture is an SVG and the report is HTML."""
    if not runs:
        return {}, []
    stem = f"{task.name}-to-{task.precision.lower()}"
    found: dict[str, str] = {}
    notes: list[str] = []
    charts = {"differences": _stored_charts(runs[0], db, "differences"),
              "load": [*load, *_stored_charts(runs[0], db, "load")]}  # fmt: skip
    for kind, drawn in charts.items():
        if drawn:
            name = f"{stem}{'' if kind == 'differences' else '-load'}"
            drawing = standalone(drawn)
            try:
                _write(folder / f"{name}.png", draw_png(drawing))
                found[kind] = f"{name}.png"
            except UserError as error:
                _write(folder / f"{name}.svg", drawing)
                found[kind] = f"{name}.svg"
                notes.append(f"{name}.svg stands for a PNG: {error.message}")
    for format in ("pdf", "html"):
        try:
            made = make_report(runs[:1], format=format, title=task.name, db=db, charts=load)
        except UserError as error:
            notes.append(f"{stem}.html stands for a PDF: {error.message}")
        else:
            _write(folder / f"{stem}.{format}", made)
            found["report"] = f"{stem}.{format}"
            break
    return found, notes


def _write(path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def _stored_charts(run: str, db: PathLike | None, kind: str) -> list[Chart]:
    """Return the charts of a stored run that the report has for this kind of figure."""
    with closing(open_store(db)) as store:
        assert isinstance(store, SqlStore), "a store that is opened for reading is an SqlStore"
        return FIGURES[kind](view_stored_run(store, find_run(store, run), whole=True))
