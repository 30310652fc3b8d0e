"""Verifies implementations, right ones and sabotaged ones; one JSON line a verdict.

A script and not a test: a product in bfloat16 may take its process down where a machine does not allow an instruction
that its processor advertises, and the variable that avoids it is read once, when the framework starts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch

from opmark.errors import WrongResult
from opmark.interfaces import Backend, BackendInfo
from opmark.registry import backend, catalogue
from opmark.runner.check import verify
from opmark.schema import EFFORTS, PHASES, Case, Implementation, Operator, Phase, Settings, Task

BACKENDS = ("numpy-cpu", "torch-cpu")
SEEDS = (0, 1, 2)

# Odd sizes and unusual options, beside the small preset that every operator has.
ODD: dict[str, list[dict[str, Any]]] = {
    "add": [{"shape": [5, 7]}, {"shape": [1]}, {"shape": [3, 1, 11]}],
    "exp": [{"shape": [5, 7]}, {"shape": [1]}],
    "gelu": [{"shape": [5, 7], "approximate": "tanh"}, {"shape": [33, 3]}],
    "cast": [{"shape": [5, 7]}],
    "matmul": [{"M": 5, "N": 7, "K": 3}, {"M": 1, "N": 1, "K": 1}, {"M": 17, "N": 33, "K": 129}],
    "batched_matmul": [{"B": 3, "M": 5, "N": 7, "K": 3}, {"B": 2, "M": 17, "N": 33, "K": 129}],
    "softmax": [
        {"shape": [5, 7]}, {"shape": [4, 9, 5], "axis": 1}, {"shape": [3, 1000]}, {"shape": [513, 5], "axis": 0},
    ],
    "layer_norm": [{"shape": [5, 33]}, {"shape": [3, 4, 17], "eps": 0.1}, {"shape": [129, 33]}],
    "rms_norm": [{"shape": [5, 33]}, {"shape": [3, 4, 17], "eps": 0.1}, {"shape": [129, 33]}],
    "reduce_sum": [{"shape": [5, 7]}, {"shape": [4, 9, 5], "axis": 1}, {"shape": [129, 33], "axis": 0}],
    "topk": [{"shape": [5, 7], "k": 3}, {"shape": [5, 7], "k": 7, "largest": False}, {"shape": [33], "k": 1}],
    "embedding": [{"rows": 7, "dim": 5, "indices": 11}, {"rows": 2, "dim": 5, "indices": 129}],
    "conv2d": [
        {"batch": 2, "in_channels": 6, "image": [9, 7], "out_channels": 4, "kernel": [3, 2], "stride": 2,
         "padding": 1, "dilation": 2, "groups": 2},
        {"batch": 1, "in_channels": 5, "image": [7, 9], "out_channels": 5, "groups": 5},
        {"batch": 3, "in_channels": 3, "image": [5, 5], "out_channels": 2, "kernel": [1, 1], "padding": 0},
    ],
    "scaled_dot_product_attention": [
        {"batch": 2, "heads": 6, "q_len": 9, "kv_len": 13, "head_dim": 8, "kv_heads": 2},
        {"batch": 1, "heads": 2, "q_len": 17, "kv_len": 17, "head_dim": 16, "causal": True},
        {"batch": 2, "heads": 4, "q_len": 5, "kv_len": 1, "head_dim": 8, "kv_heads": 2},
    ],
}  # fmt: skip

Tensors = Callable[[Any], Any]


def _one_element(change: Tensors) -> Tensors:
    """Changes the element with the largest magnitude, so that the change is never nothing."""

    def changed(tensor: Any) -> Any:
        flat = tensor.reshape(-1).clone()
        worst = flat.abs().argmax()
        flat[worst] = change(flat[worst])
        return flat.reshape(tensor.shape)

    return changed


COMMON: dict[str, Tensors] = {
    "zeros": lambda t: t * 0,
    "negated": lambda t: -t,
    "not a number": _one_element(lambda v: v * float("nan")),
    "infinite": _one_element(lambda v: v + float("inf")),
    "transposed": lambda t: t.transpose(-1, -2) if t.dim() > 1 else t[None],
    "one short": lambda t: t[..., :-1],
    "off by one element": lambda t: t.reshape(-1).roll(1).reshape(t.shape),
}
FORWARD = {**COMMON, "a tenth too large": lambda t: t * 1.1, "one element zero": _one_element(lambda v: v * 0)}
# A single wrong element of a gradient is lost in the rounding of a 16-bit type; a wrong factor is not.
BACKWARD = {
    "float32": {**COMMON, "a tenth too large": lambda t: t * 1.1, "one element zero": _one_element(lambda v: v * 0)},
    "bfloat16": {**COMMON, "half as large again": lambda t: t * 1.5},
}


class Sabotaged:
    """A backend whose gradient of one input is spoiled."""

    def __init__(self, live: Backend, at: int, spoil: Tensors) -> None:
        self._live, self._at, self._spoil = live, at, spoil

    def __getattr__(self, name: str) -> Any:
        return getattr(self._live, name)

    def backward(self, launch: Any, inputs: Any, seed: int, *, forward: bool = False) -> Any:
        gradients, seeds = self._live.backward(launch, inputs, seed, forward=forward)
        return lambda: [self._spoil(g) if i == self._at else g for i, g in enumerate(gradients())], seeds


def spoiled(implementation: Implementation, spoil: Tensors) -> Implementation:
    """The same, with its first output spoiled."""

    def build(params: Any, **inputs: Any) -> Any:
        launch = implementation.build(params, **inputs)

        def wrong() -> Any:
            outputs = launch()
            return (spoil(outputs[0]), *outputs[1:]) if isinstance(outputs, tuple) else spoil(outputs)

        return wrong

    return Implementation(implementation.framework, build, implementation.name)


def judge(op: Operator, params: dict[str, Any], phase: Phase, implementation: Implementation, live: Backend,
          seed: int = 0) -> str:  # fmt: skip
    """`ok`, or the error by name."""
    settings = Settings(1, "quick", EFFORTS["quick"], seed)
    try:
        verify(Task(Case.of(op.name, params, phase), "", implementation.label, settings), op, implementation, live)
    except WrongResult as error:
        return f"WrongResult: {error}"
    except Exception as error:  # noqa: BLE001 - the parent looks at the name
        return f"{type(error).__name__}: {error}"
    return "ok"


def variants(op: Operator, info: BackendInfo, phase: Phase, dtype: str, *givens: Any) -> Iterator[dict[str, Any]]:
    """Complete parameters with that element type, and with every other element type that there may be beside it."""
    others = [param for param in op.params if param.kind == "dtype" and param.name != "dtype"]
    if dtype not in op.param("dtype").choices or dtype not in info.dtypes:
        return
    for given in givens:
        for names in product(*(sorted(info.dtypes & set(param.choices)) for param in others)):
            chosen = {param.name: name for param, name in zip(others, names, strict=True)}
            params = op.complete({**given, **chosen, "dtype": dtype})
            if op.why_no_phase(params, phase) is None:
                yield params


def all_right(name: str) -> Iterator[dict[str, Any]]:
    info = backend(name)
    live = info.load(threads=1)
    for op in catalogue().values():
        for phase, implementation in product(PHASES, op.implementations_for(info.framework)):
            if phase != "forward" and not info.differentiates:
                continue
            for dtype in op.param("dtype").choices:
                given = variants(op, info, phase, dtype, op.preset("small"), *ODD.get(op.name, ()))
                for params, seed in product(given, SEEDS):
                    outcome = judge(op, params, phase, implementation, live, seed)
                    key = [op.name, implementation.label, name, dtype, phase]
                    yield {"key": key, "params": params, "seed": seed, "outcome": outcome}


def all_wrong(name: str) -> Iterator[dict[str, Any]]:
    info = backend(name)
    live = info.load(threads=1)
    for op, dtype in product(catalogue().values(), BACKWARD):
        for implementation in op.implementations_for(info.framework):
            for params in variants(op, info, "forward", dtype, op.preset("small")):
                if params.get("to", dtype) != dtype:
                    continue
                for what, spoil in FORWARD.items():
                    outcome = judge(op, params, "forward", spoiled(implementation, spoil), live)
                    yield {"key": [op.name, dtype, "forward", what], "params": params, "outcome": outcome}
            for params in variants(op, info, "backward", dtype, ODD.get(op.name, [op.preset("small")])[0]):
                if params.get("to", dtype) != dtype:
                    continue
                for (at, gradient), (what, spoil) in product(enumerate(op.gradients), BACKWARD[dtype].items()):
                    outcome = judge(op, params, "backward", implementation, Sabotaged(live, at, spoil))
                    key = [op.name, dtype, f"gradient of {gradient}", what]
                    yield {"key": key, "params": params, "outcome": outcome}


def main() -> None:
    square = torch.ones(64, 64, dtype=torch.bfloat16)
    torch.mm(square, square)  # first of all: where this dies, nothing else has been waited for
    for name in BACKENDS:
        for verdict in all_right(name):
            print(json.dumps({"kind": "right", **verdict}), flush=True)
    for verdict in all_wrong("torch-cpu"):
        print(json.dumps({"kind": "wrong", **verdict}), flush=True)
    print(json.dumps({"kind": "end"}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
