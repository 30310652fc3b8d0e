"""Turns the specs of one operator into entries: its build, its arguments, and its gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from opmark.errors import UserError
from opmark.importers.param import tables
from opmark.importers.param.arguments import ELEMENT_TYPES, Draw, Misfit, parts, quote, tensors_of
from opmark.importers.param.operators import Call, OperatorCall, is_function, make_call, operator_name, works_in_place
from opmark.importers.param.plain import find_odd, without_tuples
from opmark.schema import Entry, Operator
from opmark.schema.arguments import placeholders, tensors
from opmark.schema.dtype import is_float

DRAWN = "values were drawn with seed {seed}; each entry holds the drawn values"
INTEGERS = "tensors of whole numbers hold 0 to 9, because negative ones fail as indices; `low` and `high` change that"
UNBUILT = "`{op}` is a function, so that its `build` is ignored"
FIXED_INPUTS = (
    "`{op}`: `requires_grad` false is ignored, because the operator has weights: a backward pass computes the "
    "gradients of the weights and of all inputs"
)
ALL_FIXED = (
    "`{op}`: in some cases no tensor has `requires_grad`: `opmark param -b` runs them forward only, `--phase backward` "
    "computes all gradients"
)
NO_GRADIENT = "no tensor has `requires_grad`, so there is no backward pass"
IN_PLACE = "`{op}` works in place, and has no backward pass in PARAM"
_PLAIN = "expected (args, kwargs) of plain data: numbers, texts, lists, tensors written as 8x64 float32"
_PLAIN_HINT = "an element type is written as {dtype: float16}, a number that is not finite as {float: inf}"


class OperatorBuild(NamedTuple):
    """A build of an operator."""

    id: str
    spec: Any
    call: Call | None


class Point(NamedTuple):
    entry: Entry
    forward_only: str = ""
    """Why it has no backward pass; empty if it may have one."""


class Calls:
    """Makes the entries of one operator."""

    def __init__(self, file: str, name: str, operator: Operator, generators: tuple[Any, Any], seed: int) -> None:
        self._file, self._name, self._operator, self._seed = file, name, operator, seed
        self._build_generator, self._input_generator = generators
        self._op = operator_name(name)
        self._tables = name == tables.BAGS
        self.notes: dict[str, None] = {tables.NOTE: None} if self._tables else {}

    def build(self, build_id: str, spec: Any, ids: str) -> OperatorBuild:
        draw = self._draw(f"{ids}|build")
        call = _generate(self._build_generator, spec, draw)
        self._note_draws(draw)
        if any(True for node in (call.args, call.kwargs) for _ in tensors(node, "")):
            raise Misfit("", "opmark takes no tensors in a build", "give sizes in the build, and tensors in the input")
        if is_function(self._name) and not self._name.startswith("aten::"):
            self.notes[UNBUILT.format(op=self._name)] = None
            return OperatorBuild(build_id, spec, None)
        return OperatorBuild(build_id, spec, call)

    def point(self, built: OperatorBuild, spec: Any, ids: str) -> Point:
        """Make an entry; `ids` are those of config, build and input, as PARAM joins them."""
        draw, source = self._draw(ids), f"{self._file}#{self._name}|{ids}"
        call = _generate(self._input_generator, spec, draw)
        self._note_draws(draw)
        if self._tables:
            op, params = tables.operator_and_params(built.call, call)
            return Point(Entry(op, params, source=source))
        if "args" not in self._operator.by_name:
            return Point(self._catalogue_entry(built, call, source))
        made = make_call(self._name, self._op, built.call, call)
        wrt, forward_only = self._gradients(spec, made) if draw.has_fixed else ([], "")
        if works_in_place(self._name):
            forward_only = IN_PLACE.format(op=self._name)
        entry = Entry(
            made.op,
            _escape_braces(made),
            wrt=wrt,
            args=made.args,
            kwargs=made.kwargs or None,
            build=made.build,
            source=source,
        )
        return Point(entry, forward_only)

    def _catalogue_entry(self, built: OperatorBuild, call: Call, source: str) -> Entry:
        if call.args or built.call is not None:
            raise Misfit("", f"`{self._operator.name}` is an operator of the catalogue and takes parameters",
                         f"give them as kwargs; `opmark describe {self._operator.name}` lists them")  # fmt: skip
        for name, value in call.kwargs.items():
            if isinstance(value, list) and not self._is_one_shape(name, value):
                raise Misfit(
                    f".kwargs.{name}", f"expected one value, got {quote(value)}", "write one input for each value"
                )
        return Entry(self._operator.name, call.kwargs, source=source)

    def _is_one_shape(self, name: str, value: list[Any]) -> bool:
        """Whether a list is one shape; any other list would be several cases."""
        param = self._operator.by_name.get(name)
        return param is not None and param.is_shape and not any(isinstance(item, list) for item in value)

    def _gradients(self, spec: Any, made: OperatorCall) -> tuple[list[str], str]:
        """Return the tensors with a gradient if not all have one, and why there is no backward pass."""
        found = {_place_in_call(place, made): needed for place, needed in _float_tensors(spec)}
        wrt = [place for place, needed in found.items() if needed]
        if len(wrt) == len(found):
            return [], ""
        if not is_function(self._name):
            self.notes[FIXED_INPUTS.format(op=self._name)] = None
            return [], ""
        if not wrt:
            self.notes[ALL_FIXED.format(op=self._name)] = None
            return [], NO_GRADIENT
        return wrt, ""

    def _draw(self, ids: str) -> Draw:
        return Draw(f"{self._seed}|{self._name}|{ids}")

    def _note_draws(self, draw: Draw) -> None:
        if draw.used:
            self.notes[DRAWN.format(seed=self._seed)] = None
        if draw.integers:
            self.notes[INTEGERS] = None


def _generate(generator: Any, spec: Any, draw: Draw) -> Call:
    """Return the arguments from a data generator, which must be plain data: a tensor is a shape and an element type."""
    try:
        given = generator(spec, draw)
        odd = None if _is_call(given) else ("", _describe(given))
        odd = odd or find_odd(given[0], "args") or find_odd(given[1], "kwargs")
    except UserError:
        raise
    except RecursionError:
        raise Misfit("", "the spec is nested too deeply") from None
    except Exception as error:  # noqa: BLE001 - a stranger's generator may raise anything
        raise Misfit("", f"the data generator failed: {type(error).__name__}: {error}") from None
    if odd:
        where = f" for `{odd[0]}`" if odd[0] else ""
        raise Misfit("", f"the data generator: {_PLAIN}; got {odd[1]}{where}", _PLAIN_HINT)
    return Call(without_tuples(given[0]), without_tuples(given[1]))


def _is_call(given: Any) -> bool:
    two = isinstance(given, list | tuple) and len(given) == 2
    return two and isinstance(given[0], list | tuple) and isinstance(given[1], dict)


def _describe(given: Any) -> str:
    if isinstance(given, list | tuple) and len(given) == 2:
        return f"({', '.join(type(part).__name__ for part in given)})"
    return "nothing" if given is None else f"a {type(given).__name__}"


def _escape_braces(made: OperatorCall) -> dict[str, str]:
    """Return parameters that keep braces in texts as they are: PARAM has no placeholders."""
    return {name: f"{{{name}}}" for name in placeholders([made.args, made.kwargs, made.build])}


def _place_in_call(place: str, made: OperatorCall) -> str:
    """Return the place of a tensor in the call; PARAM numbers arguments that a schema takes by name only."""
    kind, number, *rest = place.split(".")
    beyond = int(number) - len(made.args) if kind == "args" else -1
    return place if beyond < 0 else ".".join(["kwargs", list(made.kwargs)[beyond], *rest])


def _float_tensors(spec: Any) -> Iterator[tuple[str, bool]]:
    """Yield the place of each tensor that can have a gradient, and whether it is to have one."""
    args, kwargs = parts(spec)
    places = [(f"args.{i}", arg) for i, arg in enumerate(args)]
    for path, arg in [*places, *((f"kwargs.{name}", arg) for name, arg in kwargs.items())]:
        for place, tensor in tensors_of(arg, path):
            if is_float(ELEMENT_TYPES[tensor["dtype"].removeprefix("torch.")]):
                yield place, tensor.get("requires_grad", True)
