"""A/A: identical code against itself on this machine. What it calls a difference is a false alarm, by construction."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import product

from opmark.errors import UserError
from opmark.registry import operator as find_operator
from opmark.runner.execute import utc_now
from opmark.runner.plan import make_plan
from opmark.runner.session import run_plan
from opmark.runner.settings import settings_for
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Case, Environment, Measurement, Record
from opmark.schema.noise import Floor, NoiseFloor
from opmark.schema.options import MeasureOptions
from opmark.schema.peaks import chip
from opmark.schema.shown import shown
from opmark.stats import median, noise, relative_deviation
from opmark.stats.rank import rank_sum_p
from opmark.stats.verdict import ALPHA, compare_pairs

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
# Pairs up to which every way to name them is tried; of more, as many ways by chance.
_ALL_WAYS = 8


def self_test(
    backend: str, threads: int | None, processes: int, timeout: float, say: Callable[[str], None]
) -> tuple[NoiseFloor, list[Environment], list[Record]]:
    """The noise floor, and the environments and records that it was found from."""
    cases = [Case.of(op, find_operator(op).complete(params), "forward") for op, params in _CASES]
    settings = settings_for(
        MeasureOptions(threads=() if threads is None else threads, effort="quick", processes=processes, verify=False)
    )
    environments: list[Environment] = []
    started = utc_now()
    options = WorkerOptions(timeout, say=say, keep=environments.append)
    records = list(run_plan(make_plan(cases, [backend], settings), options))
    facts = environments[0].facts if environments else {}
    labelings = _labelings(processes // 2)
    floors = [
        _floor(case, [m for r in records if r.task.case == case and (m := r.measurement())], labelings)
        for case in cases
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
    """None where it could not be measured in every process."""
    pairs = len(labelings[0])
    if len(found) < 2 * pairs:
        return None
    medians = [median(m.samples) for m in found]
    # Of ABBA ABBA ..., neighbours are the pairs.
    couples = [(2 * i, 2 * i + 1) for i in range(pairs)]
    verdicts = naive = 0
    for flips in labelings:
        a = [couple[flip] for couple, flip in zip(couples, flips, strict=True)]
        b = [couple[not flip] for couple, flip in zip(couples, flips, strict=True)]
        said = compare_pairs([medians[i] for i in a], [medians[i] for i in b]).verdict
        verdicts += said in ("faster", "slower")
        pooled = ([s for i in side for s in found[i].samples[:_POOLED]] for side in (a, b))
        naive += rank_sum_p(*pooled) < ALPHA
    return Floor(
        op=case.op,
        params=shown(case, find_operator(case.op).by_name),
        seconds=median(medians),
        between=relative_deviation(medians),
        within=median([noise(m.samples) for m in found]),
        verdicts=verdicts,
        naive=naive,
    )
