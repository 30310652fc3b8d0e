"""Stores that older versions of opmark made: read as they are, upgraded by their first writer, nothing lost.

data/version_N.sqlite is such a store, data/version_N.json what that version itself read from it. The last is of the
present version, for those to come.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opmark.api.result import open_store
from opmark.api.show import show
from opmark.errors import StoreError
from opmark.schema import Case, Run
from opmark.schema.machine import MEMORY, Level, Peaks, findings_key
from opmark.store import tables as upgrading
from opmark.store.merge import merge
from opmark.store.query import query
from opmark.store.record_codec import figures_of
from opmark.store.sql import SqlStore, open_sql
from opmark.store.tables import METADATA, NAMES, VERSION

DATA = Path(__file__).parent / "data"
PEAKS = Peaks("Fast 9000", "made up", {"float32": 1e12}, [Level(MEMORY, 1e12)])

MakeRun = Callable[..., Run]


@pytest.fixture(params=[1, 2, 3, 4])
def old(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def path(tmp_path: Path, old: int) -> Path:
    return Path(shutil.copy(DATA / f"version_{old}.sqlite", tmp_path / "store.db"))


@pytest.fixture
def known(old: int) -> dict[str, Any]:
    """Runs, oldest first; the records of each; environments; findings; results of tunings."""
    found = dict(json.loads((DATA / f"version_{old}.json").read_text()))
    if "run" in found:  # the first version's had one
        found |= {"runs": [found["run"]], "records": {found["run"]["id"]: found["records"]}, "findings": []}
    return found


older = pytest.mark.parametrize("old", range(1, VERSION), indirect=True)


def layout(path: Path) -> tuple[str, set[str]]:
    """(version, tables)"""
    with closing(sqlite3.connect(path)) as raw:
        (version,) = raw.execute("SELECT value FROM opmark_meta WHERE key = 'version'").fetchone()
        return version, {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def holds(new: Any, old: Any) -> bool:
    """Whether all that was known is there still, as it was; there may be more."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and holds(new[key], value) for key, value in old.items())
    if isinstance(old, list):
        return isinstance(new, list) and len(new) == len(old) and all(map(holds, new, old))
    return type(new) is type(old) and bool(new == old)


