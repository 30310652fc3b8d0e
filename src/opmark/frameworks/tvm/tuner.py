"""MetaSchedule as a tuner of opmark: it tunes in a child process, and its best records are configurations that opmark
verifies and measures like any other. Nothing here imports TVM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from opmark.errors import TaskError
from opmark.frameworks.tvm.operators import METASCHEDULE
from opmark.plugin import Configuration, Tuner, TuningProblem
from opmark.scratch import ScratchFolder

_FEWEST = 16
"""Trials of one call of the child at least: it takes seconds to start."""
_PROPOSED = 8
"""Records of one call that are proposed, at most: the fastest by MetaSchedule's own clock."""
_TRIAL_SECONDS = 10.0
"""Time that a trial may take on average; then the child is killed. What it has measured is on disk."""
_START_SECONDS = 60.0
_LEAST_SECONDS = 10.0
"""Time for a call of the child, however little is left of the budget: in less, it measures nothing."""
_WORKLOADS, _RECORDS = "database_workload.json", "database_tuning_record.json"


def run_metaschedule(order: dict[str, Any], seconds: float) -> str:
    """Let a child process tune, for so many seconds at most. Return why it stopped early; empty if it did not. The
    folder of the order holds its records."""
    environ = {**os.environ, "TVM_NUM_THREADS": str(order["threads"]), "TVM_BIND_THREADS": "0"}
    with_parent = [sys.executable, "-m", "opmark.worker.process_setup"]  # where opmark is killed, the child ends too
    command = [*with_parent, sys.executable, "-m", "opmark.frameworks.tvm.metaschedule"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environ,
        start_new_session=True,
    ) as child:  # fmt: skip
        try:
            _, said = child.communicate(json.dumps(order), timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"MetaSchedule was stopped after {seconds:.0f} s"
        finally:
            _kill_group(child)
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("hint:")]
    return "" if child.returncode == 0 else f"MetaSchedule failed: {lines[-1] if lines else child.returncode}"


def _kill_group(child: subprocess.Popen[str]) -> None:
    """End the child with the processes that it has started: they compile and run candidates."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Return the records of a folder that ran, the fastest first, each with its workload."""
    if not (folder / _RECORDS).is_file():
        return []
    workloads = [json.loads(line) for line in (folder / _WORKLOADS).read_text().splitlines() if line]
    found = []
    for line in (folder / _RECORDS).read_text().splitlines():
        try:
            number, record = json.loads(line)
        except ValueError:  # the last line of a child that was killed
            continue
        seconds = record[1] or []
        if seconds and max(seconds) < 1e9:
            found.append((sum(seconds) / len(seconds), number, record))
    found.sort(key=lambda one: one[0])
    return [{"workload": workloads[number], "record": record} for _, number, record in found]


def best_of_each(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the fastest record of every workload: together they are the configuration of a model."""
    kept: dict[str, dict[str, Any]] = {}
    for one in records:
        kept.setdefault(str(one["workload"][0]), one)
    return list(kept.values())


class MetaScheduleTuner(Tuner):
    """Each question lets MetaSchedule try as many candidates as are asked for, which count as trials. Its fastest new
    records are proposed, those of all kernels of a model together."""

    strategy = "evolutionary"
    batch = 32

    def __init__(self, problem: TuningProblem) -> None:
        super().__init__(problem)
        self._kept = ScratchFolder("metaschedule")
        self._folder = Path(self._kept.name)
        self._proposed: set[str] = set()
        self._rounds = 0

    def ask(self, most: int) -> Sequence[Configuration]:
        trials = max(_FEWEST, most)
        order = {
            "op": self.problem.op, "params": dict(self.problem.params), "folder": str(self._folder),
            "threads": self.problem.threads or os.cpu_count() or 1, "trials": trials, "strategy": self.strategy,
            "seed": self.problem.seed + self._rounds + 1,
        }  # fmt: skip
        self._rounds += 1
        limit = min(_START_SECONDS + trials * _TRIAL_SECONDS, max(_LEAST_SECONDS, self.seconds_left))
        stopped = run_metaschedule(order, limit)
        self.own_trials += trials
        records = read_records(self._folder)
        if not records:
            raise TaskError(stopped or "MetaSchedule found no schedule that runs")
        several = len({str(one["workload"][0]) for one in records}) > 1
        choices = [best_of_each(records)] if several else [[one] for one in records[:_PROPOSED]]
        texts = [json.dumps(one, separators=(",", ":")) for one in choices]
        new = [text for text in texts if text not in self._proposed]
        self._proposed |= set(new)
        return [{METASCHEDULE: text} for text in new]

    def close(self) -> None:
        self._kept.cleanup()

    def tell(self, configuration: Configuration, seconds: float | None) -> None:
        """MetaSchedule goes by the times that it takes itself."""


class ReplayTraceTuner(MetaScheduleTuner):
    """MetaSchedule without a model of the costs: it draws from its space at random."""

    strategy = "replay-trace"
