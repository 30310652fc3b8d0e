"""Selects the cases and the backends of a run, from the names, files and parameters that a person gives."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from opmark.plugin.operator import rules_allow
from opmark.plugin.registry import MODEL, backends, catalogue, operators_like
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.runner.guests.placement import why_missing
from opmark.runner.plan import rank_count
from opmark.runner.ranks.job import JobRank, detect_job, read_job
from opmark.runner.workload_source import WorkloadSource, read_source
from opmark.schema import Case, Entry, Workload
from opmark.schema.options import Selection, as_list, check_type, split_names
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
    """Messages about cases that the requested number of ranks cannot run."""
    place: JobRank | None = None
    """Where a launcher has put this process, if the cases take several processes."""


def select_cases(selection: Selection, seed: int = 0) -> SelectedCases:
    """The cases of operators with parameters, of a workload or of a suite, filtered by name, category, tag and size."""
    ops, phases = split_names(selection.ops), split_names(selection.phase)
    part = WorkloadFilter(*map(split_names, (selection.op, selection.category, selection.tag, selection.size)))
    if not (ops or selection.workload is not None or selection.suite) and (part.names or part.categories):
        ops = _match_operators(part)
    sources = (("operators", ops), ("a workload", selection.workload is not None), ("a suite", selection.suite))
    named = [name for name, present in sources if present]
    if len(named) != 1:
        raise UserError(
            f"expected operators, a workload or a suite, got {' and '.join(named) or 'nothing'}",
            "name an operator, as in matmul, or a workload, -w my.yaml, or a suite, --suite quick",
        )
    source = None
    if selection.workload is not None:
        source = read_source(
            selection.workload,
            seed=seed,
            phases=phases,
            strict=selection.strict,
            allow=split_names(selection.allow),
        )
    left_out: list[str] = []
    if ops:
        operators = [find_operator(name) for op in ops for name in operators_like(op)]
        ranks = _rank_request(selection, operators)
        cases = _expand_operators(operators, selection, part, ranks)
        ranks.check_operators(operators)
    else:
        whole = source or WorkloadSource(f"suite {selection.suite}", suite(str(selection.suite)))
        cases = _expand_workload(selection, whole, part)
        operators = [find_operator(name) for name in dict.fromkeys(case.op for case in cases)]
        ranks = _rank_request(selection, operators)
        ranks.check_operators(operators)
        cases, left_out = ranks.apply_to_cases(cases)
    if selection.part:
        whole_count, cases = len(cases), take_part(cases, selection.part)
        left_out.append(f"part {selection.part}: {len(cases)} of {count_noun(whole_count, 'case')}")
    if selection.sample is not None and selection.sample < len(cases):
        left_out.append(f"a sample of {selection.sample} of {count_noun(len(cases), 'case')}, drawn with seed {seed}")
        cases = draw_sample(cases, selection.sample, seed)
    # Under a launcher, rank 0 alone runs the cases that take one process.
    several = any(map(rank_count, cases))
    return SelectedCases(cases, source, tuple(left_out), read_job(os.environ) if several else detect_job(os.environ))


def take_part(cases: Sequence[Case], part: str) -> list[Case]:
    """The cases of one of several parts, in their order. A case stays in its part whatever else is selected, because
    its own id decides, so that a part that is measured again is compared with itself."""
    number, count = map(int, part.split("/"))
    if number > count:
        raise InvalidParameter(f"part: {part}: there are only {count_noun(count, 'part')}", f"as in --part 1/{count}")
    chosen = [case for case in cases if int(case.id, 16) % count == number - 1]
    if not chosen:
        raise UserError(f"part {part} of {count_noun(len(cases), 'case')} is empty", "choose fewer parts")
    return chosen


def draw_sample(cases: Sequence[Case], count: int, seed: int) -> list[Case]:
    """So many of the cases, in their order: one of each operator, as far as there is room, then any."""
    order = random.Random(seed).sample(range(len(cases)), len(cases))
    firsts = {cases[i].op: i for i in reversed(order)}.values()
    chosen = [*sorted(firsts, key=order.index), *(i for i in order if i not in set(firsts))][:count]
    return [cases[i] for i in sorted(chosen)]


def _rank_request(selection: Selection, operators: Sequence[Operator]) -> RankRequest:
    """The requested ranks, and how many a launcher has started if any of the operators communicates."""
    place = read_job(os.environ) if any(operator.ranks for operator in operators) else None
    return RankRequest(as_list(selection.ranks), as_list(selection.group_size), place.size if place else None)


def _expand_operators(
    operators: Sequence[Operator], selection: Selection, part: WorkloadFilter, ranks: RankRequest
) -> list[Case]:
    wrt = split_names(selection.wrt)
    phases = split_names(selection.phase) or (["backward"] if wrt else ["forward"])
    arguments = (("args", selection.args), ("kwargs", selection.kwargs), ("build", selection.build))
    call = {name: value for name, value in arguments if value is not None}
    entries = []
    for operator in operators:
        if "args" in operator.by_name and not call:
            raise InvalidParameter(
                f"`{operator.name}` is a callable and needs arguments",
                "as in --args '[8x64 float32, 2]' (in Python args=[...]); a class such as torch.nn.Linear also needs "
                "--build '[64, 32]'",
            )
        for name in selection.params or {}:
            check_type("the name of a parameter", name, str)
        params = ranks.add_to_params(operator, selection.params or {})
        sizes = list(part.sizes)
        if (
            operator.presets
            and not sizes
            and not any(param.required and param.name in params for param in operator.params)
        ):
            sizes = ["typical"]  # presets fill in missing parameters
        entries.append(Entry(operator.name, params, sizes, list(phases), wrt=wrt, **call))  # type: ignore[arg-type]
    cases = part.filter_cases(expand(Workload(VERSION, "command line", entries), find_operator), find_operator)
    if not cases:
        raise part.empty_error("what is named")
    return cases


def _expand_workload(selection: Selection, source: WorkloadSource, part: WorkloadFilter) -> list[Case]:
    call = (selection.args, selection.kwargs, selection.build)
    if selection.params or selection.wrt or any(value is not None for value in call):
        raise UserError(
            "parameters, arguments and gradients go with operators; a workload brings its own",
            "name operators, as in `opmark run matmul -p M=256 ...`",
        )
    where, whole = source.where, source.workload
    if source.chips and not whole.cases:
        raise UserError(f"{where}: a hardware file, no workload", "`opmark import` prints it as one of opmark's own")
    sized = part.filter_workload(whole)
    if not sized.cases and whole.cases:
        raise part.empty_error(where)
    every = source.distinct() if source.foreign else expand(sized, find_operator, where, operators_like)
    cases = part.filter_cases(every, find_operator)
    if not cases:
        raise part.empty_error(where, every)
    phases = split_names(selection.phase)
    chosen = [case for case in cases if not phases or case.phase in phases]
    if not chosen:
        raise UserError(f"no case has the phase {' or '.join(phases)}", "leave --phase out to run all of them")
    return chosen


def _match_operators(part: WorkloadFilter) -> list[str]:
    """Names of the operators of the catalogue that a filter selects by name or category."""
    known = sorted({op.category for op in catalogue().values()})
    for category in part.categories:
        if category not in known:
            raise UnknownName("category", category, known, "opmark list categories")
    patterns = part.names or ["*"]
    named = dict.fromkeys(name for pattern in patterns for name in operators_like(pattern, part.categories))
    chosen = [name for name in named if not part.categories or find_operator(name).category in part.categories]
    if not chosen:
        raise part.empty_error("the catalogue")
    return chosen


_ENGINES = {"onnx": "onnxruntime"}
"""Frameworks whose backends have other names."""


def default_backends(cases: Sequence[Case] = ()) -> list[str]:
    """torch on the CPU where it is installed, else NumPy; for a callable of another framework, that framework. A device
    is never used unless it is named."""
    usual = "torch" if find_spec("torch") else "numpy"
    operators = [find_operator(name) for name in dict.fromkeys(case.op for case in cases)]
    elsewhere = [op.implementations[0].framework for op in operators if not _runs_on(op, usual)]
    frameworks = elsewhere if elsewhere and len(elsewhere) == len(operators) else [usual, *elsewhere]
    return [f"{_ENGINES.get(framework, framework)}-cpu" for framework in dict.fromkeys(frameworks)]


def _runs_on(operator: Operator, framework: str) -> bool:
    limited = operator.foreign or operator.category == MODEL  # it has no implementations elsewhere
    return not limited or bool(operator.implementations_for(framework))


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
        parts = [part.strip() for part in re.split(r",(?![^\[({]*[\])}])", values)]  # not at commas inside brackets
        for op in ops:
            operator = find_operator(op)
            if "args" in operator.by_name:  # parameters of a callable have no types
                found[name] = [read_yaml(part, f"-p {name}") for part in parts]
                continue
            param, typed = operator.param(name), list[Any]()
            if param.kind == "arguments":
                found[name] = [param.check(read_yaml(part, f"-p {name}")) for part in parts]
                continue
            for part in parts:
                series = param.spread(part)
                typed += [param.parse(part)] if series is part else series
            found[name] = typed
    return found


def parse_call(name: str, text: str) -> Any:
    """The arguments of a callable, read from the YAML of `--args`, `--kwargs` or `--build`."""
    kinds: dict[str, tuple[type | UnionType, str, str]] = {
        "args": (list, "a list", "[8x64 float32, 2]"),
        "kwargs": (dict, "a mapping", "{dim: 1}"),
        "build": (list | dict, "a list or a mapping", "[64, 32]"),
    }
    kind, expected, example = kinds[name]
    value = read_yaml(text, f"--{name}")
    if not isinstance(value, kind):
        raise InvalidParameter(f"--{name}: expected {expected}, got `{text}`", f"as in --{name} '{example}'")
    return value


def _why_not_here(info: BackendInfo) -> str | None:
    return why_missing(info) or why_no_device(info.device)


def select_backends(
    named: Sequence[str], pythons: Sequence[str] = (), why_not: Callable[[BackendInfo], str | None] = _why_not_here
) -> tuple[list[str], tuple[str, ...]]:
    """(names of backends, each with the interpreter that it is to run in; why `all` or a pattern leaves some out).
    `why_not` says why a backend cannot run where the tasks will."""
    chosen: dict[str, None] = {}
    absent: dict[str, None] = {}
    for name in named:
        if name == ALL or set(name) & set("*?["):
            reasons = {info.name: why_not(info) for info in _match_backends(name)}
            if all(reasons.values()):
                listed = "; ".join(f"{backend}: {reason}" for backend, reason in reasons.items())
                raise UserError(listed, "`opmark list backends`")
            chosen |= {backend: None for backend, reason in reasons.items() if not reason}
            absent |= {f"without {backend}: {reason}": None for backend, reason in reasons.items() if reason}
        else:
            chosen[find_backend(name).name] = None
    if pythons:
        for name in chosen:
            if "@" in name:
                raise UserError(f"backend `{name}` has its interpreter already", "leave --python out")
        chosen = {find_backend(f"{name}@{python}").name: None for name in chosen for python in pythons}
    return list(chosen), tuple(absent)


def _match_backends(pattern: str) -> list[BackendInfo]:
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


@dataclass(frozen=True)
class RankRequest:
    """The numbers of ranks that a person asks for (`--ranks`, `--group-size`); they replace those of a workload."""

    ranks: Sequence[int] = ()
    groups: Sequence[int] = ()
    started: int | None = None
    """Number of ranks that a launcher has started: the default for operators that communicate."""

    def add_to_params(self, operator: Operator, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of an operator with these ranks. Raise InvalidParameter where both name a number of ranks."""
        axes = self._axes(operator)
        for name, option in (("ranks", "--ranks"), ("group", "--group-size")):
            if name in params and name in axes:
                if self.ranks or self.groups:
                    raise InvalidParameter(f"-p {name}=... and {option} say the same thing", "leave one of them out")
                del axes[name]
        return {**params, **axes}

    def apply_to_cases(self, cases: Sequence[Case]) -> tuple[list[Case], list[str]]:
        """(the cases of a workload with these ranks; messages about cases that so many ranks cannot run)."""
        if not self.ranks and not self.groups and not self.started:
            return list(cases), []
        found: dict[str, Case] = {}
        out: list[Case] = []
        for case in cases:
            operator = find_operator(case.op)
            for other in _with_ranks(case, self._axes(operator)):
                if rules_allow(operator, other.params):
                    found.setdefault(other.id, other)
                else:
                    out.append(other)
        if not found:
            raise InvalidParameter(
                "no case of this workload can be done by so many ranks",
                "`opmark describe OP` lists an operator's rules",
            )
        if not out:
            return list(found.values()), []
        names = ", ".join(dict.fromkeys(case.op for case in out))
        return list(found.values()), [f"left out {count_noun(len(out), 'case')} that so many ranks cannot do: {names}"]

    def check_operators(self, operators: Sequence[Operator]) -> None:
        """Raise InvalidParameter where ranks are requested and none of the operators takes several processes."""
        option = "ranks" if self.ranks else "group-size"
        if (self.ranks or self.groups) and not any(_has_rank_param(operator, "ranks") for operator in operators):
            meant = [f"`{operator.name}_ranks`" for operator in operators if f"{operator.name}_ranks" in catalogue()]
            near = f"did you mean {', '.join(meant)}? " if meant else ""
            raise InvalidParameter(
                f"--{option}: none of these operators takes several processes",
                f"{near}`opmark list ops --category communication` lists those that do",
            )

    def _axes(self, operator: Operator) -> dict[str, list[int]]:
        """The rank parameters of an operator. Ranks that a launcher started are only for operators that communicate:
        a copy may run alone."""
        ranks = self.ranks or ([self.started] if self.started and operator.ranks else [])
        axes = {"ranks": list(ranks), "group": list(self.groups)}
        return {name: values for name, values in axes.items() if values and _has_rank_param(operator, name)}


def _with_ranks(case: Case, axes: Mapping[str, Sequence[int]]) -> Iterator[Case]:
    for point in product(*axes.values()):
        params = {**case.params, **dict(zip(axes, point, strict=True))}
        other = Case.of(
            case.op, params, case.phase, case.tags, case.wrt, case.sources, count=case.count, duration=case.duration
        )
        yield other if axes else case


def _has_rank_param(operator: Operator, name: str) -> bool:
    return name in operator.by_name and operator.by_name[name].kind == "rank"
