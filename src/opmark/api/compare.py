"""Compare two stored runs, stores or backends of a run: `opmark compare`; and find what their names stand for."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from typing import NamedTuple

from opmark.analysis.compared_side import ComparedSide, ids, side_of
from opmark.analysis.comparison import compare as compare_sides
from opmark.api.keywords import keywords_of
from opmark.api.requests import CompareRequest
from opmark.api.result import open_store
from opmark.errors import StoreError, UnknownName, UserError, nearest
from opmark.plugin.registry import way_of
from opmark.schema import Case, Run
from opmark.schema.comparison import Compared
from opmark.schema.options import PathLike
from opmark.schema.record import Figure
from opmark.store.location import display_address, is_server
from opmark.store.protocol import Store
from opmark.store.runs import find_run

BEHIND = "::"
"""Separates the address of a store from the name of a run in it."""


class RunReference(NamedTuple):
    store: Store
    run: Run
    name: str
    chosen: Callable[[Figure], bool] | None = None
    """Selects a part of the run; None: all of it."""


class RunFinder:
    """Finds runs by their names. Each store is opened once, and closed with the stack."""

    def __init__(self, stack: ExitStack, db: PathLike | None) -> None:
        self._stack = stack
        self._db = db
        self._open: dict[str, Store] = {}

    def two(self, a: str, b: str, run: str | None) -> tuple[RunReference, RunReference]:
        """Find two runs, two stores, or two backends of the last run, in this order; with `run`, two backends of
        that."""
        if run is not None:
            return self._parts(a, b, find_run(self.store(), run))
        one, other = self.run(a), self.run(b)
        if one and other:
            return one, other
        if one or other:
            name, rest = (b, a) if one else (a, b)
            raise UserError(
                f"`{rest}` is a run, but {self._nothing(name)}",
                f"{self._near(name)}two runs, or two backends of one run, can be compared",
            )
        return self._parts(a, b, find_run(self.store(), None))

    def run(self, text: str) -> RunReference | None:
        """Find a run of this store or of another that the text names; None if there is no such run or store."""
        place, behind, name = text.rpartition(BEHIND)
        if behind and (is_server(place) or os.path.isfile(place)):  # noqa: PTH113 - any text
            store = self.store(place)
            return RunReference(store, find_run(store, name or None), f"{_shown(place)}{BEHIND}{name}")
        if is_server(text):
            return RunReference(self.store(text), find_run(self.store(text), None), _shown(text))
        is_file = os.path.isfile(text)  # noqa: PTH113 - any text, also one that cannot be a path
        try:
            store = self.store()
            if store.runs(limit=1) or not is_file:
                return RunReference(store, find_run(store, text), text)
        except UnknownName:
            pass
        except StoreError:  # the default store does not exist yet, and files do not need it
            if not is_file:
                raise
        return RunReference(self.store(text), find_run(self.store(text), None), text) if is_file else None

    def store(self, place: str = "") -> Store:
        if place not in self._open:
            self._open[place] = self._stack.enter_context(closing(open_store(place or self._db)))
        return self._open[place]

    def _parts(self, a: str, b: str, run: Run) -> tuple[RunReference, RunReference]:
        store = self.store()
        figures = store.figures(runs=[run.id])
        found = []
        for name in (a, b):
            wanted = _called(name)
            own = [figure for figure in figures if wanted(figure)]
            if not own:
                hint = f"{self._near(name, figures)}`opmark runs` lists runs; --run RUN names the run of two backends"
                raise UserError(self._nothing(name, run, figures), hint)
            found.append(RunReference(store, run, name, _chosen(wanted, own, name)))
        return found[0], found[1]

    def _nothing(self, name: str, run: Run | None = None, figures: Iterable[Figure] = ()) -> str:
        listed = ", ".join(dict.fromkeys(figure.backend for figure in figures))
        backend = f"no backend or interpreter of run {run.id} ({listed})" if run else ""
        return ", ".join(filter(None, (f"`{name}` is no run, no label, no store file", backend)))

    def _near(self, name: str, figures: Iterable[Figure] = ()) -> str:
        runs = self.store().runs()
        known = [*(run.label for run in runs if run.label), *(run.id for run in runs), *(f.backend for f in figures)]
        near = nearest(name, dict.fromkeys(known))
        return f"did you mean `{near}`? " if near else ""


def _shown(place: str) -> str:
    """Return the address of a store without its password: names of sides go into reports."""
    return str(display_address(place)) if is_server(place) else place


def _called(name: str) -> Callable[[Figure], bool]:
    """Return a test for figures of this backend, backend/implementation, or interpreter."""
    path = os.path.abspath(os.path.expanduser(name))  # noqa: PTH100, PTH111 - any text

    def wanted(figure: Figure) -> bool:
        python = figure.backend.partition("@")[2]
        named = (figure.backend, f"{figure.backend}/{figure.implementation}", python)
        return name in named or (bool(python) and path == python)

    return wanted


def _chosen(wanted: Callable[[Figure], bool], own: Iterable[Figure], name: str) -> Callable[[Figure], bool]:
    """Return a test that also picks one implementation of each case: the plain one, unless another is named."""
    ways = {(f.case, f.backend, f.implementation, f.threads, f.load) for f in own}
    several = Counter((case, backend, *how) for case, backend, _, *how in ways)
    plain = {way for way in ways if not way_of(way[1], way[2])}
    with_plain = {(case, backend, *how) for case, backend, _, *how in plain}

    def chosen(figure: Figure) -> bool:
        if not wanted(figure):
            return False
        place = (figure.case, figure.backend, figure.threads, figure.load)
        if several[place] < 2 or place not in with_plain or name == f"{figure.backend}/{figure.implementation}":
            return True
        return not way_of(figure.backend, figure.implementation)

    return chosen


@keywords_of(CompareRequest)
def compare(request: CompareRequest) -> Compared:
    """Tell case by case whether B is faster than A, slower, the same, or undecided.

    A and B are each a run (its id, the beginning of it, its label, `LABEL~1`), a store (`other.db`, `other.db::RUN`,
    `postgresql://...::RUN`), or a backend or an interpreter of one run: of `run`, or of the last one. `drift` is how
    far apart two sessions of the same code may be; by default their spread is estimated from stored runs.
    """
    return compare_request(request)


def compare_request(request: CompareRequest) -> Compared:
    with ExitStack() as stack:
        found = RunFinder(stack, request.db).two(request.a, request.b, request.run)
        one = side_of(found[0].store, found[0].run, found[0].name, found[0].chosen)
        same_store = one if found[0].store is found[1].store else None
        other = side_of(found[1].store, found[1].run, found[1].name, found[1].chosen, same_store)
        cases = cases_of((found[0].store, one), (found[1].store, other))
        return compare_sides(
            one, other, cases,
            quantity=request.quantity, margin=request.margin, drift=request.drift, unlike=request.unlike,
        )  # fmt: skip


def cases_of(*sides: tuple[Store, ComparedSide]) -> dict[str, Case]:
    """Return the cases of all sides by id, each read once."""
    known: dict[str, Case] = {}
    for store, side in sides:
        known |= store.cases(set(ids(side)) - known.keys())
    return known
