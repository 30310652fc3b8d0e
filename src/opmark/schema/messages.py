"""What a parent and its worker processes say to each other, one JSON line per message.

The parent sends commands on the worker's standard input. The worker answers on a pipe of its own: first a `Hello`, then
replies. The ranks of a group take one command more than a single worker, `JoinGroup`. A worker whose task runs together
with others says `Ready`, and then does what it is told until `EndTask`: times are those of `time.monotonic`, which all
processes of a machine share.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from opmark.schema.record import Environment, Record, Status
from opmark.schema.task import Task


class Hello(msgspec.Struct, frozen=True):
    """The first line of a worker, sent once its framework is imported."""

    unavailable: str | None
    """Why the backend cannot run here; None where it can."""
    environment: Environment


class RunTask(msgspec.Struct, frozen=True, tag=True):
    """Command: run this task."""

    task: Task


class JoinGroup(msgspec.Struct, frozen=True, tag=True):
    """Command to a rank: leave the group that it may belong to, and join this one."""

    rank: int
    size: int
    host: str
    port: int
    """Where rank 0 listens; 0 in the command to rank 0, which chooses a port."""
    timeout: float


class Stage(msgspec.Struct, frozen=True, tag=True):
    """Says what the worker is about to do with its task. Compiling has a time-out of its own, which also holds for the
    first calls after it."""

    stage: Literal["compile", "run", "measure"]


class TaskReply(msgspec.Struct, frozen=True, tag=True):
    """The last line about a task."""

    record: Record
    usable: bool = True
    """False where the device has refused everything since: a new process is needed."""
    follows: bool = False
    """True where this rank was fine itself, and stopped because another rank was not."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The launch is prepared and verified; now the parent says when it is called."""


class Stretch(msgspec.Struct, frozen=True, tag=True):
    """Command in company: call in a loop."""

    begin: float
    """When all begin."""
    settle: float = 0.0
    """Seconds from then on that are not sampled: the others have to be at work, and caches and clocks as they stay."""
    seconds: float | None = None
    """Seconds of sampling; None: until the next command comes."""
    calls: int = 0
    """Exactly so many calls instead, which are timed as one."""
    keep: Literal["", "alone", "beside"] = ""
    """What the samples are kept as."""


class Stretched(msgspec.Struct, frozen=True, tag=True):
    begun: float
    ended: float
    per_call: float
    """Seconds of a call: the median of the samples, or the mean of the exact number of calls."""
    sample: float
    """Seconds that a sample lasts."""
    samples: int


class CheckResults(msgspec.Struct, frozen=True, tag=True):
    """Command in company: check now, while the others run, that the launch still computes."""


class ResultsChecked(msgspec.Struct, frozen=True, tag=True):
    """A result that is wrong ends the task instead."""


class EndTask(msgspec.Struct, frozen=True, tag=True):
    """Command in company: send the record."""


class Listening(msgspec.Struct, frozen=True, tag=True):
    """Rank 0 can be reached at this port, so that the others may join."""

    port: int


class Joined(msgspec.Struct, frozen=True, tag=True):
    engine: str


class JoinFailed(msgspec.Struct, frozen=True, tag=True):
    status: Status
    reason: str


CompanyCommand = Stretch | CheckResults | EndTask
Command = RunTask | JoinGroup | CompanyCommand
CompanyReply = Ready | Stretched | ResultsChecked
Reply = Stage | TaskReply | Listening | Joined | JoinFailed | CompanyReply

decode_hello = msgspec.json.Decoder(Hello).decode
decode_command = msgspec.json.Decoder(Command).decode
decode_reply = msgspec.json.Decoder(Reply).decode
encode = msgspec.json.Encoder().encode


class ProfileTask(msgspec.Struct, frozen=True):
    range: str
    """A plain word, which profilers filter by."""
    label: str
    """The name of the range for people."""
    task: Task


class ProfileBatch(msgspec.Struct, frozen=True):
    """Tasks of one backend and one number of threads."""

    backend: str
    threads: int
    items: tuple[ProfileTask, ...]


class ProfileTaskResult(msgspec.Struct, frozen=True):
    """A line of the file that says what became of the items, in their order."""

    range: str
    reason: str = ""
    """Why the item could not be run; empty if it was."""


def execution_trace_beside(trace: Path) -> Path:
    """Return the file of the execution trace that `--et` writes beside a trace."""
    return trace.with_suffix(".et.json")


# A side, one of two things that are compared: what its workers are started with, and what a worker makes of that.

VARIABLE = "OPMARK_SIDE"
"""The variable that tells a worker which side it works for."""


RESOURCES = "OPMARK_RESOURCES"
"""The variable that tells a worker what it may use of the machine: `Resources` as JSON."""


class Checkout(Struct, frozen=True):
    """Files of a git repository: what is measured has to come from there."""

    root: str
    commit: str
    """The hash of the commit, with a `+` where files had been changed since."""
    folder: str
    """The folder in which workers start: it matches the user's current folder."""
    instead_of: str = ""
    """The repository that these files are an older state of: nothing may come from there."""


class Side(Struct, frozen=True):
    name: str
    """The name that people read."""
    backend: str
    """The name of the backend, with its variant and its interpreter."""
    threads: int
    environ: dict[str, str | None] = {}
    """Variables that replace those of this process; None removes one."""
    folders: tuple[str, ...] = ()
    """Folders that are put first on the import path."""
    checkout: Checkout | None = None
    implementation: str = ""
    """The only implementation that this side has, by its label or as FILE.py:FUNCTION; empty: all of them."""

    @property
    def plain(self) -> bool:
        """Whether the workers of this side are started like any other."""
        return not (self.environ or self.folders or self.checkout)

    def over(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables of a worker of this side, where other workers have `environ`."""
        if self.plain:
            return dict(environ)
        kept = {name: value for name, value in environ.items() if name not in self.environ}
        told = {VARIABLE: json.dumps(to_builtins(asdict(self)))}
        if self.checkout:
            # Git may write two states of a file within the same second and of the same length: compiled modules that
            # were left behind would be taken for those of the other state.
            told["PYTHONDONTWRITEBYTECODE"] = "1"
        return {**kept, **{name: value for name, value in self.environ.items() if value is not None}, **told}
