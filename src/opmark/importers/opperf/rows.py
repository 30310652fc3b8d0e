"""One operator of opperf in our words: a row of a table says which tensors and options mean which parameters.

| an option's word | means |
|---|---|
| `axis` | our parameter of that name; of several (`alpha|negative_slope`) the first that the operator has |
| `!descending` | the opposite of a truth value |
| `1-momentum` | the rest to 1 |
| (empty) | it is not taken over, which is said |
| `.` | `finish` reads it |
| `in:NCHW,NCW` | only these values can be had, and they are what happens anyway; `in:`: none but what is usual |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opmark.errors import InvalidParameter, nearest
from opmark.importers.opperf.shapes import Bound, bind, match, shape_of, written
from opmark.registry import operator as find_operator
from opmark.schema import Operator, Param

Inputs = Mapping[str, Any]
Words = Mapping[Any, str]


@dataclass(frozen=True)
class Row:
    op: str
    """Our operator; `{option}` in it is replaced by the word of an option, `{rank}` by the number of image axes."""
    tensors: Mapping[str, str] = field(default_factory=dict)
    """Patterns by name; `data|x` are two names of one, `args*` takes args0, args1, ... too. The first are needed."""
    options: Mapping[str, str] = field(default_factory=dict)
    needed: int = 1
    """So many of the tensors have to be given."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that the operator there has always."""
    usual: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that it has where nothing is said."""
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Only with these values of options; None: not given."""
    words: Mapping[str, Words] = field(default_factory=dict)
    flips: Mapping[str, str] = field(default_factory=dict)
    """Options that transpose a tensor."""
    moves: str = ""
    """A tensor whose axis `axis` is moved to the end, where ours has it."""
    finish: Callable[[Bound, Inputs], Sequence[str]] | None = None
    """What no pattern can say; gives notes."""
    back: Mapping[str, str] = field(default_factory=dict)
    """Options that `finish` reads, and the parameters that they hold when inputs are made from parameters."""
    note: str = ""


def words(text: str) -> list[str]:
    """Names in a row, without a comma and quotes around each."""
    return text.split()


class Meaning(NamedTuple):
    op: str
    params: dict[str, Any]
    notes: tuple[str, ...] = ()


def meaning(rows: Sequence[Row], inputs: Inputs, dtype: str | None = None) -> Meaning:
    """By the first row that fits; InvalidParameter of the first that was tried, where none does."""
    inputs = {key: value for key, value in inputs.items() if value is not None}
    fitting = [row for row in rows if _applies(row, inputs)]
    if not fitting:
        told = ", ".join(f"{key}={inputs.get(key)}" for key in dict.fromkeys(key for row in rows for key in row.when))
        raise InvalidParameter(f"nothing here corresponds to {told}")
    refused: InvalidParameter | None = None
    for row in fitting:
        try:
            return _meaning(row, inputs, dtype)
        except InvalidParameter as error:
            refused = refused or error
    assert refused is not None
    raise refused


