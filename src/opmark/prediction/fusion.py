"""Fusion: the program that a compiler makes of operators, and how long a program takes as a whole.

What passes over its data row by row joins what it reads from, as torch.compile does it: the values between them stay in
registers. Products, convolutions, attention, pooling and sorting stay calls of libraries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opmark.prediction.samples import ROWS, class_of
from opmark.schema.call_sizes import CalledOperator, CallSizes
from opmark.schema.schedule import DescribedProgram, OperatorGraph, topological_order, unit_needs

_FUSED = frozenset({ROWS, "softmax", "reduction", "callable"})
"""Classes of operators that are fused with each other."""
_LIBRARY = ("conv", "mm", "attention", "pool", "sort", "topk", "embedding", "linalg", "fft", "index", "scatter")
"""Parts of the names of callables that a library computes."""


def fuse(program: DescribedProgram) -> DescribedProgram:
    """Return the program of a compiler: groups of operators as one call that reads and writes what crosses the border
    of the group. Views, which cost it nothing, are left out."""
    graph = program.graph
    group_of: dict[int, int] = {}
    members: dict[int, list[int]] = {}
    for number, needs in enumerate(graph.needs):
        joined = next(
            (group_of[one] for one in reversed(needs) if _may_join(program, group_of[one], number, group_of, members)),
            number,
        )
        group_of[number] = joined
        members.setdefault(joined, []).append(number)
    groups = list(members.values())
    before = unit_needs(groups, graph.needs)
    order = topological_order(before)
    place = {group: index for index, group in enumerate(order)}
    fused = OperatorGraph(
        ["+".join(graph.operators[one].rpartition("::")[2] for one in groups[group]) for group in order],
        [sorted(place[other] for other in before[group]) for group in order],
        f"{graph.digest} fused",
        [graph.nbytes[groups[group][-1]] for group in order],
    )
    return DescribedProgram(fused, [_joined(program, groups[group]) for group in order])


def _may_join(
    program: DescribedProgram, group: int, number: int, group_of: Mapping[int, int], members: Mapping[int, list[int]]
) -> bool:
    """Return whether an operator may be computed with a group: both pass over data, or it is a view, and nothing that
    is not in the group has to run between them."""
    together = [*members[group], number]
    if not _is_view(program, number) and not all(_fuses(call) for one in together for call in program.calls[one]):
        return False
    # No other group that the operator needs may need this one, directly or through others.
    left = [group_of[one] for one in program.graph.needs[number] if group_of[one] != group]
    seen: set[int] = set()
    while left:
        other = left.pop()
        if other == group:
            return False
        if other not in seen:
            seen.add(other)
            left += [group_of[one] for member in members[other] for one in program.graph.needs[member]
                     if group_of[one] != other]  # fmt: skip
    return True


def _is_view(program: DescribedProgram, number: int) -> bool:
    return not program.calls[number]


def _fuses(call: CalledOperator) -> bool:
    name = call.entry.op if call.entry else call.sizes.operator
    return class_of(name) in _FUSED and not any(part in name for part in _LIBRARY)


def _joined(program: DescribedProgram, own: Sequence[int]) -> list[CalledOperator]:
    """Return the calls of a group: one, where operators were fused."""
    calls = [call for one in own for call in program.calls[one]]
    if len(calls) < 2 or not all(map(_fuses, calls)):
        return calls
    graph = program.graph
    # What follows from the calls of the group; a view of anything else is read as it is.
    computed: set[int] = set()
    for one in own:
        if program.calls[one] or computed & set(graph.needs[one]):
            computed.add(one)
    sources = {before: graph.nbytes[before] for one in computed for before in graph.needs[one]
               if before not in computed}  # fmt: skip
    # Weights and inputs of the program have no operator: they are what a call reads beside its producers.
    given = sum(
        max(0.0, sum(call.sizes.nbytes - call.sizes.written for call in program.calls[one])
            - sum(graph.nbytes[before] for before in graph.needs[one]))
        for one in computed
    )  # fmt: skip
    # Values that are used outside of the group, if only through a view, and results of the program.
    leaving: set[int] = set()
    for one in sorted(computed, reverse=True):
        users = _users(program, one)
        if not users or any(user not in computed or (user in leaving and _is_view(program, user)) for user in users):
            leaving.add(one)
    written = float(sum(graph.nbytes[one] for one in leaving if program.calls[one]))
    largest = max(calls, key=lambda call: call.sizes.nbytes)
    sizes = CallSizes(
        largest.entry.op if largest.entry else largest.sizes.operator, 1, largest.sizes.m, largest.sizes.n, 1,
        sum(call.sizes.flops for call in calls), written + sum(sources.values()) + given, written=written,
    )  # fmt: skip
    return [CalledOperator(None, sizes, largest.dtype)]


def _users(program: DescribedProgram, number: int) -> list[int]:
    return [user for user, needs in enumerate(program.graph.needs) if number in needs]


def queue_seconds(works: Sequence[float], launch: float) -> float:
    """Return when a device is done with calls that a host launches one after the other: a call begins when it is
    launched and the one before is done."""
    host = device = 0.0
    for work in works:
        host += launch
        if work:  # a view is work of the host alone
            device = max(host, device) + work
    return max(host, device)
