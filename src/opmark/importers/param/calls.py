"""Specs of one operator as entries: what it is built with, what it is called with, and which gradients it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from opmark.errors import UserError
from opmark.importers.param import tables
from opmark.importers.param.arguments import ELEMENT_TYPES, Draw, Misfit, parts, tensors_of
from opmark.importers.param.operators import Call, Called, called, is_function, name_here
from opmark.schema import Entry, Operator
from opmark.schema.arguments import placeholders, tensors
from opmark.schema.dtype import is_float

DRAWN = "values of `value_range` were drawn with seed {seed}; each entry holds what was drawn"
INTEGERS = (
    "tensors of whole numbers hold 0 to 9 and no negative ones, which fail as indices; `low` and `high` change that"
)
UNBUILT = "`{op}` is a function: its `build` is left out"
GRADIENTS = (
    "`{op}`: `requires_grad` false is not kept where the operator has weights, or where no other tensor has a gradient"
)


class Built(NamedTuple):
    """A build as an operator gets it."""

    id: str
    spec: Any
    call: Call | None


class Calls:
    """Makes the entries of one operator."""

    def __init__(self, file: str, name: str, operator: Operator, generators: tuple[Any, Any], seed: int) -> None:
        self._file, self._name, self._operator, self._seed = file, name, operator, seed
        self._build_generator, self._input_generator = generators
        self._here = name_here(name)
        self._tables = name == tables.BAGS
        self.notes: dict[str, None] = {tables.NOTE: None} if self._tables else {}

    def build(self, build_id: str, spec: Any, ids: str) -> Built:
        draw = self._draw(f"{ids}|build")
        call = _given(self._build_generator, spec, draw)
        self._remember(draw)
        if any(True for node in (call.args, call.kwargs) for _ in tensors(node, "")):
            raise Misfit("", "a build takes no tensors here", "give sizes, and tensors in the input")
        if is_function(self._name) and not self._name.startswith("aten::"):
            self.notes[UNBUILT.format(op=self._name)] = None
            return Built(build_id, spec, None)
        return Built(build_id, spec, call)

    def entry(self, built: Built, spec: Any, ids: str) -> Entry:
        """`ids`: of config, build and input, as PARAM joins them."""
        draw, source = self._draw(ids), f"{self._file}#{self._name}|{ids}"
        call = _given(self._input_generator, spec, draw)
        self._remember(draw)
        if self._tables:
            op, params = tables.operator_and_params(built.call, call)
            return Entry(op, params, source=source)
        if "args" not in self._operator.by_name:
            return self._of_the_catalogue(built, call, source)
        made = called(self._name, self._here, built.call, call)
        return Entry(
            made.op,
            _texts(made),
            wrt=self._wrt(spec, made) if draw.fixed else [],
            args=made.args,
            kwargs=made.kwargs or None,
            build=made.build,
            source=source,
        )

    def _of_the_catalogue(self, built: Built, call: Call, source: str) -> Entry:
        if call.args or built.call is not None:
            raise Misfit("", f"`{self._operator.name}` is an operator of the catalogue and takes parameters",
                         f"give them as kwargs; `opmark describe {self._operator.name}` lists them")  # fmt: skip
        return Entry(self._operator.name, call.kwargs, source=source)

    def _wrt(self, spec: Any, made: Called) -> list[str]:
        """The tensors that have a gradient, where one is said to have none."""
        found = {_moved(place, made): wants for place, wants in _floats(spec)}
        wanted = [place for place, wants in found.items() if wants]
        if len(wanted) == len(found):
            return []
        if not is_function(self._name) or not wanted:
            self.notes[GRADIENTS.format(op=self._name)] = None
            return []
        return wanted

    def _draw(self, ids: str) -> Draw:
        return Draw(f"{self._seed}|{self._name}|{ids}")

    def _remember(self, draw: Draw) -> None:
        if draw.used:
            self.notes[DRAWN.format(seed=self._seed)] = None
        if draw.integers:
            self.notes[INTEGERS] = None


def _given(generator: Any, spec: Any, draw: Draw) -> Call:
    try:
        args, kwargs = generator(spec, draw)
    except UserError:
        raise
    except RecursionError:
        raise Misfit("", "is nested too deeply") from None
    except Exception as error:  # noqa: BLE001 - a stranger's generator may raise anything
        raise Misfit("", f"the data generator failed: {type(error).__name__}: {error}") from None
    if not isinstance(args, list | tuple) or not isinstance(kwargs, dict):
        raise Misfit("", "the data generator gave no (args, kwargs)")
    return Call(list(args), kwargs)


def _texts(made: Called) -> dict[str, str]:
    """What stands in braces in a text is no parameter here: it stands for itself."""
    return {name: f"{{{name}}}" for name in placeholders([made.args, made.kwargs, made.build])}


def _moved(place: str, made: Called) -> str:
    """Of what a schema takes by name only, PARAM has the place."""
    kind, number, *rest = place.split(".")
    beyond = int(number) - len(made.args) if kind == "args" else -1
    return place if beyond < 0 else ".".join(["kwargs", list(made.kwargs)[beyond], *rest])


def _floats(spec: Any) -> Iterator[tuple[str, bool]]:
    """Each tensor that can have a gradient, and whether it is to have one."""
    args, kwargs = parts(spec)
    places = [(f"args.{i}", arg) for i, arg in enumerate(args)]
    for path, arg in [*places, *((f"kwargs.{name}", arg) for name, arg in kwargs.items())]:
        for place, tensor in tensors_of(arg, path):
            if is_float(ELEMENT_TYPES[tensor["dtype"].removeprefix("torch.")]):
                yield place, tensor.get("requires_grad", True)
