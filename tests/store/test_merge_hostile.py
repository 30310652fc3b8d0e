"""A store of a stranger costs what is wrong in it, and neither memory nor time without end."""

from __future__ import annotations

import sqlite3
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opmark.errors import StoreError
from opmark.schema import Environment, Record, Run
from opmark.store.limits import LIMITS
from opmark.store.merge import Merged, merge
from opmark.store.query import query
from opmark.store.record_codec import DICTIONARY, plain_body
from opmark.store.sql import SqlStore, open_sql

MakeRecord = Callable[..., Record]
MakeRun = Callable[..., Run]
CPU = Environment.of({"cpu": "x"})
COUNT = 5
SECOND = "number = 2"


@pytest.fixture
def theirs(tmp_path: Path, make_run: MakeRun, make_record: MakeRecord) -> Path:
    path = tmp_path / "theirs.db"
    with closing(open_sql(path, create=True)) as store:
        store.add_environment(CPU)
        store.begin(make_run(label="theirs", description="said"))
        store.extend(make_run().id, [make_record(n, [1.0 + n, 2.0], environment=CPU.id) for n in range(COUNT)])
    return path


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[SqlStore]:
    with closing(open_sql(tmp_path / "ours.db", create=True)) as store:
        yield store


def change(path: Path, sql: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql, values)


def read(path: Path, what: str) -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT {what} FROM record WHERE {SECOND}").fetchone()[0]


def packed(plain: bytes, times: int = 1) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 13, zdict=DICTIONARY)
    return b"\x03" + b"".join([packer.compress(plain) for _ in range(times)]) + packer.flush()


def merged(ours: SqlStore, theirs: Path) -> Merged:
    with closing(open_sql(theirs)) as source:
        return merge(ours, source)


