"""A model as a JAX function, converted by torchax. Only a worker imports this."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple
from unittest import mock

import torch

from opmark.errors import Unsupported, in_stage
from opmark.models.execution import Positional, callable_of, placed
from opmark.models.source import ModelSource
from opmark.plugin import Function, Params, TensorSlot


class ConvertedModel(NamedTuple):
    names: tuple[str, ...]
    """Names of the first weights in the module; those of constants, which come last, are left out."""
    weights: list[Any]
    """Arrays of JAX."""
    call: Callable[..., Any]
    """call(weights, inputs)"""
    seconds: float


@in_stage("export")
def build(source: ModelSource, params: Params, **tensors: Any) -> Function:
    """Return the model as a function of its weights and inputs: inside of a program, weights would be constants."""
    model = convert_model(source, json.dumps(dict(params), sort_keys=True))
    slots = [TensorSlot(value) for value in model.weights]

    def run(*values: Any) -> Any:
        return tuple(model.call(list(values[: len(slots)]), values[len(slots) :]))

    return Function(run, (*slots, *tensors.values()), export=model.seconds)


@lru_cache(maxsize=1)
def convert_model(source: ModelSource, written: str) -> ConvertedModel:
    """Convert a case of a model, whose parameters are written as JSON."""
    params = json.loads(written)
    given = tuple(torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in source.inputs(params).values())
    module = Positional(callable_of(placed(source, params, "cpu"), params)).eval()
    torchax = _import_torchax()
    started = time.perf_counter()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            exported = torch.export.export(module, given)
            names, weights, call = torchax.export.exported_program_to_jax(exported, export_raw=True)
            weights = torchax.default_env().t2j_copy(weights)
    except (RuntimeError, NotImplementedError, TypeError, KeyError, AssertionError) as error:
        first = str(error).strip().partition("\n")[0]
        raise Unsupported(f"torchax cannot convert `{source.name}` to JAX: {type(error).__name__}: {first}") from None
    return ConvertedModel(tuple(names), weights, call, time.perf_counter() - started)


def _import_torchax() -> Any:
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
            import torchax
            import torchax.export
    except ImportError as error:
        raise Unsupported(
            f"torchax converts models to JAX, and cannot be imported: {error} (pip install 'opmark[jax-models]')"
        ) from None
    return torchax
