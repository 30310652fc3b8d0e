"""What a guest without torch asks its host about a model; here the guest's side runs beside torch too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from opmark.errors import Unsupported, UserError, WrongResult
from opmark.models import execution, facts, guest_execution, host
from opmark.models.checking import draw_inputs
from opmark.models.checkpoint import weights_file
from opmark.models.family import source_of
from opmark.models.host import ChildQuestion, HostProcess, describe_error, read_answer
from opmark.models.source import ModelSource

PARAMS = {"size": "small", "batch": 2, "dtype": "float16", "outputs": "model", "weights": ""}


@pytest.fixture(scope="module")
def source() -> ModelSource:
    found = source_of("wide-and-deep")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def process() -> Iterator[HostProcess]:
    made = HostProcess(sys.executable)
    yield made
    made.close()


@pytest.fixture
def guest(process: HostProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process one that has to ask."""
    monkeypatch.setattr(facts, "asks_host", lambda: True)
    monkeypatch.setattr(host, "_host_process", lambda: process)


@pytest.mark.usefixtures("guest")
def test_reference_and_bounds_are_those_of_other_backends(source: ModelSource) -> None:
    given = next(draw_inputs(source, {**PARAMS, "dtype": "float64"}))
    (asked,), (own,) = (part.reference(source, PARAMS, **given) for part in (guest_execution, execution))
    assert asked.dtype == np.float64
    assert (asked == own).all()
    assert guest_execution.rounding_bounds(source, PARAMS) == execution.rounding_bounds(source, PARAMS)
    assert guest_execution.why_blind(source, PARAMS) == execution.why_blind(source, PARAMS) == ""


@pytest.mark.usefixtures("guest")
def test_weights_are_those_of_the_torch_network(source: ModelSource) -> None:
    found, own = guest_execution.read_weights(source, PARAMS), execution.weight_arrays(source, PARAMS)
    assert found.keys() == own.keys()
    assert all((found[name] == own[name]).all() for name in own)


@pytest.mark.usefixtures("guest")
def test_facts_are_those_of_the_host(source: ModelSource) -> None:
    asked = facts.facts(source, {**PARAMS, "batch": 7})
    assert asked == source.count({**PARAMS, "batch": 7})
    assert asked.outputs == {"output": (7, 2)}


def test_weights_are_kept_until_the_model_is_another(source: ModelSource, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = weights_file(source, PARAMS)
    written = kept.stat().st_mtime_ns
    assert weights_file(source, {**PARAMS, "batch": 5, "dtype": "float32"}) == kept  # neither changes a weight
    assert kept.stat().st_mtime_ns == written
    monkeypatch.setattr(type(source), "stamp", lambda self, params: "another version")
    assert weights_file(source, PARAMS) != kept


def test_the_oldest_weights_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "_MOST_IN_ALL", 250)
    for name in ("old.npz", "graph.onnx", "newer.npz", "new.npz"):
        (tmp_path / name).write_bytes(bytes(100))
    facts.make_room(tmp_path / "new.npz")
    assert len([*tmp_path.glob("*.npz")]) == 2
    assert (tmp_path / "graph.onnx").exists()


@pytest.mark.parametrize("error", [UserError("what", "do"), WrongResult("what"), Unsupported("what", "do")])
def test_an_error_of_the_host_is_the_same_in_the_guest(error: Any) -> None:
    import msgspec

    with pytest.raises(type(error)) as raised:
        read_answer(msgspec.json.encode(describe_error(error)), int)
    assert (raised.value.message, raised.value.hint) == (error.message, error.hint)


def test_a_model_that_does_not_load_is_an_answer_and_the_process_goes_on(process: HostProcess) -> None:
    question = ChildQuestion("weights", "wide-and-deep", {**PARAMS, "weights": "nowhere.pt"}, {})
    with pytest.raises(UserError, match=r"nowhere\.pt"):
        read_answer(process.ask(question), str)
    assert process._process.poll() is None


def test_a_process_that_dies_says_its_last_words(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'no module named torch' >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(Unsupported, match="ended with 3: no module named torch"):
        HostProcess(str(program)).ask(ChildQuestion("facts", "bert-base", {}, {}))


def test_only_a_guest_without_torch_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(host.HOST, sys.executable)
    host.asks_host.cache_clear()
    assert not host.asks_host()
    monkeypatch.setattr(host, "find_spec", lambda name: None)
    host.asks_host.cache_clear()
    assert host.asks_host()
    host.asks_host.cache_clear()
