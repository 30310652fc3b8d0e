"""A store with many records: speed of writing, size, and time of commands.

    python -m benchmarks.store                       a million records, on SQLite and on PostgreSQL
    python -m benchmarks.store --records 100000 --on sqlite

Records are those of the quick suite, measured here, copied to 5,000 cases per run. All runs have the same cases, each
with samples of its own.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median

from msgspec.structs import replace

from benchmarks.common import OPMARK, Bystanders, Row, Shell, markdown
from opmark.api.result import open_store
from opmark.schema import Case, Record, Run
from opmark.schema.measurement import PREEMPTED
from opmark.store.location import address
from opmark.store.protocol import Store
from opmark.store.query import query
from opmark.store.sql import open_sql

CASES = 5_000
AT_ONCE = 500
ONE_BY_ONE = 2_000
SAMPLES = 50
TIMES = 3
SPREAD = 0.005
"""Standard deviation of a case between runs."""
_SIZES = {
    "sqlite": "SELECT sum(length(samples)) FROM record",  # and the file
    "postgresql": "SELECT sum(octet_length(samples)), "
    "(SELECT sum(pg_total_relation_size(relid)) FROM pg_statio_user_tables) FROM record",
}


class Quick:
    """Records of the quick suite on this machine, from which many are made."""

    def __init__(self, shell: Shell) -> None:
        shell.run(OPMARK, "run", "--suite", "quick", "--effort", "quick", "--db", str(shell.db), codes=(0, 1))
        store = open_sql(shell.db)
        self.run = store.runs()[0]
        found = [record for record in store.records(self.run.id) if record.measurements]
        self.environments = list(store.environments({record.environment for record in found}).values())
        store.close()
        self._cases = [_copy_case(found[n % len(found)], n // len(found)) for n in range(CASES)]
        self._chance = random.Random(0)

    def records(self, started: str) -> list[Record]:
        """Return the records of one run."""
        return [self._vary(record, started) for record in self._cases]

    def _vary(self, record: Record, started: str) -> Record:
        factor = 1 + self._chance.gauss(0, SPREAD)
        measured = [replace(m, samples=[value * factor for value in m.samples]) for m in record.measurements]
        return replace(record, measurements=tuple(measured), started=started)


def _copy_case(record: Record, number: int) -> Record:
    """Return a record with a case of its own, and as many samples as `standard` effort takes at least."""
    case = record.task.case
    own = Case.of(case.op, {**case.params, "copy": number}, case.phase, case.tags, case.wrt, case.sources)
    fewer = tuple(replace(m, samples=m.samples[:SAMPLES]) for m in record.measurements)
    return replace(record, task=replace(record.task, case=own), measurements=fewer)


def rows(kind: str, db: str, shell: Shell, quick: Quick, count: int) -> Iterator[Row]:
    yield from _filling(kind, db, quick, count)
    yield _size(kind, db)
    with_db = ("--db", db)
    newest_two = f"SELECT id FROM runs WHERE records = {CASES} ORDER BY number DESC"
    newest, before = (run for (run,) in query(db, newest_two, 2)[1])
    case = next(f.case for f in open_sql(db).figures(runs=[newest]) if PREEMPTED not in f.cautions)
    commands = {
        f"`opmark show` of {CASES:,} records": ("show", newest),
        f"`opmark compare` of two runs of {CASES:,} cases": ("compare", before, newest),
        "`opmark history` of one case": ("history", "--case", case, "--all"),
        "`opmark runs`": ("runs",),
        "`opmark query`, one case over all runs": (
            "query",
            f"SELECT run_id, median FROM results WHERE case_id = '{case}'",
        ),
    }
    for what, command in commands.items():
        seconds = median(shell.time(OPMARK, *command, *with_db) for _ in range(TIMES))
        limited = command[0] in ("show", "compare", "history")
        target = "under 1 s" if limited else ""
        yield Row(f"{kind}: {what}", target, f"{seconds:.2f} s", seconds < 1 if limited else None)


def _filling(kind: str, db: str, quick: Quick, count: int) -> Iterator[Row]:
    store = open_sql(db, create=True)
    for environment in quick.environments:
        store.add_environment(environment)
    spent, runs = 0.0, max(2, count // CASES)
    for number in range(runs):
        run = _begin_run(store, quick.run, number)
        records = quick.records(run.started)
        for start in range(0, CASES, AT_ONCE):
            some = records[start : start + AT_ONCE]
            spent += _seconds(lambda run=run, some=some: store.extend(run.id, some))
    rate = runs * CASES / spent
    yield Row(f"{kind}: inserting {runs * CASES:,} records, {AT_ONCE} at once", *_at_least(kind, rate))
    store.close()
    with closing(open_store(db, create=True)) as measuring:  # as `opmark run` does
        last = _begin_run(measuring, quick.run, runs)
        records = quick.records(last.started)[:ONE_BY_ONE]
        alone = _seconds(lambda: [measuring.append(last.id, record) for record in records])
    yield Row(f"{kind}: one at a time", "", f"{ONE_BY_ONE / alone:,.0f} a second", None)


def _begin_run(store: Store, like: Run, number: int) -> Run:
    started = f"2030-{1 + number // 28 % 12:02}-{1 + number % 28:02}T00:00:00.000+00:00"
    run = replace(like, id=f"203001-{number:04}", started=started, label=f"night {number}", tasks=CASES)
    store.begin(run)
    return run


def _at_least(kind: str, rate: float) -> tuple[str, str, bool | None]:
    limited = kind == "sqlite"
    return ("at least 5,000 a second" if limited else "", f"{rate:,.0f} a second", rate >= 5_000 if limited else None)


def _size(kind: str, db: str) -> Row:
    (samples, *whole), *_ = query(db, _SIZES[kind])[1]
    where = address(db)
    size = where.stat().st_size if isinstance(where, Path) else int(whole[0])
    (records,), *_ = query(db, "SELECT count(*) FROM records")[1]
    a_record = (size - samples) / records
    text = f"{a_record:,.0f} bytes, and {samples / records:,.0f} of samples; {size / 1e9:.2f} GB"
    return Row(f"{kind}: size of a record besides its samples", "under 1,000 bytes", text, a_record < 1_000)


def _seconds(what: Callable[[], object]) -> float:
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


@contextmanager
def places(folder: Path, kinds: list[str]) -> Iterator[dict[str, str]]:
    """Yield a new store of each kind."""
    found = {"sqlite": str(folder / "store.db")}
    server = None
    if "postgresql" in kinds:
        sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
        from postgres_server import Server, programs

        installed = programs()
        if installed is None:
            raise SystemExit("no PostgreSQL server is installed here: --on sqlite")
        server = Server(installed, durable=True)
        found["postgresql"] = server.new_database()
    try:
        yield {kind: found[kind] for kind in kinds}
    finally:
        if server:
            server.remove()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--on", default="sqlite,postgresql", help="sqlite, postgresql or both. [%(default)s]")
    arguments = parser.parse_args()
    bystanders, table = Bystanders(), list[Row]()
    with tempfile.TemporaryDirectory() as name, places(Path(name), arguments.on.split(",")) as stores:
        shell = Shell(Path(name))
        quick = Quick(shell)
        for kind, db in stores.items():
            for row in rows(kind, db, shell, quick, arguments.records):
                print(f"{row.what}: {row.measured}", file=sys.stderr)
                table.append(row)
    print(markdown(table))
    print(f"\nOther processes took {bystanders.share():.0%} of the cores meanwhile.")


if __name__ == "__main__":
    main()
