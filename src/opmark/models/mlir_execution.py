"""Calls modules of StableHLO through XLA, and computes what their results are compared with. Only a worker or a child
process imports this.

A module that opmark exported names the model that it was made from, and its reference is that model in torch. For all
others the reference is the module itself with every floating-point type replaced by float64, computed by XLA.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np
from jax.extend.mlir import ir

from opmark.errors import Unsupported
from opmark.models import execution
from opmark.models.checking import (
    ROUNDING,
    Effects,
    bound_outputs,
    by_sample,
    compare_inputs,
    explain_blindness,
    find_effects,
    move_by_rounding,
    refuse_not_finite,
)
from opmark.models.facts import facts
from opmark.models.mlir_file import (
    BYTECODE,
    ENTRY,
    NARROW,
    Program,
    copy_module,
    describe_entry,
    explain,
    find_twin,
    load_program,
    read_program,
    walk,
)
from opmark.models.source import ModelSource
from opmark.models.user_source import ModuleSource
from opmark.models.zoo_source import ZooSource
from opmark.plugin import Function, Params, TensorSlot
from opmark.schema import Compilation
from opmark.schema.tensor import is_float


def call_program(program: Program) -> Callable[..., Any]:
    """Return a function of JAX that takes the arguments of @main and returns a tuple of its results."""
    inputs = tuple(jax.core.ShapedArray(one.shape, np.dtype(one.dtype)) for one in program.arguments)
    outputs = tuple(jax.core.ShapedArray(shape, np.dtype(dtype)) for shape, dtype in program.outputs)
    module = program.serialize()
    try:
        exported = jax.export.Exported(
            fun_name=ENTRY,
            in_tree=jax.tree.structure(((0,) * len(inputs), {})),
            in_avals=inputs,
            out_tree=jax.tree.structure((0,) * len(outputs)),
            out_avals=outputs,
            _has_named_shardings=False,
            _in_named_shardings=(None,) * len(inputs),
            _out_named_shardings=(None,) * len(outputs),
            in_shardings_hlo=(None,) * len(inputs),
            out_shardings_hlo=(None,) * len(outputs),
            nr_devices=1,
            platforms=("cpu",),
            ordered_effects=(),
            unordered_effects=(),
            disabled_safety_checks=(jax.export.DisabledSafetyCheck.platform(),),  # a module has no platform of its own
            mlir_module_serialized=module,
            calling_convention_version=jax.export.maximum_supported_calling_convention_version,
            module_kept_var_idx=tuple(range(len(inputs))),
            uses_global_constants=False,
            _get_vjp=None,
        )
    except TypeError as error:  # the fields are not the same in every version
        raise Unsupported(f"jax {jax.__version__} takes no modules in the way that 0.10 does: {error}") from None
    call: Callable[..., Any] = exported.call
    return call


@dataclass(frozen=True)
class ModuleFunction(Function):
    """A module as a function of its weights and inputs, which can be written to a file once it is compiled."""

    program: Any = None

    def save(self, executable: Any, compilation: Compilation, path: Path) -> None:
        from opmark.models.xla_artifact import write_artifact

        write_artifact(self.program, executable, compilation, path)


def build_jax(source: ModelSource, params: Params, **given: Any) -> Any:
    program = load_program(source, params)
    slots = tuple(TensorSlot(program.weights[one.name]) if one.weight else given[one.name] for one in program.arguments)
    return ModuleFunction(
        call_program(program), slots, operators=program.operators, export=program.export, program=program
    )


# The reference, and what rounding does to it.


def widen_program(program: Program, change: Callable[[Any], Any] | None = None) -> Program:
    """Return the program with float64 in place of every narrower type, and `change` applied to its weights; Unsupported
    where it does not hold together then: a conversion of bits, or a function that knows one type only."""
    module = copy_module(program.module)
    with module.context, ir.Location.unknown():
        wide = ir.F64Type.get()

        def widen(kind: Any) -> Any:
            kind = ir.Type(kind).maybe_downcast()
            if not isinstance(kind, ir.RankedTensorType) or str(kind.element_type) not in NARROW:
                return kind
            return ir.RankedTensorType.get(kind.shape, wide, kind.encoding)

        for one in [*walk(module.operation)]:
            if one.name == "func.func":
                kind = ir.FunctionType(ir.TypeAttr(one.attributes["function_type"]).value)
                new = ir.FunctionType.get([*map(widen, kind.inputs)], [*map(widen, kind.results)])
                one.attributes["function_type"] = ir.TypeAttr.get(new)
            if one.name == "stablehlo.constant":
                one.attributes["value"] = _wide_constant(one.attributes["value"], change)
            for region in one.regions:
                for block in region:
                    for argument in block.arguments:
                        argument.set_type(widen(argument.type))
            for result in one.results:
                result.set_type(widen(result.type))
        try:
            module.operation.verify()
        except ir.MLIRError as error:
            raise Unsupported(f"the module cannot be computed in float64: {explain(error, BYTECODE)}") from None
    if foreign := [one for one in walk(module.operation) if one.name == "stablehlo.custom_call"]:
        target = ir.StringAttr(foreign[0].attributes["call_target_name"]).value
        if not target.startswith(("mhlo.", "chlo.", "Sharding")):
            raise Unsupported(f"the module cannot be computed in float64: it calls `{target}`")
    found = describe_entry(module, "the module in float64")
    weights = {
        name: (change or np.asarray)(np.asarray(value, np.float64) if is_float(str(value.dtype)) else np.asarray(value))
        for name, value in program.weights.items()
    }
    return Program(found.module, found.arguments, found.outputs, weights)


def _wide_constant(value: Any, change: Callable[[Any], Any] | None) -> Any:
    kind = ir.RankedTensorType(value.type)
    element = str(kind.element_type)
    if element not in (*NARROW, "f64"):
        return value
    if not isinstance(value, ir.DenseElementsAttr):
        raise Unsupported(f"the module cannot be computed in float64: a constant is kept as `{type(value).__name__}`")
    wide: Any = ir.RankedTensorType.get(kind.shape, ir.F64Type.get())
    if value.is_splat:
        number = ir.FloatAttr(value.get_splat_value()).value
        return ir.DenseElementsAttr.get_splat(wide, ir.FloatAttr.get(ir.F64Type.get(), number))
    array: Any = np.asarray(value).astype(np.float64)
    new: Any = np.ascontiguousarray(change(array) if change else array)
    return ir.DenseElementsAttr.get(new)


class _Evaluator:
    """Computes a program, compiled once."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._call = jax.jit(call_program(program))

    def run(self, arrays: Mapping[str, Any]) -> list[Any]:
        program = self._program
        given = [
            np.asarray(program.weights[one.name] if one.weight else arrays[one.name], np.dtype(one.dtype))
            for one in program.arguments
        ]
        found = [np.asarray(one) for one in self._call(*given)]
        return [one.astype(np.float64) if is_float(str(one.dtype)) else one for one in found]


