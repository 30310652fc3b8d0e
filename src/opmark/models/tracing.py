"""Traces the operators that a model calls, with tensors that have a shape and no data. Only a child process runs it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
import torch
from torch._subclasses.fake_tensor import FakeTensorMode, UnsupportedFakeTensorException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._python_dispatch import TorchDispatchMode

from opmark.errors import InvalidParameter, OpmarkError, UnknownName
from opmark.models.calls import KnownCall, TorchCall, call_path, entry_of_call
from opmark.models.counting import make_call
from opmark.models.execution import callable_of, placed
from opmark.models.extraction import Extraction
from opmark.models.index_bounds import ValueBounds, value_bounds
from opmark.models.recognition import proposals
from opmark.models.source import ModelSource
from opmark.plugin import Operator, Params, draw_values
from opmark.plugin.backend import cast
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import implementations
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Entry, ImportProblem, TensorSpec
from opmark.schema.arguments import canonical, tensors
from opmark.schema.tensor import DTYPES, IndexValues, contiguous_strides

_NO_DATA = frozenset({
    "_unsafe_view", "lift_fresh", "_local_scalar_dense", "is_nonzero", "empty", "empty_like", "empty_strided",
    "new_empty", "new_empty_strided",
})  # fmt: skip
"""Calls besides views that move no data: they look at one element, rename a tensor, or make one without values."""
_SHRINKING = frozenset({"mul_", "div_", "silu_", "gelu_", "hardswish_", "mish_", "leaky_relu_", "prelu_"})
"""Calls in place whose results tend to 0 when they are repeated on one tensor, until arithmetic on tiny numbers makes
them slow. They are measured as the call that returns a new tensor."""
_PLACES = ("device", "layout", "pin_memory")
"""Arguments that say where a tensor is, not what is computed."""
_FORMATS = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}
"""torch's own numbers of memory formats, which its operators take as well."""


class NotWritable(Exception):
    """An argument that a workload has no words for."""


@dataclass
class CallRecorder(TorchDispatchMode):  # type: ignore[misc]
    """Records every call of an operator; calls that only make views are counted."""

    found: dict[str, tuple[str, list[Any], dict[str, Any]]] = field(default_factory=dict)
    """(name, arguments, arguments by name) by the call as text."""
    counts: dict[str, int] = field(default_factory=dict)
    views: int = 0
    problems: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        space, _, name = func._schema.name.partition("::")
        if space == "prim":  # tensors without data ask these of each other
            return outputs
        if _is_view(func) or name in _NO_DATA:
            self.views += 1
        else:
            self.record(func, name, args, kwargs, outputs)
        return outputs

    def record(self, func: Any, name: str, args: Any, kwargs: Any, outputs: Any) -> str:
        """Record a call; return it as text, or nothing if it cannot be written."""
        space = func._schema.name.partition("::")[0]
        full = f"{name.removesuffix('_') if name in _SHRINKING else name}.{func._overloadname}"
        if space != "aten":
            full = f"{space}::{full}"
        try:
            written = [_described(one) for one in args]
            by_name = {key: _described(one) for key, one in kwargs.items() if key not in _PLACES and one is not None}
        except NotWritable as error:
            self.problems.setdefault(full, str(error))
            return ""
        if (place := kwargs.get("device")) is not None and torch.device(place).type != "cpu":
            by_name["device"] = torch.device(place).type
        key = json.dumps([full, *map(_node, written), {name: _node(one) for name, one in by_name.items()}])
        if key not in self.found:
            self.found[key] = full, _bounded(name, written), by_name
        self.counts[key] = self.counts.get(key, 0) + 1
        return key


def _is_view(func: Any) -> bool:
    """Return whether a call returns its input, or a part of it, without writing to it."""
    aliases = [one.alias_info for one in func._schema.returns if one.alias_info is not None]
    return bool(aliases) and not any(alias.is_write for alias in aliases)


