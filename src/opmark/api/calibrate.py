"""The measured peaks of this machine: `opmark calibrate`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from opmark.api.keywords import keywords_of
from opmark.api.requests import CalibrateRequest
from opmark.api.result import journals_of, open_store, storage_line, store_all
from opmark.errors import UserError
from opmark.hardware.datasheets import datasheet
from opmark.runner.calibration import calibration
from opmark.runner.plan import Plan, default_threads
from opmark.runner.selection import default_backends
from opmark.runner.session import new_run
from opmark.schema.machine import Peaks, findings_key


@keywords_of(CalibrateRequest)
def calibrate(request: CalibrateRequest) -> Peaks:
    """Measure the peaks of this machine and store them as a run. Reports on later runs compare rates with them."""
    return calibrate_request(request)[0]


def calibrate_request(request: CalibrateRequest) -> tuple[Peaks, tuple[Path, ...]]:
    """Return the peaks, and the journals that hold them if they are not in the store yet."""
    backend = request.backend or default_backends()[0]
    threads = default_threads() if request.threads is None else request.threads
    work = calibration(backend, threads, request.timeout, request.say, request.on_step)
    with closing(open_store(request.db, create=True)) as store:
        run = new_run(Plan((), ()), "calibrate")
        peaks = work.run(f"measured in run {run.id}")
        store_all(store, run, work.environments.values(), work.records)
        if not peaks.levels and not peaks.flops:
            raise UserError(
                f"nothing could be measured on {backend}: {work.records[0].reason}", f"`opmark show {run.id}` says why"
            )
        store.keep("peaks", findings_key(work.facts()), run.started, peaks)
    journals = journals_of(request.db, [run.id])
    request.say(storage_line([run.id], request.db, journals))
    return peaks, journals


def datasheet_peaks(peaks: Peaks) -> Peaks | None:
    """Return what the datasheet of the same chip says, scaled to the threads that were measured."""
    return datasheet(peaks.chip, peaks.threads)
