"""Order the implementations of each case by speed: `opmark rank`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from opmark.analysis.ranking import rank as rank_runs
from opmark.analysis.ranking import read, source_of
from opmark.api.keywords import typed
from opmark.api.result import open_store
from opmark.schema.options import PathLike, split_names
from opmark.schema.ranking import Ranking
from opmark.store.runs import find_run


@typed
def rank(
    runs: str | Sequence[str] | None = None,
    *,
    by: str = "operator",
    quantity: str = "",
    cache: str = "",
    db: PathLike | None = None,
) -> Ranking:
    """Rank the implementations of each case over the named runs, or all of them. Programs use `Ranking.choose`.

    `quantity` and `cache` say what to rank by; by default it is device_time, cold before warm, where all contenders of
    a case have it, else latency."""
    with closing(open_store(db)) as store:
        found = [find_run(store, run) for run in split_names(runs or ())] or store.runs()
        return rank_runs(source_of(store, found), by, quantity, cache)


@typed
def read_ranking(path: PathLike) -> Ranking:
    """Read a file that `opmark rank -o FILE` wrote."""
    return read(Path(path))
