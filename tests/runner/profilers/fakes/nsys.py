"""Stands in for `nsys profile`: runs the program, then writes a report and its SQLite export, as the real one does.

FAKE_PROFILER says what goes wrong: no-importer, no-ranges, other-schema.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

PID = 543 << 24
TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, text TEXT,
  globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
  shortName INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL,
  blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, registersPerThread INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, bytes INTEGER NOT NULL,
  copyKind INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER);
"""


def export(path: Path, ranges: list[str]) -> None:
    """Every range: a kernel of 700 ns launched inside by another thread, and a copy. One kernel before all of them."""
    with closing(sqlite3.connect(path)) as base:
        base.executescript(TABLES)
        base.execute("INSERT INTO StringIds VALUES (1, 'void work<float>(int)'), (2, 'cudaLaunchKernel'), (3, 'early')")
        kernel(base, 5, 1, 3)
        # Another process, where the same number stands for another call.
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, 0, ?, 102, 2, 0)", (PID + (9 << 24),))
        for number, name in enumerate(ranges):
            start = 10_000 * (number + 1)
            # Registered strings are kept apart from those that are not.
            text, registered = (name, None) if number % 2 else (None, 100 + number)
            base.execute("INSERT INTO StringIds VALUES (?, ?)", (100 + number, name))
            base.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, 0, ?, ?, NULL, ?, 0)",
                         (start, start + 5000, text, PID + 543, registered))  # fmt: skip
            kernel(base, start + 100, 100 + 2 * number, 1)
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, 2, 0)",
                         (start + 300, start + 310, PID + 543, 101 + 2 * number))  # fmt: skip
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 4096, 1, ?, ?)",
                         (start + 6000, start + 6400, 101 + 2 * number, PID))  # fmt: skip
        base.execute("INSERT INTO NVTX_EVENTS VALUES (1, NULL, 34, 0, 'a mark', ?, NULL, NULL, 0)", (PID + 543,))
        base.commit()


def kernel(base: sqlite3.Connection, launched: int, correlation: int, name: int) -> None:
    base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, 2, 0)",
                 (launched, launched + 10, PID + 544, correlation))  # fmt: skip
    base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, ?, ?, ?, ?, 64, 1, 1, 128, 1, 1, 32)",
                 (launched + 1000, launched + 1700, correlation, PID, name, name))  # fmt: skip


def main() -> int:
    fault = os.environ.get("FAKE_PROFILER", "")
    arguments = sys.argv[1:]
    assert arguments[0] == "profile"
    program = arguments[arguments.index(sys.executable) :]
    code = subprocess.run(program, check=False).returncode
    stem = Path(arguments[arguments.index("--output") + 1])
    if fault == "no-importer":
        stem.with_name(f"{stem.name}.qdstrm").write_bytes(b"raw")
        return code
    done = [json.loads(line) for line in Path(program[program.index("--done") + 1]).read_text().splitlines()]
    stem.with_name(f"{stem.name}.nsys-rep").write_bytes(b"report")
    path = stem.with_name(f"{stem.name}.sqlite")
    export(path, [line["range"] for line in done if not line["reason"]])
    dropped = {"no-ranges": "NVTX_EVENTS", "other-schema": "StringIds"}.get(fault)
    if dropped:
        with closing(sqlite3.connect(path)) as base:
            base.execute(f"DROP TABLE {dropped}")
    return code


if __name__ == "__main__":
    sys.exit(main())
