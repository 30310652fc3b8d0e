"""Which implementation a backend takes, where several packages have one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opmark.plugin import Implementation, registry


def _labels(backend: str) -> list[str]:
    return [one.label for one in registry.implementations(registry.operator("softmax"), registry.backend(backend))]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Implementation, ...]]:
    """What plug-ins have registered."""
    registered: dict[str, tuple[Implementation, ...]] = {}
    monkeypatch.setattr(registry, "implementation_tables", lambda frameworks=None: registered)
    return registered


OTHER = Implementation("numpy", lambda p, x: lambda: x, source="mine")


def test_one_for_the_backend_itself_takes_the_place_of_its_frameworks(
    table: dict[str, tuple[Implementation, ...]],
) -> None:
    table["softmax"] = (replace(OTHER, framework="numpy-cpu", name="fast"),)
    assert _labels("numpy-cpu") == ["fast"]
    assert _labels("torch-cpu") == ["torch"]


def test_another_one_of_a_framework_runs_beside_it_under_a_name_of_its_own(
    table: dict[str, tuple[Implementation, ...]],
) -> None:
    table["softmax"] = (OTHER, replace(OTHER, name="fast"))
    assert _labels("numpy-cpu") == ["numpy", "numpy-mine", "fast"]
