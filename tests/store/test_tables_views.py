"""The views are a promise: docs/store.md says their columns, both databases have them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy import text

from opmark.errors import StoreError
from opmark.schema import Caution, Environment, Record, Run
from opmark.store.query import query
from opmark.store.sql import SqlStore, open_sql
from opmark.store.tables import NAMES, create_views

PAGE = Path(__file__).parents[2] / "docs" / "store.md"
_SECTION = re.compile(r"^### (\w+)\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| (`.*?`) \|", re.MULTILINE)


def promised() -> dict[str, set[str]]:
    found = {
        name: {column for row in _ROW.findall(text) for column in re.findall(r"`(\w+)`", row)}
        for name, text in _SECTION.findall(PAGE.read_text())
    }
    found["results"] |= found["records"]
    return found


def test_the_page_tells_of_every_view() -> None:
    assert tuple(promised()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_columns_of_a_view_are_those_of_the_page(
    store: SqlStore, place: str, make_run: Callable[..., Run], name: str
) -> None:
    store.begin(make_run())
    columns, _ = query(place, f"SELECT * FROM {name}")
    assert len(columns) == len(set(columns))
    assert set(columns) == promised()[name]


def test_what_the_views_say_is_what_was_written(
    store: SqlStore, place: str, make_run: Callable[..., Run], make_record: Callable[..., Record]
) -> None:
    environment = Environment.of({"cpu": "x", "machine": "m", "python": "3"})
    store.add_environment(environment)
    store.begin(make_run("one", label="first", description="said", revision="r", session="s", command="c", tasks=3))
    store.note("one", "label", "second")
    record = make_record(1, [1.0, 4.0, 2.0], environment=environment.id, started="2030", duration=1.5, process=2)
    (measured,) = record.measurements
    cautious = type(measured)(
        **{f: getattr(measured, f) for f in measured.__struct_fields__} | {"cautions": (Caution("noisy", "m"),)}
    )
    store.append("one", type(record)(record.task, "ok", "", (cautious,), environment=environment.id, started="2030"))
    store.append("one", make_record(2, status="oom", reason="too large"))
    store.keep("peaks", "x", "2030", {"flops": 1})

    def asked(sql: str) -> list[tuple[object, ...]]:
        return query(place, sql)[1]

    assert asked("SELECT id, label, description, tasks, records, revision, session, command FROM runs") == [
        ("one", "second", "said", 3, 2, "r", "s", "c")
    ]
    assert asked("SELECT status, reason, threads, process, params, label FROM records ORDER BY number") == [
        ("ok", "", 2, 2, '{"shape":[1],"dtype":"float32"}', "second"),
        ("oom", "too large", 2, 0, '{"shape":[2],"dtype":"float32"}', "second"),
    ]
    columns = "quantity, cache, timer, calls, samples, median, low, high, cycles, cautions"
    first, second = asked(f"SELECT {columns} FROM results ORDER BY number")
    assert first[:9] == ("quantity 0", "warm", "virtual", 3, 3, 2.0, 1.0, 4.0, None)
    assert first[9] == '["noisy"]'
    assert second == (None,) * 10
    assert asked("SELECT op, params, wrt FROM cases ORDER BY params") == [
        ("add", '{"shape":[1],"dtype":"float32"}', "[]"),
        ("add", '{"shape":[2],"dtype":"float32"}', "[]"),
    ]
    assert asked("SELECT cpu, machine, python, gpu FROM environments") == [("x", "m", "3", None)]
    assert asked("SELECT kind, chip, started, body FROM findings") == [("peaks", "x", "2030", '{"flops":1}')]


def somebodys(url: str) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


@pytest.mark.parametrize("theirs", ["VIEW runs AS SELECT 42 AS answer", "TABLE run (answer integer)"])
def test_what_others_made_of_the_same_name_stays_theirs(postgres_url: str, theirs: str) -> None:
    engine = somebodys(postgres_url)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE {theirs}"))
        connection.execute(text("CREATE SCHEMA mine"))
    name = theirs.split()[1]
    with pytest.raises(StoreError, match=f"something else called {name}") as caught:
        open_sql(postgres_url, create=True)
    own = f"{postgres_url}?options=-csearch_path%3Dmine"
    assert "?options=-csearch_path%3D" in (caught.value.hint or "")
    with engine.begin() as connection:
        assert list(connection.execute(text(f"SELECT * FROM {name}")).keys()) == ["answer"]
        tables = connection.execute(text("SELECT count(*) FROM pg_class WHERE relname = 'opmark_meta'")).scalar()
    assert tables == 0
    open_sql(own, create=True).close()
    assert query(own, "SELECT count(*) FROM runs")[1] == [(0,)]
    engine.dispose()


def test_made_anew_they_keep_who_may_read_them_and_what_was_made_of_them(postgres_url: str) -> None:
    open_sql(postgres_url, create=True).close()
    engine = somebodys(postgres_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE VIEW of_mine AS SELECT id FROM runs"))
        connection.execute(text("GRANT SELECT ON runs TO pg_monitor"))
        for statement in create_views("postgresql"):
            connection.execute(text(statement))
        assert connection.execute(text("SELECT has_table_privilege('pg_monitor', 'runs', 'SELECT')")).scalar()
        assert connection.execute(text("SELECT count(*) FROM of_mine")).scalar() == 0
    engine.dispose()


def test_nul_breaks_no_view_and_a_backslash_is_left_alone(
    store: SqlStore, place: str, make_run: Callable[..., Run], make_record: Callable[..., Record]
) -> None:
    environment = Environment.of({"cpu": "x\0", "machine": r"C:\u0000", "python": "\\\0"})
    store.begin(make_run("one"))
    store.add_environment(environment)
    store.append("one", make_record(1, [1.0], environment=environment.id))
    assert query(place, "SELECT cpu, machine, python FROM environments")[1] == [("x�", r"C:\u0000", "\\�")]
