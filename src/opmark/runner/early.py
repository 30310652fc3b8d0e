"""A worker that starts while its parent still finds out what there is to do: frameworks are slow to import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from opmark.errors import UserError
from opmark.guests.place import why_missing
from opmark.interfaces import BackendInfo
from opmark.registry import backend as find_backend
from opmark.runner import instructions
from opmark.runner.process import WorkerProcess
from opmark.runner.sides import Side

_Key = tuple[str, int, str, str]

_started: dict[_Key, WorkerProcess] = {}


@contextmanager
def early(backend: str, threads: int, side: Side | None = None) -> Iterator[None]:
    """Its worker is started now; if nobody needs it in here, it is ended."""
    info = find_backend(backend)
    environ = instructions.environ(instructions.recall(backend) if info.device == "cpu" else None)
    key = _key(info, threads, environ, side)
    try:
        if not why_missing(info):
            _started[key] = WorkerProcess(info, threads, environ, side)
    except UserError:
        pass  # its interpreter is broken: whoever needs the worker will be told
    try:
        yield
    finally:
        unused = _started.pop(key, None)
        if unused:
            unused.close()


@contextmanager
def together(wanted: Iterable[tuple[str, int, Side | None]]) -> Iterator[None]:
    """Several at the same time."""
    with ExitStack() as stack:
        for backend, threads, side in wanted:
            stack.enter_context(early(backend, threads, side))
        yield


def worker(info: BackendInfo, threads: int, environ: Mapping[str, str], side: Side | None = None) -> WorkerProcess:
    """The one that is waiting, or a new one."""
    waiting = _started.pop(_key(info, threads, environ, side), None)
    return waiting or WorkerProcess(info, threads, environ, side)


def _key(info: BackendInfo, threads: int, environ: Mapping[str, str], side: Side | None) -> _Key:
    return info.name, threads, repr(sorted(environ.items())), repr(side)
