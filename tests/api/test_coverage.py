"""Coverage of a framework, from its own list of operators."""

from __future__ import annotations

from importlib.util import find_spec

import numpy
import pytest

from opmark.api.coverage import FRAMEWORKS, torch_coverage
from opmark.catalogue.families.opinfo import entries
from opmark.errors import UnknownName
from opmark.plugin.registry import catalogue, resolve
from opmark.schema import EFFORTS, Case, Phase, Record, Settings, Status, Task
from opmark.schema.coverage import Coverage, CoveredOperator

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

SETTINGS = Settings(1, "quick", EFFORTS["quick"])


def record(op: str, phase: Phase = "forward", status: Status = "ok", reason: str = "") -> Record:
    return Record(Task(Case.of(op, {}, phase), "torch-cpu", "torch", SETTINGS), status, reason)


def by_name(found: Coverage) -> dict[str, CoveredOperator]:
    return {covered.name: covered for covered in found.operators}


def test_an_unknown_framework_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no framework named `torhc`") as caught:
        torch_coverage("torhc")
    assert "`torch`" in (caught.value.hint or "")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_operator_stands_once_with_its_tiers_in_order(framework: str) -> None:
    if framework == "torch" and find_spec("torch") is None:
        pytest.skip("torch is not installed")
    found = torch_coverage(framework)
    assert (found.framework, found.run) == (framework, "")
    assert len(by_name(found)) == len(found.operators) > 100
    for covered in found.operators:
        assert covered.tiers == sorted(set(covered.tiers)), covered.name
        assert set(covered.tiers) <= {1, 2, 3}, covered.name
        assert (1 in covered.tiers) == bool(covered.catalogue), covered.name
        assert set(covered.catalogue) <= set(catalogue()), covered.name
        assert len(set(covered.catalogue)) == len(covered.catalogue), covered.name
        assert covered.outcomes == {}, covered.name


@needs_torch
def test_the_operators_of_torch_are_those_of_its_database() -> None:
    found = torch_coverage("torch").operators
    assert [covered.name for covered in found] == [entry.name for entry in entries()]
    for covered, entry in zip(found, entries(), strict=True):
        assert covered.function == entry.function
        assert (2 in covered.tiers) == bool(entry.path), entry.name
        assert (3 in covered.tiers) == bool(entry.dtypes), entry.name
        assert covered.differentiable == entry.differentiable, entry.name


@needs_torch
def test_an_operator_of_the_catalogue_is_the_one_that_calls_this_function() -> None:
    found = by_name(torch_coverage("torch"))
    assert "exp" in found["exp"].catalogue
    assert found["exp"].tiers == [1, 2, 3]
    for covered in found.values():
        for name in covered.catalogue:
            paths = {way.path for way in catalogue()[name].implementations_for("torch")}
            assert paths & {f"torch.{covered.function}", f"torch.Tensor.{covered.function}"}


@needs_torch
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_path_of_an_implementation_is_a_function_of_its_framework(framework: str) -> None:
    """A wrong path would silently count nothing."""
    for op in catalogue().values():
        for way in op.implementations_for(framework):
            if way.path:
                assert callable(resolve(way.path)), f"{op.name}: {way.path}"


@needs_torch
def test_most_of_torch_is_covered_and_what_is_not_says_why() -> None:
    found = torch_coverage("torch")
    assert len(found.of_tier(1)) > 150
    assert len(found.of_tier(2)) > 500
    assert len(found.of_tier(3)) > 600
    assert all(covered.reason for covered in found.uncovered())
    assert len(found.uncovered()) < 10


def test_the_operators_of_numpy_are_its_functions() -> None:
    found = by_name(torch_coverage("numpy"))
    assert {"add", "exp", "matmul", "sort", "einsum"} <= set(found)
    assert not {"ndarray", "float32", "pi", "linalg"} & set(found), "no classes, constants, modules"
    assert all(callable(getattr(numpy, name)) for name in found)
    assert found["exp"].tiers == [1, 2]
    assert "exp" in found["exp"].catalogue
    assert all(2 in covered.tiers for covered in found.values()), "any function can be called"
    assert not any(covered.differentiable for covered in found.values())


# With a run


@needs_torch
def test_what_became_of_an_operator_is_told_by_phase() -> None:
    records = [
        record("opinfo:add"),
        record("opinfo:add", "backward", "error", "no gradient"),
        record("opinfo:nn.functional.pad/reflect", status="timeout", reason="no answer within 60 s"),
    ]
    found = torch_coverage("torch", "a run", records)
    assert found.run == "a run"
    told = {name: covered.outcomes for name, covered in by_name(found).items() if covered.outcomes}
    assert told == {
        "add": {"forward": "ok", "backward": "error: no gradient"},
        "nn.functional.pad/reflect": {"forward": "timeout: no answer within 60 s"},
    }
    assert "nn.functional.pad/reflect" in {covered.name for covered in found.uncovered()}


@needs_torch
def test_records_of_other_operators_say_nothing_about_the_framework() -> None:
    found = torch_coverage("torch", "a run", [record("add"), record("torch.add"), record("opinfo:no_such_thing")])
    assert not any(covered.outcomes for covered in found.operators)
    assert len(found.operators) == len(entries())


@needs_torch
def test_of_several_processes_the_one_that_failed_is_told() -> None:
    records = [record("opinfo:add", status="error", reason="broken"), record("opinfo:add")]
    for order in (records, records[::-1]):
        assert by_name(torch_coverage("torch", "a run", order))["add"].outcomes == {"forward": "error: broken"}
