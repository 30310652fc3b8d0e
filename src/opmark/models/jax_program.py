"""A model as a JAX function, converted by torchax. Only a worker imports this."""

from __future__ import annotations

import json
import warnings
from functools import lru_cache
from typing import Any
from unittest import mock

import torch

from opmark.errors import Unsupported, in_stage
from opmark.models.execution import Positional, callable_of, placed
from opmark.models.source import ModelSource
from opmark.plugin import Function, Params, TensorSlot


@in_stage("export")
def build(source: ModelSource, params: Params, **tensors: Any) -> Function:
    """Return the model as a function of its weights and inputs: inside of a program, weights would be constants."""
    weights, call = _converted(source, json.dumps(dict(params), sort_keys=True))
    slots = [TensorSlot(value) for value in weights]

    def run(*values: Any) -> Any:
        return tuple(call(list(values[: len(slots)]), values[len(slots) :]))

    return Function(run, (*slots, *tensors.values()))


@lru_cache(maxsize=1)
def _converted(source: ModelSource, written: str) -> tuple[Any, Any]:
    params = json.loads(written)
    given = tuple(torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in source.inputs(params).values())
    module = Positional(callable_of(placed(source, params, "cpu"), params)).eval()
    convert = _converter()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            weights, call = convert(torch.export.export(module, given))
    except (RuntimeError, NotImplementedError, TypeError, KeyError, AssertionError) as error:
        first = str(error).strip().partition("\n")[0]
        raise Unsupported(f"torchax cannot convert `{source.name}` to JAX: {type(error).__name__}: {first}") from None
    return weights, call


def _converter() -> Any:
    """Import torchax. Its tables name overloads of operators that newer versions of torch do not have any more; these
    get a placeholder, which no graph of such a version contains."""
    packet = torch._ops.OpOverloadPacket
    known = packet.__getattr__

    def find(self: Any, key: str) -> Any:
        try:
            return known(self, key)
        except AttributeError:
            if key.startswith("__"):
                raise
            return object()

    try:
        with mock.patch.object(packet, "__getattr__", find), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torchax.export import exported_program_to_jax
    except ImportError as error:
        raise Unsupported(
            f"torchax converts models to JAX, and cannot be imported: {error} (pip install 'opmark[jax-models]')"
        ) from None
    return exported_program_to_jax
