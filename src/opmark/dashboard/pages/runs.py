"""The runs of a store, newest first: where everybody begins."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.items import RunProgress
from opmark.dashboard.navigation import Page, PageNumber, paged
from opmark.dashboard.reader import Reader
from opmark.schema import Run
from opmark.schema.run import RunSummary

ROWS = 50
Status = Literal["", "ok", "wrong", "skipped", "error", "timeout", "oom"]


class RunsQuery(Struct, frozen=True):
    q: Annotated[str, Meta(description="In the id, label, description, command or revision of a run.")] = ""
    backend: str = ""
    status: Annotated[Status, Meta(description="Only runs that have a record of this status.")] = ""
    page: PageNumber = 1


class RunsPage(Struct, frozen=True):
    store: str
    runs: list[RunSummary]
    page: Page
    backends: list[str]
    """What can be asked for, among the runs of this page."""
    under_way: list[RunProgress]
    """The runs on this page that are being written."""
    empty: bool
    """Whether the store holds no run at all."""


def view_runs(reader: Reader, asked: RunsQuery) -> RunsPage:
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
    return RunsPage(reader.name, shown, page, backends, under_way, not known)


def _named(run: Run, words: str) -> bool:
    texts = (run.id, run.label, run.description, run.command, run.revision)
    return not words or any(words.casefold() in text.casefold() for text in texts)


RUNS_ENDPOINT = Endpoint(
    "/", view_runs, RunsQuery, RunsPage, "runs.html", "Runs", "The runs of the store, newest first.", api="/runs"
)


# Runs and cases by what is said of them.

MOST = 100


class SearchQuery(Struct, frozen=True):
    q: Annotated[str, Meta(description="Words that are all in what is found.")] = ""


class CaseHit(Struct, frozen=True):
    """A case that some run measured."""

    case: str
    op: str
    phase: str
    parameters: str
    params: dict[str, Any]


class SearchPage(Struct, frozen=True):
    runs: list[Run]
    cases: list[CaseHit]
    more: bool
    """Whether there are more of either than are told."""


def view_search(reader: Reader, asked: SearchQuery) -> SearchPage:
    words = asked.q.casefold().split()
    if not words:
        return SearchPage([], [], False)
    runs = [run for run in reader.runs() if _fits(words, run.id, run.label, run.description, run.command, run.revision)]
    cases: list[CaseHit] = []
    for case, parameters in reader.cases():
        if _fits(words, case.id, case.op, case.phase, parameters):
            cases.append(CaseHit(case.id, case.op, case.phase, parameters, case.params))
            if len(cases) > MOST:
                break
    return SearchPage(runs[:MOST], cases[:MOST], len(runs) > MOST or len(cases) > MOST)


def _fits(words: list[str], *texts: str) -> bool:
    text = " ".join(texts).casefold()
    return all(word in text for word in words)


SEARCH_ENDPOINT = Endpoint(
    "/search", view_search, SearchQuery, SearchPage, "search.html", "Search", "Runs and cases by words."
)
