"""Which nodes of a fleet agree, and what comparisons and histories make of it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from compared import HERE, QUIET, case_of, figures, keep

from opmark.analysis.agreement import compare_nodes, medians_of, node_group
from opmark.analysis.compared_side import side_of
from opmark.analysis.comparison import compare
from opmark.api.result import open_store
from opmark.schema import Environment
from opmark.schema.comparison import Compared
from opmark.schema.fleet import AGREEMENT, Agreement, NodeRatio
from opmark.schema.record import Figure

CASES = [case_of("exp", size) for size in (4, 8, 16)]


def measured(factors: Mapping[str, Mapping[int, float] | float], spread: float = 0.002) -> dict[str, list[Figure]]:
    """Figures by node, each so much slower than usual, in all cases or by case."""
    chance = random.Random(0)
    found: dict[str, list[Figure]] = {}
    for node, factor in factors.items():
        for i, case in enumerate(CASES):
            own = factor if isinstance(factor, float) else factor.get(i, 1.0)
            medians = [1e-3 * own * (1 + chance.gauss(0, spread)) for _ in range(5)]
            found.setdefault(node, []).extend(figures(medians, case))
    return found


def verdicts(
    factors: Mapping[str, Mapping[int, float] | float], **options: float
) -> tuple[dict[str, str], list[NodeRatio]]:
    spread = options.get("spread", 0.002)
    whole, single = compare_nodes(medians_of(measured(factors, spread)), {c.id: c for c in CASES}, 0.03)
    return {one.node: one.verdict for one in whole}, single


def test_equal_nodes_agree() -> None:
    found, single = verdicts({"a": 1.0, "b": 1.005, "c": 0.997})
    assert found == {"a": "agrees", "b": "agrees", "c": "agrees"}
    assert single == []


def test_a_slow_node_is_named_with_its_interval() -> None:
    whole, single = compare_nodes(medians_of(measured({"a": 1.0, "b": 1.1, "c": 1.0})), {c.id: c for c in CASES}, 0.03)
    first = whole[0]
    assert (first.node, first.verdict) == ("b", "differs")
    assert first.low < 1.1 < first.high
    assert first.high - first.low < 0.05
    assert {one.node for one in single if one.ratio > 1} == {"b"}


def test_a_node_may_differ_in_one_case_alone() -> None:
    """As one whose memory is slower: over all cases together it hardly shows."""
    found, single = verdicts({"a": 1.0, "b": {1: 1.08}, "c": 1.0, "d": 1.0, "e": 1.0})
    assert found["b"] == "differs"
    (one,) = single
    assert (one.node, one.case) == ("b", "exp 8 float32")
    assert {found[name] for name in "acde"} == {"agrees"}


def test_noisy_nodes_are_undecided() -> None:
    found, _ = verdicts({"a": 1.0, "b": 1.0, "c": 1.0}, spread=0.08)
    assert set(found.values()) == {"undecided"}


def test_cases_that_a_node_lacks_are_left_out() -> None:
    given = measured({"a": 1.0, "b": 1.0})
    given["b"] = [figure for figure in given["b"] if figure.case != CASES[0].id or figure.process < 2]
    kept = medians_of(given)
    assert kept["a"].keys() == kept["b"].keys() == {CASES[1].id, CASES[2].id}


# Comparisons of stored runs.


def agreement(store: object, **nodes: str) -> None:
    ratios = [NodeRatio(node, 1.0, 0.99, 1.01, verdict) for node, verdict in nodes.items()]
    found = Agreement("a processor", "torch-cpu", "2030", 0.03, 5, ratios)
    store.keep(AGREEMENT, found.kind, found.started, found)  # type: ignore[attr-defined]


def compared(db: Path, a: str, b: str, *, unlike: bool = False, **nodes: str) -> Compared:
    one = keep(db, "run-a", "A", {("torch-cpu", "exp"): QUIET}, facts={"node": a} if a else {})
    other = keep(db, "run-b", "B", {("torch-cpu", "exp"): [1.2 * q for q in QUIET]}, facts={"node": b} if b else {})
    with closing(open_store(db, create=True)) as store:
        if nodes:
            agreement(store, **nodes)
        sides = side_of(store, one), side_of(store, other)
        return compare(*sides, {case_of().id: case_of()}, unlike=unlike)


@pytest.mark.parametrize(
    ("a", "b", "known", "mixed"),
    [
        ("x", "x", {}, True),
        ("x", "y", {}, False),
        ("x", "y", {"x": "agrees", "y": "agrees"}, True),
        ("x", "y", {"x": "agrees", "y": "differs"}, False),
        ("x", "y", {"x": "agrees", "y": "undecided"}, False),
        ("x", "y", {"x": "agrees"}, False),
        ("x", "", {}, True),
        ("", "", {}, True),
    ],
)
def test_nodes_are_compared_only_where_they_agree(
    a: str, b: str, known: dict[str, str], mixed: bool, tmp_path: Path
) -> None:
    (pair,) = compared(tmp_path / "s.db", a, b, **known).pairs
    if mixed:
        assert pair.verdict == "slower"
    else:
        assert pair.verdict == "undecided"
        assert pair.ratio is None
        assert "measured on different nodes, x and y" in pair.note
        assert "opmark fleet agree" in pair.note


def test_unlike_compares_nodes_all_the_same(tmp_path: Path) -> None:
    (pair,) = compared(tmp_path / "s.db", "x", "y", unlike=True).pairs
    assert pair.verdict == "slower"


def test_processes_of_another_node_are_left_out(tmp_path: Path) -> None:
    """A node was lost after four of five processes, and another one, much slower, did the last."""
    db = tmp_path / "s.db"
    one = keep(db, "run-a", "A", {("torch-cpu", "exp"): QUIET}, facts={"node": "x"})
    keep(db, "run-b", "B", {("torch-cpu", "exp"): [*QUIET[:4]]}, facts={"node": "x"})
    late = keep(db, "run-c", "C", {("torch-cpu", "exp"): [*QUIET[:4], 9.0]}, facts={"node": "y"})
    with closing(open_store(db, create=True)) as store:
        records = {record.task.settings.process: record for record in store.records("run-c")}
        store.append("run-b", records[4])
        assert late.id == "run-c"
        both = side_of(store, one), side_of(store, next(run for run in store.runs() if run.id == "run-b"))
        (pair,) = compare(*both, {case_of().id: case_of()}).pairs
    assert pair.processes == (5, 4)
    assert pair.b is not None
    assert pair.b < 1.1
    assert "without 1 of 5 processes of B that were measured on another node" in pair.note


def test_a_history_is_of_one_node_or_of_all_that_agree(tmp_path: Path) -> None:
    facts = {node: Environment.of({**HERE, "node": node}).facts for node in "xyz"}
    with closing(open_store(tmp_path / "s.db", create=True)) as store:
        store.begin(keep(tmp_path / "t.db", "run-a", "A", {("torch-cpu", "exp"): QUIET}))
        assert len({node_group(store, facts[node]) for node in "xyz"}) == 3
        agreement(store, x="agrees", y="agrees", z="differs")
        assert node_group(store, facts["x"]) == node_group(store, facts["y"])
        assert node_group(store, facts["z"]) == "z"
        assert node_group(store, HERE) == ""
