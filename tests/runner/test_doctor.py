"""Is this machine fit to measure on? Without asking the frameworks, which takes seconds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from opmark.runner import doctor as module
from opmark.runner import instruction_set
from opmark.runner.doctor import doctor
from opmark.schema import Availability, Diagnosis, DiagnosisItem, Record, Task

pytestmark = pytest.mark.machine

TORCH = Availability("torch-cpu", "PyTorch", None)


class FakeSupervisor:
    """Answers the trial with a given record, as if a limit had been found where one is given."""

    answer: tuple[str, str] = ("ok", "")
    limit: str | None = None
    asked: list[Task]

    def __init__(self, info: Any, threads: int, options: Any) -> None:
        assert info.name == "torch-cpu"

    def run(self, task: Task) -> Record:
        type(self).asked.append(task)
        if self.limit:
            instruction_set.remember("torch-cpu", self.limit)
        return Record(task, *self.answer)  # type: ignore[arg-type]

    def close(self) -> None:
        pass


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> type[FakeSupervisor]:
    class Fake(FakeSupervisor):
        asked: list[Task] = []  # noqa: RUF012 - new with every test

    monkeypatch.setattr(module, "probe", lambda: [TORCH])
    monkeypatch.setattr(module, "disturbances", lambda: [DiagnosisItem("load", True, "0")])
    monkeypatch.setattr(module, "gpu_disturbances", list)
    monkeypatch.setattr(module, "Supervisor", Fake)
    return Fake


def findings(diagnosis: Diagnosis) -> dict[str, DiagnosisItem]:
    return {finding.name: finding for finding in diagnosis.findings}


def test_a_diagnosis_has_the_host_the_backends_and_the_findings(trial: type[FakeSupervisor]) -> None:
    diagnosis = doctor()
    assert diagnosis.host["cores"] >= 1
    assert diagnosis.backends == [TORCH]
    assert list(findings(diagnosis)) == ["load", "clock", "instructions"]
    assert msgspec.json.decode(msgspec.json.encode(diagnosis)).keys() == {"host", "backends", "findings", "next_steps"}


def test_what_is_wrong_with_a_gpu_is_found_before_backends_use_it(
    trial: type[FakeSupervisor], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    found = DiagnosisItem("persistence mode of GPU 0", False, "off", "sudo nvidia-smi -i 0 -pm 1")
    monkeypatch.setattr(module, "gpu_disturbances", lambda: order.append("gpu") or [found])
    monkeypatch.setattr(module, "probe", lambda: order.append("probe") or [TORCH])
    assert findings(doctor())[found.name] == found
    assert order == ["gpu", "probe"]


def test_the_trial_is_a_bfloat16_product(trial: type[FakeSupervisor]) -> None:
    doctor()
    (task,) = trial.asked
    assert (task.case.op, task.case.params["dtype"], task.backend) == ("matmul", "bfloat16", "torch-cpu")


def test_instructions_that_all_work_are_well(trial: type[FakeSupervisor]) -> None:
    finding = findings(doctor())["instructions"]
    assert finding.ok
    assert "bfloat16" in finding.found


def test_a_limit_of_old_is_not_believed(trial: type[FakeSupervisor]) -> None:
    instruction_set.remember("torch-cpu", "AVX2")
    assert findings(doctor())["instructions"].ok
    assert instruction_set.recall("torch-cpu") is None


def test_instructions_that_trap_are_found_and_the_limit_is_told(trial: type[FakeSupervisor]) -> None:
    trial.limit = "AVX512_CORE_BF16"
    diagnosis = doctor()
    finding = findings(diagnosis)["instructions"]
    assert not finding.ok
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16" in finding.hint
    assert not diagnosis.ok


def test_a_trial_that_fails_is_a_finding_with_a_hint(trial: type[FakeSupervisor]) -> None:
    trial.answer = ("error", "it died")
    finding = findings(doctor())["instructions"]
    assert not finding.ok
    assert "it died" in finding.found
    assert finding.hint


def test_without_torch_there_is_no_trial(trial: type[FakeSupervisor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "probe", lambda: [Availability("torch-cpu", "PyTorch", "is not installed")])
    assert "instructions" not in findings(doctor())
    assert trial.asked == []


def test_a_coarse_clock_is_a_finding(trial: type[FakeSupervisor], monkeypatch: pytest.MonkeyPatch) -> None:
    for resolution, fit in ((1e-7, True), (1e-3, False)):

        class Clock:
            def __init__(self, resolution: float = resolution) -> None:
                self.resolution = resolution

            def overhead(self, calls: int) -> float:
                return 2e-7

        monkeypatch.setattr(module, "host_timers", lambda synchronize, clock=Clock: {"latency": clock()})
        finding = findings(doctor())["clock"]
        assert finding.ok is fit
        assert "200 ns" in finding.found
        assert finding.hint
