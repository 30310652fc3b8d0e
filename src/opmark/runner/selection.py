"""From a selection to cases, and from names to backends: what a run is made of before it is planned."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.util import find_spec
from itertools import product
from types import UnionType
from typing import Any

from opmark.catalogue.expansion import WorkloadFilter, expand
from opmark.catalogue.workload_file import read_yaml, suite
from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.hardware.host import why_no_device
from opmark.plugin import BackendInfo, Operator
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import backends, catalogue, operators_like
from opmark.plugin.registry import operator as find_operator
from opmark.runner.guests.placement import why_missing
from opmark.runner.plan import rank_count
from opmark.runner.ranks.job import JobRank, detect_job, outside
from opmark.runner.workload_source import WorkloadSource, read_source
from opmark.schema import Case, Entry, Workload
from opmark.schema.options import Selection, as_list, split_names
from opmark.schema.workload import VERSION
from opmark.units import count_noun

ALL = "all"
# A backend whose device another backend names as well is not among `all`.
_ANY_DEVICE = "accelerator"


@dataclass(frozen=True)
class SelectedCases:
    cases: list[Case]
    source: WorkloadSource | None = None
    """The workload that the cases are from."""
    left_out: tuple[str, ...] = ()
    """What so many ranks cannot do, in words."""
    place: JobRank | None = None
    """Where a launcher has put this process, if the cases take several processes."""


def select_cases(selection: Selection, seed: int = 0) -> SelectedCases:
    """The cases of operators with parameters, of a workload, or of a suite; of these, the part that is selected."""
    ops, phases = split_names(selection.ops), split_names(selection.phase)
    part = WorkloadFilter(*map(split_names, (selection.op, selection.category, selection.tag, selection.size)))
    if not (ops or selection.workload is not None or selection.suite) and (part.names or part.categories):
        ops = _operators_of(part)
    _refuse_all_but_one(ops, selection.workload, selection.suite)
    source = None
    if selection.workload is not None:
        source = read_source(selection.workload, seed=seed, phases=phases, strict=selection.strict)
    left_out: list[str] = []
    if ops:
        operators = [find_operator(name) for op in ops for name in operators_like(op)]
        ranks = _ranks_asked(selection, operators)
        cases = _cases_of_operators(operators, selection, part, ranks)
        ranks.refuse_if_nobody(operators)
    else:
        whole = source or WorkloadSource(f"suite {selection.suite}", suite(str(selection.suite)))
        cases = _cases_of_workload(selection, whole, part)
        operators = [find_operator(name) for name in dict.fromkeys(case.op for case in cases)]
        ranks = _ranks_asked(selection, operators)
        ranks.refuse_if_nobody(operators)
        cases, left_out = ranks.instead(cases)
    # Cases that take one process are done by rank 0 alone, where a launcher has surely started several.
    several = any(map(rank_count, cases))
    return SelectedCases(cases, source, tuple(left_out), outside(os.environ) if several else detect_job(os.environ))


def _ranks_asked(selection: Selection, operators: Sequence[Operator]) -> RankRequest:
    """The ranks that are asked for, and how many a launcher has started if any of the operators communicates."""
    place = outside(os.environ) if any(operator.ranks for operator in operators) else None
    return RankRequest(as_list(selection.ranks), as_list(selection.group_size), place.size if place else None)


def _cases_of_operators(
    operators: Sequence[Operator], selection: Selection, part: WorkloadFilter, ranks: RankRequest
) -> list[Case]:
    wrt = split_names(selection.wrt)
    phases = split_names(selection.phase) or (["backward"] if wrt else ["forward"])
    given = (("args", selection.args), ("kwargs", selection.kwargs), ("build", selection.build))
    call = {name: value for name, value in given if value is not None}
    entries = [
        _entry(operator, ranks.beside(operator, selection.params or {}), part.sizes, phases, wrt, call)
        for operator in operators
    ]
    cases = part.of_cases(expand(Workload(VERSION, "command line", entries), find_operator), find_operator)
    if not cases:
        raise part.nothing("what is named")
    return cases


def _cases_of_workload(selection: Selection, source: WorkloadSource, part: WorkloadFilter) -> list[Case]:
    call = (selection.args, selection.kwargs, selection.build)
    if selection.params or selection.wrt or any(value is not None for value in call):
        raise UserError(
            "parameters, arguments and gradients go with operators; a workload brings its own",
            "name operators, as in `opmark run matmul -p M=256 ...`",
        )
    where, whole = source.where, source.workload
    if source.chips and not whole.cases:
        raise UserError(f"{where}: a hardware file, no workload", "`opmark import` prints it as one of opmark's own")
    sized = part.of_sizes(whole)
    if not sized.cases and whole.cases:
        raise part.nothing(where)
    every = source.distinct() if source.foreign else expand(sized, find_operator, where, operators_like)
    cases = part.of_cases(every, find_operator)
    if not cases:
        raise part.nothing(where, every)
    phases = split_names(selection.phase)
    chosen = [case for case in cases if not phases or case.phase in phases]
    if not chosen:
        raise UserError(f"no case has the phase {' or '.join(phases)}", "leave --phase out to run all of them")
    return chosen


def _operators_of(part: WorkloadFilter) -> list[str]:
    """The names of the operators of the catalogue that are selected by name or category."""
    known = sorted({op.category for op in catalogue().values()})
    for category in part.categories:
        if category not in known:
            raise UnknownName("category", category, known, "opmark list categories")
    patterns = part.names or ["*"]
    named = dict.fromkeys(name for pattern in patterns for name in operators_like(pattern, part.categories))
    chosen = [name for name in named if not part.categories or find_operator(name).category in part.categories]
    if not chosen:
        raise part.nothing("the catalogue")
    return chosen


def _refuse_all_but_one(ops: Sequence[str], workload: object, suite_name: str | None) -> None:
    named = (("operators", bool(ops)), ("a workload", workload is not None), ("a suite", bool(suite_name)))
    given = [name for name, there in named if there]
    if len(given) != 1:
        what = " and ".join(given) if given else "nothing"
        raise UserError(
            f"expected operators, a workload or a suite, got {what}",
            "as in `opmark run matmul`, `opmark run -w my.yaml`, `opmark run --suite quick`",
        )


def _entry(
    operator: Operator,
    params: Mapping[str, Any],
    sizes: Sequence[str],
    phases: Sequence[str],
    wrt: Sequence[str],
    call: Mapping[str, Any],
) -> Entry:
    """Presets of the sizes fill in the parameters that are not given; with nothing given, the size is `typical`."""
    if not operator.presets:
        return Entry(operator.name, dict(params), list(sizes), list(phases), wrt=list(wrt), **call)  # type: ignore[arg-type]
    required = {param.name for param in operator.params if param.required}
    chosen = list(sizes) or ([] if required & set(params) else ["typical"])
    return Entry(operator.name, dict(params), chosen, list(phases), wrt=list(wrt), **call)  # type: ignore[arg-type]


def default_backends(cases: Sequence[Case] = ()) -> list[str]:
    """torch where it is installed, else NumPy, which always is; for a callable of another framework, that framework on
    the CPU. A device is never taken unasked."""
    usual = "torch" if find_spec("torch") else "numpy"
    operators = [find_operator(name) for name in dict.fromkeys(case.op for case in cases)]
    elsewhere = [op.implementations[0].framework for op in operators if not _runs_on(op, usual)]
    frameworks = elsewhere if elsewhere and len(elsewhere) == len(operators) else [usual, *elsewhere]
    return [f"{framework}-cpu" for framework in dict.fromkeys(frameworks)]


def _runs_on(operator: Operator, framework: str) -> bool:
    return not operator.foreign or bool(operator.implementations_for(framework))


def parse_params(ops: Sequence[str], given: Sequence[str]) -> dict[str, Any]:
    """The parameters of `-p K=64,128`, typed by the operators, which must all know the name."""
    if given and not ops:
        raise UserError("-p goes with operators; a workload brings its own parameters", "as in `opmark run exp -p ...`")
    found: dict[str, Any] = {}
    ops = [name for op in ops for name in operators_like(op)]
    for text in given:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise InvalidParameter(f"-p {text}: expected NAME=VALUE or NAME=VALUE,VALUE", "as in -p K=64,128")
        if name in found:
            raise InvalidParameter(f"-p {text}: `{name}` is given twice", f"-p {name}=A,B makes an axis")
        for op in ops:
            found[name] = [value for part in _split(values) for value in _parse(find_operator(op), name, part)]
    return found


def parse_call(name: str, text: str) -> Any:
    """What a callable is called with, read from the YAML of `--args`, `--kwargs` or `--build`."""
    kinds: dict[str, tuple[type | UnionType, str]] = {
        "args": (list, "a list, as in [8x64 float32, 2]"),
        "kwargs": (dict, "a mapping, as in {dim: 1}"),
        "build": (list | dict, "a list or a mapping"),
    }
    kind, expected = kinds[name]
    value = read_yaml(text, f"--{name}")
    if not isinstance(value, kind):
        raise InvalidParameter(f"--{name}: expected {expected}, got `{text}`")
    return value


def _parse(operator: Operator, name: str, value: str) -> list[Any]:
    """The values that a text stands for, typed by the operator; parameters of a callable are read as YAML."""
    if "args" in operator.by_name:
        return [read_yaml(value, f"-p {name}")]
    param = operator.param(name)
    spread = param.spread(value)
    return spread if spread is not value else [param.parse(value)]


def _split(values: str) -> list[str]:
    """Split at commas that are not inside brackets."""
    return [part.strip() for part in re.split(r",(?![^\[(]*[\])])", values)]


def select_backends(named: Sequence[str], pythons: Sequence[str] = ()) -> tuple[list[str], tuple[str, ...]]:
    """Names of backends, each with the interpreter that it is to run in, and why `all` or a pattern leaves some out."""
    chosen: dict[str, None] = {}
    absent: dict[str, None] = {}
    for name in named:
        if name == ALL or set(name) & set("*?["):
            matching = _matching(name)
            there, gone = _here(matching)
            chosen |= dict.fromkeys(there)
            absent |= dict.fromkeys(gone)
        else:
            chosen[find_backend(name).name] = None
    if pythons:
        chosen = {_at(name, python): None for name in chosen for python in pythons}
    return list(chosen), tuple(absent)


def _at(name: str, python: str) -> str:
    if "@" in name:
        raise UserError(f"backend `{name}` has its interpreter already", "leave --python out")
    return find_backend(f"{name}@{python}").name


def _matching(pattern: str) -> list[BackendInfo]:
    """Backends that compute and match a pattern, which may also name variants, as in `openvino-cpu/*`."""
    known = [info for info in backends().values() if info.computes and info.device != _ANY_DEVICE]
    if pattern == ALL:
        return known
    names = {info.name: None for info in known}
    names |= {find_backend(f"{info.name}/{way}").name: None for info in known for way in info.variants}
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise UnknownName("backend", pattern, names, "opmark list backends")
    return [find_backend(name) for name in found]


def _here(infos: Sequence[BackendInfo]) -> tuple[list[str], list[str]]:
    reasons = {info.name: why_missing(info) or why_no_device(info.device) for info in infos}
    there = [name for name, reason in reasons.items() if not reason]
    if not there:
        raise UserError("; ".join(f"{name}: {reason}" for name, reason in reasons.items()), "`opmark list backends`")
    return there, [f"without {name}: {reason}" for name, reason in reasons.items() if reason]


# How many ranks a person asks for, as cases: what a workload says of it gives way.


@dataclass(frozen=True)
class RankRequest:
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
    return [f"left out {count_noun(len(out), 'case')} that so many ranks cannot do: {names}"]


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
