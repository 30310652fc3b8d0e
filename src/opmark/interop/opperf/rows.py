"""Rows of the table of opperf's operators: which tensors and options mean which parameters of opmark.

| an option's word | meaning |
|---|---|
| `axis` | the parameter of that name; of several (`alpha|negative_slope`) the first that the operator has |
| `!descending` | the opposite of a truth value |
| `1-momentum` | 1 minus the value |
| (empty) | the option is ignored, with a note |
| `.` | `finish` reads the option |
| `in:NCHW,NCW` | only these values are accepted, and the operator always has them; `in:`: no value is accepted |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opmark.errors import InvalidParameter, nearest
from opmark.interop.opperf.shapes import Bound, bind, match, shape_of, write_shape
from opmark.plugin import Operator, Param
from opmark.plugin.registry import operator as find_operator

Inputs = Mapping[str, Any]
Words = Mapping[Any, str]


@dataclass(frozen=True)
class OpperfRow:
    op: str
    """opmark's operator; `{option}` is replaced by the word of an option, `{rank}` by the number of image axes."""
    tensors: Mapping[str, str] = field(default_factory=dict)
    """Patterns by name; `data|x` are two names of one tensor, `args*` also takes args0, args1, ..."""
    options: Mapping[str, str] = field(default_factory=dict)
    needed: int = 1
    """Number of tensors, from the first on, that are mandatory."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Parameters with the value that opperf's operator always has."""
    usual: Mapping[str, Any] = field(default_factory=dict)
    """Parameters with opperf's defaults."""
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """The row applies only with these values of options; None means that an option is not given."""
    words: Mapping[str, Words] = field(default_factory=dict)
    flips: Mapping[str, str] = field(default_factory=dict)
    """Options that transpose a tensor, by name."""
    moves: str = ""
    """A tensor whose axis `axis` is moved to the end, where opmark's operator has it."""
    finish: Callable[[Bound, Inputs], Sequence[str]] | None = None
    """Computes parameters that no pattern can express, and returns notes."""
    back: Mapping[str, str] = field(default_factory=dict)
    """Options that `finish` reads, with the parameters to write them from on export."""
    note: str = ""


def words(text: str) -> list[str]:
    return text.split()


class Meaning(NamedTuple):
    op: str
    params: dict[str, Any]
    notes: tuple[str, ...] = ()


def meaning(rows: Sequence[OpperfRow], inputs: Inputs, dtype: str | None = None) -> Meaning:
    """Translate inputs by the first row that fits; if none does, raise the error of the first one."""
    inputs = {key: value for key, value in inputs.items() if value is not None}
    fitting = [row for row in rows if _applies(row, inputs)]
    if not fitting:
        keys = dict.fromkeys(key for row in rows for key in row.when)
        options = ", ".join(f"{key}={inputs.get(key)}" for key in keys)
        raise InvalidParameter(f"opmark has no operator for {options}")
    refused: InvalidParameter | None = None
    for row in fitting:
        try:
            return _apply_row(row, inputs, dtype)
        except InvalidParameter as error:
            refused = refused or error
    assert refused is not None
    raise refused