def plain(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


def assert_unchanged(store: SqlStore, known: dict[str, Any]) -> None:
    runs = {run.id: run for run in store.runs()}
    for run in known["runs"]:
        records = store.records(run["id"])
        assert holds(plain(runs[run["id"]]), run)
        assert holds(plain(records), known["records"][run["id"]])
        assert store.figures(runs=[run["id"]]) == [f for record in records for f in figures_of(run["id"], record)]
        cases = {record.task.case.id: record.task.case for record in records}
        for key, case in store.cases(cases).items():
            assert (case.op, plain(case.params)) == (cases[key].op, plain(cases[key].params))
        assert set(store.cases(cases)) == set(cases)
    assert plain(store.environments(known["environments"])) == known["environments"]
    for kind, chip, started, body in known["findings"]:
        assert [kind, chip, started, body] in [[f.kind, f.chip, f.started, f.body] for f in store.findings()]
    assert plain(store.tuned()) == known.get("tuned", [])


def test_the_file_is_of_its_version(path: Path, old: int) -> None:
    assert layout(path)[0] == str(old)
    assert old <= VERSION


def test_there_is_a_file_of_every_version() -> None:
    assert {path.name for path in DATA.glob("*.sqlite")} == {f"version_{n}.sqlite" for n in range(1, VERSION + 1)}


def test_a_reader_reads_it_all_and_leaves_it_as_it_is(path: Path, known: dict[str, Any]) -> None:
    before = path.read_bytes()
    with closing(open_sql(path)) as reader:
        assert_unchanged(reader, known)
        assert reader.kept("peaks", "Another") is None
    assert path.read_bytes() == before
    assert [item.name for item in path.parent.iterdir() if item.name.startswith(path.name)] == [path.name]


@older
def test_who_reads_an_old_store_cannot_write_to_its_copy(path: Path) -> None:
    with closing(open_sql(path)) as reader, pytest.raises(StoreError, match="for reading"):
        reader.keep("peaks", "x", "2030", 1)


def test_its_first_writer_upgrades_it_and_its_records_are_the_same(path: Path, known: dict[str, Any]) -> None:
    with closing(open_sql(path, create=True)) as writer:
        assert_unchanged(writer, known)
    assert layout(path) == (str(VERSION), {table.name for table in METADATA.sorted_tables})
    with closing(open_sql(path)) as reader:
        assert_unchanged(reader, known)


@pytest.mark.parametrize("upgraded", [True, False], ids=["upgraded", "as it is"])
def test_the_views_tell_of_what_it_holds(path: Path, known: dict[str, Any], upgraded: bool) -> None:
    if upgraded:
        open_sql(path, create=True).close()
    records = [record for some in known["records"].values() for record in some]
    counts = {name: query(path, f"SELECT count(*) FROM {name}")[1][0][0] for name in NAMES}
    assert (counts["runs"], counts["records"]) == (len(known["runs"]), len(records))
    assert (counts["environments"], counts["findings"]) == (len(known["environments"]), len(known["findings"]))
    _, rows = query(path, "SELECT case_id, status, backend, threads, op FROM records ORDER BY number")
    fields = [(r["task"]["case"], r["status"], r["task"]["backend"], r["task"]["settings"]["threads"]) for r in records]
    assert rows == [(case["id"], status, backend, n, case["op"]) for case, status, backend, n in fields]
    _, medians = query(path, "SELECT median FROM results WHERE median IS NOT NULL ORDER BY number")
    measured = [m["samples"] for r in records for m in r["measurements"]]
    assert [m for (m,) in medians] == [pytest.approx(_median(samples)) for samples in measured]


def _median(values: list[float]) -> float:
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def test_the_writer_that_upgrades_it_can_keep_and_look_up_at_once(path: Path) -> None:
    with closing(open_sql(path, create=True)) as writer:
        assert writer.kept("peaks", "Another") is None
        writer.keep("peaks", "Another", "2030", {"flops": 1})
        assert writer.kept("peaks", "Another") == {"flops": 1}


def test_an_upgrade_happens_once(path: Path, make_run: MakeRun, known: dict[str, Any]) -> None:
    for number in range(2):
        with closing(open_sql(path, create=True)) as writer:
            writer.begin(make_run(f"run {number}"))
            writer.keep("noise", "Another", f"203{number}", number)
    with closing(open_sql(path)) as reader:
        assert {run.id for run in reader.runs()} == {"run 1", "run 0", *(run["id"] for run in known["runs"])}
        assert reader.kept("noise", "Another") == 1
        assert_unchanged(reader, known)


def test_writers_that_upgrade_it_at_once_do_not_hinder_each_other(path: Path, known: dict[str, Any]) -> None:
    start, failures = threading.Barrier(4), []

    def write(number: int) -> None:
        start.wait()
        try:
            with closing(open_sql(path, create=True)) as writer:
                writer.keep("peaks", f"chip {number}", "2030", number)
        except Exception as error:  # noqa: BLE001 - told below, in the thread of the test
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with closing(open_sql(path)) as reader:
        assert [reader.kept("peaks", f"chip {number}") for number in range(4)] == [0, 1, 2, 3]
        assert_unchanged(reader, known)


@pytest.mark.parametrize(
    ("old", "step"),
    [*((old, step) for old in (1, 2) for step in ("_add_columns", "_pack_records", "_make_views")), (3, "_make_views")],
    indirect=["old"],
)
def test_an_upgrade_that_fails_leaves_it_as_it_was(
    path: Path, known: dict[str, Any], old: int, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, before = getattr(upgrading, step), layout(path)

    def half(*arguments: Any) -> None:
        whole(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(upgrading, step, half)
        with pytest.raises(KeyboardInterrupt):
            open_sql(path, create=True)
    assert layout(path) == before == (str(old), before[1])
    with closing(open_sql(path, create=True)) as writer:
        assert_unchanged(writer, known)
    assert layout(path)[0] == str(VERSION)


KILLED = """
import os, signal, sys
from opmark.store import tables
from opmark.store.sql import open_sql

tables._make_views = lambda connection: os.kill(os.getpid(), signal.SIGKILL)
open_sql(sys.argv[1], create=True)
"""


@older
@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")
def test_a_process_that_is_killed_in_the_middle_leaves_it_as_it_was(
    path: Path, known: dict[str, Any], old: int
) -> None:
    before = layout(path)
    made = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=60)
    assert made.returncode == -9
    assert layout(path) == before
    with closing(open_sql(path, create=True)) as writer:
        assert_unchanged(writer, known)


def test_a_reader_that_was_there_first_goes_on_reading(path: Path, known: dict[str, Any]) -> None:
    with closing(open_sql(path)) as reader:
        with closing(open_sql(path, create=True)) as writer:
            writer.keep("peaks", "Another", "2030", 1)
        assert_unchanged(reader, known)


def test_a_case_of_old_is_still_the_same_case(known: dict[str, Any]) -> None:
    """So that a run of today can be held against one of then."""
    for record in (record for some in known["records"].values() for record in some):
        case = record["task"]["case"]
        wrt = tuple(case.get("wrt", ()))
        assert Case.of(case["op"], case["params"], case["phase"], wrt=wrt).id == case["id"]


@pytest.mark.parametrize("old", [1], indirect=True)
def test_a_run_of_old_is_shown(path: Path, known: dict[str, Any]) -> None:
    before = path.read_bytes()
    rows = show("old", db=path).rows()
    (records,) = known["records"].values()
    assert [row["case"] for row in rows] == [record["task"]["case"]["id"] for record in records]
    assert {row["headline"][0] for row in rows} == {"latency"}
    assert {row["metrics"]["of_measured_peak"] for row in rows} == {None}
    assert path.read_bytes() == before


@pytest.mark.parametrize("old", [1], indirect=True)
def test_peaks_that_are_kept_later_are_held_against_a_run_of_old(path: Path, known: dict[str, Any]) -> None:
    (environment,) = known["environments"].values()
    with closing(open_sql(path, create=True)) as writer:
        writer.keep("peaks", findings_key(environment["facts"]), "2030", PEAKS)
    rows = show("old", db=path).rows()
    forward = [row["metrics"]["of_measured_peak"] for row in rows if row["phase"] == "forward"]
    assert forward
    assert all(share["bound"] == MEMORY and 0 < share["share"] < 1 for share in forward)


@pytest.mark.parametrize("old", [3], indirect=True)
def test_a_server_with_a_store_of_that_version_is_upgraded_and_written(
    postgres_url: str, known: dict[str, Any], make_run: MakeRun
) -> None:
    """From what `pg_dump` wrote of it. A reader must not change a server, and gets no copy."""
    import psycopg

    with psycopg.connect(postgres_url) as connection:
        connection.execute((DATA / "version_3.postgresql.sql").read_bytes())
    with pytest.raises(StoreError, match="version 3"):
        open_sql(postgres_url)
    with closing(open_sql(postgres_url, create=True)) as writer:
        writer.begin(make_run("new"))
        assert_unchanged(writer, known)


def test_what_an_old_writer_adds_after_the_upgrade_is_read_and_merged(tmp_path: Path) -> None:
    """It began before, and knows nothing of it."""
    old = tmp_path / "old.db"
    shutil.copy(DATA / "version_2.sqlite", old)
    with closing(sqlite3.connect(old)) as raw:
        columns = [name for _, name, *_ in raw.execute("PRAGMA table_info(record)") if name != "number"]
        row = raw.execute(f"SELECT {', '.join(columns)} FROM record").fetchone()
    added = dict(zip(columns, row, strict=True)) | {"task_id": "0123456789abcdef"}
    with closing(open_sql(old, create=True)) as store:
        before = store.records(added["run_id"])
    with closing(sqlite3.connect(old)) as raw:
        marks = ", ".join("?" * len(columns))
        raw.execute(f"INSERT INTO record ({', '.join(columns)}) VALUES ({marks})", list(added.values()))
        raw.commit()
    with closing(open_sql(old)) as store:
        assert store.records(added["run_id"]) == [*before, before[0]]
    with closing(open_sql(tmp_path / "new.db", create=True)) as into, closing(open_sql(old)) as source:
        merge(into, source)
        assert len(into.records(added["run_id"])) == len(before) + 1


@older
def test_who_reads_an_old_store_is_told_how_to_upgrade_it(path: Path) -> None:
    said: list[str] = []
    open_store(path, say=said.append).close()
    assert len(said) == 1
    assert "opmark runs --upgrade" in said[0]
    open_store(path, create=True, say=said.append).close()
    open_store(path, say=said.append).close()
    assert len(said) == 1


@older
def test_an_upgraded_store_has_an_identity(path: Path) -> None:
    with closing(open_sql(path, create=True)) as store:
        assert store.identity
        with closing(open_sql(path, create=True)) as again:
            assert again.identity == store.identity


@older
def test_a_copy_that_cannot_be_made_is_an_error_with_a_hint(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = sqlite3.connect

    def fail(where: Any, *more: Any, **named: Any) -> sqlite3.Connection:
        if "opmark-scratch-store-" in str(where):
            raise sqlite3.OperationalError("database or disk is full")
        return really(where, *more, **named)

    monkeypatch.setattr(sqlite3, "connect", fail)
    with pytest.raises(StoreError, match="no copy") as caught:
        open_sql(path)
    assert caught.value.hint
