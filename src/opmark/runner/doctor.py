"""Is this machine fit to measure on? What it has, what runs, what would disturb, and which instructions trap."""

from __future__ import annotations

from contextlib import closing

from opmark.hardware.detect import host
from opmark.hardware.disturbances import disturbances
from opmark.measure.clock import host_timers
from opmark.registry import backends
from opmark.registry import operator as find_operator
from opmark.runner import instructions
from opmark.runner.gear import READ
from opmark.runner.probe import probe
from opmark.runner.supervisor import Supervisor, WorkerOptions
from opmark.schema import EFFORTS, Availability, Case, Diagnosis, Finding, Settings, Task
from opmark.units import seconds

# Steps of the clock that are coarse enough to matter for calls of a microsecond.
_COARSE = 1e-6
_TRIAL_TIMEOUT = 60.0


def doctor() -> Diagnosis:
    # First of all, before the backends that are asked make the machine busy.
    findings = [*disturbances(), _clock()]
    available = probe()
    return Diagnosis(host(), available, [*findings, *_sensors(available), *_trapped_instructions(available)])


def _sensors(available: list[Availability]) -> list[Finding]:
    """Findings about devices whose clock cannot be read, so that opmark cannot say that it moved."""
    found = []
    for backend in available:
        told = backend.facts.get("sensors")
        if "gpu" in backend.facts and told is not None:
            seen = "clock, power and temperature are read" if told == READ else told
            found.append(Finding(f"sensors of {backend.name}", told == READ, seen, "pip install 'opmark[nvidia]'"))
    return found


def _clock() -> Finding:
    clock = host_timers(None)["latency"]
    return Finding(
        "clock",
        clock.resolution < _COARSE,
        f"steps of {seconds(clock.resolution)}; a sample costs {seconds(clock.overhead(1))} of its own",
        "calls shorter than this are measured in batches",
    )


def _trapped_instructions(available: list[Availability]) -> list[Finding]:
    """A bfloat16 product in a child process: where AMX is advertised but not allowed, it dies."""
    if not any(backend.name == "torch-cpu" and backend.reason is None for backend in available):
        return []
    instructions.remember("torch-cpu", None)  # to find out whether it still is so
    with closing(Supervisor(backends()["torch-cpu"], 1, WorkerOptions(_TRIAL_TIMEOUT))) as supervisor:
        record = supervisor.run(_trial())
    if record.status != "ok":
        return [Finding("instructions", False, f"a bfloat16 product fails: {record.reason}", "update torch")]
    limit = instructions.recall("torch-cpu")
    if limit:
        hint = f"torch-cpu runs with {instructions.VARIABLE}={limit}; numbers are below what the processor could do"
        return [Finding("instructions", False, "some that the processor advertises are trapped", hint)]
    return [Finding("instructions", ok=True, found="a bfloat16 product runs with all that the processor has")]


def _trial() -> Task:
    operator = find_operator("matmul")
    params = operator.complete({"M": 128, "N": 128, "K": 128, "dtype": "bfloat16"})
    settings = Settings(threads=1, effort="quick", sampling=EFFORTS["quick"])
    return Task(Case.of("matmul", params, "forward"), "torch-cpu", "torch", settings)
