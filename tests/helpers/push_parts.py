"""What tests of uploads share: payloads made of a stored run, changed, and sealed again."""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from pathlib import Path
from typing import Any

from made_up import BOX, made_run, record

from opmark.schema import Record, Run
from opmark.schema.machine import Level, Peaks, findings_key
from opmark.store.sql import SqlStore, open_sql
from opmark.store.transfer import gzipped, parts, payload

PEAKS = Peaks("AMD EPYC", "calibrate", {"float32": 1e11}, [Level("memory", 2e10)])
STRANGE = [1e-3, float("nan"), float("inf"), -0.0, 1e-30]
"""Samples that JSON has no words for."""
FOUND = "2020-01-01T00:00:00.000+00:00"
"""When the peaks were: not in the future, from which none is taken."""


def fill(place: str | Path, run: Run | None = None, records: list[Record] | None = None) -> Run:
    run = run or made_run(1, "one", tasks=3, command="opmark run x")
    with closing(open_sql(place, create=True)) as store:
        store.add_environment(BOX)
        store.begin(run)
        failed = record(3, status="oom", reason="no room", environment="")
        store.extend(run.id, records if records is not None else [record(1, samples=STRANGE), record(2), failed])
        store.keep("peaks", findings_key(BOX.facts), FOUND, PEAKS)
    return run


def lines_of(place: str | Path, run_id: str) -> list[bytes]:
    with closing(open_sql(place)) as store:
        (part,) = parts(store, run_id, 1000, 1 << 30)
        return list(payload(store, part))


def packed(place: str | Path, run_id: str) -> bytes:
    return gzipped(iter(lines_of(place, run_id)))


def sealed(lines: list[bytes]) -> bytes:
    """With a right sum, as somebody who invents things would send it."""
    before = b"".join(lines)
    seal = {"lines": len(lines), "sha256": hashlib.sha256(before).hexdigest()}
    return before + json.dumps(seal, separators=(",", ":")).encode() + b"\n"


def line(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def everything(place: str | Path) -> list[Any]:
    """All that a store holds, for a comparison; NaN as text, since it is not equal to itself."""
    if not Path(place).exists() and "://" not in str(place):
        return []
    with closing(open_sql(place)) as store:
        return [*_runs(store), repr(store.findings())]


def _runs(store: SqlStore) -> list[Any]:
    return [(run, [(one.task.id, repr(one)) for one in store.records(run.id)]) for run in store.runs()]
