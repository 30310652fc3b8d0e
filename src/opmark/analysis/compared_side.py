"""One of two things that are compared: a stored run or a part of one, and what the store knows beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial

from opmark.analysis.agreement import agreement_of
from opmark.analysis.environment import Facts
from opmark.analysis.noise_floor import NO_SESSIONS, NoiseEstimate, SessionEstimate, estimate_noise, estimate_sessions
from opmark.analysis.pairs import Way, way_of_task
from opmark.schema import Run
from opmark.schema.machine import NoiseFloor
from opmark.schema.record import COUNTED, Figure
from opmark.store.protocol import Store
from opmark.store.runs import noise_of

MANY = 3000
"""Runs with more figures are not read again to explain a few failures."""


@dataclass(frozen=True)
class ComparedSide:
    """One of two things compared."""

    name: str
    run: Run
    figures: Sequence[Figure]
    facts: Mapping[str, Facts] = field(default_factory=dict)
    """Facts by environment id."""
    noise: Mapping[str, NoiseFloor] = field(default_factory=dict)
    """Measured noise floor by environment id."""
    learnt: Callable[[str], NoiseEstimate | None] = lambda environment: None
    """Returns the noise estimated from other stored runs, by environment id. It is called only if few processes have no
    reliable spread."""
    sessions: Callable[[str, frozenset[str]], SessionEstimate] = lambda environment, leave_out: NO_SESSIONS
    """Returns how far sessions spread, by environment id, from stored runs without those to leave out."""
    agreement: Callable[[str, set[str]], bool] = lambda environment, nodes: False
    """Returns whether nodes of a fleet are known to be equally fast, by environment id."""
    why: Callable[[Way], str] = lambda way: ""
    """Returns why a way failed. It is called only for failures."""
    counts: Callable[[], Mapping[str, int]] = dict
    """Returns how often the program that the cases come from runs each of them, by id; only counts above 1."""
    read: dict[str, list[Figure]] = field(default_factory=dict)
    """Figures by run that were read from the store so far, shared with the other side."""


def side_of(
    store: Store,
    run: Run,
    name: str = "",
    chosen: Callable[[Figure], bool] | None = None,
    beside: ComparedSide | None = None,
) -> ComparedSide:
    """Make a side of a run, or of its figures that `chosen` accepts. The store has to stay open until it is compared.
    `beside` is the other side if it comes from the same store: figures and noise are then read once."""
    read = beside.read if beside else {}

    def figures_of(run_id: str) -> list[Figure]:
        if run_id not in read:
            read[run_id] = store.figures(runs=[run_id])
        return read[run_id]

    figures = figures_of(run.id)
    if chosen:
        figures = [figure for figure in figures if chosen(figure)]
    found = store.environments({figure.environment for figure in figures if figure.environment})
    facts = {key: environment.facts for key, environment in found.items()}
    floors = {key: noise_of(store, own) for key, own in facts.items()}
    known = {key: floor for key, floor in floors.items() if floor}

    @cache
    def learnt(environment: str) -> NoiseEstimate | None:
        if beside and environment in beside.facts:
            return beside.learnt(environment)
        return estimate_noise(store, facts[environment], figures_of) if environment in facts else None

    @cache
    def sessions(environment: str, leave_out: frozenset[str]) -> SessionEstimate:
        if beside and environment in beside.facts:
            return beside.sessions(environment, leave_out)
        known = environment in facts
        return estimate_sessions(store, facts[environment], leave_out, figures_of) if known else NO_SESSIONS

    def agree(environment: str, nodes: set[str]) -> bool:
        found = agreement_of(store, facts[environment]) if environment in facts else None
        return found is not None and found.interchangeable(nodes)

    why = Reasons(store, run, many=len(figures) > MANY)
    return ComparedSide(
        name or run.label or run.id,
        run,
        figures,
        facts,
        known,
        learnt,
        sessions,
        agree,
        why,
        partial(store.counts, run.id),
        read,
    )


class Reasons:
    """Reasons of failures, read on first use. For a large run the reason is a hint to `opmark show` instead, because
    all records would have to be read."""

    def __init__(self, store: Store, run: Run, *, many: bool) -> None:
        self._store = store
        self._run = run
        self._many = many

    def __call__(self, way: Way) -> str:
        return f"`opmark show {self._run.id}` says why" if self._many else self._known.get(way, "")

    @cached_property
    def _known(self) -> dict[Way, str]:
        tasks = ((r.task, r.reason) for r in self._store.records(self._run.id) if r.status not in COUNTED)
        return {way_of_task(t): reason for t, reason in tasks}


def ids(*sides: ComparedSide) -> Iterable[str]:
    """Return the ids of the cases of these sides."""
    return {figure.case for side in sides for figure in side.figures}
