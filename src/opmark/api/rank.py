"""Order the implementations of each case by speed: `opmark rank`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from opmark.analysis.ranking import rank as rank_runs
from opmark.analysis.ranking import read, source_of
from opmark.api.requests import typed
from opmark.api.result import open_store
from opmark.schema.options import PathLike, split_names
from opmark.schema.ranking import Ranking
from opmark.store.runs import find_run


@typed
def rank(runs: str | Sequence[str] | None = None, *, by: str = "operator", db: PathLike | None = None) -> Ranking:
    """Rank the implementations of each case over the named runs, or all of them. Programs use `Ranking.choose`."""
    with closing(open_store(db)) as store:
        return rank_runs(
            source_of(store, [find_run(store, run) for run in split_names(runs or ())] or store.runs()), by
        )


@typed
def read_ranking(path: PathLike) -> Ranking:
    """Read a file that `opmark rank -o FILE` wrote."""
    return read(Path(path))
