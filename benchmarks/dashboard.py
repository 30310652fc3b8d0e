"""The dashboard over a large store, and the report of 2,000 cases: at the server, in a browser, under load.

    python -m benchmarks.dashboard                         200 runs of 10,000 cases: minutes, and gigabytes of disk
    python -m benchmarks.dashboard --runs 10 --cases 1000  a quick look
    python -m benchmarks.dashboard --db many.db            a store that `python -m benchmarks.many_runs` made

The server is `opmark serve`, as a process. A page is cold if it is the first one that a new server is asked for.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from msgspec.json import decode

from benchmarks.browser import browsing, chromium
from benchmarks.common import OPMARK, Bystanders, Row, Shell, markdown
from benchmarks.load import Read, Written
from benchmarks.many_runs import fill_many, run_of
from benchmarks.served import Served
from opmark.api.items import view_stored_run
from opmark.store.query import query
from opmark.store.runs import find_run
from opmark.store.sql import open_sql

if TYPE_CHECKING:
    from playwright.sync_api import Browser

RUNS, CASES = 200, 10_000
REPORTED = 2_000
READERS, REQUESTS, SECONDS = 50, 1_500, 30
TIMES, PAINTS = 7, 3
AT_SERVER, TO_PAINT = 0.5, 2.0
REPORT_BYTES = 6_000_000
_PAINTED = """() => new Promise((done) => new PerformanceObserver((list, observer) => {
  const [entry] = list.getEntriesByName("first-contentful-paint");
  if (entry) { observer.disconnect(); done(entry.startTime / 1000); }
}).observe({ type: "paint", buffered: true }))"""
_LOADED = """() => performance.getEntriesByType("navigation")[0].loadEventEnd / 1000"""

Paths = dict[str, str]


def rows(shell: Shell, runs: int = RUNS, cases: int = CASES, db: Path | None = None) -> list[Row]:
    found: list[Row] = []
    for row in _rows(shell, runs, cases, db):
        print(f"{row.what}: {row.measured}", file=sys.stderr)
        found.append(row)
    return found


def _rows(shell: Shell, runs: int, cases: int, db: Path | None) -> Iterator[Row]:
    if db is None:
        db = shell.folder / "many.db"
        start = time.perf_counter()
        fill_many(db, runs, cases)
        yield Row(
            f"a store of {runs} runs of {cases:,} cases", "", _describe_store(db, time.perf_counter() - start), None
        )
    paths = paths_of(db)
    yield from at_server(db, paths, shell)
    yield from under_load(db, paths, shell)
    if chromium() is None:
        print("no chromium is installed here: pages are not measured in a browser", file=sys.stderr)
        return
    with browsing() as browser:
        yield from in_browser(db, paths, shell, browser)
        yield from report(shell, browser)


def _describe_store(db: Path, seconds: float) -> str:
    ((count,),) = query(db, "SELECT count(*) FROM records")[1]
    return f"{count:,} records, {db.stat().st_size / 1e9:.2f} GB; filled in {seconds:.0f} s"


def paths_of(db: Path) -> Paths:
    """Return the addresses of all pages about the newest run, by their name in the table."""
    with closing(open_sql(db)) as store:
        newest, before, *_ = (run.id for run in store.runs() if run.label == "nightly")
        items = view_stored_run(store, find_run(store, newest)).rows
    item = next(item for item in items if item.op == "matmul" and item.timings)
    run = f"/runs/{newest}"
    return {
        "runs": "/",
        "runs, filtered": "/?" + urlencode({"q": "nightly", "backend": "jax-cpu"}),
        "run": run,
        "run, filtered and sorted": f"{run}?" + urlencode({"op": "softmax", "dtype": "float16", "sort": "-time"}),
        "figures of a run": f"{run}/figures",
        "roofline": f"{run}/roofline",
        "one task with its samples": f"{run}/items/{item.key}",
        "case with its history": f"/cases/{item.case}",
        "compare": "/compare?" + urlencode({"a": before, "b": newest}),
        "coverage": "/coverage",
        "search": "/search?" + urlencode({"q": "softmax"}),
        "progress (JSON)": f"/api{run}/progress",
        "run (JSON)": f"/api{run}",
    }


def at_server(db: Path, paths: Paths, shell: Shell) -> Iterator[Row]:
    for what, path in paths.items():
        with Served(db, environ=shell.environ) as served:
            _ask(served.address, "/assets/style.css")  # it is up
            first, size = _ask(served.address, path)
            warm = median(_ask(served.address, path)[0] for _ in range(TIMES))
        times = f"{1000 * first:.0f} ms cold, {1000 * warm:.0f} ms warm; {size / 1000:,.0f} kB"
        yield Row(f"{what}, at the server", "under 500 ms", times, max(first, warm) < AT_SERVER)


def _ask(address: str, path: str) -> tuple[float, int]:
    """Return the seconds until the last byte, and the number of bytes."""
    start = time.perf_counter()
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"GET {path}: {answer.status}\n{body[:500]!r}")
    return time.perf_counter() - start, len(body)


def in_browser(db: Path, paths: Paths, shell: Shell, browser: Browser) -> Iterator[Row]:
    with Served(db, environ=shell.environ) as served:
        for what, path in paths.items():
            if not path.startswith("/api"):
                times = [_open_page(browser, served.address + path)[0] for _ in range(PAINTS)]
                paints = f"{1000 * times[0]:.0f} ms at first, {1000 * median(times):.0f} ms as a median"
                yield Row(f"{what}, first paint in chromium", "under 2 s", paints, max(times) < TO_PAINT)


def _open_page(browser: Browser, address: str) -> tuple[float, float]:
    """Return the seconds to the first paint and until all is loaded, in a browser with an empty cache."""
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(address)
        return page.evaluate(_PAINTED), page.evaluate(_LOADED)


def under_load(db: Path, paths: Paths, shell: Shell) -> Iterator[Row]:
    """Measure many readers in one process beside a writer in another one; both have limits."""
    ((number,),) = query(db, "SELECT count(*) FROM runs")[1]
    with Served(db, environ=shell.environ) as served, _module("write", str(db), str(number), shell=shell) as writer:
        assert writer.stdin
        assert writer.stdout
        writer.stdout.readline()  # it began
        bounds = ("--readers", str(READERS), "--requests", str(REQUESTS), "--seconds", str(SECONDS))
        with _module("read", served.address, *paths.values(), *bounds, shell=shell) as readers:
            read = decode(readers.communicate()[0], type=Read)
        written = decode(writer.communicate()[0], type=Written)
    yield from _load_rows(read)
    run = run_of(number, 0).id
    ((stored,),) = query(db, f"SELECT count(*) FROM records WHERE run_id = '{run}'")[1]
    counts = f"{stored:,} of {written.records:,}, {written.records / written.seconds:.0f} a second"
    yield Row("records written meanwhile by another process", "all of them stored", counts, stored == written.records)


def _module(*command: str, shell: Shell) -> subprocess.Popen[str]:
    whole = [sys.executable, "-m", "benchmarks.load", *command]
    return subprocess.Popen(
        whole,
        env=shell.environ,
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _load_rows(read: Read) -> Iterator[Row]:
    errors = sum(read.errors.values())
    examples = "; ".join(f"{count} x {error}" for error, count in list(read.errors.items())[:5])
    what = f"{READERS} readers at once over a mix of these pages, while a run is being written"
    answers = f"{len(read.times):,} answers, {errors} errors {examples}".strip()
    yield Row(what, "no error", answers, errors == 0 and bool(read.times))
    if len(read.times) > 1:
        cuts = quantiles(read.times, n=20)
        rate = f"{len(read.times) / read.seconds:.0f} a second, {read.bytes / read.seconds / 1e6:.1f} MB a second"
        spread = f"median {_ms(median(read.times))}, 95 % within {_ms(cuts[-1])}, slowest {_ms(max(read.times))}"
        yield Row("answers to them", "", f"{rate}; {spread}", None)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms"


def report(shell: Shell, browser: Browser) -> Iterator[Row]:
    """Measure the report of one run of 2,000 cases, in a store of its own."""
    db, file = shell.folder / "reported.db", shell.folder / "report.html"
    (run,) = fill_many(db, 1, REPORTED)
    seconds = min(shell.time(OPMARK, "report", run.id, "--db", str(db), "-o", str(file)) for _ in range(2))
    size = file.stat().st_size
    yield Row(f"`opmark report` of {REPORTED:,} cases", "", f"{seconds:.1f} s", None)
    yield Row("its file", "under 6 MB", f"{size / 1e6:.2f} MB", size < REPORT_BYTES)
    opened = [_open_page(browser, file.as_uri()) for _ in range(PAINTS)]
    paint, loaded = (median(values) for values in zip(*opened, strict=True))
    times = f"{paint:.2f} s to the first paint, {loaded:.2f} s until loaded"
    yield Row("opening it in chromium", "2 s", times, loaded < TO_PAINT)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--db", type=Path, help="a store of benchmarks.many_runs; a run is written into it")
    arguments = parser.parse_args()
    bystanders = Bystanders()
    with tempfile.TemporaryDirectory() as folder:
        table = rows(Shell(Path(folder)), arguments.runs, arguments.cases, arguments.db)
    print(markdown(table))
    print(f"\nOther processes took {bystanders.share():.0%} of the cores meanwhile.")


if __name__ == "__main__":
    main()
