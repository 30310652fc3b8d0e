"""Reads operator inputs, as tritonbench has them of real models: the calls of a training step, with their counts.

    Operator: aten.add.Tensor
    cnt: 12, ((T([2, 512, 128], f16), T([128], f16, stride=(1,))), {})

A line is parsed as Python's syntax tree and never evaluated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from math import inf, nan
from pathlib import Path
from typing import Any, NamedTuple

from opmark.errors import InvalidFile, InvalidParameter, Unsupported
from opmark.models.calls import TorchCall, entry_of_call, recognise_calls, release_recognition
from opmark.models.index_bounds import value_bounds
from opmark.schema import Imported, ImportProblem
from opmark.schema.arguments import canonical
from opmark.schema.tensor import DTYPES

_OPERATOR, _CALL = "Operator:", re.compile(r"cnt:\s*(\d+)\s*,\s*(.*)")
_NAME = re.compile(r"(?:(\w+)(?:\.|::))?(\w+)(?:\.(\w+))?")
_DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "c32": "complex32", "c64": "complex64",
    "c128": "complex128", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "b8": "bool",
    "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
}  # fmt: skip
_TORCH_DTYPES = {"half": "float16", "float": "float32", "double": "float64", "long": "int64", "int": "int32"}
_FORMATS = {"contiguous_format": 0, "preserve_format": 1, "channels_last": 2, "channels_last_3d": 3}
"""torch's own numbers of memory formats, which its operators take as well."""
_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn", "jagged")
_REPEATABLE = {
    name + "_": name
    for name in ("unsqueeze", "squeeze", "t", "transpose", "swapaxes", "swapdims", "resize", "resize_as", "detach")
}
"""Calls in place that change the shape: repeated on one tensor, each is another call. They are measured as the call
that returns a new tensor."""
_MAX_SHOWN, _MAX_DIGITS = 60, 18


class _WrittenCall(NamedTuple):
    line: int
    times: int
    call: TorchCall


class _InputDevice(NamedTuple):
    """A device, which the backend decides about."""

    name: str


class _InputLayout(NamedTuple):
    name: str


class _InputTensor(NamedTuple):
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None


class OperatorInputsImporter:
    name = "operator-inputs"
    summary = "operators of real models with their inputs and counts, as tritonbench lists them"

    def recognises(self, path: Path, data: Any) -> bool:
        return False  # its files are neither JSON nor YAML: `takes_file` knows them

    def takes_file(self, path: Path, head: bytes) -> bool:
        lines = [line.strip() for line in head.decode(errors="replace").splitlines()]
        return next((line for line in lines if line and not line.startswith("#")), "").startswith(_OPERATOR)

    def read(self, path: Path, data: Any, seed: int) -> Imported:
        return read_text(path, _read(path))

    def release(self) -> None:
        release_recognition()


OPERATOR_INPUTS = OperatorInputsImporter()


def read_text(path: Path, text: str) -> Imported:
    """Return one entry per call. Lines that are no call, and calls that cannot be written, are problems."""
    refused: dict[ImportProblem, list[int]] = {}
    calls = list(_calls(text, refused))
    try:
        known = recognise_calls([one.call for one in calls])
    except Unsupported as error:
        raise InvalidFile(f"{path}: {error.message}", error.hint) from None
    entries = []
    for one, found in zip(calls, known, strict=True):
        if found.problem:
            _refuse(refused, one.line, one.call.name, found.problem)
        else:
            entries.append(entry_of_call(one.call, found, one.times, source=f"{path.name}#{one.call.name}"))
    problems = (_at(path, lines, problem) for problem, lines in refused.items())
    return Imported(tuple(entries), problems=tuple(problems))


def _refuse(refused: dict[ImportProblem, list[int]], line: int, where: str, message: str, hint: str = "") -> None:
    """Keep the line of a problem; the same one in several lines is told once."""
    refused.setdefault(ImportProblem(where, message, hint), []).append(line)


def _at(path: Path, lines: list[int], problem: ImportProblem) -> ImportProblem:
    place = f"{path}:{lines[0]}" + (f": {problem.where}" if problem.where else "")
    several = f" ({len(lines)} lines)" if len(lines) > 1 else ""
    return ImportProblem(place, problem.message + several, problem.hint)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{path}: is not text: byte {error.start} is not UTF-8") from None
    except OSError as error:
        raise InvalidFile(f"{path}: cannot be read: {error.strerror}", "check the path") from None