@lru_cache(maxsize=2)
def _evaluator(source: ModelSource, stamp: str, batch: int, moved_by: float = 0.0) -> tuple[_Evaluator, str]:
    """Return what computes the module in float64, and why it computes in the module's own types where it has to."""
    program, generator = load_program(source, {"batch": batch}), np.random.default_rng(0)
    change = (lambda array: move_by_rounding(array, moved_by, generator)) if moved_by else None
    try:
        return _Evaluator(widen_program(program, change)), ""
    except Unsupported as error:
        return _Evaluator(program), error.message


def _twin(source: ModelSource, params: Params) -> tuple[ZooSource, dict[str, Any]] | None:
    """Return the model in torch that computes the reference; None where the module was not exported by opmark."""
    assert isinstance(source, ModuleSource)
    program = read_program(source, source.stamp({}))
    return find_twin(program, source.weights_path)


def reference(source: ModelSource, params: Params, **arrays: Any) -> Any:
    if twin := _twin(source, params):
        return execution.reference(*twin, **arrays)
    outputs = by_sample(
        source, params, arrays, lambda some, given: _evaluator(source, source.stamp({}), some["batch"])[0].run(given)
    )
    refuse_not_finite((f"`{name}`" for name in facts(source, params).outputs), outputs)
    return outputs


def rounding_bounds(source: ModelSource, params: Params) -> tuple[float, ...]:
    if twin := _twin(source, params):
        return execution.rounding_bounds(*twin)
    return bound_outputs(params["dtype"], find_effects(source, params, _measure_effects))


def why_blind(source: ModelSource, params: Params) -> str:
    if twin := _twin(source, params):
        return execution.why_blind(*twin)
    _, reason = _evaluator(source, source.stamp({}), 1 if source.batched(params) else params["batch"])
    if reason:
        return f"{reason}, so there is nothing more exact to compare it with"
    return explain_blindness(params["dtype"], find_effects(source, params, _measure_effects))


def _measure_effects(source: ModelSource, params: Params) -> Effects:
    """Compute once more with weights and inputs moved by the rounding of the type. Everything that is computed from
    them is then rounded otherwise too, so the difference contains what rounding does on the way."""
    step, generator = ROUNDING[params["dtype"]], np.random.default_rng(1)
    exact, _ = _evaluator(source, source.stamp({}), params["batch"])
    moved, _ = _evaluator(source, source.stamp({}), params["batch"], step)

    def move(given: Mapping[str, Any]) -> list[Any]:
        return moved.run({
            name: move_by_rounding(np.asarray(one, np.float64), step, generator) if is_float(str(one.dtype)) else one
            for name, one in given.items()
        })  # fmt: skip

    return compare_inputs(source, params, exact.run, move, step)
