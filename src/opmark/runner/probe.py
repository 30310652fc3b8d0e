"""Finds out in child processes which backends can run here and which callables exist: an import may crash."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from opmark.hardware.host import why_no_device
from opmark.plugin import BackendInfo
from opmark.plugin.registry import backends
from opmark.plugin.registry import operator as find_operator
from opmark.runner.guests.placement import why_missing
from opmark.runner.worker_process import WorkerDied, WorkerProcess
from opmark.schema import Availability

_TIMEOUT = 120.0


def probe(infos: Iterable[BackendInfo] | None = None) -> list[Availability]:
    chosen = list(backends().values() if infos is None else infos)
    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(_probe_backend, chosen))


def _probe_backend(info: BackendInfo) -> Availability:
    missing = why_missing(info) or why_no_device(info.device)
    if missing:
        return Availability(info.name, info.summary, missing)
    with closing(WorkerProcess(info, threads=1)) as worker:
        try:
            hello = worker.hello(_TIMEOUT)
        except WorkerDied as death:
            return Availability(info.name, info.summary, death.reason)
    return Availability(info.name, info.summary, hello.unavailable, hello.environment.facts)


def missing_callables(names: Iterable[str]) -> dict[str, str]:
    """The callables that cannot be imported, with the reason. Operators of the catalogue and patterns are left out."""
    dotted = (name for name in set(names) if set(name) & set(".:") and not set(name) & set("*?["))
    callables = sorted(name for name in dotted if find_operator(name).category == "callable")
    if not callables:
        return {}
    command = [sys.executable, "-m", "opmark.runner.probe"]
    done = subprocess.run(
        command, input=json.dumps(callables), capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return dict.fromkeys(callables, f"nobody could tell whether it exists: {last[0]}")
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    from opmark.catalogue.families.callables import find_callable
    from opmark.errors import UserError

    wrong = {}
    for name in json.load(sys.stdin):
        try:
            find_callable(name)
        except UserError as error:
            wrong[name] = f"{error.message}; {error.hint}" if error.hint else error.message
        except ImportError as error:
            wrong[name] = str(error)
    print(json.dumps(wrong))


if __name__ == "__main__":
    main()
