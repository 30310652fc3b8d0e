"""Reads, describes and counts modules of StableHLO. Only a worker or a child process imports this."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

from jax.extend.mlir import ir, passmanager
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters.mlir import make_ir_context
from jaxlib.mlir.dialects import mhlo

from opmark.errors import InvalidFile, InvalidParameter, UserError
from opmark.models.facts import DescribedInput, ModelDescription, ModelFacts
from opmark.models.source import ModelSource
from opmark.models.user_source import ModuleSource
from opmark.models.zoo import find
from opmark.models.zoo_source import ZooSource
from opmark.plugin import Params
from opmark.schema.arguments import tensors as tensors_in
from opmark.schema.tensor import DTYPES, is_float

BYTECODE = b"ML\xefR"
_PORTABLE = b"StableHLO_v"
"""Name of the producer at the beginning of a portable artefact; other bytecode fits one version of the dialect only."""
ENTRY = "main"
INPUT, WEIGHT, MODEL, PARAMS = "opmark.input", "opmark.weight", "opmark.model", "opmark.params"
"""Attributes of modules that opmark exports: names of inputs and weights, the model and its parameters."""
_DIALECTS = ("builtin", "func", "stablehlo", "chlo", "sdy")
_ELEMENTS = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i1": "bool", "i8": "int8",
    "i16": "int16", "i32": "int32", "i64": "int64", "ui8": "uint8", "ui16": "uint16", "ui32": "uint32",
    "ui64": "uint64", "complex<f32>": "complex64", "complex<f64>": "complex128", "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
}  # fmt: skip
NARROW = ("f32", "f16", "bf16")
_MASK = re.compile(r"mask", re.IGNORECASE)
_HINT = "jax.jit(f).lower(...).as_text() and `opmark model export MODEL --to mlir` write such files"


@dataclass(frozen=True)
class ModuleArgument:
    name: str
    shape: tuple[int, ...]
    """-1 for an axis whose size the module leaves open."""
    dtype: str
    weight: bool


@dataclass(frozen=True)
class Program:
    """A module of StableHLO, with what its function @main takes and returns."""

    module: Any
    arguments: tuple[ModuleArgument, ...]
    outputs: tuple[tuple[tuple[int, ...], str], ...]
    weights: Mapping[str, Any] = field(default_factory=dict)
    """Arrays of arguments that are weights, by name."""
    export: float | None = None
    """Seconds that the front end took, where it ran in this process."""

    @property
    def inputs(self) -> tuple[ModuleArgument, ...]:
        return tuple(one for one in self.arguments if not one.weight)

    @property
    def twin(self) -> tuple[str, dict[str, Any]] | None:
        """The model of the zoo that it was exported from, with its parameters; None for other modules."""
        found = self.module.operation.attributes
        if MODEL not in found or PARAMS not in found:
            return None
        return str(ir.StringAttr(found[MODEL]).value), json.loads(ir.StringAttr(found[PARAMS]).value)

    @property
    def operators(self) -> Counter[str]:
        """Number of operations by name, without functions and what they return."""
        names = (one.name for one in walk(self.module.operation))
        return Counter(name for name in names if name.startswith(("stablehlo.", "chlo.")) and "return" not in name)

    def serialize(self) -> bytes:
        """Return the module as a portable artefact, which later versions of StableHLO read too. Operations of CHLO
        stay what they are: written out, an error function would be a polynomial that no compiler recognizes."""
        same = copy_module(self.module)  # which is changed on the way
        found: bytes = stablehlo.serialize_portable_artifact(
            same, stablehlo.get_current_version(), allow_other_dialects=True
        )
        return found


def walk(operation: Any) -> Iterator[Any]:
    """Yield an operation and all operations in its regions."""
    yield operation
    for region in operation.regions:
        for block in region:
            for one in block.operations:
                yield from walk(one.operation)


# The file.


def parse_module(data: bytes, name: str) -> Any:
    """Return a module of StableHLO from text or bytecode; MHLO is converted. UserError says where it cannot be read."""
    context = make_ir_context()
    try:
        if data.startswith(BYTECODE) and _PORTABLE in data[:64]:
            module = stablehlo.deserialize_portable_artifact(context, data)
        else:
            module = ir.Module.parse(data if data.startswith(BYTECODE) else data.decode(), context)
    except ir.MLIRError as error:
        raise InvalidFile(f"`{name}` cannot be read as MLIR: {explain(error, data)}", _HINT) from None
    except ValueError as error:  # bytes that are no UTF-8, and every error of portable artefacts
        what = "neither text nor bytecode" if isinstance(error, UnicodeDecodeError) else "its bytecode is damaged, or "
        what += "" if isinstance(error, UnicodeDecodeError) else "newer than this version of jaxlib"
        raise InvalidFile(f"`{name}` cannot be read as MLIR: {what}", f"is the file complete? {_HINT}") from None
    if any(one.name.startswith("mhlo.") for one in walk(module.operation)):
        module = _legalize(module, name, data)
    for one in walk(module.operation):
        if one.name.partition(".")[0] not in _DIALECTS:
            raise InvalidFile(
                f"`{name}`, line {_line(one.location)}: `{one.name}` is no operation of StableHLO; XLA takes no others",
                "convert the module to StableHLO first",
            )
    return module


def _legalize(module: Any, name: str, data: bytes) -> Any:
    """Convert MHLO to StableHLO; refuse an operation that has no form there."""
    mhlo.register_mhlo_passes()
    try:
        with module.context:
            passmanager.PassManager.parse("builtin.module(hlo-legalize-to-stablehlo)").run(module.operation)
    except ir.MLIRError as error:
        raise InvalidFile(
            f"`{name}` is MHLO and cannot be converted to StableHLO: {explain(error, data)}",
            "write the operation in terms of others that StableHLO has",
        ) from None
    return module


def explain(error: Any, data: bytes) -> str:
    """Return the place and the first line of an error of MLIR, with the name of the operation that it is about."""
    found = next(iter(error.error_diagnostics), None)
    if found is None:
        return str(error).strip().partition("\n")[0]
    message = found.message.partition(": %")[0].partition(" that was explicitly")[0].strip()
    line = _line(found.location)
    if "unregistered dialect" in message and line and not data.startswith(BYTECODE):
        text = data.decode().splitlines()[line - 1]
        if named := re.search(r'"([\w$]+\.[\w$.]+)"\s*\(', text):
            message = f"`{named[1]}` is of a dialect that jaxlib does not have"
    return f"line {line}: {message}" if line else message


def _line(location: Any) -> int:
    """Return the line of a text; 0 where the location is none."""
    found = re.search(r'"[^"]*":(\d+):\d+', str(location))
    return int(found[1]) if found else 0


def _entry(module: Any, name: str) -> Any:
    functions = {
        str(ir.StringAttr(one.attributes["sym_name"]).value): one
        for one in module.body.operations
        if one.operation.name == "func.func"
    }
    if ENTRY not in functions:
        there = ", ".join(f"@{one}" for one in functions) or "none"
        raise InvalidFile(f"`{name}` has no function @main; its functions: {there}", "XLA runs @main: rename one")
    return functions[ENTRY]


def describe_entry(module: Any, name: str) -> Program:
    """Return the program of a module, without its weights."""
    entry = _entry(module, name)
    kind = ir.FunctionType(ir.TypeAttr(entry.attributes["function_type"]).value)
    named = "arg_attrs" in entry.attributes
    attributes: list[Any] = [*ir.ArrayAttr(entry.attributes["arg_attrs"])] if named else [{}] * len(kind.inputs)
    arguments = []
    for i, (given, own) in enumerate(zip(kind.inputs, attributes, strict=True)):
        label = next((ir.StringAttr(own[key]).value for key in (INPUT, WEIGHT) if key in own), f"arg{i}")
        shape, dtype = _tensor(given, f"input `{label}` of `{name}`")
        arguments.append(ModuleArgument(label, shape, dtype, WEIGHT in own))
    outputs = tuple(_tensor(one, f"output {i} of `{name}`") for i, one in enumerate(kind.results))
    if not outputs:
        raise InvalidFile(f"@main of `{name}` returns nothing", "XLA would leave out what nobody sees")
    return Program(module, tuple(arguments), outputs)


def _tensor(kind: Any, what: str) -> tuple[tuple[int, ...], str]:
    """Return shape and element type; -1 for an axis of open size. UserError for what is no tensor of known rank."""
    if not isinstance(kind := ir.Type(kind).maybe_downcast(), ir.RankedTensorType):
        raise InvalidFile(f"{what} is a `{kind}`, expected a tensor of known rank", "tokens and tuples cannot be given")
    element = _ELEMENTS.get(str(kind.element_type), "")
    if element not in DTYPES:
        raise InvalidFile(
            f"{what} has the element type `{kind.element_type}`, which opmark cannot make",
            f"it makes {', '.join(key for key, value in _ELEMENTS.items() if value in DTYPES)}",
        )
    return tuple(-1 if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in range(kind.rank)), element


def copy_module(module: Any) -> Any:
    written = io.BytesIO()
    module.operation.write_bytecode(written)
    return ir.Module.parse(written.getvalue(), module.context)


def refine(program: Program, name: str, batch: int) -> Program:
    """Return the program for a batch, where the first axis of inputs has no size in the module."""
    if all(n >= 0 for one in program.arguments for n in one.shape):
        return program
    for one in program.inputs:
        if -1 in one.shape[1:]:
            raise InvalidFile(
                f"input `{one.name}` of `{name}`: the size of axis {one.shape.index(-1, 1)} is open",
                "only the first axis, the batch, may have an open size; give the others one in the file",
            )
    module = copy_module(program.module)
    types = ",".join(
        f"tensor<{''.join(f'{batch if n < 0 else n}x' for n in one.shape)}{_element_name(one.dtype)}>"
        for one in program.arguments
    )
    passes = f"stablehlo-refine-arguments{{types={types}}},stablehlo-refine-shapes"
    passes += ",func.func(stablehlo-canonicalize-dynamism),stablehlo-refine-shapes"
    stablehlo.register_stablehlo_passes()
    try:
        with module.context:
            passmanager.PassManager.parse(f"builtin.module({passes})").run(module.operation)
    except ir.MLIRError as error:
        raise InvalidFile(
            f"`{name}` cannot be computed for a batch of {batch}: {explain(error, BYTECODE)}",
            "export it once for each batch, with all sizes in it",
        ) from None
    fixed = describe_entry(module, name)
    if any(n < 0 for shape, _ in fixed.outputs for n in shape):
        raise InvalidFile(
            f"`{name}`: the size of an output stays open for a batch of {batch}", "XLA needs to know every shape"
        )
    return Program(fixed.module, fixed.arguments, fixed.outputs, program.weights, program.export)


def _element_name(dtype: str) -> str:
    return next(name for name, known in _ELEMENTS.items() if known == dtype)


@lru_cache(maxsize=1)
def read_program(source: ModuleSource, stamp: str) -> Program:
    program = describe_entry(parse_module(source.read_module(), source.name), source.name)
    names = [one.name for one in program.arguments if one.weight]
    if not names:
        return program
    return Program(program.module, program.arguments, program.outputs, _load_weights(source, names))


def _load_weights(source: ModuleSource, names: Sequence[str]) -> Mapping[str, Any]:
    """Return the weights that lie beside a module that opmark exported."""
    try:
        from safetensors import SafetensorError
        from safetensors.flax import load_file
    except ImportError:
        raise UserError(
            f"the weights of `{source.name}` are read by the package safetensors", "pip install safetensors"
        ) from None
    path = source.weights_path
    hint = "`opmark model export` writes both files; they belong together"
    try:
        found: dict[str, Any] = load_file(str(path))
    except (SafetensorError, OSError) as error:
        raise UserError(f"the weights of `{source.name}` cannot be read from `{path}`: {error}", hint) from None
    if missing := [name for name in names if name not in found]:
        raise UserError(f"`{path}` lacks the weight `{missing[0]}` of `{source.name}`", hint)
    return found


def load_program(source: ModelSource, params: Params) -> Program:
    """Return the program of a case: read from its file, or exported from its model."""
    if isinstance(source, ModuleSource):
        return refine(read_program(source, source.stamp({})), source.name, params.get("batch", 1))
    from opmark.models.mlir_export import export_program

    return export_program(source, params)


# Description and facts.


def describe_module(source: ModuleSource, params: Params) -> ModelDescription:
    program = describe_entry(parse_module(source.read_module(), source.name), source.name)
    written, names = params.get("inputs") or {}, [one.name for one in program.inputs]
    by_name = written if isinstance(written, Mapping) else dict(zip(names, written, strict=False))
    if unknown := [name for name in by_name if name not in names]:
        raise InvalidParameter(f"parameter `inputs`: `{source.name}` has no input `{unknown[0]}`", ", ".join(names))
    free = any(one.shape[:1] == (-1,) for one in program.inputs)
    ranges = _ranges_of_twin(program)
    inputs = {
        one.name: _describe_input(one, by_name.get(one.name), ranges.get(one.name), source.name)
        for one in program.inputs
    }
    floats = [one.dtype for one in (*program.inputs, *program.arguments) if is_float(one.dtype)]
    dtype = next(iter(floats), next((kind for _, kind in program.outputs if is_float(kind)), "float32"))
    if not free:
        return ModelDescription(inputs, dtype=dtype)
    one, two = (refine(program, source.name, batch).outputs for batch in (1, 2))
    grown = [
        [axis for axis, (n, m) in enumerate(zip(a, b, strict=True)) if (n, m) == (1, 2)]
        for (a, _), (b, _) in zip(one, two, strict=True)
    ]
    rows = all(len(axes) == 1 for axes in grown)
    return ModelDescription(
        inputs, rows, {i: axes[0] for i, axes in enumerate(grown) if axes[0]} if rows else {}, dtype
    )


def _describe_input(one: ModuleArgument, written: Any, known: tuple[float, float] | None, name: str) -> DescribedInput:
    batched = one.shape[:1] == (-1,)
    shape = (1, *one.shape[1:]) if batched else one.shape
    low, high = known or ((-1.0, 1.0) if is_float(one.dtype) else (1, 2) if _MASK.search(one.name) else (0, 2))
    if written is not None:
        spec = next((spec for _, spec in tensors_in(written, one.name)), None)
        if spec is None or (spec.shape, spec.dtype) != (shape, one.dtype):
            raise InvalidParameter(
                f"parameter `inputs`: `{one.name}` of `{name}` is {'x'.join(map(str, shape))} {one.dtype}, got "
                f"`{written}`",
                "the module fixes shape and type; the range of values may be given, as in 0..1000",
            )
        low, high = spec.low, spec.high
    return DescribedInput(shape, one.dtype, low, high, batched)


def _ranges_of_twin(program: Program) -> dict[str, tuple[float, float]]:
    twin = find_twin(program)
    return {} if twin is None else {name: (one.low, one.high) for name, one in twin[0].inputs(twin[1]).items()}


def find_twin(program: Program, weights: Any = "") -> tuple[ZooSource, dict[str, Any]] | None:
    """Return the model of the zoo that a module was exported from, and the parameters of the case."""
    named = program.twin
    entry = find(named[0]) if named else None
    if named is None or entry is None:
        return None
    return ZooSource(entry), {**named[1], "weights": str(weights)}


def count_module(source: ModelSource, params: Params) -> ModelFacts:
    """Return the facts of a case. Operations are unknown where the number of times that a part runs is."""
    assert isinstance(source, ModuleSource)
    program = refine(
        describe_entry(parse_module(source.read_module(), source.name), source.name), source.name, params["batch"]
    )
    held = [one.shape for one in program.arguments if one.weight]
    held += [tuple(ir.RankedTensorType(one.results[0].type).shape) for one in _float_constants(program.module)]
    names = [f"output {i}" if i else "output" for i, _ in enumerate(program.outputs)]
    return ModelFacts(
        flops=count_flops(program) or None,
        weights=sum(map(prod, held)),
        outputs={name: shape for name, (shape, _) in zip(names, program.outputs, strict=True)},
        dtypes=tuple(dtype for _, dtype in program.outputs),
    )


def _float_constants(module: Any) -> Iterator[Any]:
    """Yield the constants that hold weights: floats, and more than one different number."""
    for one in walk(module.operation):
        if one.name == "stablehlo.constant":
            value = one.attributes["value"]
            kind = ir.RankedTensorType(one.results[0].type)
            if str(kind.element_type) in (*NARROW, "f64") and not getattr(value, "is_splat", False):
                yield one


def count_flops(program: Program) -> int | None:
    """Return the operations of products and convolutions, a multiply-add as two; None where loops hide how many."""
    functions = {
        str(ir.StringAttr(one.attributes["sym_name"]).value): one.operation
        for one in program.module.body.operations
        if one.operation.name == "func.func"
    }
    known: dict[str, int | None] = {}

    def of_function(name: str) -> int | None:
        if name not in known:
            parts = [of_operation(one) for one in walk(functions[name])]
            known[name] = None if None in parts else sum(one for one in parts if one)
        return known[name]

    def of_operation(one: Any) -> int | None:
        if one.name == "func.call":
            return of_function(str(ir.FlatSymbolRefAttr(one.attributes["callee"]).value))
        if one.name == "stablehlo.while":
            return None
        return _operation_flops(one)

    return of_function(ENTRY)


def _operation_flops(one: Any) -> int:
    if one.name not in ("stablehlo.dot", "stablehlo.dot_general", "stablehlo.convolution"):
        return 0
    left, right = (tuple(ir.RankedTensorType(value.type).shape) for value in one.operands)
    out = prod(ir.RankedTensorType(one.results[0].type).shape)
    if one.name == "stablehlo.dot":
        return 2 * out * left[-1]
    if one.name == "stablehlo.dot_general":
        numbers = stablehlo.DotDimensionNumbers(one.attributes["dot_dimension_numbers"])
        return 2 * out * prod(left[axis] for axis in numbers.lhs_contracting_dimensions)
    axes = stablehlo.ConvDimensionNumbers(one.attributes["dimension_numbers"])
    return 2 * out * prod(right) // right[axes.kernel_output_feature_dimension]
