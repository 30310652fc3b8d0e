"""What is stored, looked at again: `opmark show`, `export`, `rank`, `coverage`, `fit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal, overload

from opmark.analysis.rank import rank as rank_runs
from opmark.analysis.rank import read, source_of
from opmark.api.common import open_store, result_of
from opmark.errors import UnknownName
from opmark.frameworks.coverage import coverage as framework_coverage
from opmark.frameworks.coverage import grouping, last_of_most
from opmark.frameworks.matrix import matrix
from opmark.registry import exporters
from opmark.report.fits import Fitted, fits
from opmark.result import Result
from opmark.schema.coverage import Coverage, Matrix
from opmark.schema.options import PathLike, split_names
from opmark.schema.ranking import Ranking
from opmark.store import memory
from opmark.store.find import find_run
from opmark.store.location import there


def show(run: str | None = None, *, db: PathLike | None = None) -> Result:
    """A stored run: the last one, or one by its id (or the beginning of it) or its label."""
    with closing(open_store(db)) as store:
        this = find_run(store, run)
        return result_of(store, this, store.records(this.id), db)


def export(
    run: str | Result | None = None, *, format: str, db: PathLike | None = None
) -> Mapping[str, str] | Mapping[str, str | bytes]:
    """A run, stored or just made, in another format: texts by relative path (of Parquet, bytes)."""
    known = exporters()
    if format not in known:
        raise UnknownName("format of results", format, known, "opmark list formats")
    return known[format].files((run if isinstance(run, Result) else show(run, db=db)).results())


def rank(runs: str | Sequence[str] | None = None, *, by: str = "operator", db: PathLike | None = None) -> Ranking:
    """Which implementation wins where, over stored runs, or all of them; `choose` of it is for programs."""
    with closing(open_store(db)) as store:
        return rank_runs(
            source_of(store, [find_run(store, run) for run in split_names(runs or ())] or store.runs()), by
        )


def read_ranking(path: PathLike) -> Ranking:
    """What `opmark rank -o FILE` wrote."""
    return read(Path(path))


@overload
def coverage(framework: str = ..., *, by: Literal["framework"] = ..., db: PathLike | None = ...) -> Coverage: ...
@overload
def coverage(framework: str = ..., *, by: str, db: PathLike | None = ...) -> Coverage | Matrix: ...
def coverage(framework: str = "torch", *, by: str = "framework", db: PathLike | None = None) -> Coverage | Matrix:
    """Which operators of a framework can be measured and how; by `backend`, which of the catalogue each backend has.

    With what became of them in stored runs."""
    with closing(open_store(db) if there(db) else memory.MemoryStore()) as store:
        if grouping(by) == "backend":
            return matrix(store)
        return framework_coverage(framework, *last_of_most(store, framework))


def implemented() -> Matrix:
    """Which operators of the catalogue each backend has, whatever is stored."""
    return matrix(memory.MemoryStore())


def fit(run: str | Result | None = None, *, db: PathLike | None = None) -> list[Fitted]:
    """Latency and bandwidth of what communicates, over its sizes: one of each series of a run that differs only in
    size."""
    return fits((run if isinstance(run, Result) else show(run, db=db)).records)
