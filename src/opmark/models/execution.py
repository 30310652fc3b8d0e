"""What runs of a model inside a worker: its module on a device, its reference, and what rounding does to it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np
import psutil
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from opmark.models.checking import (
    Effects,
    bound_outputs,
    by_sample,
    compare_inputs,
    draw_inputs,
    explain_blindness,
    find_effects,
    refuse_not_finite,
)
from opmark.models.facts import facts
from opmark.models.offline import no_network
from opmark.models.source import ModelSource
from opmark.plugin import Params

_AS_MADE = {"batch": 1, "dtype": "float32", "outputs": "model", "stage": "prefill"}
"""Values of parameters that say how a model is called, for which it is made once; all others decide what it is."""


# Modules.


def original(source: ModelSource, params: Params) -> Any:
    """Return the module in float32 on the CPU, made once per process."""
    return _original(source, json.dumps(as_made(params), sort_keys=True))


def as_made(params: Params) -> dict[str, Any]:
    """Return the parameters without the differences that weights do not depend on."""
    return {**params, **{k: v for k, v in _AS_MADE.items() if k in params}}


@lru_cache(maxsize=1)
def _original(source: ModelSource, written: str) -> Any:
    with no_network(), torch.device("cpu"):  # an implementation is built where new tensors are made on the device
        return source.module(json.loads(written)).requires_grad_(False)


def placed(source: ModelSource, params: Params, device: Any) -> Any:
    """Return the module on a device in the element type of the case; the original itself where it is that already."""
    written = json.dumps({k: v for k, v in params.items() if k not in ("outputs",)}, sort_keys=True)
    return _placed(source, written, str(device))


@lru_cache(maxsize=1)
def _placed(source: ModelSource, written: str, device: str) -> Any:
    params = json.loads(written)
    module, dtype = original(source, params), getattr(torch, params["dtype"])
    decode = params.get("stage") == "decode"
    if decode or (device, dtype) != ("cpu", torch.float32):
        module = converted(module, dtype, device)
    if decode:
        module.fill_cache(params["batch"], params["seq"])
    return module


def converted(module: Any, dtype: Any, device: str = "cpu") -> Any:
    """Return a copy in another element type, without a second copy of the original on the way. Tables that a network
    computes for itself keep their type."""
    if has_script(module):  # it is copied by code that knows no memo
        return copy.deepcopy(module).to(device=device, dtype=dtype)
    kept = {id(value) for name, value in module.named_buffers() if name not in module.state_dict()}
    memo: dict[int, Any] = {}
    for value in (*module.parameters(), *module.buffers()):
        floats = value.is_floating_point() and id(value) not in kept
        moved = value.detach().to(device, dtype if floats else None)
        memo[id(value)] = torch.nn.Parameter(moved, False) if isinstance(value, torch.nn.Parameter) else moved
    return copy.deepcopy(module, memo)


def has_script(module: Any) -> bool:
    """Return whether a module is TorchScript, or has some in it."""
    return any(isinstance(one, torch.jit.ScriptModule) for one in module.modules())


def callable_of(module: Any, params: Params) -> Any:
    """Return what a case calls: the module, or its layers."""
    return LayerOutputs(module) if params.get("outputs") == "layers" else module


class LayerOutputs(torch.nn.Module):  # type: ignore[misc]
    """Calls a model and returns the output of every layer, in the order in which they are computed; the model's own
    outputs come last."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def note(name: str, module: Any, given: Any, output: Any) -> None:
            first = next(filter(torch.is_floating_point, flatten(output)), None)
            if first is not None:
                number = sum(one.partition("#")[0] == name for one in found)
                # A copy: the next layer may change it in place, or return a view of it.
                found[f"{name}#{number + 1}" if number else name] = first.clone()

        handles = [one.register_forward_hook(partial(note, name)) for name, one in self.model.named_modules() if name]
        try:
            outputs = self.model(*inputs)
        finally:
            for handle in handles:
                handle.remove()
        return found | {
            f"output {i}" if i else "output": one
            for i, one in enumerate(filter(torch.is_floating_point, flatten(outputs)))
        }


class Positional(torch.nn.Module):  # type: ignore[misc]
    """Takes tensors by position and returns them as a tuple, whatever the model returns."""

    def __init__(self, called: Any) -> None:
        super().__init__()
        self.called = called

    def forward(self, *inputs: Any) -> Any:
        outputs = self.called(*inputs)
        return tuple(outputs.values()) if isinstance(outputs, dict) else outputs


