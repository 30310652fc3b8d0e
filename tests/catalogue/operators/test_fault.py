"""Each fault does exactly what it says."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.fault import FAULT, FAULTS
from opmark.errors import Unsupported, WrongResult
from opmark.schema import EFFORTS, Case, Cost, Settings, Task
from opmark.worker.verify.outputs import verify

both = pytest.mark.parametrize("framework", ["numpy", "torch"])


def _verify(kind: str, framework: str, request: pytest.FixtureRequest) -> Any:
    (implementation,) = FAULT.implementations_for(framework)
    case = Case.of("fault", FAULT.complete({"kind": kind}), "forward")
    task = Task(case, f"{framework}-cpu", implementation.label, Settings(1, "quick", EFFORTS["quick"]))
    return verify(task, FAULT, implementation, request.getfixturevalue(f"{framework}_cpu"))


@both
def test_none_is_right(framework: str, request: pytest.FixtureRequest) -> None:
    found = _verify("none", framework, request)
    assert found.checked == "full"
    assert found.max_abs_error == 0


@both
def test_wrong_is_found_wrong(framework: str, request: pytest.FixtureRequest) -> None:
    with pytest.raises(WrongResult, match="16 of 16 elements"):
        _verify("wrong", framework, request)


@both
def test_error_raises_what_no_backend_takes_for_anything_else(framework: str, request: pytest.FixtureRequest) -> None:
    with pytest.raises(RuntimeError, match="raised on purpose") as caught:
        _verify("error", framework, request)
    assert request.getfixturevalue(f"{framework}_cpu").classify(caught.value) is None


@both
def test_oom_is_taken_for_a_lack_of_memory(framework: str, request: pytest.FixtureRequest) -> None:
    with pytest.raises(MemoryError) as caught:
        _verify("oom", framework, request)
    assert request.getfixturevalue(f"{framework}_cpu").classify(caught.value) == "oom"


@both
@pytest.mark.parametrize("kind", ["device_assert", "device_hang"])
def test_a_drill_for_a_device_is_not_supported_without_one(
    kind: str, framework: str, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(Unsupported, match="needs a CUDA device"):
        _verify(kind, framework, request)


def test_an_illegal_instruction_is_avoided_by_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    np.testing.assert_array_equal(FAULTS["illegal_instruction"](np.arange(3)), np.arange(3))


def _child(kind: str) -> list[str]:
    code = (
        "import resource, numpy\n"
        "from opmark.catalogue.operators.fault import FAULTS\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        "print('ready', flush=True)\n"
        f"FAULTS[{kind!r}](numpy.ones(3))\n"
        "print('survived', flush=True)"
    )
    return [sys.executable, "-c", code]


@pytest.mark.parametrize(
    ("kind", "code"), [("segfault", -signal.SIGSEGV), ("illegal_instruction", -signal.SIGILL), ("exit", 3)]
)
def test_a_fatal_fault_takes_its_process_down(kind: str, code: int) -> None:
    done = subprocess.run(_child(kind), capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert done.stdout.split() == ["ready"]


def test_hang_does_not_come_back() -> None:
    with subprocess.Popen(_child("hang"), stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == "ready"
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(timeout=0.5)
        finally:
            child.kill()


def test_every_fault_can_be_chosen_and_none_is_the_default() -> None:
    """A drill runs only by name: no sweep over the catalogue may crash by accident."""
    kind = FAULT.param("kind")
    assert kind.choices == tuple(FAULTS)
    assert kind.required
    assert {preset["kind"] for preset in FAULT.presets.values()} == {"none"}


def test_cost_by_hand() -> None:
    assert FAULT.cost(FAULT.complete({"kind": "none", "n": 5, "dtype": "float64"})) == Cost(5, 40, 40)


def test_a_fault_has_no_gradient() -> None:
    assert FAULT.why_no_phase(FAULT.complete({"kind": "none"}), "backward") == "`fault` has no gradient"
