"""A store that the first version of opmark made: read as it is, upgraded by its first writer, never changed in content.

data/version_1.sqlite is such a store, data/version_1.json what that version itself read from it.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opmark import api
from opmark.schema import Case, Record, Run
from opmark.schema.noise import Floor, NoiseFloor
from opmark.schema.peaks import MEMORY, Level, Peaks, kept_under
from opmark.store.sql import SqlStore
from opmark.store.sqlite import Sqlite
from opmark.store.tables import METADATA, VERSION

DATA = Path(__file__).parent / "data"
PEAKS = Peaks("Fast 9000", "made up", {"float32": 1e12}, [Level(MEMORY, 1e12)])
NOISE = NoiseFloor("Fast 9000", "null", 1, "2030", 4, 2, [Floor("add", "shape=[8]", 1e-6, 0.01, 0.02)])

MakeRun = Callable[..., Run]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copy(DATA / "version_1.sqlite", tmp_path / "store.db"))


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    return dict(json.loads((DATA / "version_1.json").read_text()))


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


def plain(records: list[Record]) -> Any:
    return json.loads(msgspec.json.encode(records))


def assert_unchanged(store: SqlStore, known: dict[str, Any]) -> None:
    run = store.runs()[-1]
    records = store.records(run.id)
    assert holds(msgspec.to_builtins(run), known["run"])
    assert holds(plain(records), known["records"])
    environments = store.environments({record.environment for record in records})
    assert msgspec.to_builtins(environments) == known["environments"]


def test_the_file_is_of_the_first_version(path: Path) -> None:
    assert layout(path) == ("1", {"opmark_meta", "run", "environment", "record"})
    assert VERSION > 1


def test_a_reader_reads_it_all_and_leaves_it_as_it_is(path: Path, known: dict[str, Any]) -> None:
    before = path.read_bytes()
    with closing(SqlStore(Sqlite(path), create=False)) as reader:
        assert_unchanged(reader, known)
        assert reader.kept("peaks", "Fast 9000") is None
    assert path.read_bytes() == before
    assert [item.name for item in path.parent.iterdir() if item.name.startswith(path.name)] == [path.name]


def test_its_first_writer_upgrades_it_and_its_records_are_the_same(path: Path, known: dict[str, Any]) -> None:
    with closing(SqlStore(Sqlite(path), create=True)) as writer:
        assert_unchanged(writer, known)
    assert layout(path) == (str(VERSION), {table.name for table in METADATA.sorted_tables})
    with closing(SqlStore(Sqlite(path), create=False)) as reader:
        assert_unchanged(reader, known)


def test_the_writer_that_upgrades_it_can_keep_and_look_up_at_once(path: Path) -> None:
    with closing(SqlStore(Sqlite(path), create=True)) as writer:
        assert writer.kept("peaks", "Fast 9000") is None
        writer.keep("peaks", "Fast 9000", "2030", {"flops": 1})
        assert writer.kept("peaks", "Fast 9000") == {"flops": 1}


def test_an_upgrade_happens_once(path: Path, make_run: MakeRun, known: dict[str, Any]) -> None:
    for number in range(2):
        with closing(SqlStore(Sqlite(path), create=True)) as writer:
            writer.begin(make_run(f"run {number}"))
            writer.keep("noise", "Fast 9000", "2030", number)
    with closing(SqlStore(Sqlite(path), create=False)) as reader:
        assert [run.id for run in reader.runs()] == ["run 1", "run 0", known["run"]["id"]]
        assert reader.kept("noise", "Fast 9000") == 1
        assert_unchanged(reader, known)


def test_writers_that_upgrade_it_at_once_do_not_hinder_each_other(path: Path, known: dict[str, Any]) -> None:
    start, failures = threading.Barrier(4), []

    def write(number: int) -> None:
        start.wait()
        try:
            with closing(SqlStore(Sqlite(path), create=True)) as writer:
                writer.keep("peaks", f"chip {number}", "2030", number)
        except Exception as error:  # noqa: BLE001 - told below, in the thread of the test
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with closing(SqlStore(Sqlite(path), create=False)) as reader:
        assert [reader.kept("peaks", f"chip {number}") for number in range(4)] == [0, 1, 2, 3]
        assert_unchanged(reader, known)


def test_a_reader_that_was_there_first_goes_on_reading(path: Path, known: dict[str, Any]) -> None:
    with closing(SqlStore(Sqlite(path), create=False)) as reader:
        with closing(SqlStore(Sqlite(path), create=True)) as writer:
            writer.keep("peaks", "Fast 9000", "2030", 1)
        assert_unchanged(reader, known)


def test_a_case_of_old_is_still_the_same_case(known: dict[str, Any]) -> None:
    """So that a run of today can be held against one of then."""
    for record in known["records"]:
        case = record["task"]["case"]
        assert Case.of(case["op"], case["params"], case["phase"]).id == case["id"]


def test_a_run_of_old_is_shown(path: Path, known: dict[str, Any]) -> None:
    before = path.read_bytes()
    result = api.show("old", db=path)
    rows = result.rows()
    assert [row["case"] for row in rows] == [record["task"]["case"]["id"] for record in known["records"]]
    assert {row["headline"][0] for row in rows} == {"latency"}
    assert {row["metrics"]["of_measured_peak"] for row in rows} == {None}
    assert path.read_bytes() == before


def test_peaks_that_are_kept_later_are_held_against_a_run_of_old(path: Path, known: dict[str, Any]) -> None:
    (environment,) = known["environments"].values()
    with closing(SqlStore(Sqlite(path), create=True)) as writer:
        writer.keep("peaks", kept_under(environment["facts"]), "2030", PEAKS)
    rows = api.show("old", db=path).rows()
    forward = [row["metrics"]["of_measured_peak"] for row in rows if row["phase"] == "forward"]
    assert forward
    assert all(share["bound"] == MEMORY and 0 < share["share"] < 1 for share in forward)


@pytest.mark.parametrize("found", [PEAKS, NOISE], ids=["peaks", "noise"])
def test_what_is_kept_comes_back_as_it_was(tmp_path: Path, found: Peaks | NoiseFloor) -> None:
    path = tmp_path / "new.db"
    with closing(SqlStore(Sqlite(path), create=True)) as writer:
        writer.keep("a kind", found.chip, "2030", found)
    with closing(SqlStore(Sqlite(path), create=False)) as reader:
        assert msgspec.convert(reader.kept("a kind", found.chip), type(found)) == found
        assert reader.kept("another kind", found.chip) is None
        assert reader.kept("a kind", found.chip.lower()) is None
