"""What a parent and its worker processes say to each other, one JSON line per message.

The parent sends commands on the worker's standard input. The worker answers on a pipe of its own: first a `Hello`, then
replies. The ranks of a group take one command more than a single worker, `JoinGroup`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from opmark.schema import Environment, Record, Status, Task


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
    """Says what the worker is about to do with its task: compiling has a time-out of its own."""

    stage: Literal["compiling", "measuring"]


class TaskReply(msgspec.Struct, frozen=True, tag=True):
    """The last line about a task."""

    record: Record
    usable: bool = True
    """False where the device has refused everything since: a new process is needed."""
    follows: bool = False
    """True where this rank was fine itself, and stopped because another rank was not."""


class Listening(msgspec.Struct, frozen=True, tag=True):
    """Rank 0 can be reached at this port, so that the others may join."""

    port: int


class Joined(msgspec.Struct, frozen=True, tag=True):
    engine: str


class JoinFailed(msgspec.Struct, frozen=True, tag=True):
    status: Status
    reason: str


Command = RunTask | JoinGroup
Reply = Stage | TaskReply | Listening | Joined | JoinFailed

decode_hello = msgspec.json.Decoder(Hello).decode
decode_command = msgspec.json.Decoder(Command).decode
decode_reply = msgspec.json.Decoder(Reply).decode
encode = msgspec.json.Encoder().encode
