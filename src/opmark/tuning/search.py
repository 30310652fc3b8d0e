"""Searches the space of a case: every candidate is a task, built, verified and timed by the engine in a worker.

Candidates are measured shortly, once. Then those that are not surely slower than the best are measured again, in turns
and in fresh processes, until the others are out or the rest is a tie. A search that is repeated with the same records
asks the same questions, so that what is stored needs no second measurement.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import platformdirs
from msgspec.structs import replace as replace_fields

from opmark.errors import TaskError, UserError
from opmark.hardware.host import affinity
from opmark.plugin import Configuration
from opmark.plugin.registry import backend as find_backend
from opmark.runner.supervisor import Supervisor, WorkerOptions
from opmark.runner.worker_process import WorkerDied
from opmark.schema import EFFORTS, Compilation, Record, Sampling, Task
from opmark.schema.messages import Side
from opmark.schema.record import MEASURED
from opmark.scratch import ScratchFolder
from opmark.stats.interval import geometric_mean, median_interval
from opmark.stats.verdict import ALPHA, compare_pairs
from opmark.tuning.database import with_configuration
from opmark.tuning.spaces import Tunable
from opmark.tuning.tuners import make_tuner

SHORT = Sampling(
    warmup_min=0.002, warmup_max=0.03, warmup_agreement=0.05,
    sample_time=5e-5, min_samples=7, min_time=0.005, max_time=0.04, rel_ci=0.02,
)  # fmt: skip
"""How the first measurement of a candidate is sampled: just enough to tell what is surely slower."""
FINALISTS = 6
"""Candidates that are measured again, at most."""
_LEEWAY = 0.05
"""A machine may have changed by so much between two candidates: what is slower by less is no worse for sure."""
ROUNDS = {"cpu": 4}
"""Fresh processes in which finalists are measured again; on a device, whose times hardly depend on it, fewer."""
_DEVICE_ROUNDS = 2
_BATCH = 4
"""Candidates that a tuner is asked for at once: few, because each answer makes the next question better; twice as many
as there are builders, if that is more."""
_MOST_BUILDERS = 8
_PATIENCE = 20.0
_SHORTEST_TIMEOUT = 10.0
"""A candidate may take so many times as long as the default, and at least so many seconds."""
_KEPT_SECONDS = 30 * 86400.0
"""How long the files of a tuner are kept after their tuning was interrupted."""
COMPILE_CACHE = "OPMARK_COMPILE_CACHE"
"""Variable that names a folder in which the workers of one tuning share what they compile."""


@dataclass(frozen=True)
class TuningCandidate:
    """A configuration of an implementation, with its time so far."""

    implementation: str
    configuration: Configuration
    """Empty for the default: what the backend does without tuning."""
    seconds: float | None
    low: float = 0.0
    high: float = 0.0
    """Ends of the interval of the median in its one process."""
    reason: str = ""
    """Why it has no time."""

    @property
    def key(self) -> tuple[str, tuple[tuple[str, object], ...]]:
        return self.implementation, tuple(sorted(self.configuration.items()))


@dataclass(frozen=True)
class Trial:
    """One candidate that was just measured, for progress."""

    number: int
    most: int
    candidate: TuningCandidate
    best: TuningCandidate | None
    elapsed: float


@dataclass
class SearchResult:
    default: TuningCandidate
    candidates: list[TuningCandidate] = field(default_factory=list)
    tied: list[TuningCandidate] = field(default_factory=list)
    """The best after the last round, and all that are not surely slower; the first is the best."""
    stopped: str = ""
    """Why no more candidates were measured."""

    @property
    def best(self) -> TuningCandidate | None:
        return self.tied[0] if self.tied else None


@dataclass(frozen=True)
class SearchOptions:
    tuner: str
    trials: int
    seed: int
    deadline: float
    """When to stop asking for candidates, by `clock`."""
    workers: WorkerOptions
    done: Mapping[str, Record]
    """Records of an earlier, interrupted search by task id: they are used instead of measuring."""
    add: Callable[[Record], None]
    """Stores a record."""
    on_trial: Callable[[Trial], None] = lambda trial: None
    starts: Sequence[TuningCandidate] = ()
    """What is known already: the search begins with it."""
    clock: Callable[[], float] = time.monotonic
    folder: Path | None = None
    """Folder of the run for files of its tuners; a temporary one if there is no run to be resumed."""


class Measurer:
    """Measures tasks in workers that stay alive, one for each number of threads; what dies is replaced."""

    def __init__(self, options: SearchOptions, environ: dict[str, str | None] | None = None) -> None:
        self._options = options
        self._environ = environ or {}
        self._workers: dict[tuple[str, int], Supervisor] = {}
        self.timeout = options.workers.timeout

    def run(self, task: Task, *, keep: bool = True, compilation: Compilation | None = None) -> Record:
        """Return the record of a task: the stored one if there is one, else a new one, which is stored. `compilation`:
        how it was compiled before by another worker, with empty caches; this one only loads it."""
        if known := self._options.done.get(task.id):
            return known
        record = self._worker(task).run(task)
        if compilation and record.compilation:
            record = replace_fields(record, compilation=compilation)
        if keep:
            self._options.add(record)
        return record

    def _worker(self, task: Task) -> Supervisor:
        key = (task.backend, task.settings.threads)
        if key not in self._workers:
            options = replace(self._options.workers, timeout=self.timeout)
            side = Side("tuning", *key, environ=self._environ) if self._environ else None
            worker = Supervisor(find_backend(task.backend), task.settings.threads, options, side)
            self._workers[key] = worker
            try:
                hello = worker.start()
            except WorkerDied:
                return worker  # its record says why
            if hello.unavailable:
                raise UserError(
                    f"backend `{task.backend}` cannot run here: {hello.unavailable}",
                    "`opmark list backends` says what can",
                )
        return self._workers[key]

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()


def candidate_of(record: Record) -> TuningCandidate:
    settings = record.task.settings
    measured = record.measurement() if record.status in MEASURED else None
    implementation, configuration = record.task.implementation, dict(settings.configuration)
    if measured is None or not measured.samples:
        return TuningCandidate(implementation, configuration, None, reason=record.reason or record.status)
    interval = median_interval(measured.samples)
    return TuningCandidate(implementation, configuration, median(measured.samples), interval.low, interval.high)


def search(tunables: Sequence[Tunable], default: Task, options: SearchOptions) -> SearchResult:
    """Search the spaces of one case, each with its share of the trials. `default` is the task without tuning."""
    short = replace_fields(default, settings=replace_fields(default.settings, sampling=SHORT))
    with shared_cache(default) as environ, ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(ScratchFolder("tuner")))
        measurer = Measurer(options, environ)
        stack.callback(measurer.close)
        builders = Builders(options, environ)
        stack.callback(builders.close)
        usual = measurer.run(short)
        result = SearchResult(candidate_of(usual))
        measurer.timeout = min(options.workers.timeout, max(_SHORTEST_TIMEOUT, _PATIENCE * usual.duration))
        measurer.close()  # the next worker has the new time-out
        _measure_known(tunables, short, result, measurer, options)
        for place, tunable in enumerate(tunables):
            share = (options.trials - len(result.candidates)) // (len(tunables) - place)
            _search_one(tunable, short, share, result, measurer, builders, options, folder)
        measurer.close()
        builders.close()
        result.tied = race(result, default, options, environ)
    return result


def _measure_known(
    tunables: Sequence[Tunable], short: Task, result: SearchResult, measurer: Measurer, options: SearchOptions
) -> None:
    """Measure what is known of the case and lies in none of these spaces, as what another tuner has found in its own: a
    search that finds nothing better keeps it."""
    for one in options.starts:
        if all(_fit(tunable, one) is None for tunable in tunables):
            task = with_configuration(short, one.configuration, one.implementation)
            if options.clock() <= options.deadline or task.id in options.done:
                result.candidates.append(candidate_of(measurer.run(task)))


def _fit(tunable: Tunable, start: TuningCandidate) -> Configuration | None:
    """Return what is known as a configuration of this space; None if it is of another."""
    same = start.implementation == tunable.implementation.label
    return tunable.space.fit(start.configuration) if same else None


def _search_one(
    tunable: Tunable,
    short: Task,
    trials: int,
    result: SearchResult,
    measurer: Measurer,
    builders: Builders,
    options: SearchOptions,
    folder: Path,
) -> None:
    problem = tunable.problem(options.seed, _starts(tunable, options), short.settings.threads, folder)
    tuner = make_tuner(options.tuner, problem, tunable.backend)
    batch = tuner.batch or max(_BATCH, 2 * builders.count)
    began, first = options.clock(), len(result.candidates)
    while (left := trials - max(len(result.candidates) - first, tuner.own_trials)) > 0:
        tuner.seconds_left = options.deadline - options.clock()
        try:
            asked = tuner.ask(min(batch, left))
        except TaskError as error:  # a tuner that measures by itself could not
            result.stopped = str(error)
            return
        if not asked:
            result.stopped = "the tuner expects nothing better"
            return
        tasks = [with_configuration(short, one, tunable.implementation.label) for one in asked]
        if options.clock() > options.deadline and any(task.id not in options.done for task in tasks):
            result.stopped = _spent(result, options.clock() - began)
            return
        built = builders.build(tasks)
        for configuration, task in zip(asked, tasks, strict=True):
            if options.clock() > options.deadline and task.id not in options.done:
                result.stopped = _spent(result, options.clock() - began)
                return
            before = built.get(task.id)
            failed = before if before and before.failed else None
            record = failed or measurer.run(task, compilation=before.compilation if before else None)
            found = candidate_of(record)
            tuner.tell(configuration, found.seconds)
            result.candidates.append(found)
            number = max(len(result.candidates), first + tuner.own_trials)
            timed = [one for one in result.candidates if one.seconds is not None]
            best = min(timed, key=lambda one: one.seconds or 0.0, default=None)
            options.on_trial(Trial(number, options.trials, found, best, options.clock() - began))
    result.stopped = result.stopped or "all trials are done"


def _spent(result: SearchResult, seconds: float) -> str:
    if result.candidates:
        return f"the budget is spent; a candidate took {seconds / len(result.candidates):.1f} s"
    return "the budget was spent before a candidate was measured: a larger --budget is needed"


def _starts(tunable: Tunable, options: SearchOptions) -> tuple[Configuration, ...]:
    """Return what to try first: what is known of this case or its nearest, and the defaults of the knobs."""
    found = [fitting for one in options.starts if (fitting := _fit(tunable, one)) is not None]
    usual = tunable.space.default
    if tunable.space.why_not(usual) is None and usual not in found:
        found.append(usual)
    return tuple(found)


# Files of tuners.


def run_folder(run: str) -> Path:
    """Return the folder of a run for files of its tuners, which may not exist yet. Folders of runs that nobody has
    resumed for a month are removed."""
    place = platformdirs.user_cache_path("opmark") / "tuning"
    folder = place / run
    if folder.exists():
        os.utime(folder)
    for other in place.glob("*"):
        with suppress(FileNotFoundError):  # another tuning removes it too
            if time.time() - other.stat().st_mtime > _KEPT_SECONDS:
                shutil.rmtree(other)
    return folder


# Building side by side, timing apart.


@contextmanager
def shared_cache(task: Task) -> Iterator[dict[str, str | None]]:
    """Yield the variable by which workers share what they compile; nothing for a backend that does not."""
    if not find_backend(task.backend).shares_builds:
        yield {}
        return
    folder = ScratchFolder("tuning")
    try:
        yield {COMPILE_CACHE: folder.name}
    finally:
        folder.cleanup()


class Builders:
    """Workers that compile and verify candidates side by side, before any is timed. They stay alive from batch to
    batch: starting a framework may take longer than compiling."""

    def __init__(self, options: SearchOptions, environ: dict[str, str | None]) -> None:
        """`environ` names what workers share; a backend that shares nothing has no builders."""
        count = min(len(affinity()), _MOST_BUILDERS) if environ else 0
        self._options = options
        self._lanes = [Measurer(options, environ) for _ in range(count)] if count > 1 else []
        self.count = len(self._lanes)

    def build(self, tasks: Sequence[Task]) -> dict[str, Record]:
        """Return the records of building these tasks, by their ids. Those that failed are stored; what was compiled is
        found in the shared cache, and a task without a record here is compiled by the worker that times it."""
        options = self._options
        only = {task.id: _compile_only(task) for task in tasks if task.id not in options.done}
        found = {key: options.done[one.id] for key, one in only.items() if one.id in options.done}
        waiting = [(key, one) for key, one in only.items() if key not in found]
        if not self._lanes or len(waiting) < 2:
            return found

        def build_some(place: int) -> list[tuple[str, Record]]:
            lane = self._lanes[place]
            return [(key, lane.run(task, keep=False)) for key, task in waiting[place :: len(self._lanes)]]

        with ThreadPoolExecutor(len(self._lanes)) as pool:
            for built in pool.map(build_some, range(len(self._lanes))):
                for key, record in built:
                    found[key] = record
                    if record.failed:
                        options.add(record)
        return found

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()


def _compile_only(task: Task) -> Task:
    return replace_fields(task, settings=replace_fields(task.settings, compile_only=True))


# The race of the finalists.


def race(
    result: SearchResult, default: Task, options: SearchOptions, environ: dict[str, str | None]
) -> list[TuningCandidate]:
    """Return the best candidates: those that are tied after the last round, the fastest first."""
    timed = sorted((one for one in result.candidates if one.seconds is not None), key=lambda one: one.seconds or 0.0)
    if not timed:
        return []
    left = [one for one in timed if one.low <= (1 + _LEEWAY) * timed[0].high][:FINALISTS]
    if len(left) == 1:
        return left
    times: dict[object, list[float]] = {one.key: [] for one in left}
    rounds = ROUNDS.get(find_backend(default.backend).device, _DEVICE_ROUNDS)
    for number in range(1, rounds + 1):
        measurer = Measurer(options, environ)
        try:
            for one in left[:: -1 if number % 2 else 1]:
                settings = replace_fields(default.settings, process=number, sampling=EFFORTS["quick"])
                task = with_configuration(
                    replace_fields(default, settings=settings), one.configuration, one.implementation
                )
                again = candidate_of(measurer.run(task))
                if again.seconds is not None:
                    times[one.key].append(again.seconds)
        finally:
            measurer.close()
        left = [one for one in left if len(times[one.key]) == number]  # what failed now is out
        left.sort(key=lambda one: geometric_mean(times[one.key]))
        left = [one for one in left if not _surely_slower(times[one.key], times[left[0].key])]
        if len(left) <= 1:
            break
    return [replace(one, seconds=geometric_mean(times[one.key])) for one in left]


def _surely_slower(one: Sequence[float], best: Sequence[float]) -> bool:
    """Return whether a candidate is slower than the best by more than chance explains."""
    if one is best or len(one) < 2:  # a single pair has no spread
        return False
    return compare_pairs(best, one, alpha=ALPHA).low > 1.0
