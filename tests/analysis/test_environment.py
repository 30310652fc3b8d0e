"""Are two environments alike?"""

from __future__ import annotations

from typing import Any

import pytest

from opmark.analysis.environment import differing, kind, refuse, software, unlike
from opmark.errors import UserError
from opmark.schema.comparison import difference_lines

pytestmark = pytest.mark.verdicts

BASE = {"cpu": "EPYC 9654", "cores": 8, "threads": 8, "memory": 64 << 30, "governor": "performance", "max_mhz": 3700.0,
        "machine": "node-1", "python": "3.12.1", "torch": "2.11", "gpu": "H100", "gpu_memory": 80 << 30}  # fmt: skip


def between(**changes: Any) -> dict[str, tuple[Any, Any]]:
    return differing([(BASE, {**BASE, **changes})])


@pytest.mark.parametrize(
    ("fact", "value"),
    [("cpu", "EPYC 9554"), ("cores", 4), ("threads", 4), ("memory", 32 << 30), ("governor", "powersave"),
     ("max_mhz", 3200.0), ("gpu", "H200"), ("gpu_memory", 96 << 30)],
)  # fmt: skip
def test_another_machine_is_refused(fact: str, value: Any) -> None:
    found = between(**{fact: value})
    assert unlike(found) == [fact]
    with pytest.raises(UserError, match="not measured on machines that are alike") as error:
        refuse(("before", "after"), found)
    assert fact in error.value.message
    assert "--unlike" in str(error.value.hint)


@pytest.mark.parametrize(("fact", "value"), [("machine", "node-2"), ("python", "3.13.0"), ("torch", "2.12")])
def test_another_host_of_the_same_kind_and_other_software_are_said(fact: str, value: Any) -> None:
    found = between(**{fact: value})
    assert found == {fact: (BASE[fact], value)}
    assert unlike(found) == []
    refuse(("before", "after"), found)


@pytest.mark.parametrize(
    ("fact", "value"),
    [("memory", int(63.2 * 2**30)), ("max_mhz", 3699.0), ("cpu", " EPYC  9654 "), ("sensors", "none")],
)
def test_what_only_reads_a_little_differently_is_alike(fact: str, value: Any) -> None:
    assert between(**{fact: value}) == {}


def test_what_one_side_does_not_tell_is_not_known_to_differ() -> None:
    found = between(governor=None)
    assert found == {"governor": ("performance", None)}
    assert unlike(found) == []
    assert difference_lines(found) == [("governor", "performance -> unknown")]


def test_both_values_are_said_as_people_read_them() -> None:
    with pytest.raises(UserError) as error:
        refuse(("a", "b"), between(memory=32 << 30, cores=4, torch="2.12"))
    assert "cores: 8 -> 4; memory: 64.0 GiB -> 32.0 GiB" in error.value.message
    assert "torch" not in error.value.message
    found = differing([({"variables": {"A": "1"}, "build": "x" * 99}, {"variables": {}, "build": "y"})])
    assert difference_lines(found) == [("variables", "A=1 -> none"), ("build", f"{'x' * 60}... -> y")]


def test_several_environments_of_a_side_are_told_together() -> None:
    found = differing(
        [({"torch": "1"}, {"torch": "2"}), ({"torch": "1"}, {"torch": "3"}), ({"jax": "1"}, {"jax": "1"})]
    )
    assert found == {"torch": ("1", ["2", "3"])}
    assert difference_lines(found) == [("torch", "1 -> 2, 3")]


def test_facts_that_the_host_tells_of_itself_have_a_kind() -> None:
    from opmark.hardware.host import host

    assert {fact for fact in host() if kind(fact) == "software"} == {"python"}


def test_software_is_told_from_where_it_ran() -> None:
    found = between(machine="node-2", torch="2.12", cores=4, opmark="9", interpreter="/x")
    assert software(found) == ["torch"]


def test_what_a_side_does_not_tell_in_one_of_its_environments_is_not_known_to_differ() -> None:
    bare = {name: value for name, value in BASE.items() if name != "governor"}
    other = {**BASE, "governor": "powersave"}
    found = differing([(BASE, other), (BASE | {"governor": "ondemand"}, bare)])
    assert found["governor"] == (["performance", "ondemand"], ["powersave", None])
    assert unlike(found) == []
