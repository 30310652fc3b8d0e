"""Finds out which backends can run here, each in a process of its own: an import that crashes is an answer too."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from opmark.guests.place import why_missing
from opmark.hardware.presence import why_no_device
from opmark.interfaces import BackendInfo
from opmark.registry import backends
from opmark.runner.process import WorkerDied, WorkerProcess
from opmark.schema import Availability

_TIMEOUT = 120.0


def probe(infos: Iterable[BackendInfo] | None = None) -> list[Availability]:
    chosen = list(backends().values() if infos is None else infos)
    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(_ask, chosen))


def _ask(info: BackendInfo) -> Availability:
    missing = why_missing(info) or why_no_device(info.device)
    if missing:
        return Availability(info.name, info.summary, missing)
    with closing(WorkerProcess(info, threads=1)) as worker:
        try:
            hello = worker.hello(_TIMEOUT)
        except WorkerDied as death:
            return Availability(info.name, info.summary, death.reason)
    return Availability(info.name, info.summary, hello.unavailable, hello.environment.facts)
