"""Fusion: the program that a compiler makes of operators, and how long a program takes as a whole.

What passes over its data row by row joins what it reads from, as torch.compile does it: the values between them stay in
registers. Products, convolutions, attention, pooling and sorting stay calls of libraries.
"""

from __future__ import annotations

from collections.abc import Sequence

from opmark.prediction.samples import ROWS, class_of
from opmark.schema.call_sizes import CalledOperator, CallSizes
from opmark.schema.schedule import DescribedProgram, OperatorGraph

_FUSED = frozenset({ROWS, "softmax", "reduction", "callable"})
"""Classes of operators that are fused with each other."""
_LIBRARY = ("conv", "mm", "attention", "pool", "sort", "topk", "embedding", "linalg", "fft", "index", "scatter")
"""Parts of the names of callables that a library computes."""


def fuse(program: DescribedProgram) -> DescribedProgram:
    """Return the program of a compiler: groups of operators as one call that reads and writes what crosses the border
    of the group. Views, which cost it nothing, are left out."""
    graph = program.graph
    group_of: dict[int, int] = {}
    before: list[frozenset[int]] = []
    members: dict[int, list[int]] = {}
    for number in range(len(program.calls)):
        needs = graph.needs[number]
        before.append(frozenset(needs).union(*(before[one] for one in needs)))
        joined = next(
            (group for one in reversed(needs) if (group := group_of.get(one)) is not None
             and _may_join(program, members[group], number, before)),
            number,
        )  # fmt: skip
        group_of[number] = joined
        members.setdefault(joined, []).append(number)
    order = sorted(members, key=lambda group: members[group][-1])
    place = {group: index for index, group in enumerate(order)}
    calls: list[list[CalledOperator]] = []
    names, found_needs, nbytes = [], [], []
    for group in order:
        own = members[group]
        calls.append(_joined(program, own, group_of))
        names.append("+".join(graph.operators[one].rpartition("::")[2] for one in own))
        found_needs.append(sorted({place[group_of[b]] for one in own for b in graph.needs[one]} - {place[group]}))
        nbytes.append(graph.nbytes[own[-1]])
    return DescribedProgram(OperatorGraph(names, found_needs, f"{graph.digest} fused", nbytes), calls)


def _may_join(program: DescribedProgram, group: Sequence[int], number: int, before: Sequence[frozenset[int]]) -> bool:
    """Return whether an operator may be computed with a group: both pass over data, and nothing that is not in the
    group has to run between them."""
    if not _is_view(program, number) and not all(_fuses(call) for call in program.calls[number]):
        return False
    if not all(_fuses(call) for one in group for call in program.calls[one]):
        # A view of what a library has computed goes with it.
        return _is_view(program, number)
    outside = set(program.graph.needs[number]) - set(group)
    return not any(before[one] & set(group) for one in outside)


def _is_view(program: DescribedProgram, number: int) -> bool:
    return not program.calls[number]


def _fuses(call: CalledOperator) -> bool:
    name = call.entry.op if call.entry else call.sizes.operator
    return class_of(name) in _FUSED and not any(part in name for part in _LIBRARY)


def _joined(program: DescribedProgram, own: Sequence[int], group_of: dict[int, int]) -> list[CalledOperator]:
    calls = [call for one in own for call in program.calls[one]]
    if len(calls) < 2 or not all(map(_fuses, calls)):
        return calls
    graph, inside = program.graph, set(own)
    results = {one: graph.nbytes[one] for one in own}
    sources = {before: graph.nbytes[before] for one in own for before in graph.needs[one] if before not in inside}
    # Weights and inputs of the program have no operator: they are what a call reads beside its producers.
    given = sum(
        max(0.0, sum(call.sizes.nbytes - call.sizes.written for call in program.calls[one])
            - sum(graph.nbytes[before] for before in graph.needs[one]))
        for one in own
    )  # fmt: skip
    used = {before for number, needs in enumerate(graph.needs) if number not in inside for before in needs}
    last = [one for one in own if one in used or not any(one in graph.needs[other] for other in own)]
    written = float(sum(results[one] for one in last if program.calls[one]))
    largest = max(calls, key=lambda call: call.sizes.nbytes)
    sizes = CallSizes(
        largest.entry.op if largest.entry else largest.sizes.operator, 1, largest.sizes.m, largest.sizes.n, 1,
        sum(call.sizes.flops for call in calls), written + sum(sources.values()) + given, written=written,
    )  # fmt: skip
    return [CalledOperator(None, sizes, largest.dtype)]


def queue_seconds(works: Sequence[float], launch: float) -> float:
    """Return when a device is done with calls that a host launches one after the other: a call begins when it is
    launched and the one before is done."""
    host = device = 0.0
    for work in works:
        host += launch
        if work:  # a view is work of the host alone
            device = max(host, device) + work
    return max(host, device)
