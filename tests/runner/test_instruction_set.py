"""The note about instructions that this machine traps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opmark.runner import instruction_set


@pytest.fixture
def note(isolated: Path) -> Path:
    """The file; it is below the cache directory of this test."""
    path = instruction_set._notes_path()
    assert path.is_relative_to(isolated / "cache")
    return path


def test_nothing_is_remembered_at_first(note: Path) -> None:
    assert instruction_set.recall("torch-cpu") is None
    assert not note.exists()


def test_a_limit_is_remembered(note: Path) -> None:
    instruction_set.remember("torch-cpu", "AVX2")
    assert note.exists()
    assert instruction_set.recall("torch-cpu") == "AVX2"


def test_a_new_limit_takes_the_place_of_the_old_one(note: Path) -> None:
    instruction_set.remember("torch-cpu", "AVX512_CORE")
    instruction_set.remember("torch-cpu", "AVX2")
    assert instruction_set.recall("torch-cpu") == "AVX2"
    assert len(json.loads(note.read_text())) == 1


def test_a_note_is_for_one_processor_and_one_framework(note: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instruction_set.remember("torch-cpu", "AVX2")
    with monkeypatch.context() as patch:
        patch.setattr(instruction_set, "cpu_model", lambda: "another processor")
        assert instruction_set.recall("torch-cpu") is None
        instruction_set.remember("torch-cpu", "AVX512_CORE")
    assert instruction_set.recall("torch-cpu") == "AVX2"
    monkeypatch.setattr(instruction_set, "version", lambda _: "99.0")
    assert instruction_set.recall("torch-cpu") is None


@pytest.mark.parametrize("damage", ["", "{", "5", "null", "[1]", '"text"', "\x00"])
def test_a_damaged_note_is_no_note(note: Path, damage: str) -> None:
    note.parent.mkdir(parents=True)
    note.write_text(damage)
    assert instruction_set.recall("torch-cpu") is None
    instruction_set.remember("torch-cpu", "AVX2")
    assert instruction_set.recall("torch-cpu") == "AVX2"


def test_a_note_that_is_no_text_is_no_note(note: Path) -> None:
    note.parent.mkdir(parents=True)
    note.write_bytes(b"\xff\xfe\x00")
    assert instruction_set.recall("torch-cpu") is None


def test_a_note_is_for_one_backend(note: Path) -> None:
    instruction_set.remember("numpy-cpu", "AVX2")
    assert instruction_set.recall("torch-cpu") is None


def test_a_limit_that_is_no_longer_needed_is_forgotten(note: Path) -> None:
    instruction_set.remember("torch-cpu", "AVX2")
    instruction_set.remember("torch-cpu", None)
    assert instruction_set.recall("torch-cpu") is None
    assert json.loads(note.read_text()) == {}


def test_a_limit_is_a_variable_of_the_worker() -> None:
    assert instruction_set.environ("AVX2") == {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    assert instruction_set.environ(None) == {}


def test_limits_beyond_a_known_one_are_stricter() -> None:
    assert instruction_set.stricter_than(None) == instruction_set.LIMITS
    assert instruction_set.stricter_than("AVX512_CORE") == ("AVX2",)
    assert instruction_set.stricter_than("AVX2") == ()


def test_the_mildest_limit_comes_first() -> None:
    assert instruction_set.LIMITS[0] == "AVX512_CORE_BF16"
    assert instruction_set.LIMITS[-1] == "AVX2"
