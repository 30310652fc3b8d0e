"""A damaged file: said, never a traceback, and nothing overwritten."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from opmark.errors import StoreError
from opmark.schema import Record, Run
from opmark.store.query import query
from opmark.store.sql import SqlStore, open_sql
from opmark.store.tables import RECORD

PAGE = 8192
COUNT = 60
TOTAL = "SELECT op, median FROM results"


@pytest.fixture
def path(tmp_path: Path, make_run: Callable[..., Run], make_record: Callable[..., Record]) -> Path:
    path = tmp_path / "store.db"
    with closing(open_sql(path, create=True)) as store:
        store.begin(make_run())
        store.extend(make_run().id, [make_record(n, [1.0 / (n + 1)] * 90) for n in range(COUNT)])
    return path


def flip(path: Path, at: int, count: int = 16) -> None:
    content = bytearray(path.read_bytes())
    for place in range(at, min(at + count, len(content))):
        content[place] ^= 0xFF
    path.write_bytes(content)


def look(path: Path) -> list[Record]:
    """Everything that a reader may ask for."""
    with closing(open_sql(path)) as store:
        found = [record for run in store.runs() for record in store.records(run.id)]
        store.figures()
        store.cases([record.task.case.id for record in found])
        store.findings()
        query(path, TOTAL)
        return found


def told_by(tried: Callable[[], object]) -> StoreError | None:
    """Any other error is a defect."""
    try:
        tried()
    except StoreError as error:
        return error
    return None


def test_wherever_it_is_damaged_a_reader_is_told_or_reads_what_was_written(path: Path) -> None:
    whole = {record.task.id: record for record in look(path)}
    content, told = path.read_bytes(), 0
    places = [0, 20, 100, *range(PAGE, len(content), PAGE), *range(PAGE // 2, len(content), 3 * PAGE // 2 + 7)]
    for place in places:
        path.write_bytes(content)
        flip(path, place)
        damaged, found = path.read_bytes(), list[Record]()
        error = told_by(lambda found=found: found.extend(look(path)))
        assert error is None or str(path) in error.message, place
        assert all(whole.get(record.task.id) == record for record in found), place  # what was hit is no part of one
        assert path.read_bytes() == damaged, place
        told += error is not None
    assert told > len(places) / 3


@pytest.mark.parametrize("at", [0, 18, PAGE, 3 * PAGE], ids=["magic", "header", "second page", "another page"])
def test_who_wants_to_write_is_told_or_does_no_harm(path: Path, make_run: Callable[..., Run], at: int) -> None:
    flip(path, at, 60)
    damaged = path.read_bytes()

    def write() -> None:
        with closing(open_sql(path, create=True)) as store:
            store.begin(make_run("another"))

    if error := told_by(write):
        assert str(path) in error.message
        assert path.read_bytes() == damaged


def test_a_record_that_is_damaged_is_said_with_what_still_can_be_read(path: Path, make_run: Callable[..., Run]) -> None:
    with closing(open_sql(path, create=True)) as store:
        damage(store, "body")
        with pytest.raises(StoreError, match="damaged") as caught:
            store.records(make_run().id)
        assert "query" in (caught.value.hint or "")
        assert len(store.figures()) == COUNT
    assert len(query(path, TOTAL)[1]) == COUNT


@pytest.mark.parametrize("column", ["body", "samples", "figures"])
def test_damage_inside_of_a_value_is_told(path: Path, make_run: Callable[..., Run], column: str) -> None:
    with closing(open_sql(path, create=True)) as store:
        damage(store, column)
        with pytest.raises(StoreError, match="damaged"):
            (store.records(make_run().id), store.figures())


def damage(store: SqlStore, column: str) -> None:
    """One bit of a value in the middle of the file."""
    with store.writing() as connection:
        which = RECORD.c.number == COUNT // 2
        value = connection.execute(RECORD.select().where(which)).mappings().one()[column]
        text = isinstance(value, str)
        content = bytearray(value.encode() if text else value)
        content[len(content) // 2] ^= 0x40 if not text else ord(content.decode()[len(content) // 2]) ^ ord("!")
        new = content.decode() if text else bytes(content)
        connection.execute(RECORD.update().where(which).values({column: new}))


@pytest.mark.parametrize("part", [0, 24, 0.3, 0.9], ids=["header", "first frame", "middle", "near the end"])
def test_a_damaged_log_costs_no_more_than_what_it_held(
    path: Path, make_run: Callable[..., Run], make_record: Callable[..., Record], part: float
) -> None:
    """What was written last stands in it until it is moved to the file: up to the damage it is read, whole."""
    first = [make_record(n, [1.0 / (n + 1)] * 90) for n in range(COUNT)]
    with closing(open_sql(path, create=True)) as store:
        for n in range(COUNT, COUNT + 20):
            store.append(make_run().id, make_record(n, [2.0] * 90))
        log = path.with_name(f"{path.name}-wal")
        copied = path.with_name("copied.db")
        shutil.copy(path, copied)  # as it is while the writer lives: the log beside it
        shutil.copy(log, copied.with_name(f"{copied.name}-wal"))
    log = copied.with_name(f"{copied.name}-wal")
    flip(log, int(part if part >= 1 else part * log.stat().st_size))
    found = look(copied)
    assert found[:COUNT] == first
    assert [record.task.case.params["shape"][0] for record in found] == list(range(len(found)))
    assert COUNT <= len(found) < COUNT + 20


@pytest.mark.parametrize("damage", [b"", b"\0" * PAGE], ids=["cut off", "zeroed"])
def test_a_file_that_ends_behind_its_header_is_an_error_with_a_hint(path: Path, damage: bytes) -> None:
    path.write_bytes(path.read_bytes()[:PAGE] + damage)
    with pytest.raises(StoreError) as caught:
        look(path)
    assert str(path) in caught.value.message