def _described(value: Any) -> Any:
    """Return an argument as data: tensors as TensorSpec."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in DTYPES or value.layout != torch.strided:
            raise NotWritable(f"a tensor of {dtype}, {value.layout}")
        usual = {"float": (-1.0, 1.0), "complex": (-1.0, 1.0), "bool": (0, 2)}
        shape = tuple(value.shape)
        # Along an axis of size 1 any stride will do, and kernels leave different ones: the same call has the same text.
        strides = tuple(
            plain if size == 1 else own
            for size, own, plain in zip(shape, value.stride(), contiguous_strides(shape), strict=True)
        )
        return TensorSpec(shape, dtype, *usual.get(DTYPES[dtype].kind, (0, 10)), strides=strides)
    if isinstance(value, torch.dtype):
        name = str(value).removeprefix("torch.")
        if name not in DTYPES:
            raise NotWritable(f"the element type {name}")
        return {"dtype": name}
    if isinstance(value, torch.memory_format):
        return _FORMATS[value]
    if isinstance(value, list | tuple):
        return [_described(item) for item in value]
    if isinstance(value, torch.device):
        return value.type
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise NotWritable(f"an argument that is a {type(value).__name__}")


def _bounded(name: str, args: list[Any]) -> list[Any]:
    """Return the arguments of a call, with indices that lie inside the tensor that they point into, and other values
    that the operator accepts."""
    found = list(args)
    for place, bounds in value_bounds(name, args, _shape, _is_mask).items():
        if len(place) > 1:
            found[place[0]] = list(found[place[0]])
        holder = found if len(place) == 1 else found[place[0]]
        holder[place[-1]] = _within(holder[place[-1]], bounds)
    return found


def _shape(value: Any) -> tuple[int, ...] | None:
    return value.shape if isinstance(value, TensorSpec) else None


def _is_mask(spec: TensorSpec) -> bool:
    return spec.dtype in ("bool", "uint8")


@dataclass(frozen=True)
class _BoundDraw:
    """Draws values that belong together, and remembers how a workload calls them."""

    kind: str
    shape: tuple[int, ...]
    low: int
    high: int

    def __call__(self, generator: Any) -> Any:
        return IndexValues(self.kind).draw(self.shape, self.low, self.high, generator)


def _within(spec: TensorSpec, bounds: ValueBounds) -> TensorSpec:
    kind = "float" if bounds.floats else "int"
    if DTYPES[spec.dtype].kind != kind:
        return spec
    draw = _BoundDraw(bounds.values, spec.shape, int(bounds.low), int(bounds.high)) if bounds.values else None
    return msgspec.structs.replace(spec, low=bounds.low, high=bounds.high, make=draw)


def _node(value: Any) -> Any:
    """Return an argument as a workload writes it."""
    if isinstance(value, TensorSpec):
        fields = ("shape", "dtype", "low", "high", "strides")
        plain = {key: list(one) if isinstance(one := getattr(value, key), tuple) else one for key in fields}
        plain["strides"] = plain["strides"] or None
        if isinstance(value.make, _BoundDraw):
            plain = {**plain, "values": value.make.kind, "strides": None}
        return canonical(plain)
    if isinstance(value, list):
        return [_node(item) for item in value]
    return canonical(value)


# Recognition: a proposal is taken where tracing the operator of the catalogue gives the very same call.


def _recognised(name: str, args: list[Any], kwargs: dict[str, Any], device: str) -> tuple[str, dict[str, Any]] | None:
    proposed = list(proposals(name.partition(".")[0], args, kwargs))
    wanted = _signature(name, args, kwargs) if proposed else ""
    amounts = sorted((spec.span, spec.dtype) for spec in _tensors_in([args, list(kwargs.values())]))
    for op, params in proposed:
        known = _buildable(op, device)
        if known is None:
            continue
        operator, build = known
        try:
            complete = operator.complete({key: operator.param(key).check(one) for key, one in params.items()})
            operator.check_rules(complete)
            specs = operator.inputs(complete)
            if sorted((spec.elements, spec.dtype) for spec in specs.values()) != amounts:
                continue  # tracing would show it too, but takes a hundred times as long
            recorder = CallRecorder()
            with _no_data(), torch.no_grad():
                given = {key: _empty(spec, device) for key, spec in specs.items()}
                launch = build(complete, **given)
                with recorder:
                    launch()
        except (UnknownName, InvalidParameter):
            continue
        except Exception:  # noqa: BLE001 - a builder may want to see data, and whatever fails is not recognised
            continue
        calls = [_signature(*one) for one in recorder.found.values()]
        if calls == [wanted] and sum(recorder.counts.values()) == 1:
            return op, params
    return None


@cache
def _no_data() -> FakeTensorMode:
    """Return the mode in which proposals are traced: making it costs more than tracing, and it remembers results."""
    return FakeTensorMode()


@cache
def _buildable(op: str, device: str) -> tuple[Operator, Callable[..., Any]] | None:
    """Return an operator of the catalogue and what builds its launch; None if there is no such operator."""
    try:
        operator = find_operator(op)
    except UnknownName:
        return None
    found = implementations(operator, find_backend("torch-cpu" if device == "cpu" else f"torch-{device}"))
    return (operator, found[0].build) if found else None


def _tensors_in(value: Any) -> Iterator[TensorSpec]:
    if isinstance(value, TensorSpec):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _tensors_in(one)


def _empty(spec: TensorSpec, device: str) -> Any:
    return torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=device)


def _signature(name: str, args: list[Any], kwargs: dict[str, Any]) -> str:
    """Return what decides which kernel runs on which layout: all but the values of tensors. Rows to look up have no
    shape of their own, and which row is padding matters to gradients alone."""
    if name.startswith("embedding."):
        args = args[:2]

    def plain(value: Any) -> Any:
        if isinstance(value, TensorSpec):
            shape, strides = value.shape, value.strides
            if name.startswith("embedding.") and DTYPES[value.dtype].kind == "int" and value.span == value.elements:
                shape, strides = (value.elements,), (1,)
            return _node(TensorSpec(shape, value.dtype, 0, 1, strides=strides))
        return [plain(item) for item in value] if isinstance(value, list) else value

    return json.dumps([name, [plain(one) for one in args], {key: plain(one) for key, one in sorted(kwargs.items())}])


def extract(source: ModelSource, params: Params, graph: str, device: str, real: bool) -> Extraction:
    """Return the operators of a graph of a model: those that torch calls, or the nodes of its ONNX graph."""
    if graph == "onnx" or source.framework != "torch":  # an ONNX file has no other graph
        from opmark.models.onnx_operators import list_operators

        return list_operators(source, params)
    return trace(source, params, device, real=real)


def trace(source: ModelSource, params: Params, device: str = "cpu", *, real: bool = False) -> Extraction:
    """Return the operators of a case. Where tensors without data do not do, the model is computed."""
    if not real:
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                return _trace(*make_call(source, params, device), params, device)
        except (
            UnsupportedFakeTensorException, GuardOnDataDependentSymNode, NotImplementedError, RuntimeError, OpmarkError,
        ):  # fmt: skip
            pass
    specs = source.inputs(params).values()
    given = [torch.from_numpy(cast(draw_values(spec, i), spec.dtype)).to(device) for i, spec in enumerate(specs)]
    given = [one.to(getattr(torch, spec.dtype)) for one, spec in zip(given, specs, strict=True)]
    found = _trace(placed(source, params, device), given, params, device)
    return msgspec.structs.replace(found, computed=True)


def _trace(module: Any, given: list[Any], params: Params, device: str) -> Extraction:
    recorder = CallRecorder()
    with torch.no_grad(), recorder:
        callable_of(module, params)(*given)
    return Extraction(
        [entry_of_record(recorder, key, device) for key in recorder.found],
        sum(recorder.counts.values()),
        recorder.views,
        problems=[ImportProblem(f"aten.{name}", message) for name, message in recorder.problems.items()],
    )


def entry_of_record(recorder: CallRecorder, key: str, device: str) -> Entry:
    """Return a recorded call as an entry: that of the catalogue where it makes the very same call."""
    (name, args, kwargs), count = recorder.found[key], recorder.counts[key]
    op, params = _recognised(name, args, kwargs, device) or ("", {})
    call = TorchCall(name, [_node(one) for one in args], {name: _node(one) for name, one in kwargs.items()})
    return entry_of_call(call, KnownCall(name, op, params), count)


# Calls that others recorded.


def know_calls(calls: list[dict[str, Any]], device: str) -> list[KnownCall]:
    """Return what is known of each call that a file has."""
    return [_known_call(msgspec.convert(call, TorchCall), device) for call in calls]


def _known_call(call: TorchCall, device: str) -> KnownCall:
    name = _name_here(call.name)
    if not name:
        return KnownCall(problem=f"torch {torch.__version__} has no operator {call_path(call.name)}")
    args, kwargs = _specs(call.args), {name: _specs(one) for name, one in call.kwargs.items()}
    op, params = _recognised(name, args, kwargs, device) or ("", {})
    if op:
        return KnownCall(name, op, params)
    recorder = CallRecorder()
    base, _, overload = name.partition(".")
    space, _, own = base.rpartition("::")
    func = getattr(getattr(getattr(torch.ops, space or "aten"), own), overload)
    try:
        with _no_data(), torch.no_grad():
            given, by_name = _fake(args, device), {key: _fake(one, device) for key, one in kwargs.items()}
            with recorder:
                func(*given, **by_name)
    except Exception:  # noqa: BLE001 - an operator may want to see data; nothing more is known of it then
        return KnownCall(name, no_data=_is_view(func) or own in _NO_DATA)
    if sum(recorder.counts.values()) == 1 and not recorder.problems:  # as `linear`, which calls `addmm` alone
        op, params = _recognised(*next(iter(recorder.found.values())), device) or ("", {})
    return KnownCall(name, op, params, no_data=not (recorder.found or recorder.problems))


def _fake(value: Any, device: str) -> Any:
    """Return an argument with tensors that have no data."""
    if isinstance(value, TensorSpec):
        if not value.strides:
            return _empty(value, device)
        return torch.empty_strided(value.shape, value.strides, dtype=getattr(torch, value.dtype), device=device)
    if isinstance(value, list):
        return [_fake(one, device) for one in value]
    if isinstance(value, dict) and set(value) == {"dtype"}:
        return getattr(torch, value["dtype"])
    return float(value["float"]) if isinstance(value, dict) and set(value) == {"float"} else value


@cache
def _name_here(name: str) -> str:
    """Return the operator as this torch names it; empty if it has none. Early versions of torch 2 had overloads for
    symbolic sizes, which are the usual ones today."""
    base, _, overload = name.partition(".")
    space, _, own = base.rpartition("::")
    found = getattr(getattr(torch.ops, space or "aten"), own, None)
    known = found.overloads() if found is not None else []
    others = ("dim_IntList", "default") if overload == "SymInt" else ()
    same = next((one for one in (overload or "default", *others) if one in known), None)
    return f"{base}.{same}" if same else ""


def _specs(node: Any) -> Any:
    """Return an argument of a workload with its tensors as TensorSpec."""
    if isinstance(node, list):
        return [_specs(one) for one in node]
    found = list(tensors(node, "")) if isinstance(node, str) else []
    return found[0][1] if found else node
