"""opmark doctor"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from opmark.plugin.registry import backends

pytestmark = pytest.mark.machine

Command = Callable[..., Any]


def test_the_doctor_looks_at_this_machine(opmark: Command) -> None:
    """With everything that is installed: the only test that asks every backend."""
    done = opmark("doctor", "--json")
    assert done.code == 0
    (diagnosis,) = done.objects
    assert diagnosis.keys() == {"host", "backends", "findings", "next_steps"}
    assert len(diagnosis["next_steps"]) == 3
    assert diagnosis["host"].keys() >= {"cpu", "cores", "memory", "system", "python", "governor"}
    found = {backend["name"]: backend for backend in diagnosis["backends"]}
    assert found.keys() == backends().keys()
    assert found["null"]["reason"] is None
    assert found["numpy-cpu"]["reason"] is None
    assert all(backend["reason"] is None or backend["reason"] for backend in found.values())
    names = [finding["name"] for finding in diagnosis["findings"]]
    assert {"load", "other processes", "steal", "governor", "swap", "clock"} <= set(names)
    assert ("instructions" in names) is (found["torch-cpu"]["reason"] is None)
    assert [f for f in diagnosis["findings"] if not f["ok"] and not f["hint"]] == []
    assert all(finding["found"] for finding in diagnosis["findings"])
