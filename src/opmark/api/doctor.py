"""What this machine can do, and how far it can be trusted: `opmark calibrate`, `opmark doctor --aa`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from opmark.api.requests import CalibrateRequest, talk
from opmark.api.result import open_store, store_all
from opmark.errors import UserError
from opmark.runner.calibration import calibration
from opmark.runner.doctor import PROCESSES, self_test
from opmark.runner.plan import Plan, default_threads
from opmark.runner.selection import default_backends
from opmark.runner.session import new_run
from opmark.schema.machine import NoiseFloor, Peaks, findings_key
from opmark.schema.options import DEFAULT_TIMEOUT, MeasureOptions, PathLike, options_of
from opmark.store.location import display_address
from opmark.store.runs import noise_under


def calibrate_request(request: CalibrateRequest) -> Peaks:
    chosen = request.backend or default_backends()[0]
    threads = default_threads() if request.threads is None else request.threads
    work = calibration(chosen, threads, request.timeout, request.say)
    with closing(open_store(request.db, create=True)) as store:
        this = new_run(Plan((), ()), "calibrate")
        peaks = work.run(f"measured in run {this.id}")
        store_all(store, this, work.environments.values(), work.records)
        if not peaks.levels and not peaks.flops:
            raise UserError(
                f"nothing could be measured on {chosen}: {work.records[0].reason}", f"`opmark show {this.id}` says why"
            )
        store.keep("peaks", findings_key(work.facts()), this.started, peaks)
    request.say(f"stored as run {this.id} in {display_address(request.db)}")
    return peaks


def noise_floor(
    backend: str | None = None,
    *,
    threads: int | None = None,
    processes: int = PROCESSES,
    timeout: float = DEFAULT_TIMEOUT,
    db: PathLike | None = None,
    say: Callable[[str], None] = talk,
) -> NoiseFloor:
    """How much identical code differs from itself here: `doctor --aa`. Kept for comparisons."""
    if processes < 4 or processes % 2:
        raise UserError(f"processes: expected an even number of at least 4, got {processes}", "as in --processes 10")
    options_of(MeasureOptions)["timeout"].check(timeout)
    with closing(open_store(db, create=True)) as store:
        this = new_run(Plan((), ()), "noise")
        floor, environments, records = self_test(backend or default_backends()[0], threads, processes, timeout, say)
        store_all(store, this, environments, records)
        store.keep("noise", noise_under(floor.backend, environments[0].facts), this.started, floor)
    say(f"stored as run {this.id} in {display_address(db)}")
    return floor
