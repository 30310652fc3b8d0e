"""Examines whether this machine is fit to measure on: disturbances, backends, sensors, trapped instructions, and how
often identical code is called different (`self_test`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import product
from statistics import median

from opmark.errors import UserError
from opmark.hardware.disturbances import disturbances
from opmark.hardware.gpu_disturbances import gpu_disturbances
from opmark.hardware.host import host
from opmark.plugin.param import format_params
from opmark.plugin.registry import backends
from opmark.plugin.registry import operator as find_operator
from opmark.runner import instruction_set
from opmark.runner.plan import make_plan, settings_for
from opmark.runner.probe import probe
from opmark.runner.session import run_plan
from opmark.runner.supervisor import Supervisor, WorkerOptions
from opmark.schema import (
    EFFORTS,
    Availability,
    Case,
    Diagnosis,
    DiagnosisItem,
    Environment,
    Measurement,
    Record,
    Settings,
    Task,
)
from opmark.schema.machine import Floor, NoiseFloor, chip
from opmark.schema.options import MeasureOptions
from opmark.schema.progress import OnStep, ignore_step
from opmark.schema.record import COUNTED, MEASURED, utc_now
from opmark.stats import noise, relative_deviation
from opmark.stats.verdict import ALPHA, compare_pairs, rank_sum_p
from opmark.units import seconds
from opmark.worker.measure.clock import host_timers
from opmark.worker.measure.instruments import READ

# Steps of the clock that are coarse enough to matter for calls of a microsecond.
_COARSE = 1e-6
_TRIAL_TIMEOUT = 60.0


def doctor() -> Diagnosis:
    # First of all, before the backends that are asked make the machine busy.
    findings = [*disturbances(), *gpu_disturbances(), _clock()]
    available = probe()
    return Diagnosis(host(), available, [*findings, *_sensors(available), *_trapped_instructions(available)])


def _sensors(available: list[Availability]) -> list[DiagnosisItem]:
    """Findings about devices whose clock cannot be read, so that opmark cannot say that it moved."""
    found = []
    for backend in available:
        state = backend.facts.get("sensors")
        if "gpu" in backend.facts and state is not None:
            description = "clock, power and temperature are read" if state == READ else state
            found.append(
                DiagnosisItem(f"sensors of {backend.name}", state == READ, description, "pip install 'opmark[nvidia]'")
            )
    return found


def _clock() -> DiagnosisItem:
    clock = host_timers(None)["latency"]
    return DiagnosisItem(
        "clock",
        clock.resolution < _COARSE,
        f"steps of {seconds(clock.resolution)}; a sample costs {seconds(clock.overhead(1))} of its own",
        "calls shorter than this are measured in batches",
    )


def _trapped_instructions(available: list[Availability]) -> list[DiagnosisItem]:
    """A bfloat16 product in a child process: where AMX is advertised but not allowed, it dies."""
    if not any(backend.name == "torch-cpu" and backend.reason is None for backend in available):
        return []
    instruction_set.remember("torch-cpu", None)  # to find out whether it still is so
    with closing(Supervisor(backends()["torch-cpu"], 1, WorkerOptions(_TRIAL_TIMEOUT))) as supervisor:
        record = supervisor.run(_trial())
    if record.status not in MEASURED:
        return [DiagnosisItem("instructions", False, f"a bfloat16 product fails: {record.reason}", "update torch")]
    limit = instruction_set.recall("torch-cpu")
    if limit:
        hint = f"torch-cpu runs with {instruction_set.VARIABLE}={limit}; numbers are below what the processor could do"
        return [DiagnosisItem("instructions", False, "some that the processor advertises are trapped", hint)]
    return [DiagnosisItem("instructions", ok=True, found="a bfloat16 product runs with all that the processor has")]


def _trial() -> Task:
    operator = find_operator("matmul")
    params = operator.complete({"M": 128, "N": 128, "K": 128, "dtype": "bfloat16"})
    settings = Settings(threads=1, effort="quick", sampling=EFFORTS["quick"])
    return Task(Case.of("matmul", params, "forward"), "torch-cpu", "torch", settings)


# A/A: identical code against itself on this machine. Every difference that is found is a false alarm.

PROCESSES = 10
# From calls of a microsecond to some of milliseconds, limited by launches, by memory and by arithmetic.
_CASES: tuple[tuple[str, dict[str, object]], ...] = (
    ("add", {"shape": [32, 32]}),
    ("add", {"shape": [256, 256]}),
    ("softmax", {"shape": [256, 1024]}),
    ("matmul", {"M": 256, "N": 256, "K": 256}),
    ("add", {"shape": [2048, 2048]}),
    ("matmul", {"M": 1024, "N": 1024, "K": 1024}),
)
# Samples of a process that the naive test looks at.
_POOLED = 100
# Up to this number of pairs all labelings are tried; for more pairs, as many random ones.
_ALL_WAYS = 8


def reference_cases() -> list[Case]:
    """Return cases that show how fast a machine is, and how steady."""
    return [Case.of(op, find_operator(op).complete(params), "forward") for op, params in _CASES]


def self_test(
    backend: str,
    threads: int | None,
    processes: int,
    timeout: float,
    say: Callable[[str], None],
    on_step: OnStep = ignore_step,
) -> tuple[NoiseFloor, list[Environment], list[Record]]:
    """The noise floor, and the environments and records that it was found from."""
    cases = reference_cases()
    settings = settings_for(
        MeasureOptions(threads=() if threads is None else threads, effort="quick", processes=processes, verify=False)
    )
    environments: list[Environment] = []
    started = utc_now()
    options = WorkerOptions(timeout, say=say, keep=environments.append)
    plan = make_plan(cases, [backend], settings)
    records = []
    for record in run_plan(plan, options):
        records.append(record)
        doing = f"process {record.task.settings.process + 1} of {processes}, {record.task.case.op}"
        on_step(len(records), len(plan.tasks) + len(plan.skipped), doing)
    # In the order of the processes: what was disturbed has been measured again at the end.
    records.sort(key=lambda record: record.task.settings.process)
    facts = environments[0].facts if environments else {}
    labelings = _labelings(processes // 2)
    floors = [
        _floor(
            case,
            [m for r in records if r.task.case == case and r.status in COUNTED and (m := r.measurement(*key))],
            labelings,
        )
        for case in cases
        for key in dict.fromkeys((m.quantity, m.cache) for r in records if r.task.case == case for m in r.measurements)
    ]
    found = [floor for floor in floors if floor]
    if not found:
        raise UserError(f"nothing could be measured on {backend}: {records[0].reason}")
    floor = NoiseFloor(chip(facts), backend, settings[0].threads, started, processes, len(labelings), found)
    return floor, environments, records


def _labelings(pairs: int) -> list[tuple[bool, ...]]:
    """Which of each pair is A. Half of the ways: swapping all names changes nothing."""
    if pairs <= _ALL_WAYS:
        return [(False, *flips) for flips in product((False, True), repeat=pairs - 1)]
    draw = random.Random(0)
    return [(False, *(draw.random() < 0.5 for _ in range(pairs - 1))) for _ in range(1 << (_ALL_WAYS - 1))]


def _floor(case: Case, found: Sequence[Measurement], labelings: Sequence[tuple[bool, ...]]) -> Floor | None:
    """Return the floor of one quantity; None if it could not be measured in every process."""
    pairs = len(labelings[0])
    if len(found) < 2 * pairs:
        return None
    medians = [median(m.samples) for m in found]
    if min(medians) <= 0:  # nothing to see on this clock
        return None
    # Of ABBA ABBA ..., neighbours are the pairs.
    couples = [(2 * i, 2 * i + 1) for i in range(pairs)]
    verdicts = naive = 0
    for flips in labelings:
        a = [couple[flip] for couple, flip in zip(couples, flips, strict=True)]
        b = [couple[not flip] for couple, flip in zip(couples, flips, strict=True)]
        verdict = compare_pairs([medians[i] for i in a], [medians[i] for i in b]).verdict
        verdicts += verdict in ("faster", "slower")
        pooled = ([s for i in side for s in found[i].samples[:_POOLED]] for side in (a, b))
        naive += rank_sum_p(*pooled) < ALPHA
    return Floor(
        op=case.op,
        params=format_params(case, find_operator(case.op).by_name),
        seconds=median(medians),
        between=relative_deviation(medians),
        within=median([noise(m.samples) for m in found]),
        verdicts=verdicts,
        naive=naive,
        quantity=found[0].quantity,
        cache=found[0].cache,
    )