def _calls(text: str, refused: dict[ImportProblem, list[int]]) -> Iterator[_WrittenCall]:
    operator = ""
    for number, line in enumerate(text.splitlines(), 1):
        written = line.strip()
        if not written or written.startswith("#"):
            continue
        if written.startswith(_OPERATOR):
            operator = written.removeprefix(_OPERATOR).strip()
            if not _NAME.fullmatch(operator):
                _refuse(refused, number, "", f"expected an operator as aten.add.Tensor, got `{_short(operator)}`")
                operator = ""
            continue
        found = _CALL.fullmatch(written)
        if found is None:
            expected = "expected `Operator: NAME` or `cnt: NUMBER, ((ARGUMENTS), {BY NAME})`"
            _refuse(refused, number, "", f"{expected}, got `{_short(written)}`")
        elif not operator:
            _refuse(refused, number, "", "the call stands below no operator", "as in `Operator: aten.mm.default`")
        elif len(found[1]) > _MAX_DIGITS or int(found[1]) < 1:
            _refuse(refused, number, operator, f"expected a count of at least 1, got {_short(found[1])}")
        else:
            try:
                yield _WrittenCall(number, int(found[1]), _call(operator, found[2]))
            except InvalidParameter as error:
                _refuse(refused, number, operator, error.message, error.hint or "")


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


def _call(operator: str, text: str) -> TorchCall:
    """Return the call of a line; InvalidParameter if a workload has no words for it."""
    try:
        whole = _value(ast.parse(text.strip().strip("'\""), mode="eval").body)
    except SyntaxError as error:
        raise InvalidParameter(f"not Python's syntax: {error.msg}, in `{_short(text)}`") from None
    except (ValueError, RecursionError, MemoryError):
        raise InvalidParameter(f"cannot be parsed: `{_short(text)}`", "arguments are nested too deeply") from None
    if (
        not isinstance(whole, list)
        or len(whole) != 2
        or not isinstance(whole[0], list)
        or not isinstance(whole[1], dict)
    ):
        raise InvalidParameter(f"expected ((ARGUMENTS), {{BY NAME}}), got `{_short(text)}`")
    args, by_name = whole
    kwargs = {}
    for name, value in by_name.items():
        if isinstance(value, _InputLayout) and value.name != "strided":
            raise InvalidParameter(f"makes a tensor of layout {value.name}, which a workload has no words for")
        if (
            value is not None
            and not isinstance(value, _InputDevice | _InputLayout)
            and name not in ("device", "pin_memory")
        ):
            kwargs[name] = value
    space, own, overload = _parts(operator)
    name = f"{_REPEATABLE.get(own, own)}.{overload or 'default'}"
    bounds = value_bounds(own, args, _shape, _is_mask)
    nodes = [_node(one, (place,), bounds) for place, one in enumerate(args)]
    return TorchCall(
        name if space == "aten" else f"{space}::{name}", nodes, {key: _node(one, (), {}) for key, one in kwargs.items()}
    )


def _parts(operator: str) -> tuple[str, str, str]:
    """Return the namespace, the name and the overload: of `aten.add.Tensor`, `aten::add.Tensor` or `add.Tensor`."""
    if "::" not in operator and operator.count(".") < 2 and not operator.startswith("aten."):
        own, _, overload = operator.partition(".")
        return "aten", own, overload
    space, _, rest = operator.replace("::", ".", 1).partition(".")
    own, _, overload = rest.partition(".")
    return space, own, overload


def _shape(value: Any) -> tuple[int, ...] | None:
    return value.shape if isinstance(value, _InputTensor) else None


def _is_mask(value: _InputTensor) -> bool:
    return value.dtype in ("bool", "uint8")


