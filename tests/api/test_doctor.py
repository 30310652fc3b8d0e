"""What the doctor says to do next, as commands."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opmark.api.doctor import doctor
from opmark.api.result import open_store
from opmark.api.run import run
from opmark.runner.plan import default_threads
from opmark.schema import Availability, Diagnosis, DiagnosisItem
from opmark.schema.machine import findings_key
from opmark.store.runs import noise_under

pytestmark = pytest.mark.machine

CPU = {"cpu": "Fast 9000", "device": "cpu"}
HERE = [Availability("numpy-cpu", "", None, CPU), Availability("null", "", None, CPU)]
GPU = Availability("torch-cuda", "", None, {"gpu": "Fast GPU"})


@pytest.fixture(autouse=True)
def usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch is installed, but backends are chosen as where it is not."""
    monkeypatch.setattr("opmark.api.doctor.default_backends", lambda: ["numpy-cpu"])
    monkeypatch.setattr("opmark.api.doctor.find_spec", lambda name: object())


def commands(
    monkeypatch: pytest.MonkeyPatch,
    db: Path,
    backends: list[Availability] = HERE,
    findings: list[DiagnosisItem] | None = None,
) -> list[str]:
    monkeypatch.setattr("opmark.api.doctor.examine", lambda: Diagnosis({}, backends, findings or []))
    steps = doctor(db=db).next_steps
    assert all(step.why for step in steps)
    assert len(steps) == 3
    return [step.command.removesuffix(f" --db {db}") for step in steps]


def keep(db: Path, backend: str, facts: dict[str, Any]) -> None:
    """Store peaks and a noise floor of the machine; what they say does not matter here."""
    with closing(open_store(db, create=True)) as store:
        known = {**facts, "threads": default_threads()}
        store.keep("peaks", findings_key(known), "2030-01-01T00:00:00.000+00:00", {})
        store.keep("noise", noise_under(backend, known), "2030-01-01T00:00:00.000+00:00", {})


def test_a_new_machine_is_calibrated_its_noise_measured_and_something_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert commands(monkeypatch, tmp_path / "none.db") == [
        "opmark calibrate", "opmark doctor --aa", "opmark run --suite quick --effort quick"
    ]  # fmt: skip
    assert not (tmp_path / "none.db").exists()


def test_what_is_done_is_not_said_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    db = tmp_path / "store.db"
    keep(db, "numpy-cpu", CPU)
    first = "opmark run --suite quick --effort quick"
    assert commands(monkeypatch, db) == [first, "opmark report", "opmark serve"]
    run("exp", size="small", backend="null", effort="quick", db=db, say=lambda message: None)
    assert commands(monkeypatch, db) == ["opmark report", "opmark serve", "opmark history"]


def test_several_frameworks_are_worth_comparing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    db = tmp_path / "store.db"
    keep(db, "numpy-cpu", CPU)
    found = commands(monkeypatch, db, [*HERE, Availability("jax-cpu", "", None, CPU)])
    assert found[1] == "opmark run --suite quick --effort quick --backend all"


def test_a_device_is_what_the_commands_are_about(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    absent = Availability("jax-cuda", "", "jax is not installed")
    assert commands(monkeypatch, tmp_path / "none.db", [absent, *HERE, GPU]) == [
        "opmark calibrate --backend torch-cuda",
        "opmark doctor --aa --backend torch-cuda",
        "opmark run --suite quick --effort quick --backend torch-cuda",
    ]


def test_what_a_command_can_mend_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    findings = [
        DiagnosisItem("load", False, "9", "stop other work"),
        DiagnosisItem("governor", False, "powersave", "sudo cpupower frequency-set --governor performance"),
        DiagnosisItem("sensors of torch-cuda", True, "read", "pip install 'opmark[nvidia]'"),
    ]
    assert commands(monkeypatch, tmp_path / "none.db", findings=findings) == [
        "sudo cpupower frequency-set --governor performance", "opmark calibrate", "opmark doctor --aa"
    ]  # fmt: skip


def test_without_torch_it_is_to_be_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("opmark.api.doctor.find_spec", lambda name: None)
    assert commands(monkeypatch, tmp_path / "none.db")[0] == "pip install 'opmark[torch]'"
