"""What is looked for in a store."""

from __future__ import annotations

import pytest

from opmark.errors import UnknownName, UserError
from opmark.schema import Run
from opmark.schema.machine import Floor, NoiseFloor
from opmark.store.memory import MemoryStore
from opmark.store.runs import find_run, noise_of, noise_under


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    for name, label in (("20300101-000000-aaaa", "mine"), ("20300202-000000-bbbb", "")):
        made.begin(Run(name, "2030", "plan", 1, label))
    return made


@pytest.mark.parametrize(
    ("name", "end"), [(None, "bbbb"), ("20300101-000000-aaaa", "aaaa"), ("203001", "aaaa"), ("mine", "aaaa")]
)
def test_a_run_goes_by_its_id_the_beginning_of_it_or_its_label(store: MemoryStore, name: str | None, end: str) -> None:
    assert find_run(store, name).id.endswith(end)


def test_a_beginning_of_several_and_a_name_of_none_are_mistakes(store: MemoryStore) -> None:
    with pytest.raises(UserError, match="begins 2 runs"):
        find_run(store, "2030")
    with pytest.raises(UnknownName, match="no run named `mien`"):
        find_run(store, "mien")
    with pytest.raises(UserError, match="holds no run yet"):
        find_run(MemoryStore(), None)


def test_the_noise_of_a_backend_is_that_of_its_chip_and_threads(store: MemoryStore) -> None:
    facts = {"cpu": "a processor", "threads": 2, "backend": "torch-cpu"}
    floor = NoiseFloor("a processor", "torch-cpu", 2, "2030", 10, 10, [Floor("exp", "", 1.0, 0.1, 0.1)])
    store.keep("noise", noise_under("torch-cpu", facts), "2030", floor)
    assert noise_of(store, facts) == floor
    assert noise_of(store, {**facts, "threads": 1}) is None
    assert noise_of(store, {**facts, "backend": "numpy-cpu"}) is None
