"""The views are a promise: docs/store.md says their columns, both databases have them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from opmark.schema import Caution, Environment, Record, Run
from opmark.store.query import query
from opmark.store.sql import SqlStore
from opmark.store.views import NAMES

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
