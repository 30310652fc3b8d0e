"""The runs of a store, newest first: where everybody begins."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.paging import Page, PageNumber, paged
from opmark.dashboard.progress import Progress
from opmark.dashboard.reading import Reader
from opmark.schema import Run
from opmark.schema.run_summary import RunSummary

ROWS = 50
Status = Literal["", "ok", "wrong", "skipped", "error", "timeout", "oom"]


class Asked(Struct, frozen=True):
    q: Annotated[str, Meta(description="In the id, label, description, command or revision of a run.")] = ""
    backend: str = ""
    status: Annotated[Status, Meta(description="Only runs that have a record of this status.")] = ""
    page: PageNumber = 1


class Answer(Struct, frozen=True):
    store: str
    runs: list[RunSummary]
    page: Page
    backends: list[str]
    """What can be asked for, among the runs of this page."""
    under_way: list[Progress]
    """The runs on this page that are being written."""
    empty: bool
    """Whether the store holds no run at all."""


def view(reader: Reader, asked: Asked) -> Answer:
    known = reader.runs()
    named = [run for run in known if _named(run, asked.q)]
    if asked.backend:
        named = reader.with_backend(named, asked.backend)
    if asked.status:
        fitting = [one for one in reader.summaries(named) if one.statuses.get(asked.status)]
        shown, page = paged(fitting, asked.page, ROWS)
    else:
        here, page = paged(named, asked.page, ROWS)
        shown = reader.summaries(here)  # counting what became of all runs takes seconds, the first time
    backends = sorted({backend for one in shown for backend in one.backends})
    incomplete = [reader.progress(one.run) for one in shown if one.missing]
    under_way = [one for one in incomplete if one.state == "running"]
    return Answer(reader.name, shown, page, backends, under_way, not known)


def _named(run: Run, words: str) -> bool:
    texts = (run.id, run.label, run.description, run.command, run.revision)
    return not words or any(words.casefold() in text.casefold() for text in texts)


ENDPOINT = Endpoint("/", view, Asked, Answer, "runs.html", "Runs", "The runs of the store, newest first.", api="/runs")