def with_body(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the content of the second record."""
    body = msgspec.json.decode(plain_body(read(path, "body")))
    edit(body)
    change(path, f"UPDATE record SET body = ? WHERE {SECOND}", packed(msgspec.json.encode(body)))


HOSTILE: dict[str, Callable[[Path], None]] = {
    "a bomb for a body": lambda path: change(
        path, f"UPDATE record SET body = ? WHERE {SECOND}", packed(b" " * (1 << 20), 256)
    ),
    "a bomb for samples": lambda path: change(
        path, f"UPDATE record SET samples = ? WHERE {SECOND}", b"\x02" + zlib.compress(bytes(256 << 20), 9)
    ),
    "brackets": lambda path: change(
        path, f"UPDATE record SET body = ? WHERE {SECOND}", packed(b'{"task":' + b"[" * 100_000)
    ),
    "deep parameters": lambda path: with_body(
        path, lambda body: body["task"]["case"]["params"].update(x=msgspec.json.decode("[" * 50 + "]" * 50))
    ),
    "a large value": lambda path: change(
        path, f"UPDATE record SET reason = CAST(zeroblob({LIMITS.line}) AS TEXT) WHERE {SECOND}"
    ),
    "a value of another type": lambda path: change(path, f"UPDATE record SET body = 7 WHERE {SECOND}"),
    "another task": lambda path: change(path, f"UPDATE record SET task_id = 'x' WHERE {SECOND}"),
    "another case": lambda path: with_body(path, lambda body: body["task"]["case"].update(op="exp")),
    "a status that there is not": lambda path: with_body(path, lambda body: body.update(status="great")),
    "no date": lambda path: with_body(path, lambda body: body.update(started="yesterday")),
    "an environment of another form": lambda path: with_body(path, lambda body: body.update(environment="../x")),
    "a flipped bit": lambda path: change(
        path, f"UPDATE record SET samples = substr(samples, 1, 20) || x'00' || substr(samples, 22) WHERE {SECOND}"
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_record_costs_itself(ours: SqlStore, theirs: Path, make_run: MakeRun, what: str) -> None:
    with closing(open_sql(theirs)) as source:
        whole = source.records(make_run().id)
    HOSTILE[what](theirs)
    tracemalloc.start()
    done = merged(ours, theirs)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8 * LIMITS.line
    assert (len(done.new), done.records, len(done.refused)) == (1, COUNT - 1, 1)
    assert done.refused[0].startswith("record 2: ")
    assert ours.records(make_run().id) == [whole[0], *whole[2:]]
    assert ours.runs()[0].description == "said"


def test_columns_are_made_from_the_content(ours: SqlStore, theirs: Path, make_run: MakeRun) -> None:
    with closing(open_sql(theirs)) as source:
        expected = source.figures()
    change(theirs, "UPDATE record SET op = 'evil', status = 'wrong', backend = 'x', threads = 'many', figures = '[]'")
    assert merged(ours, theirs).refused == []
    assert ours.figures() == expected


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("started", "9"),
        ("tasks", "many"),
        ("label", "x" * 2000),
        ("command", "x" * (LIMITS.text + 1)),
        ("command", "x" * (LIMITS.line + 1)),
        ("plan", b"x"),
    ],
)
def test_a_hostile_run_costs_itself(
    ours: SqlStore, theirs: Path, make_run: MakeRun, make_record: MakeRecord, column: str, value: Any
) -> None:
    with closing(open_sql(theirs, create=True)) as source:
        source.begin(make_run("another"))
        source.append("another", make_record(1))
    change(theirs, f"UPDATE run SET {column} = ? WHERE number = 1", value)
    done = merged(ours, theirs)
    assert (done.new, done.records) == (["another"], 1)
    assert [reason.startswith("run 1: ") for reason in done.refused] == [True]


def test_a_note_is_no_longer_than_that_of_an_upload(ours: SqlStore, theirs: Path) -> None:
    change(theirs, "UPDATE run_note SET text = ?", "x" * (LIMITS.text + 1))
    done = merged(ours, theirs)
    assert (done.new, done.records) == ([], 0)
    assert done.refused == [f"run 1: expected texts of at most {LIMITS.text} characters, got one of {LIMITS.text + 1}"]


def test_deep_facts_are_refused_whatever_their_name(ours: SqlStore, theirs: Path) -> None:
    deep = Environment.of({"samples": msgspec.json.decode("[" * 900 + "]" * 900)})
    change(
        theirs, "INSERT INTO environment (id, facts) VALUES (?, ?)", deep.id, msgspec.json.encode(deep.facts).decode()
    )
    with_body(theirs, lambda body: body.update(environment=deep.id))
    done = merged(ours, theirs)
    assert (done.records, len(done.refused)) == (COUNT - 1, 1)
    assert "too deep in each other" in done.refused[0]
    assert ours.environments([deep.id]) == {}


def test_an_environment_is_what_its_id_says(ours: SqlStore, theirs: Path) -> None:
    """Otherwise the facts of a stranger would become those of a machine that has not measured yet."""
    change(theirs, """UPDATE environment SET facts = '{"cpu":"y"}'""")
    done = merged(ours, theirs)
    assert (done.records, len(done.refused)) == (0, COUNT)
    assert ours.environments([CPU.id]) == {}


@pytest.mark.parametrize(
    ("kind", "started", "body"),
    [
        ("peaks", "9999-01-01T00:00:00.000+00:00", '{"chip":"x","source":"x","flops":{},"levels":[]}'),
        ("peaks", "2020-01-01T00:00:00.000+00:00", '{"chip":"x","source":"x","flops":{"float32":1e30},"levels":[]}'),
        ("peaks", "2020-01-01T00:00:00.000+00:00", "[" * 100_000),
        ("other", "2020-01-01T00:00:00.000+00:00", "{}"),
    ],
)
def test_a_hostile_finding_costs_itself(ours: SqlStore, theirs: Path, kind: str, started: str, body: str) -> None:
    change(theirs, "INSERT INTO finding (kind, chip, started, body) VALUES (?, 'x', ?, ?)", kind, started, body)
    done = merged(ours, theirs)
    assert (done.records, done.findings) == (COUNT, 0)
    assert [reason.startswith("finding 1: ") for reason in done.refused] == [True]


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT"


def test_a_table_that_is_an_endless_view_is_refused(ours: SqlStore, theirs: Path) -> None:
    change(theirs, "ALTER TABLE finding RENAME TO real_finding")
    change(theirs, f"CREATE VIEW finding AS {ENDLESS} x AS number, '' AS kind, '' chip, '' started, '{{}}' body FROM c")
    with pytest.raises(StoreError, match="expected a table `finding`, got a view"):
        merged(ours, theirs)


def test_a_query_does_not_use_the_views_of_the_file(theirs: Path) -> None:
    change(theirs, "DROP VIEW results")
    change(theirs, f"CREATE VIEW results AS {ENDLESS} x AS median FROM c")
    assert len(query(theirs, "SELECT median FROM results", seconds=20)[1]) == COUNT


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parent / "data").glob("version_*.sqlite")), ids=lambda p: p.stem
)
def test_stores_of_older_versions_come_whole(ours: SqlStore, path: Path) -> None:
    """Every record; the findings of these stores are made up, and of the future."""
    with closing(open_sql(path)) as source:
        done = merge(ours, source)
        assert [reason for reason in done.refused if not reason.startswith("finding ")] == []
        assert done.records == sum(len(source.records(run.id)) for run in source.runs()) > 0
