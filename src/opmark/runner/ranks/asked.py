"""How many ranks a person asks for, as cases: what a workload says of it gives way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from opmark.errors import InvalidParameter
from opmark.registry import operator as find_operator
from opmark.schema import Case, Operator
from opmark.units import counted

MOST_RANKS = 65_536


def of_ranks(
    cases: Sequence[Case], ranks: Sequence[int], groups: Sequence[int], *, strict: bool
) -> tuple[list[Case], list[str]]:
    """(every case that takes several processes, with these numbers of them; what is left out because it cannot be).

    With `strict`, what cannot be is an InvalidParameter: a person has named it.
    """
    if not ranks and not groups:
        return list(cases), []
    _check("ranks", ranks)
    _check("group-size", groups)
    found: dict[str, Case] = {}
    out: list[Case] = []
    for case in cases:
        for other in _variants(case, find_operator(case.op), ranks, groups):
            if strict or _allowed(other):
                if strict:
                    find_operator(other.op).check_rules(other.params)
                found.setdefault(other.id, other)
            else:
                out.append(other)
    _somebody(cases, found, ranks)
    return list(found.values()), _said(out)


def _said(out: Sequence[Case]) -> list[str]:
    if not out:
        return []
    names = ", ".join(dict.fromkeys(case.op for case in out))
    return [f"left out {counted(len(out), 'case')} that so many ranks cannot do: {names}"]


def _variants(case: Case, operator: Operator, ranks: Sequence[int], groups: Sequence[int]) -> Iterator[Case]:
    """Only what an operator has is changed; one that knows of no ranks stays as it is."""
    axes = {name: values for name, values in (("ranks", ranks), ("group", groups)) if values and _has(operator, name)}
    for point in product(*axes.values()):
        params = {**case.params, **dict(zip(axes, point, strict=True))}
        yield Case.of(case.op, params, case.phase, case.tags, case.wrt, case.sources) if axes else case


def _has(operator: Operator, name: str) -> bool:
    return name in operator.by_name and operator.by_name[name].kind == "rank"


def _allowed(case: Case) -> bool:
    try:
        find_operator(case.op).check_rules(case.params)
    except InvalidParameter:
        return False
    return True


def _check(name: str, values: Sequence[int]) -> None:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_RANKS:
            raise InvalidParameter(
                f"--{name}: expected a whole number from 1 to {MOST_RANKS}, got {value!r}", f"as in --{name} 2,4"
            )


def _somebody(cases: Sequence[Case], found: dict[str, Case], ranks: Sequence[int]) -> None:
    if not any(_has(find_operator(case.op), "ranks") for case in cases):
        raise InvalidParameter(
            f"--{'ranks' if ranks else 'group-size'}: none of these operators takes several processes",
            "`opmark list ops --category communication` lists those that do",
        )
    if not found:
        raise InvalidParameter(
            "no case of this workload can be done by so many ranks", "`opmark describe OP` lists an operator's rules"
        )
