"""Verifies implementations, right ones and sabotaged ones: reads operators, writes one JSON line per verdict.

It is a script and not a test: a product in bfloat16 may kill its process on a machine that traps an instruction which
its processor advertises, and frameworks read the variable that avoids it only when they start.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain, product
from typing import Any

import torch
from odd import IMMUNE, ODD
from verifier import BACKENDS, is_compiled

from opmark.errors import InvalidParameter, Unsupported, WrongResult
from opmark.plugin import Backend, BackendInfo, Implementation, Operator
from opmark.plugin.registry import backend, catalogue
from opmark.schema import EFFORTS, PHASES, Case, Phase, Settings, Task
from opmark.schema.tensor import is_float
from opmark.worker.verify.outputs import verify

SEEDS = (0, 1)

Tensors = Callable[[Any], Any]


def _one_element(change: Tensors) -> Tensors:
    """Change the element with the largest magnitude, so that the change is never zero."""

    def changed(tensor: Any) -> Any:
        flat = tensor.reshape(-1).clone()
        worst = flat.abs().argmax()
        flat[worst] = change(flat[worst])
        return flat.reshape(tensor.shape)

    return changed


COMMON: dict[str, Tensors] = {
    "zeros": torch.zeros_like,
    "one short": lambda t: t[..., :-1] if t.dim() else t[None],
    "off by one element": lambda t: t.reshape(-1).roll(1).reshape(t.shape),
}
FLOAT: dict[str, Tensors] = {
    **COMMON,
    "negated": lambda t: -t,
    "not a number": _one_element(lambda v: v * float("nan")),
    "infinite": _one_element(lambda v: v + float("inf")),
    "transposed": lambda t: t.transpose(-1, -2) if t.dim() > 1 else t[None],
    "half as large again": lambda t: t * 1.5,
}
SHARP = {**FLOAT, "a tenth too large": lambda t: t * 1.1, "one element zero": _one_element(lambda v: v * 0)}
WHOLE: dict[str, Tensors] = {**COMMON, "one too many": lambda t: ~t if t.dtype == torch.bool else t + 1}
# A single wrong element of a gradient is lost in the rounding of a 16-bit type; a wrong factor is not.
BACKWARD = {"float32": SHARP, "bfloat16": FLOAT}


class Unchanged(Exception):
    """Spoiling the result did not change it."""


def _spoil(spoil: Tensors, tensor: Any) -> Any:
    if tensor.is_floating_point() and tensor.element_size() == 1:  # torch computes nothing with 8-bit floats
        wide = tensor.float()
        narrow = _spoil(spoil, wide).to(tensor.dtype)
        if narrow.shape == tensor.shape and bool((narrow.float() == wide).all()):  # infinity may become the largest
            raise Unchanged
        return narrow
    found = spoil(tensor)
    if found.shape == tensor.shape and bool((found == tensor).all()):
        raise Unchanged
    return found


class Sabotaged:
    """A backend whose gradient of one input is spoiled."""

    def __init__(self, live: Backend, at: int, spoil: Tensors) -> None:
        self._live, self._at, self._spoil = live, at, spoil

    def __getattr__(self, name: str) -> Any:
        return getattr(self._live, name)

    def backward(self, launch: Any, inputs: Any, seed: int, **how: bool) -> Any:
        gradients, seeds = self._live.backward(launch, inputs, seed, **how)
        return lambda: [_spoil(self._spoil, g) if i == self._at else g for i, g in enumerate(gradients())], seeds


def spoiled(implementation: Implementation, spoil: Tensors) -> Implementation:
    """Return the implementation with its first output spoiled."""

    def build(params: Any, **inputs: Any) -> Any:
        launch = implementation.build(params, **inputs)

        def wrong() -> Any:
            outputs = launch()
            return (_spoil(spoil, outputs[0]), *outputs[1:]) if isinstance(outputs, tuple) else _spoil(spoil, outputs)

        return wrong

    return Implementation(implementation.framework, build, implementation.name)


def judge(op: Operator, params: dict[str, Any], phase: Phase, implementation: Implementation, live: Backend,
          seed: int = 0) -> str:  # fmt: skip
    """Return `ok`, or the name of the error."""
    settings = Settings(1, "quick", EFFORTS["quick"], seed)
    try:
        verify(Task(Case.of(op.name, params, phase), "", implementation.label, settings), op, implementation, live)
    except WrongResult as error:
        return f"WrongResult: {error}"
    except (Unchanged, Unsupported) as error:
        return type(error).__name__
    except Exception as error:  # noqa: BLE001 - the parent looks at the name
        return f"{type(error).__name__}: {error}"
    return "ok"


def variants(op: Operator, info: BackendInfo, phase: Phase, dtype: str, *givens: Any) -> Iterator[dict[str, Any]]:
    """Return complete parameters with that element type, in all combinations with other element types."""
    others = [param for param in op.params if param.kind == "dtype" and param.name != "dtype"]
    if dtype not in op.param("dtype").choices or dtype not in info.dtypes:
        return
    for given in givens:
        for names in product(*(sorted(info.dtypes & set(param.choices)) for param in others)):
            chosen = {param.name: name for param, name in zip(others, names, strict=True)}
            params = op.complete({**given, **chosen, "dtype": dtype})
            stored = {spec.dtype for spec in op.inputs(params).values()} if _allowed(op, params) else {""}
            if stored <= info.dtypes and op.why_no_phase(params, phase) is None:
                yield params


def _allowed(op: Operator, params: dict[str, Any]) -> bool:
    """Return whether the rules allow this combination of element types."""
    try:
        op.check_rules(params)
    except InvalidParameter:
        return False
    return True


@cache
def loaded(name: str) -> Backend:
    return backend(name).load(threads=1)


def right_ones(op: Operator, name: str, *, compiled: bool) -> Iterator[dict[str, Any]]:
    """Verdicts on the implementations that the operator has on a backend: on those that are compiled, or on the others.
    What is compiled is verified once in each element type, and with odd sizes in float32 only."""
    info = backend(name)
    for phase, implementation in product(PHASES, op.implementations_for(info.framework)):
        if is_compiled(implementation) != compiled or (phase != "forward" and not info.differentiates):
            continue
        for dtype in op.param("dtype").choices:
            odd = () if compiled and dtype != "float32" else ODD.get(op.name, ())
            given = variants(op, info, phase, dtype, op.preset("small"), *odd)
            for params, seed in product(given, SEEDS[:1] if compiled else SEEDS):
                outcome = judge(op, params, phase, implementation, loaded(name), seed)
                key = [implementation.label, name, dtype, phase]
                yield {"kind": "right", "key": key, "params": params, "seed": seed, "outcome": outcome}


def wrong_ones(op: Operator, name: str) -> Iterator[dict[str, Any]]:
    """Verdicts on the operator's first implementation with its outputs and gradients spoiled, one after the other."""
    info, live = backend(name), loaded(name)
    for dtype in BACKWARD:
        for implementation in op.implementations_for(info.framework)[:1]:
            tiny = ODD.get(op.name, [op.preset("small")])[0]
            for params in variants(op, info, "forward", dtype, tiny):
                if params.get("to", dtype) != dtype:
                    continue
                for what, spoil in (SHARP if is_float(op.result_dtype(params)) else WHOLE).items():
                    outcome = judge(op, params, "forward", spoiled(implementation, spoil), live)
                    key = [dtype, "forward", what]
                    yield {"kind": "wrong", "key": key, "params": params, "outcome": outcome}
            for params in variants(op, info, "backward", dtype, tiny):
                if params.get("to", dtype) != dtype:
                    continue
                for (at, gradient), (what, spoil) in product(
                    enumerate(op.gradients_of(params)), BACKWARD[dtype].items()
                ):
                    outcome = judge(op, params, "backward", implementation, Sabotaged(live, at, spoil))
                    key = [dtype, f"gradient of {gradient}", what]
                    yield {"kind": "wrong", "key": key, "params": params, "outcome": outcome}


def main() -> None:
    """Answers each question, (an operator's name, whether about what is compiled), with verdicts and a line `end`."""
    square = torch.ones(64, 64, dtype=torch.bfloat16)
    torch.mm(square, square)  # first of all: where this dies, nothing else has been waited for
    for line in sys.stdin:
        name, compiled = json.loads(line)
        op = catalogue()[name]
        right = (right_ones(op, backend_name, compiled=compiled) for backend_name in BACKENDS)
        for verdict in chain(*right, () if compiled else wrong_ones(op, "torch-cpu")):
            if verdict["kind"] == "right" or verdict["key"][2] not in IMMUNE.get(op.name, ()):
                print(json.dumps(verdict))
        print(json.dumps({"kind": "end"}), flush=True)


if __name__ == "__main__":
    main()
