"""What this machine can do, and how far it can be trusted: `opmark calibrate`, `opmark doctor --aa`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from opmark.api.common import open_store, store_all
from opmark.api.requests import CalibrateRequest, keywords_of, talk
from opmark.errors import UserError
from opmark.runner.calibrate import calibration
from opmark.runner.doctor import doctor as doctor
from opmark.runner.plan import Plan
from opmark.runner.selection import default_backends
from opmark.runner.self_test import PROCESSES, self_test
from opmark.runner.session import new_run
from opmark.runner.settings import default_threads
from opmark.schema.noise import NoiseFloor
from opmark.schema.options import DEFAULT_TIMEOUT, MeasureOptions, PathLike, options_of
from opmark.schema.peaks import Peaks, kept_under
from opmark.store.find import noise_under
from opmark.store.location import shown


@keywords_of(CalibrateRequest)
def calibrate(request: CalibrateRequest) -> Peaks:
    """Measure this machine's real peaks, store them as a run, and keep them for what is shown of later runs."""
    return calibrate_request(request)


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
        store.keep("peaks", kept_under(work.facts()), this.started, peaks)
    request.say(f"stored as run {this.id} in {shown(request.db)}")
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
    say(f"stored as run {this.id} in {shown(db)}")
    return floor
