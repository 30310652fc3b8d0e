"""How many cases of the catalogue are verified at their own size, and what verification costs beside measuring."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, TypeVar

from benchmarks.common import Row, Shell
from opmark.catalogue.expansion import expand
from opmark.catalogue.workload_file import suite as read_suite
from opmark.plugin import Implementation, Operator
from opmark.plugin.registry import backend, catalogue, implementations
from opmark.plugin.registry import operator as find_operator
from opmark.schema import EFFORTS, Case, Phase, Settings, Task, Verification
from opmark.schema.record import MEASURED
from opmark.worker.preparation import case_bytes
from opmark.worker.task_runner import TaskRunner
from opmark.worker.verify import outputs

SUITES = ("quick", "llm", "param")
SIZES = ("typical", "large")
BACKEND = "torch-cpu"
MOST_BYTES = 1 << 30
MOST_CASES = 40
"""Cases of a suite that are run, drawn at random: a whole suite takes an hour on a small machine."""
COST_TARGET = 0.5
T = TypeVar("T")
SETTINGS = Settings(2, "quick", EFFORTS["quick"])


def rows(shell: Shell) -> list[Row]:
    return [*(_count_row(size, phase) for size in SIZES for phase in ("forward", "backward")), _cost_row()]


def _count_row(size: str, phase: Phase) -> Row:
    counts = Counter(_checks(size, phase))
    told = ", ".join(f"{counts[how]} {how}" for how in ("full", "sampled", "unchecked"))
    return Row(f"how `{size}` presets are verified, {phase}", "as few unchecked as can be", told, None)


def _checks(size: str, phase: Phase) -> Iterator[str]:
    for operator in catalogue().values():
        if operator.ranks or size not in operator.presets:
            continue
        params = operator.complete(operator.preset(size))
        if operator.why_no_phase(params, phase) is None:
            plan = outputs.plan_check(Task(Case.of(operator.name, params, phase), "", "", SETTINGS), operator)
            yield "unchecked" if plan is None else "full" if plan.whole else "sampled"


def _cost_row() -> Row:
    shares = {suite: [*_cost_shares(suite)] for suite in SUITES}
    every = [share for found in shares.values() for share in found]
    told = ", ".join(f"{suite} {median(found):.0%} of {len(found)}" for suite, found in shares.items() if found)
    return Row(
        f"time of verification over time of measuring, median of {len(every)} cases",
        f"at most {COST_TARGET:.0%}",
        f"{median(every):.0%} ({told})",
        median(every) <= COST_TARGET,
    )


def _cost_shares(suite: str) -> Iterator[float]:
    """Time of both checks over that of everything else, for cases of a suite."""
    cases = expand(read_suite(suite), find_operator)
    runner = _TimedRunner()
    for case in random.Random(0).sample(cases, min(MOST_CASES, len(cases))):
        operator = find_operator(case.op)
        found = implementations(operator, backend(BACKEND))
        if operator.foreign or operator.ranks or not found or case_bytes(case.params, operator) > MOST_BYTES:
            continue
        runner.checking = 0.0
        record = runner.run(Task(case, BACKEND, found[0].label, SETTINGS))
        if record.status in MEASURED:
            yield runner.checking / (record.duration - runner.checking)


class _TimedRunner(TaskRunner):
    """Adds up the time that the checks before and after timing take."""

    def __init__(self) -> None:
        info = backend(BACKEND)
        super().__init__(info, info.load(SETTINGS.threads))
        self.checking = 0.0
        outputs.recheck = self._timed(outputs.recheck)

    def _verify(self, task: Task, operator: Operator, implementation: Implementation) -> Verification:
        return self._timed(super()._verify)(task, operator, implementation)

    def _timed(self, check: Callable[..., T]) -> Callable[..., T]:
        def call(*arguments: Any) -> T:
            start = time.perf_counter()
            try:
                return check(*arguments)
            finally:
                self.checking += time.perf_counter() - start

        return call
