"""opmark replay, and traces as operators of the engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.helpers.trace_files import PRODUCT, node, written

from opmark.traces.family import trace_operator

if TYPE_CHECKING:
    from tests.cli.conftest import Command

pytestmark = pytest.mark.traces


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A trace with one product, in the folder that the command runs in."""
    monkeypatch.chdir(tmp_path)
    return written(Path(), PRODUCT).name


def test_a_replay_is_measured_and_explained(opmark: Command, step: str) -> None:
    done = opmark("replay", step, "--iterations", "3", "--threads", "1", "--json", "--trace-out", "both.json")
    assert done.code == 0, done.err
    (found,) = done.objects
    assert (found["calls"], found["replayed"], found["gaps"]) == (1, 1, [])
    assert found["median"] > 0
    assert "a recorded program has no reference" in opmark("show").out
    assert [one["name"] for one in found["operators"]] == ["aten::mm"]
    events = json.loads(Path("both.json").read_text())["traceEvents"]
    assert {one["args"]["name"] for one in events if one["name"] == "process_name"} == {
        "recorded", "replayed on torch-cpu",
    }  # fmt: skip


def test_mistakes_are_told_before_anything_starts(main: Command, step: str) -> None:
    assert "no label is or contains `layer`" in main("replay", step, "--subgraph", "layer").err
    assert "there is no step `7`" in main("replay", step, "--step", "7").err
    assert "expected OLD=NEW" in main("replay", step, "--scale", "7").err
    assert "is the trace of one process" in main("replay", step, "--ranks", "2").err
    assert main("replay", "missing/none.json").code == 2
    assert "traces of ranks are called" in main("replay", "none.json").err
    Path("broken.json").write_text(Path(step).read_text()[:-40])
    assert main("replay", "broken.json").code == 2


def test_a_trace_is_a_case_that_its_content_tells_apart(step: str) -> None:
    first = trace_operator(step).complete({})
    assert first == trace_operator(step).complete({})
    written(Path(), PRODUCT, node(11, "a label", 2))
    second = trace_operator(step).complete({})
    assert first["content"] != second["content"]


def test_what_compiles_or_differentiates_does_not_replay(main: Command, step: str) -> None:
    assert "a trace is replayed call by call" in main("run", f"trace:{step}", "--backend", "torch-compile-cpu").err
    assert "replayed as it was recorded" in main("run", f"trace:{step}", "--phase", "backward").err
