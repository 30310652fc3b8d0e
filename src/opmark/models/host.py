"""What a guest without torch knows of a model, it asks a process of its host's interpreter, which stays for its next
questions: facts, weights, reference and effects of rounding. Answers are those that other backends get.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import msgspec

from opmark.errors import OpmarkError, Unsupported, UserError, WrongResult

if TYPE_CHECKING:
    from collections.abc import Mapping

HOST = "OPMARK_HOST_PYTHON"
"""Names the interpreter that opmark runs in, in the workers of guests."""
LOADS = "OPMARK_LOADS_MODELS"
"""Set in a child process, which may load any model."""
SERVE = "serve"
"""Argument of `opmark.models.child`: answer questions until there are no more."""
_KINDS: dict[str, type[OpmarkError]] = {one.__name__: one for one in (UserError, WrongResult, Unsupported)}


class PackedArray(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    content: bytes


class ChildQuestion(msgspec.Struct, frozen=True):
    what: str
    name: str
    """The model's."""
    params: dict[str, Any]
    options: dict[str, Any]


class ChildError(msgspec.Struct, frozen=True):
    message: str
    hint: str | None
    kind: str


class ChildAnswer(msgspec.Struct, frozen=True):
    found: msgspec.Raw = msgspec.Raw(b"null")
    error: ChildError | None = None


@cache
def asks_host() -> bool:
    """Return whether this process is in a guest that has no torch."""
    return HOST in os.environ and find_spec("torch") is None


def describe_error(error: OpmarkError) -> ChildAnswer:
    kind = next((name for name, one in _KINDS.items() if isinstance(error, one)), Unsupported.__name__)
    return ChildAnswer(error=ChildError(error.message, error.hint, kind))


def read_answer(line: bytes | str, kind: Any) -> Any:
    """Return what a child process has found; raise the error that it met, or DecodeError for what is no answer."""
    answer = msgspec.json.decode(line, type=ChildAnswer)
    if answer.error is not None:
        raise _KINDS[answer.error.kind](answer.error.message, answer.error.hint)
    return msgspec.json.decode(answer.found, type=kind)


class NamedQuestion(Protocol):
    """A question about a program, as a struct that becomes a line of JSON."""

    @property
    def name(self) -> str: ...


class HostProcess:
    """A process of an interpreter with this opmark that answers questions, one after the other: of the host's
    interpreter with the guest's own opmark, which lies there too."""

    def __init__(
        self, python: str, module: str = "opmark.models.child", environ: Mapping[str, str] | None = None
    ) -> None:
        self._python = python
        inherited = {name: value for name, value in (environ or os.environ).items() if name != HOST}
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            [python, "-m", module, SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**inherited, LOADS: "1", "PYTHONPATH": str(Path(__file__).parents[2])},
        )

    def ask(self, question: NamedQuestion, within: float | None = None) -> bytes:
        """Return the line of the answer; raise Unsupported where the process has ended instead. After `within` seconds
        without an answer it is ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer, began = threading.Timer(within or 0.0, self._process.kill), time.monotonic()
        if within is not None:
            timer.start()
        try:
            self._process.stdin.write(msgspec.json.encode(question) + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        finally:
            timer.cancel()
        if line:
            return line
        _host_process.cache_clear()  # another question gets another process
        code = self._process.wait()
        self._log.seek(0)
        last = (self._log.read().decode(errors="replace").strip().splitlines() or ["it printed nothing"])[-1]
        self.close()
        if within is not None and time.monotonic() - began >= within:
            last = f"it had no answer within {within:.0f} s"
        raise Unsupported(
            f"`{question.name}`: the process of {self._python} that knows the model ended with {code}: {last}"
        )

    def close(self) -> None:
        """End the process. One that is not closed ends with the worker that asks it."""
        if self._log.closed:
            return
        # A process that died may have left a question in the pipe.
        with suppress(BrokenPipeError), self._process as process, self._log:
            process.kill()


@cache
def _host_process() -> HostProcess:
    return HostProcess(os.environ[HOST])


def ask_host(question: ChildQuestion, kind: Any) -> Any:
    """Return the answer of the host's process to a question about a model."""
    return read_answer(_host_process().ask(question), kind)


def pack(array: Any) -> PackedArray:
    return PackedArray(array.dtype.str, array.shape, array.tobytes())


def unpack(packed: PackedArray) -> Any:
    import numpy as np

    # A copy, because torch warns of arrays that cannot be written.
    return np.frombuffer(packed.content, packed.dtype).reshape(packed.shape).copy()


def unpack_all(packed: Any) -> Mapping[str, Any]:
    """Return the arrays of a question by name."""
    return {name: unpack(one) for name, one in msgspec.convert(packed, dict[str, PackedArray]).items()}
