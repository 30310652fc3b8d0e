"""How far the numbers of this machine can be trusted: `opmark doctor`, and its noise floor with `--aa`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from opmark.api.keywords import typed
from opmark.api.requests import talk
from opmark.api.result import db_option, journals_of, open_store, storage_line, store_all
from opmark.errors import StoreError, UserError
from opmark.plugin.registry import backends
from opmark.runner.doctor import PROCESSES, self_test
from opmark.runner.doctor import doctor as examine
from opmark.runner.plan import Plan, default_threads
from opmark.runner.selection import default_backends
from opmark.runner.session import new_run
from opmark.schema import Diagnosis
from opmark.schema.machine import NextStep, NoiseFloor, findings_key
from opmark.schema.options import DEFAULT_TIMEOUT, MeasureOptions, PathLike, options_of
from opmark.schema.progress import OnStep, ignore_step
from opmark.store.runs import noise_under

__all__ = ["doctor", "noise_floor"]

_STEPS = 3
"""Number of next steps that the doctor names."""


@typed
def doctor(*, db: PathLike | None = None) -> Diagnosis:
    """Examine whether this machine is fit to measure on, and what is to be done next; the store tells what was done."""
    diagnosis = examine()
    return replace(diagnosis, next_steps=list(islice(_next_steps(diagnosis, db), _STEPS)))


def _next_steps(diagnosis: Diagnosis, db: PathLike | None) -> Iterator[NextStep]:
    """Yield what is worth doing here, the most useful first: mend what can be mended by a command, find out what the
    machine can do and how noisy it is, measure, look at it."""
    for finding in diagnosis.findings:
        if not finding.ok and finding.hint.startswith(_COMMANDS):
            yield NextStep(finding.hint, f"{finding.name}: {finding.found}")
    here = {backend.name: backend for backend in diagnosis.backends if backend.reason is None}
    if not find_spec("torch"):
        yield NextStep("pip install 'opmark[torch]'", "most operators need a framework, and torch is not installed")
    devices = [backend for backend in here.values() if backend.facts.get("gpu") or backend.facts.get("chip")]
    # torch's eager backend stands for the others of its device.
    devices.sort(key=lambda backend: (not backend.name.startswith("torch-"), "compile" in backend.name))
    usual = default_backends()[0]
    chosen = devices[0].name if devices else usual
    facts = {**here[chosen].facts, "threads": default_threads()} if chosen in here else {}
    option = "" if chosen == usual else f" --backend {chosen}"
    store_option = db_option(db)
    has_peaks, has_noise, has_runs = _what_is_stored(chosen, facts, db)
    if not has_peaks:
        yield NextStep(f"opmark calibrate{option}{store_option}", "its peaks, for the column `of peak`")
    if not has_noise:
        yield NextStep(f"opmark doctor --aa{option}{store_option}", "its noise, for verdicts")
    measure = "opmark run --suite quick --effort quick"
    if not has_runs:
        yield NextStep(f"{measure}{option}{store_option}", "common operators, as a table")
    if len([name for name in here if backends()[name].computes]) > 1:
        yield NextStep(f"{measure} --backend all{store_option}", "which framework is the fastest here")
    yield NextStep(f"opmark report{store_option}", "the last run as one HTML file")
    yield NextStep(f"opmark serve{store_option}", "all runs, in a browser")
    yield NextStep(f"opmark history{store_option}", "what got slower or faster, and when")


_COMMANDS = ("sudo ", "pip ")
"""Beginnings of hints that can be typed as they are."""


def _what_is_stored(backend: str, facts: dict[str, Any], db: PathLike | None) -> tuple[bool, bool, bool]:
    """Return whether the store has peaks and a noise floor of this machine, and runs of cases."""
    try:
        store = open_store(db)
    except StoreError:  # such as none yet; a store that is damaged is named by the next command
        return False, False, False
    with closing(store):
        return (
            store.kept("peaks", findings_key(facts)) is not None,
            store.kept("noise", noise_under(backend, facts)) is not None,
            any(run.tasks for run in store.runs()),
        )


@typed
def noise_floor(
    backend: str | None = None,
    *,
    threads: int | None = None,
    processes: int = PROCESSES,
    timeout: float = DEFAULT_TIMEOUT,
    db: PathLike | None = None,
    say: Callable[[str], None] = talk,
    on_step: OnStep = ignore_step,
) -> NoiseFloor:
    """Measure how much identical code differs from itself on this machine: `doctor --aa`. The result is stored, and
    comparisons take it into account."""
    return measure_noise(backend, processes, db, say, on_step, threads, timeout)[0]


def measure_noise(
    backend: str | None,
    processes: int,
    db: PathLike | None,
    say: Callable[[str], None],
    on_step: OnStep,
    threads: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> tuple[NoiseFloor, tuple[Path, ...]]:
    """Return the noise floor, and the journals that hold it if it is not in the store yet."""
    if processes < 4 or processes % 2:
        raise UserError(f"processes: expected an even number of at least 4, got {processes}", "as in --processes 10")
    options_of(MeasureOptions)["timeout"].check(timeout)
    with closing(open_store(db, create=True)) as store:
        run = new_run(Plan((), ()), "noise")
        floor, environments, records = self_test(
            backend or default_backends()[0], threads, processes, timeout, say, on_step
        )
        store_all(store, run, environments, records)
        store.keep("noise", noise_under(floor.backend, environments[0].facts), run.started, floor)
    journals = journals_of(db, [run.id])
    say(storage_line([run.id], db, journals))
    return floor, journals
