"""Profiles for records on their way to the store: a profiler runs tasks that were measured once more, by themselves.

Nothing is timed here, and whatever goes wrong costs a note and never a record.
"""

from __future__ import annotations

import os
import shlex
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace

from opmark.errors import InvalidFile, InvalidParameter, UnknownName
from opmark.plugin import Profiler, Watched
from opmark.plugin.param import format_params
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.plugin.registry import profilers
from opmark.runner import instruction_set
from opmark.runner.guests.placement import worker_command
from opmark.runner.plan import rank_count
from opmark.runner.profilers.program import Ended, run_to_end
from opmark.runner.worker_process import environ_for
from opmark.schema import KernelMetrics, Profile, Record, Task
from opmark.schema.messages import ProfileBatch, ProfileTask, ProfileTaskResult
from opmark.schema.record import MEASURED, NO_PROFILE, PARTLY

DEFAULT_FOLDER = "opmark-profiles"
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
COMMAND = "command"
"""The profiler whose command line is the user's own."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Profiling:
    """Which profiler looks at the measured tasks, and how."""

    profiler: str
    """trace, ncu, nsys, command, or the name of a plug-in."""
    bin: str | None = None
    """Its program; None: found on PATH."""
    args: Sequence[str] = ()
    """More arguments for it."""
    warmup: int = 5
    iterations: int = 1
    """Calls inside of the range that is looked at."""
    batch: int = 50
    """Tasks that one start of the profiler looks at, at most."""
    device: str | None = None
    """The device that it uses, as in CUDA_VISIBLE_DEVICES."""
    command: str | None = None
    """For the profiler `command`: a command line with {program} and {output} in it."""
    folder: str | os.PathLike[str] = DEFAULT_FOLDER
    """Where the files go."""
    timeout: float = 600.0
    """Seconds that a batch may take."""
    program: Sequence[str] = ()
    """Command that runs a batch in place of `python -m opmark.worker.profile_batch`; it gets the same arguments."""
    label: Callable[[Task], str] | None = None
    """How ranges are called in a trace; None: by operator, parameters and phase."""

    def find_profiler(self) -> Profiler:
        """The profiler of that name. Raise UserError where the options make no sense."""
        known = profilers()
        if self.profiler not in known:
            raise UnknownName("profiler", self.profiler, known)
        least = {"batch": 1, "warmup": 0, "iterations": 1}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise InvalidParameter(f"profile {name}: expected at least {low}, got {getattr(self, name)}")
        if self.timeout <= 0:
            raise InvalidParameter(f"profile timeout: expected seconds above 0, got {self.timeout:g}")
        if (self.profiler == COMMAND) != bool(self.command):
            raise InvalidParameter(
                "the profiler `command` and a command line for it go together",
                'as in --profiler command --profiler-command "vendorprof -o {output}.csv {program}"',
            )
        if self.command and "{program}" not in self.command:
            raise InvalidParameter(f"--profiler-command: expected {{program}} in it, got `{self.command}`")
        return known[self.profiler]


def arguments_in(path: Path) -> tuple[str, ...]:
    """The words of a file, quoted as on a command line; `#` begins a remark."""
    try:
        return tuple(shlex.split(path.read_text(encoding="utf-8"), comments=True))
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path}: expected arguments of a profiler: {error}") from None


def is_profiled(record: Record) -> bool:
    """Whether a record gets a profile. The first of several processes stands for all; a case of several ranks is left
    out, since a profiler watches one process."""
    return record.status in MEASURED and record.task.settings.process == 0 and not rank_count(record.task.case)


class ProfileQueue:
    """Passes records on in their order, once the profilers have looked at them.

    A profiler looks at a batch of records of one backend and one number of threads. After an interruption `abandon`
    passes on the records that still wait, so that none is lost.
    """

    def __init__(self, profilers: Sequence[ProfilerRunner], pass_on: Callable[[Record], None]) -> None:
        self._profilers = profilers
        self._pass_on = pass_on
        self._batch = max((profiler.batch for profiler in profilers), default=0)
        self._waiting: list[Record] = []
        self._due = 0
        """How many of the waiting records get a profile."""
        self._ready: deque[Record] = deque()

    def add(self, record: Record) -> None:
        if not self._waiting and not (self._profilers and is_profiled(record)):
            self._pass_on(record)
            return
        before = len(self._waiting)
        self._waiting.append(record)
        first = self._waiting[0].task
        if (record.task.backend, record.task.settings.threads) != (first.backend, first.settings.threads):
            self._profile(before)
        self._due += is_profiled(record)
        if self._due == self._batch:
            self._profile(len(self._waiting))

    def finish(self) -> None:
        """Profile what waits: there will be no more records."""
        self._profile(len(self._waiting))

    def abandon(self) -> None:
        """Pass on what waits without a profile. Nothing waits any more after `finish`."""
        while self._ready:
            self._pass_on(self._ready.popleft())
        while self._waiting:
            record = self._waiting.pop(0)
            if is_profiled(record):
                note = f"{NO_PROFILE}: interrupted before it was taken"
                record = replace(record, notes=(*record.notes, note))
            self._pass_on(record)

    def _profile(self, count: int) -> None:
        """Profile the first waiting records and pass them on. They wait until a profiler is done with them."""
        due = [i for i in range(count) if is_profiled(self._waiting[i])]
        for profiler in self._profilers:
            for start in range(0, len(due), profiler.batch):
                some = due[start : start + profiler.batch]
                for i, record in zip(some, profiler.profile([self._waiting[i] for i in some]), strict=True):
                    self._waiting[i] = record
        self._ready, self._waiting, self._due = deque(self._waiting[:count]), self._waiting[count:], 0
        while self._ready:
            self._pass_on(self._ready.popleft())


def profiler_runners(profiling: Profiling | Sequence[Profiling] | None, name: str, say: Say) -> list[ProfilerRunner]:
    """A runner for each profiler. `name` is the start of the names of their files."""
    options = [profiling] if isinstance(profiling, Profiling) else profiling or ()
    return [ProfilerRunner(one, name, say) for one in options]


class ProfilerRunner:
    """Starts a profiler on tasks."""

    def __init__(self, options: Profiling, name: str, say: Say) -> None:
        self.batch = options.batch
        """Tasks that one start of the profiler looks at, at most."""
        self._options = options
        self._profiler = options.find_profiler()
        self._name = name
        self._say = say
        self._folder = Path(options.folder).resolve()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidParameter(f"profiles cannot be kept in {self._folder}: {error.strerror}") from None

    def profile(self, records: Sequence[Record]) -> list[Record]:
        """The same records, each with a profile, or a note that says why not, or both."""
        try:
            found = self._run([record.task for record in records])
        except OSError as error:  # no such program, no room on the disk
            found = [(None, f"{NO_PROFILE} by {self._profiler.name}: {error}")] * len(records)
        for note in dict.fromkeys(note for _, note in found if note):
            self._say(note)
        return [
            replace(
                record,
                profiles=(*record.profiles, profile) if profile else record.profiles,
                notes=(*record.notes, note) if note else record.notes,
            )
            for record, (profile, note) in zip(records, found, strict=True)
        ]

    def _run(self, tasks: Sequence[Task]) -> list[tuple[Profile | None, str]]:
        """The profile of each task, if there is a file, and what is missing, as a note."""
        options, profiler = self._options, self._profiler
        backend, threads = tasks[0].backend, tasks[0].settings.threads
        info = find_backend(backend)
        number = 1
        while (self._folder / f"{self._name}-{number}.tasks.json").exists():  # written before the run was resumed
            number += 1
        stem = f"{self._name}-{number}"
        tasks_file, done, log_file = (self._folder / f"{stem}.{end}" for end in ("tasks.json", "done", "said.txt"))
        output = self._folder / f"{stem}.{profiler.name}"

        items = tuple(ProfileTask(f"opmark_{i}", self._label(task), task) for i, task in enumerate(tasks))
        ranges = [item.range for item in items]
        tasks_file.write_bytes(msgspec.json.format(msgspec.json.encode(ProfileBatch(backend, threads, items))))
        program = [
            *(options.program or worker_command(info, "opmark.worker.profile_batch")), str(tasks_file),
            "--done", str(done), "--parent", str(os.getpid()),
            "--warmup", str(options.warmup), "--iterations", str(options.iterations),
        ]  # fmt: skip
        line = profiler.command(
            Watched(program, ranges, output, options.bin or "", options.args, options.command or "")
        )
        more = instruction_set.environ(instruction_set.limit_for(info))
        if options.device is not None:
            more[VISIBLE_DEVICES] = options.device
        ended = run_to_end(line, environ_for(info, threads, more), log_file, options.timeout)

        lines = done.read_bytes().splitlines() if done.exists() else []
        results = {
            one.range: one.reason for one in (msgspec.json.decode(text, type=ProfileTaskResult) for text in lines)
        }
        outcome = Outcome(profiler, output, ranges, line, ended, results)
        found = [outcome.of(name) for name in ranges]
        done.unlink(missing_ok=True)
        if not ended.trouble:
            log_file.unlink()
        return found

    def _label(self, task: Task) -> str:
        if self._options.label:
            return self._options.label(task)
        return f"{task.case.op} {format_params(task.case, find_operator(task.case.op).by_name)} {task.case.phase}"


class Outcome:
    """The result of one start of a profiler. `done` has, for each range that was reached, why it failed, or nothing."""

    def __init__(
        self,
        profiler: Profiler,
        stem: Path,
        ranges: Sequence[str],
        command: Sequence[str],
        ended: Ended,
        done: dict[str, str],
    ) -> None:
        self._profiler = profiler
        self._file = profiler.file(stem)
        self._command = shlex.join(command)
        self._done = done
        # Where tasks failed, the program's exit code says so, and the profiler passes it on: no fault of its own.
        troubles = [] if any(done.values()) and ended.code > 0 else [ended.trouble]
        self._kernels: dict[str, Sequence[KernelMetrics]] | None = {}
        try:
            found = profiler.read(stem, ranges)
            self._kernels = None if found is None else dict(found)
        except ValueError as error:
            troubles.append(f"its output cannot be read: {error}")
        self._trouble = "; ".join(filter(None, troubles))

    def of(self, name: str) -> tuple[Profile | None, str]:
        """(the profile of a range, if there is a file; what is missing, as a note)."""
        kernels = tuple((self._kernels or {}).get(name, ()))
        there = self._file.exists()
        profile = Profile(self._profiler.name, str(self._file), kernels, self._command) if there else None
        why = self._done.get(name) or self._trouble or self._missing(name, there=there)
        return profile, f"{PARTLY if kernels else NO_PROFILE} by {self._profiler.name}: {why}" if why else ""

    def _missing(self, name: str, *, there: bool) -> str:
        if name not in self._done:
            return "the program did not come to this task"
        if not there:
            return f"it wrote no {self._file}"
        if self._kernels is not None and not self._kernels.get(name):
            return f"{self._file} tells of nothing that ran in the range of this task"
        return ""
