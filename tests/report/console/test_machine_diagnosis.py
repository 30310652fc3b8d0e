"""The diagnosis of the doctor as text."""

from __future__ import annotations

import io

from rich.console import Console

from opmark.report.console.machine import diagnosis_text
from opmark.schema import Availability, Diagnosis, DiagnosisItem
from opmark.schema.machine import NextStep

HOST = {"cpu": "Fast 9000", "cores": 4, "memory": 8 * 2**30, "system": "Linux 6", "python": "3.11"}


def text(diagnosis: Diagnosis) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(diagnosis_text(diagnosis))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_the_host_is_named() -> None:
    assert text(Diagnosis(HOST, [], []))[0] == "Fast 9000, 4 cores, 8.00 GiB; Linux 6, Python 3.11"


def test_a_backend_that_runs_has_its_versions_and_one_that_does_not_its_reason() -> None:
    backends = [
        Availability("numpy-cpu", "NumPy", None, {"numpy": "2.0", "threads": 1}),
        Availability("torch-cpu", "PyTorch", "torch is not installed (pip install 'opmark[torch]')"),
        Availability("null", "nothing", None),
    ]
    lines = text(Diagnosis(HOST, backends, []))
    assert "numpy-cpu yes, numpy 2.0" in lines
    assert "torch-cpu no: torch is not installed (pip install 'opmark[torch]')" in lines
    assert "null yes" in lines


def test_a_finding_that_is_not_well_comes_with_its_hint_and_only_that() -> None:
    findings = [
        DiagnosisItem("load", False, "9 [red]", "stop other work"),
        DiagnosisItem("swap", True, "0 B in use", "free some"),
    ]
    lines = text(Diagnosis(HOST, [], findings))
    assert "! load 9 [red]" in lines
    assert "hint: stop other work" in lines
    assert "ok swap 0 B in use" in lines
    assert not any("free some" in line for line in lines)


def test_it_ends_with_commands_that_can_be_copied() -> None:
    steps = [NextStep("opmark calibrate", "its peaks"), NextStep("opmark doctor --aa", "its noise")]
    assert text(Diagnosis(HOST, [], [], steps))[-5:] == [
        "What to do next on this machine:",
        "# its peaks",
        "opmark calibrate",
        "# its noise",
        "opmark doctor --aa",
    ]