def flatten(value: Any) -> Iterator[Any]:
    """Yield the tensors of an output, however deeply nested."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from flatten(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from flatten(item)


def name_outputs(outputs: Any) -> dict[str, Any]:
    """Return the outputs of a call by name."""
    if isinstance(outputs, Mapping):
        return dict(outputs)
    several = outputs if isinstance(outputs, list | tuple) else (outputs,)
    return {f"output {i}" if i else "output": one for i, one in enumerate(several)}


# The reference, and what rounding does to it.


def reference(source: ModelSource, params: Params, **arrays: Any) -> Any:
    """Return the outputs in float64, sample by sample: an output that depends on others of its batch differs."""
    module = _wide(source, params)
    wide = next((value.dtype for value in module.parameters()), torch.float64)
    outputs = by_sample(source, params, arrays, lambda some, given: _evaluate(module, source, some, given, wide))
    refuse_not_finite((f"`{name}`" for name in facts(source, params).outputs), outputs)
    return outputs


def _wide(source: ModelSource, params: Params) -> Any:
    """Return the module in float64, or in float32 where float64 does not fit into memory or does not work."""
    module = original(source, params)
    need = 8 * sum(value.numel() for value in module.parameters())
    if need > psutil.virtual_memory().available // 2:
        return module
    wide = _wide_copy(module)
    return wide if not source.fixed_types or _computes_in_float64(wide, source, json.dumps(dict(params))) else module


@lru_cache(maxsize=1)
def _wide_copy(module: Any) -> Any:
    return converted(module, torch.float64)


@lru_cache(maxsize=1)
def _computes_in_float64(module: Any, source: ModelSource, written: str) -> bool:
    """Return whether a graph computes in float64: it may contain conversions to float32."""
    params = {**json.loads(written), "batch": 1, "dtype": "float64"}
    try:
        _evaluate(module, source, params, next(draw_inputs(source, params)), torch.float64)
    except RuntimeError:
        return False
    return True


def _evaluate(
    module: Any, source: ModelSource, params: Params, arrays: Mapping[str, Any], wide: Any, mode: Any = None
) -> list[Any]:
    tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays.values()]
    given = [one.to(wide) if one.is_floating_point() else one for one in tensors]
    if params.get("stage") == "decode":  # without a cache: the whole sequence in one pass
        context = module.context_ids(params["batch"], params["seq"])
        given, params = [torch.cat([context, given[0]], 1)], {**params, "stage": "prefill"}
    with torch.no_grad(), torch.device("cpu"):
        if mode is None:
            outputs = callable_of(module, params)(*given)
        else:
            with mode:
                outputs = callable_of(module, params)(*given)
    return [output.numpy() for output in name_outputs(outputs).values()]


class Rounding(TorchDispatchMode):  # type: ignore[misc]
    """Rounds whatever an operator takes and gives to an element type, as if it had been computed in that type."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self._dtype = dtype

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(one.alias_info is not None for one in (*func._schema.arguments, *func._schema.returns)):
            return func(*args, **kwargs)  # a view, or a change in place: what is written was rounded before
        return tree_map(self._round, func(*tree_map(self._round, args), **tree_map(self._round, kwargs)))

    def _round(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.to(self._dtype).to(value.dtype)
        return value


def rounding_bounds(source: ModelSource, params: Params) -> tuple[float, ...]:
    return bound_outputs(params["dtype"], effects(source, params))


def why_blind(source: ModelSource, params: Params) -> str:
    return explain_blindness(params["dtype"], effects(source, params))


def effects(source: ModelSource, params: Params) -> Effects:
    """Return the effects of rounding to the element type of a case: kept ones, else measured."""
    return find_effects(source, params, _measure_effects)


def _measure_effects(source: ModelSource, params: Params) -> Effects:
    module, dtype = _wide(source, params), getattr(torch, params["dtype"])
    wide = next((value.dtype for value in module.parameters()), torch.float64)
    # Nothing wider than float64 is there to see its rounding with: float32 shows how much of it adds up.
    rounded = torch.float32 if dtype is torch.float64 else dtype
    rounding, change = compare_inputs(
        source,
        {**params, "dtype": "float64"},
        lambda given: _evaluate(module, source, params, given, wide),
        lambda given: _evaluate(module, source, params, given, wide, Rounding(rounded)),
        torch.finfo(rounded).eps,
    )
    scale = torch.finfo(dtype).eps / torch.finfo(rounded).eps
    return [scale * effect for effect in rounding], change


# Launches.


class ModelCall(partial[Any]):
    """A launch of a module that was on its device before."""

    kept: int = 0
    """Bytes of its weights and tables."""
    keeps_state: bool = False
    """Whether a call writes to the module: the keys and values of a language model."""


def build_torch(source: ModelSource, params: Params, **tensors: Any) -> Callable[[], Any]:
    device = next(iter(tensors.values())).device
    called: Any = callable_of(placed(source, params, device), params)
    called = Positional(called) if isinstance(called, LayerOutputs) else called
    launch = ModelCall(called, *tensors.values())
    launch.keeps_state = params.get("stage") == "decode"
    launch.kept = sum(value.nbytes for value in (*called.parameters(), *called.buffers()))
    return launch


def build_scheduled(source: ModelSource, params: Params, **given: Any) -> Any:
    from opmark.models.scheduled import build_scheduled

    return build_scheduled(source, params, **given)


def build_onnx(source: ModelSource, params: Params, **tensors: Any) -> Any:
    from opmark.models.export import ExportedModel

    return ExportedModel(source, params)


def build_jax(source: ModelSource, params: Params, **tensors: Any) -> Any:
    from opmark.models.jax_program import build

    return build(source, params, **tensors)


def build_tensorflow(source: ModelSource, params: Params, **tensors: Any) -> Any:
    from opmark.models.keras_program import build

    return build(source, params, weight_arrays, **tensors)


def weight_arrays(source: ModelSource, params: Params) -> dict[str, Any]:
    """Return the weights and statistics of the module in float32, by name."""
    state = original(source, params).state_dict()
    return {name: value.numpy() for name, value in state.items() if value.is_floating_point()}
