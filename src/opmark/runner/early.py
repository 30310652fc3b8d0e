"""A worker that starts while its parent still finds out what there is to do: frameworks are slow to import."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opmark.guests.place import why_missing
from opmark.interfaces import BackendInfo
from opmark.registry import backend as find_backend
from opmark.runner import instructions
from opmark.runner.process import WorkerProcess

_started: dict[tuple[str, int, str], WorkerProcess] = {}


@contextmanager
def early(backend: str, threads: int) -> Iterator[None]:
    """Its worker is started now; if nobody needs it in here, it is ended."""
    info = find_backend(backend)
    if why_missing(info):
        yield
        return
    environ = instructions.environ(instructions.recall(backend) if info.device == "cpu" else None)
    key = _key(info, threads, environ)
    _started[key] = WorkerProcess(info, threads, environ)
    try:
        yield
    finally:
        unused = _started.pop(key, None)
        if unused:
            unused.close()


def worker(info: BackendInfo, threads: int, environ: Mapping[str, str]) -> WorkerProcess:
    """The one that is waiting, or a new one."""
    return _started.pop(_key(info, threads, environ), None) or WorkerProcess(info, threads, environ)


def _key(info: BackendInfo, threads: int, environ: Mapping[str, str]) -> tuple[str, int, str]:
    return info.name, threads, repr(sorted(environ.items()))
