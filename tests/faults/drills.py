"""One function per drill: it does a run, lets something go wrong at a random moment, and counts what was lost.

A record is confirmed once `opmark run --json` has printed it. A confirmed record that is not in the store at the end,
or is another one there, is lost. A drill is survived if nothing is lost, no traceback is shown and every command ends.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.helpers.postgres_server import Server, programs

from opmark.cli.app import COMMANDS
from opmark.errors import StoreError
from opmark.schema import Record
from opmark.store.sql import open_sql

TASKS = 24
TIMEOUT = 120.0
"""Seconds after which a command is taken for one that hangs."""
SIZES = f"n={','.join(map(str, range(1, TASKS + 1)))}"
RUN = ["run", "fault", "-p", "kind=none", "-p", SIZES, "--backend", "numpy-cpu",
       "--effort", "quick", "--samples", "5", "--warmup", "2", "--retries", "0", "--json"]  # fmt: skip


@dataclass
class Outcome:
    confirmed: int = 0
    """Records that were printed before the fault, or were there before."""
    lost: list[str] = field(default_factory=list)
    """Records that are missing or false at the end."""
    problems: list[str] = field(default_factory=list)
    """Tracebacks, commands that hang, wrong exit codes."""

    @property
    def survived(self) -> bool:
        return not self.lost and not self.problems


@dataclass
class Site:
    """Where one drill happens: a folder with everything that opmark reads and writes."""

    folder: Path
    rng: random.Random
    outcome: Outcome = field(default_factory=Outcome)

    def environ(self) -> dict[str, str]:
        places = {name: str(self.folder / name) for name in ("HOME", "TMPDIR", "XDG_STATE_HOME", "XDG_DATA_HOME")}
        for place in places.values():
            Path(place).mkdir(parents=True, exist_ok=True)
        return {**os.environ, **places, "OPMARK_DB": str(self.folder / "default.db"), "COLUMNS": "120"}

    def start(self, *arguments: str, limit: int | None = None) -> subprocess.Popen[str]:
        """Start a command; `limit` is the largest file in bytes that it may write."""
        process = subprocess.Popen(
            [sys.executable, "-m", "opmark.cli.main", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            cwd=self.folder, env=self.environ(), start_new_session=True,
        )  # fmt: skip
        if limit is not None:  # it has not yet imported anything
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        return process

    def finish(self, process: subprocess.Popen[str], codes: Sequence[int] = (0, 1)) -> tuple[list[str], str]:
        """Wait for the end of a command, and return its lines and what it said."""
        try:
            out, err = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            self.outcome.problems.append(f"no end within {TIMEOUT:g} s: {process.args}")
        if "Traceback" in err:
            self.outcome.problems.append(f"a traceback: {process.args}: {err[-1500:]}")
        elif process.returncode not in codes and process.returncode >= 0:
            self.outcome.problems.append(f"exit code {process.returncode}: {process.args}: {err[-300:]}")
        return [line for line in out.splitlines() if line.endswith("}")], err

    def check_stored(self, db: str, confirmed: Sequence[str]) -> None:
        """Compare what was printed with what `opmark show` prints of all runs; each has to be there once."""
        self.outcome.confirmed += len(confirmed)
        try:
            with closing(open_sql(db)) as store:
                runs = [run.id for run in store.runs()]
                tasks = [(run, record.task.id) for run in runs for record in store.records(run)]
        except StoreError as error:
            self.outcome.lost += [f"the store cannot be read: {error.message}"] * bool(confirmed)
            return
        lines: list[str] = []
        for run in runs:
            lines += self.finish(self.start("show", run, "--json", "--db", db))[0]
        there = [_numbers(line) for line in lines]
        self.outcome.lost += [line[:200] for line in confirmed if _numbers(line) not in there]
        if len(tasks) != len(set(tasks)):
            self.outcome.problems.append("a task is stored twice")


def _numbers(line: str) -> tuple[Any, ...]:
    row = json.loads(line)
    return row["case"], row["status"], json.dumps(row.get("measurements", row.get("latency")), sort_keys=True)


def kill(site: Site) -> None:
    """SIGKILL at a random moment: to the command, or to one of its workers. Then the run is resumed."""
    db = str(site.folder / "store.db")
    process = site.start(*RUN, "--db", db)
    lines = _read_some(process, site.rng.randrange(TASKS))
    time.sleep(site.rng.uniform(0, 0.3))
    victims = [process.pid]
    if site.rng.random() < 0.3:
        with suppress(psutil.NoSuchProcess):
            victims = [child.pid for child in psutil.Process(process.pid).children()] or victims
    with suppress(ProcessLookupError):
        os.kill(site.rng.choice(victims), signal.SIGKILL)
    lines += site.finish(process)[0]
    resumed, err = site.finish(site.start(*RUN, "--db", db, "--resume"), (0, 1, 2))
    if not resumed:  # nothing had been stored
        resumed, err = site.finish(site.start(*RUN, "--db", db))
    if len(resumed) != TASKS:
        site.outcome.problems.append(f"resumed, the run has {len(resumed)} records of {TASKS}: {err[-500:]}")
    site.check_stored(db, [*lines, *resumed])


def full_disk(site: Site) -> None:
    """A disk that becomes full: a small tmpfs where it can be mounted, otherwise a limit on the size of files."""
    small = site.folder / "small"
    small.mkdir()
    mounted = _mount(small, site.rng.choice((160, 224, 288, 352, 416)))
    db = str(small / "store.db")
    try:
        limit = None if mounted else site.rng.choice((160, 224, 288, 352, 416)) << 10
        lines, _ = site.finish(site.start(*RUN, "--db", db, limit=limit), (0, 1, 2))
        if mounted:
            subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        if lines:
            site.finish(site.start(*RUN[:5], "n=99", *RUN[6:], "--db", db))  # whatever writes merges the journals
        site.check_stored(db, lines)
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(small)], check=True)


def _mount(place: Path, kib: int) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(place)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def stopped_server(site: Site) -> None:
    """PostgreSQL stops at a random moment, as by `pg_ctl stop` or by loss of power, and comes back during or after the
    run."""
    folder = programs()
    assert folder is not None
    server = Server(folder, durable=True)
    try:
        db = server.new_database()
        process = site.start(*RUN, "--db", db)
        lines = _read_some(process, site.rng.randrange(1, TASKS))
        server.stop(site.rng.choice(("immediate", "fast")))
        back_early = site.rng.random() < 0.5
        if back_early:
            time.sleep(site.rng.uniform(0, 2))
            server.start()
        rest, err = site.finish(process)
        if not back_early:
            if "kept in the journal" not in err or process.returncode != 1:
                site.outcome.problems.append(f"the last line is not true: {err[-500:]}")
            server.start()
        site.finish(site.start(*RUN[:5], "n=99", *RUN[6:], "--db", db))  # whatever writes merges the journals
        site.check_stored(db, lines + rest)
    finally:
        server.remove()


def damage(site: Site) -> None:
    """Random bytes of a store are changed, or its end is cut off. What is read afterwards is what was written, and a
    reader is told what is missing."""
    from tests.helpers.made_up import made_run, record, store

    path = site.folder / "store.db"
    store(path, made_run(1, "one"), [record(n) for n in range(1, 60)])
    with closing(open_sql(path)) as opened:
        whole = {one.task.id: one for one in opened.records(made_run(1).id)}
    content = bytearray(path.read_bytes())
    for _ in range(site.rng.choice((1, 1, 1, 8, 64))):
        content[site.rng.randrange(len(content))] ^= 1 << site.rng.randrange(8)
    if site.rng.random() < 0.2:
        del content[site.rng.randrange(len(content)) :]
    path.write_bytes(content)
    said: list[str] = []
    found: list[Record] = []
    try:
        with closing(open_sql(path)) as opened:
            opened.say = said.append
            found = [one for run in opened.runs() for one in opened.records(run.id)]
    except StoreError as error:
        said.append(error.message)
    site.outcome.confirmed += len(whole)
    site.outcome.lost += [f"false: {one.task.id}" for one in found if whole.get(one.task.id) != one]
    if len(found) < len(whole) and not said:
        site.outcome.lost.append(f"{len(whole) - len(found)} records are missing, and nothing is said")
    command = site.rng.choice((
        ("show", "--json"), ("query", "SELECT * FROM results"), ("runs",), ("rank",), ("history",),
        ("compare", "one", "one"), ("report", "-o", str(site.folder / "r.html")),
        ("merge", str(path), "--db", str(site.folder / "other.db")),
    ))  # fmt: skip
    where = [] if "--db" in command else ["--db", str(path)]
    site.finish(site.start(*command, *where), (0, 1, 2))


WORDS = ("", "-", "--", "0", "-1", "1e400", "nan", "exp", "add,,", "[", "]", "{}", "a=b=c", "x" * 300, "\udcff", "é\n",
         "*", "%s", "../..", "no/such.yaml", "postgresql://", "shape=[1", "dtype=float99", "NULL", "torch-cpu,", "@",
         "~", "1,2", "--db", "--json", "--help", "-p", "-w", "--backend", "--effort", "--label", "--quantity",
         "--cache", "--phase", "--size", "--threads", "--timeout", "--format", "-f", "-o", "--limit")  # fmt: skip
HARMLESS = ("list", "describe", "show", "runs", "report", "compare", "rank", "fit", "history", "coverage", "import",
            "export", "query", "merge", "prune", "run")  # fmt: skip
"""Commands that neither serve, send nor install anything; `run` gets --dry-run."""


def fuzz(site: Site) -> None:
    """A random command line: an answer, or an error with a message, and never a traceback."""
    command = site.rng.choice([name for name in HARMLESS if name in COMMANDS])
    words = [site.rng.choice(WORDS) for _ in range(site.rng.randrange(6))]
    if command == "run":
        words.append("--dry-run")
    lines = [os.fsdecode(os.fsencode(word)) for word in words]
    site.finish(site.start(command, *lines), (0, 1, 2))


def _read_some(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(count)]
    return [line.rstrip("\n") for line in lines if line.endswith("}\n")]


DRILLS: dict[str, Callable[[Site], None]] = {
    "kill": kill,
    "full disk": full_disk,
    "stopped server": stopped_server,
    "damaged file": damage,
    "command line": fuzz,
}


@contextmanager
def drill_site(folder: Path, seed: str) -> Iterator[Site]:
    folder.mkdir(parents=True)
    yield Site(folder, random.Random(seed))
