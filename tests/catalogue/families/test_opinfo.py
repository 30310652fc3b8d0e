"""Torch's operator database as operators `opinfo:NAME`, in the process that imports no framework."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from opmark.catalogue.expansion import expand
from opmark.catalogue.families import opinfo
from opmark.catalogue.families.opinfo import OPINFO, entries
from opmark.catalogue.workload_file import suite
from opmark.errors import Unsupported, UserError
from opmark.plugin import Backend, Operator, registry
from opmark.plugin.registry import backend as find_backend
from opmark.runner.selection import select_cases
from opmark.schema import EFFORTS, Phase, Record, Settings, Task
from opmark.schema.options import Selection
from opmark.worker.measure import instruments
from opmark.worker.task_runner import TaskRunner

SETTINGS = Settings(1, "quick", EFFORTS["quick"])


def operator(name: str) -> Operator:
    found = OPINFO.operator(name)
    assert found is not None
    return found


# Names.


@pytest.mark.parametrize("name", ["add", "torch.add", "opinfo", "opinfo.add", "module:function", "OPINFO:add"])
def test_other_names_are_for_others(name: str) -> None:
    assert OPINFO.operator(name) is None


def test_an_operator_is_made_of_its_name_alone() -> None:
    found = operator("opinfo:nn.functional.pad/reflect")
    assert (found.name, found.foreign, found.presets) == ("opinfo:nn.functional.pad/reflect", True, {})
    assert [implementation.framework for implementation in found.implementations] == ["torch"]
    assert found.complete({}) == {"sample": "enlarged", "dtype": "auto"}
    assert found.inputs(found.complete({})) == {}


@pytest.mark.parametrize(("name", "value"), [("sample", "huge"), ("dtype", "float31")])
def test_a_parameter_out_of_its_domain_is_refused(name: str, value: str) -> None:
    with pytest.raises(UserError, match=value):
        operator("opinfo:add").param(name).check(value)


def test_there_is_no_reference() -> None:
    with pytest.raises(Unsupported):
        operator("opinfo:add").reference({})


def test_the_catalogue_and_the_database_do_not_mix() -> None:
    """`add` is ours, with a reference; `opinfo:add` is torch's."""
    assert not registry.operator("add").foreign
    assert registry.operator("opinfo:add").foreign


# The list, which a child process reads once.


def test_the_list_is_that_of_the_torch_that_is_installed() -> None:
    found = {entry.name: entry for entry in entries()}
    assert len(found) == len(entries()) > 500
    assert {"add", "nn.functional.conv2d", "fft.fft", "nn.functional.pad/reflect"} <= found.keys()
    assert "float32" in found["add"].dtypes
    assert found["add"].differentiable
    assert not found["argmax"].differentiable
    assert sum(entry.differentiable for entry in entries()) > 400
    assert entries() is entries()


@pytest.mark.parametrize(
    ("pattern", "some", "not_these"),
    [
        ("opinfo:*", {"opinfo:add", "opinfo:nn.functional.pad/reflect"}, set()),
        ("opinfo:nn.functional.pad/*", {"opinfo:nn.functional.pad/reflect"}, {"opinfo:add"}),
        ("opinfo:fft.?fft", {"opinfo:fft.rfft", "opinfo:fft.ifft"}, {"opinfo:fft.fft", "opinfo:fft.irfft"}),
        ("opinfo:ADD", set(), {"opinfo:add"}),
    ],
)
def test_a_pattern_stands_for_what_it_matches(pattern: str, some: set[str], not_these: set[str]) -> None:
    found = OPINFO.names(pattern)
    assert found is not None
    assert some <= set(found)
    assert not not_these & set(found)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("pattern", ["*", "torch.*", "ad*", "*opinfo:*"])
def test_a_pattern_without_the_prefix_does_not_ask_the_database(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opinfo, "entries", lambda: pytest.fail("seconds, for nothing"))
    assert OPINFO.names(pattern) is None


def test_the_suite_of_everything_has_every_entry_forward_and_backward() -> None:
    cases = expand(suite("torch-all"), registry.operator, match=registry.operators_like)
    assert len(cases) == 2 * len(entries())
    assert {case.op for case in cases} == {f"opinfo:{entry.name}" for entry in entries()}
    assert {case.phase for case in cases} == {"forward", "backward"}
    assert all("coverage" in case.tags for case in cases)


def test_listing_imports_no_framework() -> None:
    script = """
import sys
from opmark.plugin.registry import operator, catalogue
operator("opinfo:add")
catalogue()
print(*({"torch", "jax"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# The database is not available.


@pytest.fixture
def forgotten() -> Any:
    """Clear the cache of the list, which otherwise lives as long as the process."""
    return entries.__wrapped__


def test_without_torch_it_says_what_to_install(forgotten: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opinfo, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="torch is not installed") as caught:
        forgotten()
    assert caught.value.hint == "pip install 'opmark[torch]'"


def test_a_database_that_cannot_be_read_says_why(forgotten: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opinfo, "_SAMPLES", "opmark.no_such_module")
    with pytest.raises(UserError, match=r"cannot be read: .*no_such_module"):
        forgotten()


def test_a_database_that_takes_forever_is_the_users_message_and_no_traceback(
    forgotten: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opinfo, "_TIMEOUT", 0.01)
    with pytest.raises(UserError, match="could not be read within"):
        forgotten()


# Records.


def record_of(live: Backend, name: str, phase: Phase = "forward", **params: Any) -> Record:
    (case,) = select_cases(Selection(name, params=params, phase=phase)).cases
    return TaskRunner(find_backend("torch-cpu"), live).run(Task(case, "torch-cpu", "torch", SETTINGS))


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_an_entry_is_measured_and_says_what_it_was_called_with(phase: Phase, torch_cpu: Backend) -> None:
    record = record_of(torch_cpu, "opinfo:mm", phase)
    assert (record.status, record.reason.partition(":")[0]) == ("unchecked", "not verified")
    assert record.measurements[0].samples
    assert record.called.count("float32") == 2
    assert record.cost is not None
    assert record.cost.flops
    assert record.verification is not None
    assert record.verification.checked == "none"


@pytest.mark.usefixtures("frozen")
def test_a_backward_pass_goes_through_what_makes_sense(torch_cpu: Backend) -> None:
    record = record_of(torch_cpu, "opinfo:exp", "backward")
    assert record.status == "unchecked"
    assert record.cost is not None
    assert record.cost.bytes_written == 4 * 1024 * 1024


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(
    ("name", "phase", "params", "reason"),
    [
        ("opinfo:no_such", "forward", {}, "has no operator `no_such`"),
        ("opinfo:argmax", "backward", {}, "nothing that goes in has a gradient"),
        ("opinfo:bitwise_and", "forward", {"dtype": "float32"}, "float32"),
    ],
)
def test_what_does_not_exist_is_skipped_with_a_reason(
    name: str, phase: Phase, params: Any, reason: str, torch_cpu: Backend
) -> None:
    record = record_of(torch_cpu, name, phase, **params)
    assert record.status == "skipped"
    assert reason in record.reason


@pytest.mark.usefixtures("frozen")
def test_the_sample_of_the_database_is_labelled_as_too_small(
    torch_cpu: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instruments, "fastest_call", lambda *_: 60.0)  # so that no call of a busy machine is too long
    record = record_of(torch_cpu, "opinfo:exp", sample="own")
    assert record.status == "unchecked"
    assert "overhead-bound" in {caution.code for caution in record.measurements[0].cautions}
    assert "1024x1024" not in record.called
