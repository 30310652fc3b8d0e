"""What was found out about machines, through the store and back."""

from __future__ import annotations

import msgspec
import pytest

from opmark.schema.machine import MEMORY, Floor, Level, NoiseFloor, Peaks
from opmark.store.protocol import Store

PEAKS = Peaks("Fast 9000", "made up", {"float32": 1e12}, [Level(MEMORY, 1e12)])
NOISE = NoiseFloor("Fast 9000", "null", 1, "2030", 4, 2, [Floor("add", "shape=[8]", 1e-6, 0.01, 0.02)])


@pytest.mark.parametrize("found", [PEAKS, NOISE], ids=["peaks", "noise"])
def test_what_is_kept_comes_back_as_it_was(any_store: Store, found: Peaks | NoiseFloor) -> None:
    any_store.keep("a kind", found.chip, "2030", found)
    assert msgspec.convert(any_store.kept("a kind", found.chip), type(found)) == found
    assert any_store.kept("another kind", found.chip) is None
    assert any_store.kept("a kind", found.chip.lower()) is None
