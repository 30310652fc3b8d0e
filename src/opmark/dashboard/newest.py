"""The last result of each operator on each backend: only what was written since it was last asked for is read."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from opmark.dashboard.reading import Reader
from opmark.dashboard.shown import brief
from opmark.store.changes import LatestTry, RecordPosition, latest_tries

Found = Mapping[str, Mapping[str, Mapping[str, LatestTry]]]
"""By operator, backend and phase."""


class Newest:
    """Kept for each store that is open."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._read = RecordPosition()
        """The record up to which the store was read."""
        self._found: dict[str, dict[str, dict[str, LatestTry]]] = {}

    def tried(self, reader: Reader) -> Found:
        """A variant of a backend, or another interpreter, is the same backend. What was skipped was not tried."""
        runs = {run.id for run in reader.runs()}
        with self._lock:
            known = [one for own in self._found.values() for phases in own.values() for one in phases.values()]
            if not {one.run for one in known} <= runs:  # some were pruned
                self._found, self._read = {}, RecordPosition()
            self._read, tries, anew = latest_tries(reader.store, self._read)
            if anew:
                self._found = {}
            for one in tries:
                name = one.backend.partition("@")[0].partition("/")[0]
                phases = self._found.setdefault(one.op, {}).setdefault(name, {})
                if one.phase not in phases or phases[one.phase].number < one.number:
                    phases[one.phase] = one._replace(reason=brief(one.reason))
            return {op: {name: dict(phases) for name, phases in own.items()} for op, own in self._found.items()}
