"""The start page with the runs of a store, newest first, and the search for runs and cases."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.items import RunProgress
from opmark.dashboard.navigation import Page, PageNumber, paginate
from opmark.dashboard.reader import Reader
from opmark.schema import Run
from opmark.schema.case import shown_case
from opmark.schema.run import RunSummary

ROWS = 50
Status = Literal["", "ok", "unchecked", "disturbed", "wrong", "skipped", "error", "timeout", "oom", "killed"]


class RunsQuery(Struct, frozen=True):
    q: Annotated[str, Meta(description="Text in the id, label, description, command or revision of a run.")] = ""
    backend: str = ""
    status: Annotated[Status, Meta(description="Only runs that have a record of this status.")] = ""
    page: PageNumber = 1


class RunsPage(Struct, frozen=True):
    store: str
    runs: list[RunSummary]
    page: Page
    backends: list[str]
    """Backends of the runs on this page."""
    under_way: list[RunProgress]
    """The runs on this page that are being written."""
    empty: bool
    """Whether the store holds no run at all."""


def view_runs(reader: Reader, query: RunsQuery) -> RunsPage:
    known = reader.runs()
    words, matching = query.q.casefold(), known
    if words:
        texts = [(run, (run.id, run.label, run.description, run.command, run.revision)) for run in known]
        matching = [run for run, own in texts if any(words in text.casefold() for text in own)]
    if query.backend:
        matching = reader.with_backend(matching, query.backend)
    if query.status:
        fitting = [one for one in reader.summaries(matching) if one.statuses.get(query.status)]
        summaries, page = paginate(fitting, query.page, ROWS)
    else:
        runs, page = paginate(matching, query.page, ROWS)
        summaries = reader.summaries(runs)  # the first summary of all runs would take seconds
    backends = sorted({backend for one in summaries for backend in one.backends})
    incomplete = [reader.progress(one.run) for one in summaries if one.missing]
    under_way = [one for one in incomplete if one.state == "running"]
    return RunsPage(reader.name, summaries, page, backends, under_way, not known)


RUNS_ENDPOINT = Endpoint(
    "/", view_runs, RunsQuery, RunsPage, "runs.html", "Runs", "The runs of the store, newest first.", api="/runs"
)


MOST = 100


class SearchQuery(Struct, frozen=True):
    q: Annotated[str, Meta(description="Words that every result contains.")] = ""


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
    """Whether there are more runs or cases than are listed."""


def view_search(reader: Reader, query: SearchQuery) -> SearchPage:
    words = query.q.casefold().split()
    if not words:
        return SearchPage([], [], False)
    runs = [
        run
        for run in reader.runs()
        if _contains_all(words, run.id, run.label, run.description, run.command, run.revision)
    ]
    cases: list[CaseHit] = []
    for case, parameters in reader.cases():
        op = shown_case(case).op
        if _contains_all(words, case.id, op, case.op, case.phase, parameters):
            cases.append(CaseHit(case.id, op, case.phase, parameters, case.params))
            if len(cases) > MOST:
                break
    return SearchPage(runs[:MOST], cases[:MOST], len(runs) > MOST or len(cases) > MOST)


def _contains_all(words: list[str], *texts: str) -> bool:
    text = " ".join(texts).casefold()
    return all(word in text for word in words)


SEARCH_ENDPOINT = Endpoint(
    "/search", view_search, SearchQuery, SearchPage, "search.html", "Search", "Runs and cases by words."
)
