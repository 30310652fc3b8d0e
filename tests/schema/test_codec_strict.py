"""Structs that refuse unknown fields."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from made_up import record

from opmark.schema import Record
from opmark.schema.codec import strict_struct
from opmark.schema.upload import RecordLine, RecordLineIdParts


def test_what_is_known_is_read_as_it_was() -> None:
    made = msgspec.json.encode(record(1))
    found = msgspec.json.decode(made, type=strict_struct(Record))
    assert isinstance(found, Record)
    assert msgspec.json.encode(found) == made
    assert found.task.id == record(1).task.id


@pytest.mark.parametrize(
    "path", [(), ("task",), ("task", "case"), ("task", "settings", "sampling"), ("measurements", 0), ("cost",),
             ("measurements", 0, "conditions")],
)  # fmt: skip
def test_what_is_unknown_is_refused_at_any_depth(path: tuple[Any, ...]) -> None:
    data = json.loads(msgspec.json.encode(record(1)))
    inner = data
    for step in path:
        inner = inner[step]
    inner["unheard_of"] = 1
    assert msgspec.json.decode(json.dumps(data), type=Record) == record(1)
    with pytest.raises(msgspec.ValidationError, match="unheard_of"):
        msgspec.json.decode(json.dumps(data), type=strict_struct(Record))


def test_the_id_of_a_task_as_it_is_written_is_that_of_the_task() -> None:
    made = record(1, process=3)
    line = msgspec.json.encode(RecordLine("run", "task", made))
    assert msgspec.json.decode(line, type=RecordLineIdParts).record.task_id == made.task.id