def foreign_inputs(rows: Sequence[OpperfRow], op: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return inputs of opperf that mean these complete parameters; None if there are none."""
    for row in rows:
        inputs = _inputs_by_row(row, op, params)
        if inputs is None:
            continue
        try:
            found = meaning(rows, inputs)
            same = found.op == op and find_operator(op).complete(found.params) == params
        except InvalidParameter:
            continue
        if same:
            return inputs
    return None


def takes_dtype(operator: Operator, dtype: str | None) -> bool:
    """Whether the element type of a whole test applies: indices and 16-bit weights have types of their own."""
    own = operator.by_name.get("dtype")
    return dtype is not None and own is not None and (dtype != "float32" or own.default == dtype)


def ops(row: OpperfRow) -> set[str]:
    """Return the operators that a row may mean."""
    names = {row.op}
    for option, words in {**row.words, "rank": {1: "1", 2: "2", 3: "3"}}.items():
        names = {name.replace(f"{{{option}}}", word) for name in names for word in words.values()}
    return names


def _applies(row: OpperfRow, inputs: Inputs) -> bool:
    return all(any(_alike(inputs.get(key), value) for value in values) for key, values in row.when.items())


def _alike(given: Any, value: Any) -> bool:
    """Compare values; 1 and 0 are true and false."""
    return type(given) in (bool, int, str, type(None)) and given == value


def _apply_row(row: OpperfRow, inputs: Inputs, dtype: str | None) -> Meaning:
    bound: Bound = dict(row.fixed)
    left, notes = _read_tensors(row, _split_args(row, inputs), bound)
    words = _take_words(row, left)
    words["rank"] = str(len(bound.get("image", ())))
    operator = find_operator(row.op.format(**words))
    notes += _read_options(row, left, operator, bound)
    for name, value in row.usual.items():
        bound.setdefault(name, value)
    if row.finish:
        notes += row.finish(bound, inputs)
    if takes_dtype(operator, dtype):
        bound.setdefault("dtype", dtype)
    params = {name: _convert(operator.by_name[name], value, bound) for name, value in bound.items()
              if name in operator.by_name}  # fmt: skip
    return Meaning(operator.name, params, (*notes, *([row.note] if row.note else [])))


def _read_tensors(row: OpperfRow, inputs: Inputs, bound: Bound) -> tuple[dict[str, Any], list[str]]:
    """Bind the sizes of the tensors; return the other inputs, and notes."""
    left, notes = dict(inputs), []
    for i, (names, pattern) in enumerate(row.tensors.items()):
        found = _take_tensor(names, left)
        if found is None:
            if i < row.needed:
                raise InvalidParameter(f"needs `{names.split('|')[0].rstrip('*')}`", _has(inputs))
            continue
        name, value = found
        for option in _flipping(row, names, left):
            shape = shape_of(value, name)
            value = [*shape[:-2], *shape[:-3:-1]]
            notes.append(f"`{option}`: the operand has the transposed shape here")
        if row.moves == name:
            value, note = _move_axis(shape_of(value, name), left.pop("axis", -1), name)
            notes += note
        match(pattern, value, name, bound)
    for option in row.flips:
        left.pop(option, None)
    return left, notes


def _flipping(row: OpperfRow, names: str, left: Inputs) -> list[str]:
    """Return the given options that transpose this tensor."""
    options = [option for option, tensor in row.flips.items() if tensor in names.split("|") and option in left]
    for option in options:
        if not any(_alike(left[option], value) for value in (True, False)):
            raise InvalidParameter(f"`{option}`: expected true or false, got {left[option]}")
    return [option for option in options if left[option]]


def _split_args(row: OpperfRow, inputs: Inputs) -> Inputs:
    """Return a list `args` as args0, args1, ... if a row has a pattern for each."""
    if "args" not in inputs or not any(names.startswith("args0") for names in row.tensors):
        return inputs
    listed = inputs["args"] if isinstance(inputs["args"], list | tuple) else [inputs["args"]]
    rest = {key: value for key, value in inputs.items() if key != "args"}
    return rest | {f"args{i}": value for i, value in enumerate(listed)}


def _take_tensor(names: str, left: dict[str, Any]) -> tuple[str, Any] | None:
    """Remove a tensor from `left` and return it with its name; numbered tensors are returned as a list."""
    for name in names.split("|"):
        start = name.rstrip("*")
        if start in left:
            return start, left.pop(start)
        numbered = sorted((k for k in left if k.startswith(start) and k[len(start) :].isdecimal()), key=_number)
        if name.endswith("*") and numbered:
            return start, [shape_of(left.pop(key), key) for key in numbered]
    return None


def _number(key: str) -> int:
    return int("".join(filter(str.isdecimal, key)))


def _move_axis(shape: list[int], axis: Any, name: str) -> tuple[list[int], list[str]]:
    if isinstance(axis, bool) or not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        raise InvalidParameter(f"`axis`: expected an axis of {shape}, got {axis}")
    if axis % len(shape) == len(shape) - 1:
        return shape, []
    axis %= len(shape)
    moved = [size for i, size in enumerate(shape) if i != axis] + [shape[axis]]
    return moved, [f"axis {axis} of `{name}` is the last one here: {moved}"]


def _take_words(row: OpperfRow, left: dict[str, Any]) -> dict[str, str]:
    found = {}
    for option, words in row.words.items():
        value = left.pop(option, None)
        known = next((word for key, word in words.items() if _alike(value, key)), None)
        if known is None:
            listed = [str(key) for key in words if key is not None]
            near = nearest(str(value), listed)
            raise InvalidParameter(
                f"`{option}`: expected one of {', '.join(listed)}, got {value}",
                f"did you mean `{near}`?" if near else "",
            )
        found[option] = known
    return found


def _read_options(row: OpperfRow, left: Inputs, operator: Operator, bound: Bound) -> list[str]:
    notes = []
    for key, value in left.items():
        if key in row.when:
            continue
        word = row.options.get(key, "dtype" if key == "dtype" else None)
        if word is None:
            near = nearest(key, [*row.options, *(n for names in row.tensors for n in names.split("|"))])
            raise InvalidParameter(
                f"`{operator.name}` has no input `{key}`", f"did you mean `{near}`?" if near else _has(row.options)
            )
        if word.startswith("in:"):
            if word == "in:":
                raise InvalidParameter(
                    f"`{key}`: opmark cannot measure {value}",
                    f"leave `{key}` out; what it adds can be measured on its own",
                )
            if str(value) not in word[3:].split(","):
                raise InvalidParameter(f"`{key}`: expected {word[3:]}, got {value}")
        elif word == ".":
            continue
        elif not word:
            notes.append(f"`{key}` is ignored")
        else:
            _bind_option(operator, word, value, key, bound)
    return notes


def _bind_option(operator: Operator, word: str, value: Any, key: str, bound: Bound) -> None:
    negated, rest = word.startswith("!"), word.startswith("1-")
    names = word.removeprefix("!").removeprefix("1-").split("|")
    name = next((n for n in names if n in operator.by_name), names[0])
    if negated:
        if value not in (True, False):
            raise InvalidParameter(f"`{key}`: expected true or false, got {value}")
        value = not value
    if rest:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidParameter(f"`{key}`: expected a number, got {value}")
        value = 1 - value
    param = operator.by_name.get(name)
    bind(bound, name, _convert(param, value, bound) if param else value, key)


def _convert(param: Param, value: Any, bound: Bound) -> Any:
    """Convert a value to the kind of a parameter: equal sizes to one, one size to one per axis, 0 and 1 to booleans."""
    if param.kind in ("size", "count", "int") and isinstance(value, list | tuple) and value:
        return value[0] if all(item == value[0] for item in value) else value
    if param.kind == "shape" and isinstance(value, int) and not isinstance(value, bool):
        return [value] * max(1, len(bound.get("image", ())))
    if param.kind == "bool" and value in (0, 1):
        return bool(value)
    return list(value) if isinstance(value, tuple) else value


def _has(names: Mapping[str, Any]) -> str:
    return f"it has {', '.join(map(str, names))}" if names else "no input is given"


def _inputs_by_row(row: OpperfRow, op: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
    operator = find_operator(op)
    inputs: dict[str, Any] = {}
    if operator.name not in {_canonical(name) for name in ops(row)}:
        return None
    for i, (names, pattern) in enumerate(row.tensors.items()):
        value = None if pattern == "..." else write_shape(pattern, params)
        if value is None and i < row.needed:
            return None
        if value is not None:
            inputs[names.split("|")[0].rstrip("*")] = value
    for option, words in row.words.items():
        value = next((k for k, w in words.items() if k is not None and row.op.replace(f"{{{option}}}", w) == op), None)
        inputs |= {} if value is None else {option: value}
    inputs |= {option: values[0] for option, values in row.when.items() if values[0] is not None}
    for option, word in {**row.options, **row.back}.items():
        name = next((n for n in word.removeprefix("!").removeprefix("1-").split("|") if n in operator.by_name), None)
        if name and name not in row.fixed and (option in row.back or _is_needed(row, operator.by_name[name], params)):
            value = params.get(name, operator.by_name[name].default)
            inputs[option] = (not value) if word[0] == "!" else round(1 - value, 12) if word[:2] == "1-" else value
    dtype = operator.by_name.get("dtype")
    if dtype and params["dtype"] != row.usual.get("dtype", dtype.default):
        inputs.setdefault("dtype", params["dtype"])
    return inputs


def _is_needed(row: OpperfRow, param: Param, params: Mapping[str, Any]) -> bool:
    """Whether a parameter has to be written: not a default, or a size, for which MXNet has no default."""
    value = params.get(param.name, param.default)
    if param.name in row.usual:
        return bool(value != row.usual[param.name])
    return param.is_shape or param.kind == "size" or bool(value != param.default)


def _canonical(name: str) -> str:
    from opmark.plugin.registry import aliases, catalogue

    return name if name in catalogue() or name not in aliases() else aliases()[name].name
