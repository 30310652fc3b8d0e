"""How many ranks a person asks for, as cases: what a workload says of it gives way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from opmark.errors import InvalidParameter
from opmark.registry import catalogue
from opmark.registry import operator as find_operator
from opmark.schema import Case, Operator
from opmark.units import counted


@dataclass(frozen=True)
class Asked:
    """`--ranks` and `--group-size`."""

    ranks: Sequence[int] = ()
    groups: Sequence[int] = ()
    started: int | None = None
    """By a launcher: what all communication takes if nobody says otherwise."""

    def beside(self, operator: Operator, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of an operator that a person has named, with these: both at once say it twice."""
        axes = self._axes(operator)
        for name, option in (("ranks", "--ranks"), ("group", "--group-size")):
            if name in params and name in axes:
                if self.ranks or self.groups:
                    raise InvalidParameter(f"-p {name}=... and {option} say the same thing", "leave one of them out")
                del axes[name]
        return {**params, **axes}

    def instead(self, cases: Sequence[Case]) -> tuple[list[Case], list[str]]:
        """(every case of a workload with these; what is left out because so many ranks cannot do it)."""
        if not self.ranks and not self.groups and not self.started:
            return list(cases), []
        found: dict[str, Case] = {}
        out: list[Case] = []
        for case in cases:
            operator = find_operator(case.op)
            for other in _variants(case, self._axes(operator)):
                if _allowed(operator, other):
                    found.setdefault(other.id, other)
                else:
                    out.append(other)
        if not found:
            raise InvalidParameter(
                "no case of this workload can be done by so many ranks",
                "`opmark describe OP` lists an operator's rules",
            )
        return list(found.values()), _said(out)

    def refuse_if_nobody(self, operators: Sequence[Operator]) -> None:
        """Ranks of what takes none are a mistake."""
        asked = "ranks" if self.ranks else "group-size"
        if (self.ranks or self.groups) and not any(_has(operator, "ranks") for operator in operators):
            meant = [f"`{operator.name}_ranks`" for operator in operators if f"{operator.name}_ranks" in catalogue()]
            near = f"did you mean {', '.join(meant)}? " if meant else ""
            raise InvalidParameter(
                f"--{asked}: none of these operators takes several processes",
                f"{near}`opmark list ops --category communication` lists those that do",
            )

    def _axes(self, operator: Operator) -> dict[str, list[int]]:
        """Only what an operator has. What was started is for those that communicate: a copy may well go alone."""
        ranks = self.ranks or ([self.started] if self.started and operator.ranks else [])
        axes = {"ranks": list(ranks), "group": list(self.groups)}
        return {name: values for name, values in axes.items() if values and _has(operator, name)}


def _said(out: Sequence[Case]) -> list[str]:
    if not out:
        return []
    names = ", ".join(dict.fromkeys(case.op for case in out))
    return [f"left out {counted(len(out), 'case')} that so many ranks cannot do: {names}"]


def _variants(case: Case, axes: Mapping[str, Sequence[int]]) -> Iterator[Case]:
    for point in product(*axes.values()):
        params = {**case.params, **dict(zip(axes, point, strict=True))}
        yield Case.of(case.op, params, case.phase, case.tags, case.wrt, case.sources) if axes else case


def _has(operator: Operator, name: str) -> bool:
    return name in operator.by_name and operator.by_name[name].kind == "rank"


def _allowed(operator: Operator, case: Case) -> bool:
    try:
        operator.check_rules(case.params)
    except InvalidParameter:
        return False
    return True
