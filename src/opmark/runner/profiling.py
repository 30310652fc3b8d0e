"""Records on their way to the store: those that were measured are looked at by a profiler, in a run of their own.

Nothing is timed here, and whatever goes wrong costs a note and never a record.
"""

from __future__ import annotations

import os
import shlex
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace

from opmark.errors import InvalidFile, InvalidParameter, UnknownName
from opmark.guests.place import command
from opmark.interfaces import Profiler, Watched
from opmark.registry import backend as find_backend
from opmark.registry import operator as find_operator
from opmark.registry import profilers
from opmark.runner import instructions
from opmark.runner.batch import Batch, Done, Item
from opmark.runner.plan import processes
from opmark.runner.process import environ_for
from opmark.runner.profiler_process import Ended, run_to_end
from opmark.schema import KernelMetrics, Profile, Record, Task
from opmark.schema.profile import NO_PROFILE, PARTLY
from opmark.schema.shown import shown

DEFAULT_FOLDER = "opmark-profiles"
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
COMMAND = "command"
"""The profiler whose command line is the user's own."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Profiling:
    """Which profiler is to look at what was measured, and how."""

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
    """What runs a batch, in place of this Python with `-m opmark.runner.batch`: it gets the same arguments."""
    label: Callable[[Task], str] | None = None
    """How ranges are called in a trace; None: by operator, parameters and phase."""

    def chosen(self) -> Profiler:
        """The profiler; UserError where something asked for makes no sense."""
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


def profiled(records: Iterator[Record], asked: Profiling | Sequence[Profiling] | None, name: str, say: Say) -> Stream:
    """The records with what each profiler says of them. `name`: what the names of the files begin with."""
    stream = Stream(records)
    for profiling in [asked] if isinstance(asked, Profiling) else asked or ():
        stream = Stream(stream, Watch(profiling, name, say))
    return stream


class Stream(Iterator[Record]):
    """The records in their order, profiles attached where asked for. It outlives an interruption: `left` gives the
    records that it still held."""

    def __init__(self, records: Iterator[Record], watch: Watch | None = None) -> None:
        self._records = records
        self._watch = watch
        self._ready: deque[Record] = deque()
        self._waiting: list[Record] = []
        self._due = 0
        """How many of those that wait are to be looked at."""
        self._ended = False

    def __next__(self) -> Record:
        if self._watch is None:
            return next(self._records)
        while not self._ready:
            if self._ended:
                raise StopIteration
            self._fill(self._watch)
        return self._ready.popleft()

    def left(self) -> Iterator[Record]:
        while self._ready or self._waiting:
            if self._ready:
                yield self._ready.popleft()
            else:
                record = self._waiting.pop(0)
                note = f"{NO_PROFILE}: interrupted before it was taken"
                yield replace(record, notes=(*record.notes, note)) if wanted(record) else record
        if isinstance(self._records, Stream):
            yield from self._records.left()

    def _fill(self, watch: Watch) -> None:
        record = next(self._records, None)
        if record is None:
            self._flush(watch, len(self._waiting))
            self._ended = True
            return
        if not self._waiting and not wanted(record):
            self._ready.append(record)
            return
        before = len(self._waiting)
        self._waiting.append(record)
        if before and _kind(record) != _kind(self._waiting[0]):
            self._flush(watch, before)
        self._due += wanted(record)
        if self._due == watch.most:
            self._flush(watch, len(self._waiting))

    def _flush(self, watch: Watch, count: int) -> None:
        """What waits leaves this list only once it is done: an interruption of the profiler must not lose it."""
        done = watch.look_at(self._waiting[:count])
        self._ready, self._waiting, self._due = deque([*self._ready, *done]), self._waiting[count:], 0


def wanted(record: Record) -> bool:
    """Of a case that is measured in several processes, the first stands for all. What takes several at once is left
    out: a profiler watches one."""
    return record.status == "ok" and record.task.settings.process == 0 and not processes(record.task.case)


def _kind(record: Record) -> tuple[str, int]:
    return record.task.backend, record.task.settings.threads


class Watch:
    """Starts a profiler on tasks."""

    def __init__(self, profiling: Profiling, name: str, say: Say) -> None:
        self._asked = profiling
        self._profiler = profiling.chosen()
        self._name = name
        self._say = say
        self._folder = Path(profiling.folder).resolve()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidParameter(f"profiles cannot be kept in {self._folder}: {error.strerror}") from None

    @property
    def most(self) -> int:
        return self._asked.batch

    def look_at(self, records: Sequence[Record]) -> list[Record]:
        """The same records; those that were measured have a profile, or a note that says why not, or both."""
        tasks = [record.task for record in records if wanted(record)]
        if not tasks:
            return list(records)
        found = iter(self._profiles(tasks))
        return [_attached(record, *next(found)) if wanted(record) else record for record in records]

    def _profiles(self, tasks: Sequence[Task]) -> list[tuple[Profile | None, str]]:
        try:
            return self._taken(tasks)
        except OSError as error:  # no such program, no room on the disk
            return self._nothing(tasks, str(error))

    def _taken(self, tasks: Sequence[Task]) -> list[tuple[Profile | None, str]]:
        items = tuple(Item(f"opmark_{i}", self._label(task), task) for i, task in enumerate(tasks))
        place = self._place()
        listed, done, said = (place.with_name(f"{place.name}.{end}") for end in ("tasks.json", "done", "said.txt"))
        backend, threads = tasks[0].backend, tasks[0].settings.threads
        listed.write_bytes(msgspec.json.format(msgspec.json.encode(Batch(backend, threads, items))))
        stem, ranges = place.with_name(f"{place.name}.{self._profiler.name}"), [item.range for item in items]
        asked = self._asked
        program = self._program(backend, listed, done)
        watching = self._profiler.command(
            Watched(program, ranges, stem, asked.bin or "", asked.args, asked.command or "")
        )
        ended = run_to_end(watching, self._environ(backend, threads), said, asked.timeout)
        outcome = Outcome(self._profiler, stem, ranges, watching, ended, _done(done))
        found = [outcome.of(name) for name in ranges]
        done.unlink(missing_ok=True)
        if not ended.trouble:
            said.unlink()
        for note in dict.fromkeys(note for _, note in found if note):
            self._say(note)
        return found

    def _nothing(self, tasks: Sequence[Task], why: str) -> list[tuple[Profile | None, str]]:
        note = f"{NO_PROFILE} by {self._profiler.name}: {why}"
        self._say(note)
        return [(None, note)] * len(tasks)

    def _place(self) -> Path:
        """The first number that is free: a run that goes on writes beside what it wrote before."""
        number = 1
        while (self._folder / f"{self._name}-{number}.tasks.json").exists():
            number += 1
        return self._folder / f"{self._name}-{number}"

    def _program(self, backend: str, listed: Path, done: Path) -> list[str]:
        counts = ["--warmup", str(self._asked.warmup), "--iterations", str(self._asked.iterations)]
        program = self._asked.program or command(find_backend(backend), "opmark.runner.batch")
        return [*program, str(listed), "--done", str(done), "--parent", str(os.getpid()), *counts]

    def _environ(self, backend: str, threads: int) -> dict[str, str]:
        info = find_backend(backend)
        more = instructions.environ(instructions.recall(backend)) if info.device == "cpu" else {}
        if self._asked.device is not None:
            more[VISIBLE_DEVICES] = self._asked.device
        return environ_for(info, threads, more)

    def _label(self, task: Task) -> str:
        if self._asked.label:
            return self._asked.label(task)
        return f"{task.case.op} {shown(task.case, find_operator(task.case.op).by_name)} {task.case.phase}"


class Outcome:
    """What came of one start of a profiler."""

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


def _done(path: Path) -> dict[str, str]:
    """Why each item failed, or nothing; those are missing that were not reached."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return {done.range: done.reason for done in (msgspec.json.decode(line, type=Done) for line in lines)}


def _attached(record: Record, profile: Profile | None, note: str) -> Record:
    profiles = (*record.profiles, profile) if profile else record.profiles
    return replace(record, profiles=profiles, notes=(*record.notes, note) if note else record.notes)