def _node(value: Any, place: tuple[int, ...], bounds: dict[Any, Any]) -> Any:
    """Return an argument as a workload writes it."""
    if isinstance(value, _InputTensor):
        node: dict[str, Any] = {"shape": list(value.shape), "dtype": value.dtype}
        bound = bounds.get(place)
        if bound is not None and DTYPES[value.dtype].kind == ("float" if bound.floats else "int"):
            node |= {"low": bound.low, "high": bound.high}
            if bound.values:
                return canonical(node | {"values": bound.values})
        return canonical(node | ({"strides": list(value.strides)} if value.strides is not None else {}))
    if isinstance(value, _InputDevice):
        return value.name
    if isinstance(value, _InputLayout):
        raise InvalidParameter(f"an argument is the layout {value.name}, which a workload has no words for")
    if isinstance(value, list):
        return [_node(one, (*place, number), bounds) for number, one in enumerate(value)]
    if isinstance(value, dict) and set(value) != {"dtype"}:
        raise InvalidParameter("an argument is a mapping, which no operator of torch takes")
    if isinstance(value, str):
        return {"value": value} if _is_like_a_tensor(value) else value
    return canonical(value)


def _is_like_a_tensor(text: str) -> bool:
    """Return whether a workload would take a plain text for a tensor."""
    try:
        return not isinstance(canonical(text), str) or bool(re.match(r"(\(\)|\d)", text))
    except InvalidParameter:
        return True


# Values of a line, out of its syntax tree.


def _value(node: ast.expr) -> Any:
    """Return the value of a part of a line."""
    if isinstance(node, ast.Tuple | ast.List):
        return [_value(one) for one in node.elts]
    if isinstance(node, ast.Constant):
        return _constant(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        number = _value(node.operand)
        if isinstance(number, int | float):
            return -number if isinstance(node.op, ast.USub) else number
    if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(key.value): _value(one) for key, one in pairs if isinstance(key, ast.Constant)}
    if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
        return {"inf": inf, "nan": nan}[node.id]
    if isinstance(node, ast.Name) and node.id in _DTYPES:
        return {"dtype": _DTYPES[node.id]}
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("torch", "th", "math")
    ):
        return _attribute(node.attr)
    if isinstance(node, ast.Call):
        return _called(node)
    raise InvalidParameter(f"expected tensors, numbers, element types and lists, got `{_short(ast.unparse(node))}`")


def _constant(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        if value in _DTYPES:
            return {"dtype": _DTYPES[value]}
        device = re.fullmatch(r"(?:torch\.device\()?'?((?:cpu|cuda|meta|xpu|mps|hpu)(?::\d+)?)'?\)?", value)
        return _InputDevice(device[1]) if device else value
    raise InvalidParameter(f"an argument is a {type(value).__name__}, which a workload has no words for")


def _attribute(name: str) -> Any:
    if name in ("inf", "nan"):
        return {"inf": inf, "nan": nan}[name]
    dtype = _TORCH_DTYPES.get(name, name)
    if dtype in DTYPES:
        return {"dtype": dtype}
    if name in _FORMATS:
        return _FORMATS[name]
    if name in _LAYOUTS:
        return _InputLayout(name)
    raise InvalidParameter(f"torch.{_short(name)}: expected an element type, a memory format or a layout")


def _called(node: ast.Call) -> Any:
    """Return what a call in a line makes: a tensor or a device."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    args = [_value(one) for one in node.args]
    by_name = {one.arg: _value(one.value) for one in node.keywords}
    if name == "device":
        given = by_name.get("type", args[0] if args else "")
        return given if isinstance(given, _InputDevice) else _InputDevice(str(given) or "cpu")
    if name == "ST":
        raise InvalidParameter("an argument is a sparse tensor, which a workload has no words for")
    if name != "T" or not args:
        raise InvalidParameter(f"expected T(SHAPE, ELEMENT TYPE), got `{_short(ast.unparse(node))}`")
    dtype = args[1] if len(args) > 1 else by_name.get("dtype")
    strides = args[2] if len(args) > 2 else by_name.get("stride")
    if not _are_sizes(args[0]) or not isinstance(dtype, dict):
        raise InvalidParameter(
            f"expected T(SHAPE, ELEMENT TYPE), got `{_short(ast.unparse(node))}`", f"types are {', '.join(_DTYPES)}"
        )
    if strides is not None and (not _are_sizes(strides) or len(strides) != len(args[0])):
        raise InvalidParameter(f"expected one stride per axis, got `{_short(ast.unparse(node))}`")
    return _InputTensor(tuple(args[0]), dtype["dtype"], None if strides is None else tuple(strides))


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)
