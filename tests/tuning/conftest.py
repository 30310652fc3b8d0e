from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_fixtures import add_to_path

from opmark.plugin import registry


@pytest.fixture
def knobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The backend `knobs-cpu` is installed: its knobs have a known optimum, and its clock only counts."""
    add_to_path(Path(__file__).parents[1] / "helpers" / "knobs", monkeypatch)
    yield
    registry.forget()
