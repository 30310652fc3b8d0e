"""What a person asks for, in words, as cases."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.registry import catalogue, operators_like
from opmark.registry import operator as find_operator
from opmark.runner.intake import Intake, Source, take_in
from opmark.schema import PHASES, Case, Entry, Operator, Workload
from opmark.schema.workload import VERSION
from opmark.workloads.expand import expand
from opmark.workloads.load import read_yaml, suite
from opmark.workloads.select import Selection


def cases_for(
    ops: Sequence[str],
    params: Mapping[str, Any],
    phases: Sequence[str],
    workload: Source | Intake | None,
    suite_name: str | None,
    wrt: Sequence[str] = (),
    call: Mapping[str, Any] | None = None,
    selection: Selection | None = None,
    beside: Callable[[Operator], Mapping[str, Any]] | None = None,
) -> list[Case]:
    """The cases of operators with parameters, or of a workload file, or of a suite; of these, what is selected.

    With a selection alone, of all operators. `beside`: the parameters for an operator, where they are not the same for
    all.
    """
    wanted = selection or Selection()
    if not (ops or workload is not None or suite_name) and (wanted.names or wanted.categories):
        ops = _selected(wanted)
    _exactly_one(ops, workload, suite_name)
    for phase in phases:
        if phase not in PHASES:
            raise UnknownName("phase", phase, PHASES)
    if ops:
        phases = phases or (["backward"] if wrt else ["forward"])
        named = [name for op in ops for name in operators_like(op)]
        given = beside or (lambda operator: params)
        operators = [find_operator(name) for name in named]
        entries = [_entry(one, given(one), wanted.sizes, phases, wrt, call or {}) for one in operators]
        named_cases = expand(Workload(VERSION, "command line", entries), find_operator)
        cases = wanted.of_cases(named_cases, find_operator)
        if not cases:
            raise wanted.nothing("what is named")
        return cases
    if params or wrt or call:
        raise UserError(
            "parameters, arguments and gradients go with operators; a workload brings its own",
            "name operators, as in `opmark run matmul -p M=256 ...`",
        )
    if workload is None:
        taken = Intake(f"suite {suite_name}", suite(str(suite_name)))
    else:
        taken = workload if isinstance(workload, Intake) else take_in(workload, phases=phases)
    return _of_phases(_of_workload(taken, wanted), phases)


def _of_workload(taken: Intake, wanted: Selection) -> list[Case]:
    where, whole = taken.where, taken.workload
    if taken.chips and not whole.cases:
        raise UserError(f"{where}: a hardware file, no workload", "`opmark import` prints it as one of opmark's own")
    part = wanted.of_sizes(whole)
    if not part.cases and whole.cases:
        raise wanted.nothing(where)
    every = taken.distinct() if taken.foreign else expand(part, find_operator, where, operators_like)
    cases = wanted.of_cases(every, find_operator)
    if not cases:
        raise wanted.nothing(where, every)
    return cases


def _selected(wanted: Selection) -> list[str]:
    """Of all operators of the catalogue."""
    known = sorted({op.category for op in catalogue().values()})
    for category in wanted.categories:
        if category not in known:
            raise UnknownName("category", category, known, "opmark list categories")
    patterns = wanted.names or ["*"]
    named = dict.fromkeys(name for pattern in patterns for name in operators_like(pattern, wanted.categories))
    chosen = [name for name in named if not wanted.categories or find_operator(name).category in wanted.categories]
    if not chosen:
        raise wanted.nothing("the catalogue")
    return chosen


def default_backends(cases: Sequence[Case] = ()) -> list[str]:
    """torch where it is installed, else NumPy, which always is; for a callable of another framework, that one on the
    CPU. A device is never taken unasked."""
    usual = "torch" if find_spec("torch") else "numpy"
    operators = [find_operator(name) for name in dict.fromkeys(case.op for case in cases)]
    elsewhere = [op.implementations[0].framework for op in operators if not _runs_on(op, usual)]
    frameworks = elsewhere if elsewhere and len(elsewhere) == len(operators) else [usual, *elsewhere]
    return [f"{framework}-cpu" for framework in dict.fromkeys(frameworks)]


def _runs_on(operator: Operator, framework: str) -> bool:
    return not operator.foreign or bool(operator.implementations_for(framework))


def parse_params(ops: Sequence[str], given: Sequence[str]) -> dict[str, Any]:
    """`K=64,128` for each -p: typed by the operators, which must all know the name."""
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


def _parse(operator: Operator, name: str, value: str) -> list[Any]:
    """Typed by the operator, a series as what it stands for; the parameters of a callable are of its caller's
    making."""
    if "args" in operator.by_name:
        return [read_yaml(value, f"-p {name}")]
    param = operator.param(name)
    spread = param.spread(value)
    return spread if spread is not value else [param.parse(value)]


def _split(values: str) -> list[str]:
    """At commas that are not inside brackets."""
    return [part.strip() for part in re.split(r",(?![^\[(]*[\])])", values)]


def _entry(
    operator: Operator,
    params: Mapping[str, Any],
    sizes: Sequence[str],
    phases: Sequence[str],
    wrt: Sequence[str],
    call: Mapping[str, Any],
) -> Entry:
    """Sizes fill in what is not given; with nothing given at all, that is `typical`."""
    if not operator.presets:
        return Entry(operator.name, dict(params), list(sizes), list(phases), wrt=list(wrt), **call)  # type: ignore[arg-type]
    required = {param.name for param in operator.params if param.required}
    chosen = list(sizes) or ([] if required & set(params) else ["typical"])
    return Entry(operator.name, dict(params), chosen, list(phases), wrt=list(wrt), **call)  # type: ignore[arg-type]


def _exactly_one(ops: Sequence[str], workload: object, suite_name: str | None) -> None:
    named = (("operators", bool(ops)), ("a workload", workload is not None), ("a suite", bool(suite_name)))
    given = [name for name, there in named if there]
    if len(given) != 1:
        what = " and ".join(given) if given else "nothing"
        raise UserError(
            f"expected operators, a workload or a suite, got {what}",
            "as in `opmark run matmul`, `opmark run -w my.yaml`, `opmark run --suite quick`",
        )


def _of_phases(cases: list[Case], phases: Sequence[str]) -> list[Case]:
    chosen = [case for case in cases if not phases or case.phase in phases]
    if not chosen:
        raise UserError(f"no case has the phase {' or '.join(phases)}", "leave --phase out to run all of them")
    return chosen
