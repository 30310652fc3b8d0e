"""Turns one operator of opperf with one set of inputs into an entry of a workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.importers.opperf.names import NO_COUNTERPART, plain_name
from opmark.importers.opperf.rows import Meaning, meaning, takes_dtype
from opmark.importers.opperf.table import OPERATORS
from opmark.registry import aliases, catalogue
from opmark.registry import operator as find_operator
from opmark.schema import Entry, Operator, Phase
from opmark.schema.dtype import is_float

_CALL = {"args", "kwargs", "build"}


class NoOperator(UserError):
    """An operator that opmark cannot measure, whatever its inputs are."""


class CommonOptions(NamedTuple):
    """Options that hold for all inputs of a test."""

    phases: tuple[Phase, ...]
    dtype: str | None


class Ask(NamedTuple):
    name: str
    inputs: Mapping[str, Any]
    common: CommonOptions
    own: bool = False
    """Whether name and inputs are opmark's, and not opperf's."""
    notes: tuple[str, ...] = ()


def make_entry(ask: Ask, source: str) -> tuple[Entry, list[str]]:
    """Return an entry and notes; raise UserError for inputs that opmark cannot measure, NoOperator for operators."""
    try:
        return _translate(ask, source)
    except InvalidParameter as error:
        if f"`{ask.name}`" in error.message:
            raise
        between = " " if error.message.startswith("needs ") else ": "
        raise InvalidParameter(f"`{ask.name}`{between}{error.message}", error.hint) from None


def _translate(ask: Ask, source: str) -> tuple[Entry, list[str]]:
    if _CALL & set(ask.inputs) and set(ask.inputs) <= _CALL and "." in ask.name:
        call = {key: ask.inputs[key] for key in ("args", "kwargs", "build") if key in ask.inputs}
        try:
            name = find_operator(ask.name).name
        except UserError as error:
            raise NoOperator(error.message, error.hint) from None
        return Entry(name, phases=list(ask.common.phases), source=source, **call), []
    found = _meaning(ask)
    operator = find_operator(found.op)
    params = {name: operator.param(name).check(value) for name, value in found.params.items()}
    complete = operator.complete(params)
    operator.check_rules(complete)
    phases, notes = _phases(operator, complete, ask.common.phases)
    return Entry(operator.name, params, phases=phases, source=source), [*ask.notes, *found.notes, *notes]


def phases_of(result: Mapping[str, Any]) -> tuple[Phase, ...]:
    """Return the phases that opperf measured, by the names of its numbers; the profiler `python` has both in one."""
    failed = result.get("failed")
    words = [str(one.get("phase")) for one in failed if isinstance(one, dict)] if isinstance(failed, list) else []
    found: list[Phase] = []
    for phase in ("forward", "backward"):
        if any(str(key).startswith(f"avg_time_{phase}") for key in result) or phase in words:
            found.append(phase)
    whole = any(str(key).startswith("avg_time_") for key in result) and not found
    return tuple(found) or (("both",) if whole or "both" in words else ("forward", "backward"))


def _meaning(ask: Ask) -> Meaning:
    name = ask.name if ask.own else plain_name(ask.name)
    operator = catalogue().get(name) or aliases().get(name)
    if operator and (ask.own or (_takes(operator, ask.inputs) and not tensor_names(name) & set(ask.inputs))):
        params = dict(ask.inputs)
        if takes_dtype(operator, ask.common.dtype):
            params.setdefault("dtype", ask.common.dtype)
        return Meaning(operator.name, params)
    if name in NO_COUNTERPART:
        raise NoOperator(f"opmark has no counterpart of `{name}`", NO_COUNTERPART[name])
    if name not in OPERATORS:
        if operator:
            listed = ", ".join(param.name for param in operator.params)
            raise InvalidParameter(f"opperf has no `{name}`, and opmark's has other parameters", f"it has {listed}")
        unknown = UnknownName("operator of opperf", ask.name, OPERATORS, "opmark opperf --list")
        raise NoOperator(unknown.message, unknown.hint)
    return meaning(OPERATORS[name], ask.inputs, ask.common.dtype)


def why_no_backward(operator: Operator, params: Mapping[str, Any]) -> str | None:
    """Say why an operator has no backward pass, by element types alone: its tensors may be too large to allocate."""
    if not operator.gradients:
        return f"`{operator.name}` has no gradient"
    dtypes = {operator.result_dtype(params), str(params.get("dtype", "float32"))}
    exact = sorted(dtype for dtype in dtypes if not is_float(dtype))
    return f"`{operator.name}` has no gradient through {', '.join(exact)}" if exact else None


def _takes(operator: Operator, inputs: Mapping[str, Any]) -> bool:
    """Whether these inputs are the operator's own parameters."""
    return not operator.foreign and bool(set(inputs) - {"dtype"}) and set(inputs) <= set(operator.by_name)


def tensor_names(name: str) -> set[str]:
    """Return opperf's names of the tensors of an operator."""
    rows = OPERATORS.get(name, ())
    return {word.rstrip("*") for row in rows for names in row.tensors for word in names.split("|")}


def _phases(operator: Operator, params: Mapping[str, Any], phases: tuple[Phase, ...]) -> tuple[list[Phase], list[str]]:
    if phases == ("forward",):
        return ["forward"], []
    reason = why_no_backward(operator, params)
    return (list(phases), []) if reason is None else (["forward"], [f"forward only: {reason}"])
