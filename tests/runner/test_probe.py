"""Which backends can run here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opmark.plugin import BackendInfo
from opmark.plugin.registry import backend
from opmark.runner.probe import probe

Plugin = Callable[..., BackendInfo]


def test_a_backend_that_runs_has_no_reason_and_its_facts() -> None:
    (found,) = probe([backend("numpy-cpu")])
    assert (found.name, found.reason, found.summary) == ("numpy-cpu", None, backend("numpy-cpu").summary)
    assert "numpy" in found.facts


def test_whatever_becomes_of_a_backend_is_its_answer(plugin: Plugin) -> None:
    """In the order asked, each in a process of its own."""
    infos = [
        plugin("exits", "os._exit(8)"),
        plugin("raises", "raise RuntimeError('wrong driver')"),
        plugin("away", "class Backend(NullBackend):\n    def why_unavailable(self): return 'no such device'"),
        plugin("absent", "os._exit(99)", requires="module_that_nobody_has", install="pip install it"),
        backend("null"),
    ]
    found = probe(infos)
    assert [answer.name for answer in found] == ["exits", "raises", "away", "absent", "null"]
    reasons = [answer.reason or "" for answer in found]
    assert "exit code 8" in reasons[0]
    assert "wrong driver" in reasons[1]
    assert reasons[2] == "no such device"
    assert reasons[3] == "module_that_nobody_has is not installed (pip install it)"
    assert reasons[4] == ""


def test_where_nobody_is_named_everybody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: backend(name) for name in ("numpy-cpu", "null")}
    monkeypatch.setattr("opmark.runner.probe.backends", lambda: known)
    assert [(answer.name, answer.reason) for answer in probe()] == [("numpy-cpu", None), ("null", None)]
    assert probe([]) == []
