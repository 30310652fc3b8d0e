"""The id of a task depends on its content alone, however it is computed."""

from __future__ import annotations

import json

import pytest
from msgspec import to_builtins
from msgspec.json import decode, encode
from msgspec.structs import replace

from opmark.schema import EFFORTS, Case, Settings, Task
from opmark.schema import task as task_module
from opmark.schema.case import content_id
from opmark.schema.codec import strict_struct
from opmark.schema.task import Resources, Sampling, written_identity

SETTINGS = Settings(2, "quick", EFFORTS["quick"])
CASE = Case.of("add", {"shape": [2]}, "forward")
LATER = {"compile_only", "load", "data", "artifact", "configuration", "company", "resources"}
"""Fields that were added later: an id has them only where they are not the default."""


@pytest.mark.parametrize("backend", ["torch-cpu", 'quoted "\\', "größe\n日本\0"])
@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS,
        replace(SETTINGS, process=3, quantities=("latency", 'a "b"'), caches=("cold",)),
        replace(SETTINGS, sampling=replace(SETTINGS.sampling, max_time=1.0)),
        replace(SETTINGS, sampling=replace(SETTINGS.sampling, max_time=1)),
    ],
)
def test_it_is_the_hash_of_case_backend_implementation_and_settings(backend: str, settings: Settings) -> None:
    task = Task(CASE, backend, "é", settings)
    first = {name: value for name, value in to_builtins(settings).items() if name not in LATER}
    for _ in range(2):
        assert task.id == content_id([CASE.id, backend, "é", first])


def test_a_task_that_was_read_strictly_has_the_same_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an upload is read: each struct is of a derived class."""
    task = Task(CASE, "null", "null", replace(SETTINGS, resources=Resources(cores=(0,)), process=7))
    known = task.id
    monkeypatch.setattr(task_module, "_settings_json", {})
    assert decode(encode(task), type=strict_struct(Task)).id == known


def test_compiling_only_is_another_task() -> None:
    used = replace(SETTINGS, compile_only=True)
    written = {name: value for name, value in to_builtins(used).items() if name not in LATER - {"compile_only"}}
    assert Task(CASE, "null", "null", used).id == content_id([CASE.id, "null", "null", written])
    assert Task(CASE, "null", "null", used).id != Task(CASE, "null", "null", SETTINGS).id


def test_settings_that_are_written_otherwise_are_others() -> None:
    """1 and 1.0 are equal, but have different texts."""
    times = [replace(SETTINGS, sampling=replace(SETTINGS.sampling, max_time=value)) for value in (1, 1.0)]
    assert len({Task(CASE, "null", "null", settings).id for settings in times}) == 2


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (SETTINGS, "9508008d0c99d464"),
        (Settings(1, "standard", EFFORTS["standard"], mode="continuous", process=3), "74e0cc0f4c7e7661"),
    ],
)
def test_ids_of_stored_runs_stay_what_they_were(settings: Settings, expected: str) -> None:
    """Computed by opmark 0.8. A new field of Settings or of Sampling must not change the id of a task that does not
    use it."""
    case = Case.of("add", {"shape": [4], "dtype": "float32"}, "forward")
    backend = "torch-cpu" if settings.effort == "quick" else "torch-cuda"
    assert Task(case, backend, "torch", settings).id == expected


RESOURCES = Resources("scatter", (0, 2), clock=1200)


def test_ids_of_tasks_with_resources_stay_what_they_were() -> None:
    """Computed before resources had a number of multiprocessors."""
    case = Case.of("add", {"shape": [4], "dtype": "float32"}, "forward")
    task = Task(case, "torch-cuda", "torch", Settings(1, "standard", EFFORTS["standard"], resources=RESOURCES))
    assert task.id == "7d3c7b415df6cfca"
    used = replace(task, settings=replace(task.settings, resources=replace(RESOURCES, sms=8)))
    assert used.id != task.id


@pytest.mark.parametrize("resources", [None, RESOURCES, replace(RESOURCES, sms=8)])
def test_settings_that_were_written_have_the_identity_of_the_task(resources: Resources | None) -> None:
    task = Task(CASE, "null", "null", replace(SETTINGS, resources=resources))
    written = json.loads(encode(task.settings))
    assert content_id([CASE.id, "null", "null", written_identity(written)]) == task.id


def test_a_field_that_is_added_later_is_in_an_id_only_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    every = frozenset(to_builtins(SETTINGS.sampling))
    first = {Settings: frozenset({"threads", "effort", "sampling"}), Sampling: every - {"samples"}}
    monkeypatch.setattr("opmark.schema.task._IN_EVERY_ID", first)
    before = task_module._fields_in_id(SETTINGS)
    assert set(before) == {"threads", "effort", "sampling"}
    assert set(before["sampling"]) == every - {"samples"}
    used = task_module._fields_in_id(replace(SETTINGS, verify=False, sampling=replace(SETTINGS.sampling, samples=5)))
    assert used == {**before, "verify": False, "sampling": {**before["sampling"], "samples": 5}}
