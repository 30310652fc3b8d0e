"""Many readers of a dashboard, and a writer at the same time, each as a process of its own.

    python -m benchmarks.load read http://127.0.0.1:8000 --readers 50 --requests 1500 --seconds 30 / /coverage
    python -m benchmarks.load write many.db RUN --records 10000

Both end by themselves; the writer also if its standard input is closed. Both print their results as JSON.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from itertools import count, cycle, islice
from threading import Event, Lock, Thread
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.json import encode

from benchmarks.many_runs import records, run_of
from opmark.store.sql import open_sql

AT_ONCE, PAUSE = 10, 0.05
"""Records that the writer writes before it pauses: about 200 per second, as many as the fastest cases make."""
_SECONDS_A_REQUEST = 30


class Read(Struct):
    seconds: float
    times: list[float]
    """Seconds of each successful request, from sending it to the last byte."""
    bytes: int
    errors: dict[str, int]


class Written(Struct):
    records: int
    seconds: float


class Readers:
    """Readers that keep their connections and request the next page as soon as they have the last one."""

    def __init__(self, address: str, paths: list[str], requests: int, seconds: float) -> None:
        self._host = urlsplit(address).netloc
        self._next = islice(zip(count(), cycle(paths)), requests)
        self._deadline = time.perf_counter() + seconds
        self._lock = Lock()
        self._times: list[float] = []
        self._bytes = 0
        self._errors: Counter[str] = Counter()

    def read(self, readers: int) -> Read:
        start = time.perf_counter()
        threads = [Thread(target=self._reader) for _ in range(readers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return Read(time.perf_counter() - start, self._times, self._bytes, dict(self._errors))

    def _reader(self) -> None:
        connection = HTTPConnection(self._host, timeout=_SECONDS_A_REQUEST)
        while time.perf_counter() < self._deadline:
            with self._lock:
                _, path = next(self._next, (0, None))
            if path is None:
                break
            self._ask(connection, path)
        connection.close()

    def _ask(self, connection: HTTPConnection, path: str) -> None:
        start = time.perf_counter()
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body, status = answer.read(), answer.status
        except (OSError, HTTPException) as error:
            connection.close()  # the next request opens it again
            self._count(f"{path}: {type(error).__name__}: {error}")
            return
        if status != 200:
            self._count(f"{path}: {status}")
            return
        with self._lock:
            self._times.append(time.perf_counter() - start)
            self._bytes += len(body)

    def _count(self, error: str) -> None:
        with self._lock:
            self._errors[error] += 1


def write(db: str, number: int, limit: int) -> Written:
    """Write a run as `opmark run` does, up to a limit or until standard input is closed."""
    closed = Event()
    Thread(target=lambda: (sys.stdin.read(), closed.set()), daemon=True).start()
    made = list(records(limit))[:limit]
    run = run_of(number, len(made), "written meanwhile")
    start, done = time.perf_counter(), 0
    with closing(open_sql(db, create=True)) as store:
        store.begin(run)
        print("began", flush=True)
        while done < len(made) and not closed.wait(PAUSE):
            for record in made[done : done + AT_ONCE]:
                store.append(run.id, record)
                done += 1
    return Written(done, time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    reading = commands.add_parser("read")
    reading.add_argument("address")
    reading.add_argument("paths", nargs="+")
    reading.add_argument("--readers", type=int, default=50)
    reading.add_argument("--requests", type=int, default=1_500)
    reading.add_argument("--seconds", type=float, default=30.0)
    writing = commands.add_parser("write")
    writing.add_argument("db")
    writing.add_argument("number", type=int, help="number of the run, from 0")
    writing.add_argument("--records", type=int, default=10_000)
    arguments = parser.parse_args()
    if arguments.command == "read":
        readers = Readers(arguments.address, arguments.paths, arguments.requests, arguments.seconds)
        done: Read | Written = readers.read(arguments.readers)
    else:
        done = write(arguments.db, arguments.number, arguments.records)
    print(encode(done).decode())


if __name__ == "__main__":
    main()
