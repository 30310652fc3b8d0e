"""How far the numbers of this machine can be trusted: `opmark doctor`, and its noise floor with `--aa`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from opmark.api.requests import talk
from opmark.api.result import open_store, storage_line, store_all
from opmark.errors import UserError
from opmark.runner.doctor import PROCESSES, doctor, self_test
from opmark.runner.plan import Plan
from opmark.runner.selection import default_backends
from opmark.runner.session import new_run
from opmark.schema.machine import NoiseFloor
from opmark.schema.options import DEFAULT_TIMEOUT, MeasureOptions, PathLike, options_of
from opmark.store.runs import noise_under

__all__ = ["doctor", "noise_floor"]


def noise_floor(
    backend: str | None = None,
    *,
    threads: int | None = None,
    processes: int = PROCESSES,
    timeout: float = DEFAULT_TIMEOUT,
    db: PathLike | None = None,
    say: Callable[[str], None] = talk,
) -> NoiseFloor:
    """Measure how much identical code differs from itself on this machine: `doctor --aa`. The result is stored, and
    comparisons take it into account."""
    if processes < 4 or processes % 2:
        raise UserError(f"processes: expected an even number of at least 4, got {processes}", "as in --processes 10")
    options_of(MeasureOptions)["timeout"].check(timeout)
    with closing(open_store(db, create=True)) as store:
        run = new_run(Plan((), ()), "noise")
        floor, environments, records = self_test(backend or default_backends()[0], threads, processes, timeout, say)
        store_all(store, run, environments, records)
        store.keep("noise", noise_under(floor.backend, environments[0].facts), run.started, floor)
    say(storage_line([run.id], db))
    return floor
