"""Runs and cases by what is said of them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.reading import Reader
from opmark.schema import Run

MOST = 100


class Asked(Struct, frozen=True):
    q: Annotated[str, Meta(description="Words that are all in what is found.")] = ""


class Found(Struct, frozen=True):
    """A case that some run measured."""

    case: str
    op: str
    phase: str
    parameters: str
    params: dict[str, Any]


class Answer(Struct, frozen=True):
    runs: list[Run]
    cases: list[Found]
    more: bool
    """Whether there are more of either than are told."""


def view(reader: Reader, asked: Asked) -> Answer:
    words = asked.q.casefold().split()
    if not words:
        return Answer([], [], False)
    runs = [run for run in reader.runs() if _fits(words, run.id, run.label, run.description, run.command, run.revision)]
    cases: list[Found] = []
    for case, parameters in reader.cases():
        if _fits(words, case.id, case.op, case.phase, parameters):
            cases.append(Found(case.id, case.op, case.phase, parameters, case.params))
            if len(cases) > MOST:
                break
    return Answer(runs[:MOST], cases[:MOST], len(runs) > MOST or len(cases) > MOST)


def _fits(words: list[str], *texts: str) -> bool:
    text = " ".join(texts).casefold()
    return all(word in text for word in words)


ENDPOINT = Endpoint("/search", view, Asked, Answer, "search.html", "Search", "Runs and cases by words.")
