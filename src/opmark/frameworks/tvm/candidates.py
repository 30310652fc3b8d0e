"""What MetaSchedule lacks to go on after a kill: candidates that were measured before are left out, and each record is
on disk before the next candidate runs. By itself it writes the records of a batch at its end.

TVM's tensor intrinsics are replaced before this is imported: see `metaschedule.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

_FAILED = [1e10]
"""Seconds of a candidate that did not run, as MetaSchedule writes them."""


@derived_object
class FreshCandidates(ms.search_strategy.PySearchStrategy):  # type: ignore[misc]
    """A search strategy without the candidates that the database has, or that it has proposed itself."""

    def __init__(self, strategy: Any, measured: set[int]) -> None:
        """`measured` has the hashes of the programs that are left out, and gets those of what is proposed."""
        super().__init__()
        self.strategy, self.measured = strategy, measured

    def _initialize_with_tune_context(self, context: Any) -> None:
        self.strategy._initialize_with_tune_context(context)

    def pre_tuning(self, *arguments: Any) -> None:
        self.strategy.pre_tuning(*arguments)

    def post_tuning(self) -> None:
        self.strategy.post_tuning()

    def generate_measure_candidates(self) -> Sequence[Any] | None:
        while (candidates := self.strategy.generate_measure_candidates()) is not None:
            fresh = [one for one in candidates if self._is_fresh(one)]
            if fresh:
                return fresh
            self.strategy.notify_runner_results(candidates, [])  # else it draws the same batch again
        return None

    def _is_fresh(self, candidate: Any) -> bool:
        program = hash_program(candidate)
        if program in self.measured:
            return False
        self.measured.add(program)
        return True

    def notify_runner_results(self, measure_candidates: Sequence[Any], results: Sequence[Any]) -> None:
        self.strategy.notify_runner_results(measure_candidates, results)

    def clone(self) -> Any:
        return FreshCandidates(self.strategy.clone(), self.measured)


def hash_program(candidate: Any) -> int:
    return int(tvm_ffi.structural_hash(candidate.sch.mod))


@derived_object
class RecordingRunner(ms.runner.PyRunner):  # type: ignore[misc]
    """Runs the candidates of a batch one by one, and commits the record of each before the next one runs. The callback
    that commits a whole batch is not needed then."""

    def __init__(self, runner: Any, scheduler: Any, database: Any) -> None:
        super().__init__()
        self.runner, self.scheduler, self.database = runner, scheduler, database

    def run(self, runner_inputs: Sequence[Any]) -> list[Any]:
        tasks = self.scheduler.tasks_
        (task,) = [one for one in tasks if one.measure_candidates is not None and one.runner_futures is None]
        workload = self.database.commit_workload(task.ctx.mod)
        waiting, futures = iter(runner_inputs), []
        for candidate, built in zip(task.measure_candidates, task.builder_results, strict=True):
            seconds = _FAILED
            if built.error_msg is None:
                (future,) = self.runner.run([next(waiting)])
                futures.append(future)
                seconds = future.result().run_secs or _FAILED
            record = ms.database.TuningRecord(
                candidate.sch.trace, workload, seconds, task.ctx.target, candidate.args_info
            )
            self.database.commit_tuning_record(record)
        return futures
