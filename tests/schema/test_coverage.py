"""Coverage: which operators count as covered, measured, left out, and why."""

from __future__ import annotations

import msgspec
import pytest

from opmark.schema.coverage import TIERS, Coverage, CoveredOperator


def covered(name: str = "add", tiers: tuple[int, ...] = (1, 2, 3), **outcomes: str) -> CoveredOperator:
    return CoveredOperator(name, name, list(tiers), [], differentiable=True, outcomes=outcomes)


@pytest.mark.parametrize(
    ("outcomes", "reason"),
    [
        ({}, ""),
        ({"forward": "ok"}, ""),
        ({"forward": "ok", "backward": "error: no gradient"}, ""),
        ({"forward": "timeout: after 60 s"}, "timeout: after 60 s"),
        ({"forward": "error: okay it is not"}, "error: okay it is not"),
        ({"backward": "ok"}, ""),
    ],
)
def test_an_operator_is_left_out_where_its_forward_phase_failed(outcomes: dict[str, str], reason: str) -> None:
    assert covered(**outcomes).reason == reason


def test_an_operator_without_a_tier_says_why_whatever_became_of_it() -> None:
    for found in (covered(tiers=()), covered(tiers=(), forward="ok")):
        assert "names no function for it" in found.reason


def test_an_operator_is_in_every_tier_that_it_names() -> None:
    operators = [covered("a", (1, 2, 3)), covered("b", (2, 3)), covered("c", (3,)), covered("d", ())]
    found = Coverage("torch", operators)
    assert {tier: [c.name for c in found.of_tier(tier)] for tier in TIERS} == {
        1: ["a"],
        2: ["a", "b"],
        3: ["a", "b", "c"],
    }
    assert found.of_tier(4) == []


def test_only_what_was_measured_counts_as_measured() -> None:
    operators = [covered("a", forward="ok", backward="error: no"), covered("b", forward="oom: no"), covered("c")]
    found = Coverage("torch", operators, "a run")
    assert (found.count(operators, "forward"), found.count(operators, "backward")) == (1, 0)
    assert found.count([], "forward") == 0


def test_what_is_not_covered_is_what_has_a_reason() -> None:
    operators = [covered("a"), covered("b", ()), covered("c", forward="error: no"), covered("d", forward="ok")]
    assert [c.name for c in Coverage("torch", operators).uncovered()] == ["b", "c"]


def test_coverage_survives_the_way_through_json() -> None:
    found = Coverage("torch", [covered(forward="ok"), covered("sub", ())], "a run")
    assert msgspec.json.decode(msgspec.json.encode(found), type=Coverage) == found


def test_two_operators_do_not_share_their_outcomes() -> None:
    one, other = (CoveredOperator(name, name, [1], [], differentiable=False) for name in "ab")
    one.outcomes["forward"] = "ok"
    assert other.outcomes == {}
