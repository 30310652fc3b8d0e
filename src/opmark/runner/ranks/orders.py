"""What a parent and the process of a rank say to each other, a JSON line each."""

from __future__ import annotations

import msgspec

from opmark.runner.worker import Hello
from opmark.schema import Record, Status, Task


class Join(msgspec.Struct, frozen=True, tag=True):
    """Leave the world that there may be, and join this one."""

    rank: int
    size: int
    host: str
    port: int
    timeout: float


class Do(msgspec.Struct, frozen=True, tag=True):
    task: Task


class Listening(msgspec.Struct, frozen=True, tag=True):
    """Rank 0 can be reached; the others may come."""

    port: int


class Joined(msgspec.Struct, frozen=True, tag=True):
    engine: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The world could not be joined."""

    status: Status
    reason: str


class Done(msgspec.Struct, frozen=True, tag=True):
    """What became of a task on this rank."""

    record: Record
    usable: bool = True
    """False: its device refuses everything since; a new process is needed."""
    follows: bool = False
    """It was fine itself, and stopped because another rank was not."""


Word = Listening | Joined | Failed | Done

orders = msgspec.json.Decoder(Join | Do)
words = msgspec.json.Decoder(Word)
hello = msgspec.json.Decoder(Hello)
encode = msgspec.json.Encoder().encode