def foreign_inputs(rows: Sequence[Row], op: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """The other way round: inputs that mean these complete parameters, or None where there are none."""
    for row in rows:
        inputs = _foreign(row, op, params)
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
    """Whether the element type of a whole test is meant for it: indices and 16-bit weights have one of their own."""
    own = operator.by_name.get("dtype")
    return dtype is not None and own is not None and (dtype != "float32" or own.default == dtype)


def ops(row: Row) -> set[str]:
    """The operators that a row may stand for."""
    names = {row.op}
    for option, words in {**row.words, "rank": {1: "1", 2: "2", 3: "3"}}.items():
        names = {name.replace(f"{{{option}}}", word) for name in names for word in words.values()}
    return names


def _applies(row: Row, inputs: Inputs) -> bool:
    return all(any(_alike(inputs.get(key), value) for value in values) for key, values in row.when.items())


def _alike(given: Any, value: Any) -> bool:
    """1 and 0 stand for true and false."""
    return type(given) in (bool, int, str, type(None)) and given == value


def _meaning(row: Row, inputs: Inputs, dtype: str | None) -> Meaning:
    bound: Bound = dict(row.fixed)
    left, notes = _read_tensors(row, _numbered(row, inputs), bound)
    words = _chosen_words(row, left)
    words["rank"] = str(len(bound.get("image", ())))
    operator = find_operator(row.op.format(**words))
    notes += _read_options(row, left, operator, bound)
    for name, value in row.usual.items():
        bound.setdefault(name, value)
    if row.finish:
        notes += row.finish(bound, inputs)
    if takes_dtype(operator, dtype):
        bound.setdefault("dtype", dtype)
    params = {name: _fitting(operator.by_name[name], value, bound) for name, value in bound.items()
              if name in operator.by_name}  # fmt: skip
    return Meaning(operator.name, params, (*notes, *([row.note] if row.note else [])))


def _read_tensors(row: Row, inputs: Inputs, bound: Bound) -> tuple[dict[str, Any], list[str]]:
    """What is left of the inputs, and notes."""
    left, notes = dict(inputs), []
    for i, (names, pattern) in enumerate(row.tensors.items()):
        found = _tensor(names, left)
        if found is None:
            if i < row.needed:
                raise InvalidParameter(f"needs `{names.split('|')[0].rstrip('*')}`", _has(inputs))
            continue
        name, value = found
        for option in _flipping(row, names, left):
            shape = shape_of(value, name)
            value = [*shape[:-2], *shape[:-3:-1]]
            notes.append(f"`{option}`: the operand lies as it is needed here")
        if row.moves == name:
            value, note = _moved(shape_of(value, name), left.pop("axis", -1), name)
            notes += note
        match(pattern, value, name, bound)
    for option in row.flips:
        left.pop(option, None)
    return left, notes


def _flipping(row: Row, names: str, left: Inputs) -> list[str]:
    """The options that are given and transpose this tensor."""
    options = [option for option, tensor in row.flips.items() if tensor in names.split("|") and option in left]
    for option in options:
        if not any(_alike(left[option], value) for value in (True, False)):
            raise InvalidParameter(f"`{option}`: expected true or false, got {left[option]}")
    return [option for option in options if left[option]]


def _numbered(row: Row, inputs: Inputs) -> Inputs:
    """A list `args` as args0, args1, ... where a row has a pattern for each."""
    if "args" not in inputs or not any(names.startswith("args0") for names in row.tensors):
        return inputs
    listed = inputs["args"] if isinstance(inputs["args"], list | tuple) else [inputs["args"]]
    rest = {key: value for key, value in inputs.items() if key != "args"}
    return rest | {f"args{i}": value for i, value in enumerate(listed)}


def _tensor(names: str, left: dict[str, Any]) -> tuple[str, Any] | None:
    """A tensor under one of its names, taken out of what is left; of a list of them, all in order."""
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


def _moved(shape: list[int], axis: Any, name: str) -> tuple[list[int], list[str]]:
    if isinstance(axis, bool) or not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        raise InvalidParameter(f"`axis`: expected an axis of {shape}, got {axis}")
    if axis % len(shape) == len(shape) - 1:
        return shape, []
    axis %= len(shape)
    moved = [size for i, size in enumerate(shape) if i != axis] + [shape[axis]]
    return moved, [f"axis {axis} of `{name}` lies last here: {moved}"]


def _chosen_words(row: Row, left: dict[str, Any]) -> dict[str, str]:
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


def _read_options(row: Row, left: Inputs, operator: Operator, bound: Bound) -> list[str]:
    notes = []
    for key, value in left.items():
        if key in row.when:
            continue
        word = row.options.get(key, "dtype" if key == "dtype" else None)
        if word is None:
            near = nearest(key, [*row.options, *(n for names in row.tensors for n in names.split("|"))])
            raise InvalidParameter(
                f"`{key}` means nothing for `{operator.name}`", f"did you mean `{near}`?" if near else _has(row.options)
            )
        if word.startswith("in:"):
            if word == "in:":
                raise InvalidParameter(
                    f"`{key}`: {value} cannot be had here",
                    f"leave `{key}` out; what it adds can be measured on its own",
                )
            if str(value) not in word[3:].split(","):
                raise InvalidParameter(f"`{key}`: only {word[3:]} can be had here, got {value}")
        elif word == ".":
            continue
        elif not word:
            notes.append(f"`{key}` is not taken over")
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
    bind(bound, name, _fitting(param, value, bound) if param else value, key)


def _fitting(param: Param, value: Any, bound: Bound) -> Any:
    """A size an axis as one where they are all alike, one as a size an axis, 0 and 1 as truth values; else as it is."""
    if param.kind in ("size", "count", "int") and isinstance(value, list | tuple) and value:
        return value[0] if all(item == value[0] for item in value) else value
    if param.kind == "shape" and isinstance(value, int) and not isinstance(value, bool):
        return [value] * max(1, len(bound.get("image", ())))
    if param.kind == "bool" and value in (0, 1):
        return bool(value)
    return list(value) if isinstance(value, tuple) else value


def _has(names: Mapping[str, Any]) -> str:
    return f"it has {', '.join(map(str, names))}" if names else "nothing is given"


def _foreign(row: Row, op: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
    operator = find_operator(op)
    inputs: dict[str, Any] = {}
    if operator.name not in {_canonical(name) for name in ops(row)}:
        return None
    for i, (names, pattern) in enumerate(row.tensors.items()):
        value = None if pattern == "..." else written(pattern, params)
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
        if (
            name
            and name not in row.fixed
            and (option in row.back or _worth_saying(row, operator.by_name[name], params))
        ):
            value = params[name]
            inputs[option] = (not value) if word[0] == "!" else round(1 - value, 12) if word[:2] == "1-" else value
    dtype = operator.by_name.get("dtype")
    if dtype and params["dtype"] != row.usual.get("dtype", dtype.default):
        inputs.setdefault("dtype", params["dtype"])
    return inputs


def _worth_saying(row: Row, param: Param, params: Mapping[str, Any]) -> bool:
    """What differs from the default; sizes always, because MXNet has no default for them."""
    if param.name in row.usual:
        return bool(params[param.name] != row.usual[param.name])
    return param.is_shape or param.kind == "size" or bool(params[param.name] != param.default)


def _canonical(name: str) -> str:
    from opmark.registry import aliases, catalogue

    return name if name in catalogue() or name not in aliases() else aliases()[name].name
