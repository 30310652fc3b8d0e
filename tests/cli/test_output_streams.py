"""Standard output that cannot write every character."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from showcase import CPU, Maker, fill, run

from opmark.schema import Record

Command = Callable[..., Any]


@pytest.fixture
def stored(db: Path) -> None:
    made: list[Record] = [Maker(1).record("add", {"shape": [4]}, "torch-cpu", CPU)]
    fill(db, [run(1, "grüße 🙂", made)])


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("command", [("show",), ("show", "--wide"), ("report", "--format", "md"), ("runs",)])
def test_what_cannot_be_written_is_written_out(
    opmark: Command, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = opmark(*command)
    assert (done.code, "Traceback" in done.err) == (0, False)
    assert "add" in done.out or "\\ud83d\\ude42" in done.out


@pytest.mark.usefixtures("stored")
def test_json_stays_json(opmark: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = opmark("runs", "--json")
    assert done.out.isascii()
    assert json.loads(done.out)["label"] == "grüße 🙂"


@pytest.mark.usefixtures("stored")
def test_who_asked_for_something_else_gets_that(opmark: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii:replace")
    assert "gr??e ?" in opmark("report", "--format", "md").out
