"""What the names of two sides stand for: runs, stores, or backends of one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from opmark.api.common import open_store
from opmark.errors import StoreError, UnknownName, UserError, nearest
from opmark.interfaces import Store
from opmark.registry import way_of
from opmark.schema import Run
from opmark.schema.figure import Figure
from opmark.schema.options import PathLike
from opmark.store.find import find_run
from opmark.store.location import is_server, shown

BEHIND = "::"
"""Between a store and a run of it."""


class Found(NamedTuple):
    store: Store
    run: Run
    name: str
    chosen: Callable[[Figure], bool] | None = None
    """What of the run is meant; nothing: all of it."""


class Finder:
    """Opens each store once, until the stack is closed."""

    def __init__(self, stack: ExitStack, db: PathLike | None) -> None:
        self._stack = stack
        self._db = db
        self._open: dict[str, Store] = {}

    def two(self, a: str, b: str, run: str | None) -> tuple[Found, Found]:
        """Runs before stores before backends of the last run; with `run`, backends of that one."""
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

    def run(self, text: str) -> Found | None:
        """A run of the store, or of the one that is named; None where it is neither."""
        place, behind, name = text.rpartition(BEHIND)
        if behind and (is_server(place) or Path(place).is_file()):
            store = self.store(place)
            return Found(store, find_run(store, name or None), f"{_shown(place)}{BEHIND}{name}")
        if is_server(text):
            return Found(self.store(text), find_run(self.store(text), None), _shown(text))
        is_file = Path(text).is_file()
        try:
            store = self.store()
            if store.runs(limit=1) or not is_file:
                return Found(store, find_run(store, text), text)
        except UnknownName:
            pass
        except StoreError:  # there is none yet, and none is needed for files
            if not is_file:
                raise
        return Found(self.store(text), find_run(self.store(text), None), text) if is_file else None

    def store(self, place: str = "") -> Store:
        if place not in self._open:
            self._open[place] = self._stack.enter_context(closing(open_store(place or self._db)))
        return self._open[place]

    def _parts(self, a: str, b: str, run: Run) -> tuple[Found, Found]:
        store = self.store()
        figures = store.figures(runs=[run.id])
        found = []
        for name in (a, b):
            wanted = _called(name)
            own = [figure for figure in figures if wanted(figure)]
            if not own:
                raise UserError(self._nothing(name, run, figures), self._near(name, figures).strip() or None)
            found.append(Found(store, run, name, _chosen(wanted, own, name)))
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
    """Without a password: names of sides go into reports."""
    return str(shown(place)) if is_server(place) else place


def _called(name: str) -> Callable[[Figure], bool]:
    """By backend, backend/implementation, or interpreter."""
    path = str(Path(name).expanduser().absolute())

    def wanted(figure: Figure) -> bool:
        python = figure.backend.partition("@")[2]
        named = (figure.backend, f"{figure.backend}/{figure.implementation}", python)
        return name in named or (bool(python) and path == python)

    return wanted


def _chosen(wanted: Callable[[Figure], bool], own: Iterable[Figure], name: str) -> Callable[[Figure], bool]:
    """Of a case with several implementations the plain one, unless it is another that was named."""
    ways = {(f.case, f.backend, f.implementation, f.threads) for f in own}
    several = Counter((case, backend, threads) for case, backend, _, threads in ways)
    plain = {way for way in ways if not way_of(way[1], way[2])}
    with_plain = {(case, backend, threads) for case, backend, _, threads in plain}

    def chosen(figure: Figure) -> bool:
        if not wanted(figure):
            return False
        place = (figure.case, figure.backend, figure.threads)
        if several[place] < 2 or place not in with_plain or name == f"{figure.backend}/{figure.implementation}":
            return True
        return not way_of(figure.backend, figure.implementation)

    return chosen
