"""MetaSchedule as a tuner of opmark: it tunes in a child process, and its best records are configurations that opmark
verifies and measures like any other. Nothing here imports TVM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from opmark.errors import TaskError, UserError
from opmark.frameworks.tvm.operators import METASCHEDULE
from opmark.plugin import Configuration, Tuner, TuningProblem

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
_ROUNDS = "rounds.json"
"""File with one line for each call of the child that ended: its trials, and how many records there were then."""


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


def load_records(folder: Path) -> list[dict[str, Any]]:
    """Return the records of a folder in the order in which they were measured, each with its workload. What a child had
    begun to write when it was killed is cut off: TVM reads no such file."""
    workloads = _read_lines(folder / _WORKLOADS)
    records = _read_lines(folder / _RECORDS, lambda line: line[0] < len(workloads))
    return [{"workload": workloads[number], "record": record} for number, record in records]


def _read_lines(file: Path, is_whole: Callable[[Any], bool] = lambda line: True) -> list[Any]:
    """Return what the lines of a file say, up to the first that is not whole; there, the file is cut off."""
    found, size = [], 0
    content = file.read_bytes() if file.exists() else b""
    for line in content.splitlines(keepends=True):
        try:
            entry = json.loads(line)
        except ValueError:
            break
        if not line.endswith(b"\n") or not is_whole(entry):
            break
        found.append(entry)
        size += len(line)
    if size < len(content):
        os.truncate(file, size)
    return found


def fastest(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of candidates that ran, the fastest first."""
    timed = [(seconds, one) for one in records if (seconds := one["record"][1] or []) and max(seconds) < 1e9]
    return [one for _, one in sorted(timed, key=lambda pair: sum(pair[0]) / len(pair[0]))]


def best_of_each(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the fastest record of every workload: together they are the configuration of a model."""
    kept: dict[str, dict[str, Any]] = {}
    for one in records:
        kept.setdefault(str(one["workload"][0]), one)
    return list(kept.values())


class MetaScheduleTuner(Tuner):
    """Each question lets MetaSchedule try as many candidates as are asked for, which count as trials. Its fastest new
    records are proposed, those of all kernels of a model together.

    A tuning that goes on after a kill repeats its proposals without measuring, and tries what its last call had left.
    """

    strategy = "evolutionary"
    batch = 32

    def __init__(self, problem: TuningProblem) -> None:
        super().__init__(problem)
        assert problem.folder is not None  # every search gives one
        self._folder = problem.folder
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"no folder for the files of MetaSchedule can be made: {error}",
                "XDG_CACHE_HOME names another folder for caches",
            ) from None
        self._rounds: list[tuple[int, int]] = [
            (trials, records) for trials, records in _read_lines(self._folder / _ROUNDS)
        ]
        self._asked = 0
        self._proposed: set[str] = set()

    def ask(self, most: int) -> Sequence[Configuration]:
        if self._asked == len(self._rounds):
            self._rounds.append(self._run_round(max(_FEWEST, most)))
        trials, count = self._rounds[self._asked]
        self._asked += 1
        self.own_trials += trials
        records = fastest(load_records(self._folder)[:count])
        several = len({str(one["workload"][0]) for one in records}) > 1
        choices = [best_of_each(records)] if several else [[one] for one in records[:_PROPOSED]]
        texts = [json.dumps(one, separators=(",", ":")) for one in choices]
        new = [text for text in texts if text not in self._proposed]
        self._proposed |= set(new)
        return [{METASCHEDULE: text} for text in new]

    def _run_round(self, trials: int) -> tuple[int, int]:
        """Let the child measure so many candidates, less those that it measured before opmark was killed. Return the
        trials, and how many records there are now."""
        before = len(load_records(self._folder))
        left = trials - (before - (self._rounds[-1][1] if self._rounds else 0))
        stopped = ""
        if left > 0:
            order = {
                "op": self.problem.op, "params": dict(self.problem.params), "folder": str(self._folder),
                "threads": self.problem.threads or os.cpu_count() or 1, "trials": left, "strategy": self.strategy,
                "seed": self.problem.seed + before + len(self._rounds) + 1,
            }  # fmt: skip
            limit = min(_START_SECONDS + left * _TRIAL_SECONDS, max(_LEAST_SECONDS, self.seconds_left))
            stopped = run_metaschedule(order, limit)
        records = load_records(self._folder)
        if not fastest(records):
            raise TaskError(stopped or "MetaSchedule found no schedule that runs")
        with (self._folder / _ROUNDS).open("a") as file:
            file.write(f"[{trials},{len(records)}]\n")
        return trials, len(records)

    def tell(self, configuration: Configuration, seconds: float | None) -> None:
        """MetaSchedule goes by the times that it takes itself."""


class ReplayTraceTuner(MetaScheduleTuner):
    """MetaSchedule without a model of the costs: it draws from its space at random."""

    strategy = "replay-trace"
