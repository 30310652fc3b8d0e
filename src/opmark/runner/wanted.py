"""What a person wants to be measured: cases, whatever they were named by, and the process's place among others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from opmark.registry import operator as find_operator
from opmark.runner.intake import Intake, Source, take_in
from opmark.runner.plan import processes
from opmark.runner.ranks.asked import Asked
from opmark.runner.ranks.launcher import Place, launched, outside
from opmark.runner.request import cases_for
from opmark.schema import Case, Operator
from opmark.workloads.select import Selection


@dataclass(frozen=True)
class Wanted:
    cases: list[Case]
    taken: Intake | None = None
    """The workload that they are from."""
    left_out: tuple[str, ...] = ()
    place: Place | None = None
    """Where a launcher has put this process, if the cases take several of them."""


def wanted(
    ops: str | Sequence[str] = (),
    *,
    workload: Source | None = None,
    suite: str | None = None,
    op: str | Sequence[str] = (),
    category: str | Sequence[str] = (),
    tag: str | Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
    size: str | Sequence[str] = (),
    phase: str | Sequence[str] = (),
    wrt: str | Sequence[str] = (),
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    build: Mapping[str, Any] | Sequence[Any] | None = None,
    ranks: int | Sequence[int] = (),
    group_size: int | Sequence[int] = (),
    seed: int = 0,
    strict: bool = False,
) -> Wanted:
    taken = None if workload is None else take_in(workload, seed=seed, phases=many(phase), strict=strict)
    call = {name: value for name, value in (("args", args), ("kwargs", kwargs), ("build", build)) if value is not None}
    selection = Selection(many(op), many(category), many(tag), many(size))
    asked, here = Asked(numbers(ranks), numbers(group_size)), cache(partial(outside, os.environ))

    def told(operators: Sequence[Operator]) -> Asked:
        """With what a launcher has started, which is looked at only for those that communicate."""
        place = here() if any(operator.ranks for operator in operators) else None
        return replace(asked, started=place.size if place else None)

    def beside(operator: Operator) -> Mapping[str, Any]:
        return told([operator]).beside(operator, params or {})

    named = cases_for(many(ops), params or {}, many(phase), taken, suite, many(wrt), call, selection, beside)
    operators = [find_operator(name) for name in dict.fromkeys(case.op for case in named)]
    asked.refuse_if_nobody(operators)
    cases, left_out = named, list[str]()
    if taken is not None or suite is not None:
        cases, left_out = told(operators).instead(named)
    # What takes one process is done by rank 0 alone, where a launcher has surely started several.
    place = here() if any(map(processes, cases)) else launched(os.environ)
    return Wanted(cases, taken, tuple(left_out), place)


ARGUMENTS = frozenset(wanted.__kwdefaults__ or ())
"""Of `wanted`, by name."""
OF_CASES = ARGUMENTS - {"seed"}
"""Those that nobody else needs: the seed is also for the data."""


def numbers(value: int | Sequence[int]) -> Sequence[int]:
    return value if isinstance(value, Sequence) else [value]


def many(value: str | Sequence[str]) -> list[str]:
    """As on the command line, a text may name several."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else list(value)
