"""A damaged file: said, never a traceback, and nothing overwritten."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select

from opmark.errors import StoreError, UserError
from opmark.schema import Record, Run
from opmark.schema.upload import PushReply
from opmark.store.changes import count_statuses, read_marks
from opmark.store.merge import merge
from opmark.store.query import query
from opmark.store.record_codec import to_row
from opmark.store.records import record_heads, record_outlines, records_of_task
from opmark.store.runs import summaries, with_backend
from opmark.store.sql import SqlStore, open_sql
from opmark.store.tables import FINDING, RECORD
from opmark.store.transfer import UploadedRun, parts, store_upload

PAGE = 8192
COUNT = 60
TOTAL = "SELECT op, median FROM results"
FIGURES = "SELECT quantity, median, cautions FROM results"


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


def look(path: Path, said: list[str] | None = None) -> list[Record]:
    """Everything that a reader may ask for."""
    with closing(open_sql(path)) as store:
        store.say = [].append if said is None else said.append
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
        damaged, found, said = path.read_bytes(), list[Record](), list[str]()
        error = told_by(lambda found=found, said=said: found.extend(look(path, said)))
        assert error is None or str(path) in error.message, place
        assert all(whole.get(record.task.id) == record for record in found), place  # what was hit is no part of one
        assert path.read_bytes() == damaged, place
        told += error is not None or bool(said)
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


@pytest.mark.parametrize("column", ["body", "samples"])
def test_a_damaged_record_costs_itself_and_is_said_once(path: Path, make_run: Callable[..., Run], column: str) -> None:
    said: list[str] = []
    with closing(open_sql(path, create=True)) as store:
        store.say = said.append
        damage(store, column)
        assert len(store.records(make_run().id)) == COUNT - 1
        assert len(store.records(make_run().id)) == COUNT - 1
        assert len(store.figures()) == COUNT
        assert sum(part.records for part in parts(store, make_run().id, 1000, 1 << 30)) == COUNT - 1
    assert len(said) == 1
    assert str(path) in said[0]
    assert "1 damaged record left out" in said[0]
    assert "--resume" in said[0]
    assert len(query(path, TOTAL)[1]) == COUNT


@pytest.mark.parametrize("column", ["body", "figures"])
def test_a_page_shows_all_but_the_damaged_record(path: Path, make_run: Callable[..., Run], column: str) -> None:
    said: list[str] = []
    with closing(open_sql(path, create=True)) as store:
        store.say = said.append
        damage(store, column)
        assert len(record_heads(store, make_run().id)) == COUNT - 1
        assert len(record_outlines(store, make_run().id, figures=True)) == COUNT - (column == "figures")
    assert len(said) == 1


def test_a_resumed_run_replaces_its_damaged_record(
    path: Path, make_run: Callable[..., Run], make_record: Callable[..., Record]
) -> None:
    with closing(open_sql(path, create=True)) as store:
        store.say = [].append
        damage(store, "body")
        lost = make_record(COUNT // 2 - 1, [3.0] * 90)
        assert lost.task.id not in {record.task.id for record in store.records(make_run().id)}
        assert store.extend(make_run().id, [lost]) == 1
        assert lost in store.records(make_run().id)
        assert len(store.records(make_run().id)) == COUNT


def test_no_flipped_bit_of_figures_becomes_another_number(place: str, make_run: Callable[..., Run],
                                                          make_record: Callable[..., Record]) -> None:  # fmt: skip
    """On both databases: readers leave it out, and `opmark query` shows a caution in its place."""
    with closing(open_sql(place, create=True)) as store:
        store.say = [].append
        store.begin(make_run())
        store.append(make_run().id, make_record(1, [0.001, 0.002, 0.003], [1.0]))
        expected = query(place, FIGURES, as_superuser=True)[1]
        with store.reading() as connection:
            text = connection.execute(select(RECORD.c.figures)).scalar_one()
        found = 0
        for place_in_text in range(0, len(text), 3):
            for bit in (1, 2, 16):
                flipped = text[:place_in_text] + chr(ord(text[place_in_text]) ^ bit) + text[place_in_text + 1 :]
                with store.writing() as connection:
                    connection.execute(RECORD.update().values(figures=flipped))
                assert store.figures() == [], flipped
                if (answer := told_answer(place)) is not None:
                    found += 1
                    assert any(row in expected or row == (None, None, '["damaged"]') for row in answer)
                    assert answer != expected, flipped
        assert found


def told_answer(place: str) -> list[tuple[object, ...]] | None:
    """A server refuses what is no JSON."""
    try:
        return [tuple(row) for row in query(place, FIGURES, as_superuser=True)[1]]
    except UserError:
        return None


def test_figures_of_older_versions_have_no_checksum(path: Path) -> None:
    with closing(open_sql(path, create=True)) as store:
        expected = store.figures()
        with store.writing() as connection:
            for number, text in connection.execute(select(RECORD.c.number, RECORD.c.figures)).all():
                older = re.sub(r',"[0-9a-f]{8}"\]', "]", text)
                assert older != text
                connection.execute(RECORD.update().where(RECORD.c.number == number).values(figures=older))
        assert store.figures() == expected
    assert len(query(path, "SELECT * FROM results WHERE median > 0")[1]) == COUNT


@pytest.mark.parametrize(
    "figures",
    [
        pytest.param("[" * 100_000, id="deep and open"),
        pytest.param("[" * 1500 + "]" * 1500, id="deeper than SQLite reads"),
        pytest.param(b"\xff\x00", id="bytes"),
        pytest.param(5, id="a number"),
        pytest.param("[[1]]x", id="more behind its end"),
        pytest.param("{}", id="an object"),
    ],
)
def test_figures_that_are_none_cost_no_other_record_of_a_query(path: Path, figures: object) -> None:
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE record SET figures = ? WHERE number = 2", (figures,))
    rows = query(path, "SELECT median, cautions FROM results ORDER BY number")[1]
    assert len(rows) == COUNT
    assert rows[1] == (None, '["damaged"]')
    assert all(median for median, _ in rows[:1] + rows[2:])


def test_figures_that_are_no_text_cost_no_other_record_of_a_query(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE record SET figures = CAST(x'5b5bff5d5d' AS TEXT) WHERE number = 2")
    assert len(query(path, "SELECT * FROM results WHERE median > 0")[1]) == COUNT - 1


def test_a_text_with_a_damaged_byte_costs_no_other_row(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE record SET reason = CAST(x'61ff' AS TEXT) WHERE number = 2")
        raw.execute("UPDATE run SET label = CAST(x'62ff' AS TEXT)")
    with closing(open_sql(path)) as store:
        (run,) = store.runs()
        assert run.label == "b\N{REPLACEMENT CHARACTER}"
        assert [one.reason for one in record_outlines(store, run.id)][1] == "a\N{REPLACEMENT CHARACTER}"


def damage_index(path: Path, index: str, run_id: str) -> None:
    """Flip a bit in the key of a record of a run: one in the middle, if it has several."""
    with closing(sqlite3.connect(path)) as raw:
        (root,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (index,)).fetchone()
    content, key = bytearray(path.read_bytes()), run_id.encode()
    page = content[(root - 1) * PAGE : root * PAGE]
    keys = [found.start() for found in re.finditer(re.escape(key), page)]
    content[(root - 1) * PAGE + keys[len(keys) // 2] + len(key) - 6] ^= 4
    path.write_bytes(content)


INDEXES = pytest.mark.parametrize("index", ["record_outcome", "sqlite_autoindex_record_1"])


@INDEXES
def test_a_damaged_index_hides_no_record(path: Path, make_run: Callable[..., Run], index: str) -> None:
    damage_index(path, index, make_run().id)
    said: list[str] = []
    with closing(open_sql(path)) as store:
        store.say = said.append
        run = make_run().id
        records = store.records(run)
        assert len(records) == COUNT
        assert len(record_heads(store, run)) == COUNT
        assert len(record_outlines(store, run)) == COUNT
        assert len(store.figures(runs=[run, "none"])) == COUNT
        assert [found for one in records for found in records_of_task(store, run, one.task.id)] == records
        assert sum(part.records for part in parts(store, run, 1000, 1 << 30)) == COUNT
        with closing(open_sql(path.with_name("other.db"), create=True)) as other:
            assert merge(other, store).records == COUNT
    assert len(said) == 1
    assert "an index is damaged" in said[0]


@INDEXES
def test_a_damaged_index_makes_no_count_wrong(
    path: Path, make_run: Callable[..., Run], make_record: Callable[..., Record], index: str
) -> None:
    """Nor does it hide a run with a single record, or a record that is uploaded once more."""
    run, record = make_run("20310101-000000-bbbb"), make_record(COUNT)
    with closing(open_sql(path, create=True)) as store:
        store.begin(run)
        store.append(run.id, record)
    damage_index(path, index, run.id)
    said: list[str] = []
    with closing(open_sql(path)) as store:
        store.say = said.append
        runs = store.runs()
        assert {one.run.id: one.statuses for one in summaries(store, runs)} == {
            make_run().id: {"ok": COUNT}, run.id: {"ok": 1},
        }  # fmt: skip
        assert with_backend(store, record.task.backend) == {make_run().id, run.id}
        marks = read_marks(store, [one.id for one in runs])
        assert {key: mark.records for key, mark in marks.items()} == {make_run().id: COUNT, run.id: 1}
        assert count_statuses(store, run.id).statuses == {"ok": 1}
        arrived = UploadedRun(run, (), records=[to_row(run.id, record)])
        assert store_upload(store, arrived) == PushReply(run.id, False, 1, 0, 0, 1)
    assert len(said) == 1
    assert f"records of run {run.id}" in said[0]


@pytest.mark.parametrize("body", ["[" * 100_000, "{", "\xff"], ids=["deep", "cut off", "no JSON"])
def test_a_damaged_finding_costs_itself(path: Path, body: str) -> None:
    said: list[str] = []
    with closing(open_sql(path, create=True)) as store:
        store.say = said.append
        for text in ('{"x":1}', body):
            store.keep("peaks", "chip", "2020", {})
            with store.writing() as connection:
                connection.execute(FINDING.update().where(FINDING.c.body == "{}").values(body=text))
        assert store.kept("peaks", "chip") == {"x": 1}
        assert len(store.findings()) == 1
    assert "peaks of chip" in said[0]


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
