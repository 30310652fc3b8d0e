"""Which nodes of a fleet are equally fast, and so may stand on both sides of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import convert

from opmark.plugin.param import format_params
from opmark.plugin.registry import parameters_of
from opmark.schema import Case
from opmark.schema.fleet import AGREEMENT, AGREES, DIFFERS, NODE_FACT, UNDECIDED, Agreement, NodeRatio
from opmark.schema.machine import chip
from opmark.schema.record import COUNTED, Figure
from opmark.stats.interval import geometric_mean
from opmark.stats.verdict import FEWEST, Comparison, compare_groups, control_false_discoveries
from opmark.store.protocol import Store

_VERDICTS = {"same": AGREES, "faster": DIFFERS, "slower": DIFFERS}
_NOBODY = "nodes that agree"
"""Stands for the node of an environment whose node agrees with the others of its kind."""

Values = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Medians by node, case and process."""


def medians_of(figures: Mapping[str, Sequence[Figure]]) -> dict[str, dict[str, dict[int, float]]]:
    """Return the headline of every case and process by node, of cases that every node has measured in enough
    processes of the same numbers."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for node, own in figures.items():
        headline: dict[str, tuple[str, object]] = {}
        for figure in own:
            if figure.median and figure.median > 0 and figure.status in COUNTED:
                key = (figure.quantity, figure.cache)
                if headline.setdefault(figure.case, key) == key:
                    found.setdefault(node, {}).setdefault(figure.case, {})[figure.process] = figure.median
    common = set.intersection(*(set(cases) for cases in found.values())) if found else set()
    kept: dict[str, dict[str, dict[int, float]]] = {node: {} for node in found}
    for case in sorted(common):
        shared = set.intersection(*(set(cases[case]) for cases in found.values()))
        for node, cases in found.items() if len(shared) >= FEWEST else ():
            kept[node][case] = {process: cases[case][process] for process in sorted(shared)}
    return kept


def compare_nodes(values: Values, cases: Mapping[str, Case], margin: float) -> tuple[list[NodeRatio], list[NodeRatio]]:
    """Compare each node with all others: return (one entry per node over all cases, single cases that differ)."""
    whole: dict[str, Comparison] = {}
    single: dict[tuple[str, str], Comparison] = {}
    for node, own in values.items():
        others = {name: found for name, found in values.items() if name != node}
        pairs = {case: _others_and_own(case, own[case], others) for case in own}
        for case, (rest, mine) in pairs.items():
            single[node, case] = compare_groups(rest, mine, margin=margin)
        rounds = list(zip(*(rest for rest, _ in pairs.values()), strict=False))
        own_rounds = list(zip(*(mine for _, mine in pairs.values()), strict=False))
        whole[node] = compare_groups(
            [geometric_mean(one) for one in rounds], [geometric_mean(one) for one in own_rounds], margin=margin
        )
    corrected = dict(zip(single, control_false_discoveries(list(single.values())), strict=True))
    differing = [
        _ratio(node, found, _name(cases[case]))
        for (node, case), found in corrected.items()
        if _VERDICTS.get(found.verdict) == DIFFERS
    ]
    odd = {one.node for one in differing}
    nodes = [_ratio(node, found, differs=node in odd) for node, found in whole.items()]
    return sorted(nodes, key=lambda one: -abs(one.ratio - 1)), sorted(differing, key=lambda one: -abs(one.ratio - 1))


def _others_and_own(
    case: str, own: Mapping[int, float], others: Mapping[str, Mapping[str, Mapping[int, float]]]
) -> tuple[list[float], list[float]]:
    """Return the medians of a case by process: of all other nodes together, and of this one."""
    rest = [geometric_mean([found[case][process] for found in others.values()]) for process in own]
    return rest, list(own.values())


def _ratio(node: str, found: Comparison, case: str = "", *, differs: bool = False) -> NodeRatio:
    verdict = DIFFERS if differs else _VERDICTS.get(found.verdict, UNDECIDED)
    return NodeRatio(node, found.ratio, found.low, found.high, verdict, case)


def _name(case: Case) -> str:
    return f"{case.op} {format_params(case, parameters_of(case.op))}"


# What comparisons ask.


def agreement_of(store: Store, facts: Mapping[str, Any]) -> Agreement | None:
    """Return what `opmark fleet agree` has found last about nodes with the chip of an environment."""
    kept = store.kept(AGREEMENT, chip(dict(facts)))
    return convert(kept, Agreement) if kept else None


def nodes_of(environments: Iterable[str], facts: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the nodes of a fleet that environments belong to; none for what was measured without one."""
    found = (facts.get(environment, {}).get(NODE_FACT) for environment in environments)
    return {str(node) for node in found if node}


def node_group(store: Store, facts: Mapping[str, Any]) -> str:
    """Return the same text for environments whose nodes may be mixed: that of a node, or one for all that agree."""
    node = facts.get(NODE_FACT)
    if not node:
        return ""
    agreement = agreement_of(store, facts)
    return _NOBODY if agreement and agreement.interchangeable({str(node)}) else str(node)
