"""GraphProgram: the calls of a model or a trace as a graph that can be run in any order that it allows.

Every call reads and writes numbered values. Which calls wait for which follows from the memory that they read and
write: a view shares that of its base, and a call in place writes to it. Only workers and child processes import this.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from opmark.errors import Unsupported
from opmark.models.execution import callable_of, flatten, placed
from opmark.models.source import ModelSource
from opmark.plugin import Params
from opmark.schema.schedule import OperatorGraph

_RANDOM = -1
"""The memory that calls share which draw random numbers: their order decides what they draw."""


@dataclass(frozen=True)
class Slot:
    """A value of a program, as an argument of a call."""

    number: int


@dataclass
class GraphCall:
    name: str
    """`aten::conv2d`."""
    function: Callable[..., Any]
    args: Sequence[Any]
    """Slots, constants, and lists of these."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    result: Any = None
    """The slot of the result, a list of slots where it returns several, or None where nothing is kept."""
    reads: frozenset[Any] = frozenset()
    """Memory that it reads, by identity."""
    writes: frozenset[Any] = frozenset()
    about: str = ""
    """Shapes and arguments as text: a part of the digest."""
    nbytes: int = 0
    """Bytes of its results."""

    def inputs(self) -> set[int]:
        return {one.number for one in slots_in([list(self.args), list(self.kwargs.values())])}

    def outputs(self) -> set[int]:
        return {one.number for one in slots_in([self.result])}


def slots_in(value: Any) -> Iterable[Slot]:
    if isinstance(value, Slot):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from slots_in(one)
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from slots_in(one)


@dataclass
class GraphProgram:
    calls: list[GraphCall]
    size: int
    """Number of slots."""
    given: dict[int, Any]
    """Values that exist before a call of the program, by slot: weights, tables."""
    inputs: list[int]
    """Slots of the inputs, in their order."""
    outputs: list[int]
    """Slots of the outputs, in their order."""
    finish: Callable[[list[Any]], Any]
    """Gives the outputs the form in which the program returns them."""

    def graph(self) -> OperatorGraph:
        needs: list[list[int]] = []
        written: dict[Any, int] = {}
        read: dict[Any, list[int]] = defaultdict(list)
        maker: dict[int, int] = {}
        for number, call in enumerate(self.calls):
            before = {maker[slot] for slot in call.inputs() if slot in maker}
            for memory in call.reads | call.writes:
                if memory in written:
                    before.add(written[memory])
            for memory in call.writes:
                before |= set(read[memory])
                written[memory] = number
                read[memory] = []
            for memory in call.reads - call.writes:
                read[memory].append(number)
            maker |= dict.fromkeys(call.outputs(), number)
            needs.append(sorted(before - {number}))
        content = [[call.name, call.about, before] for call, before in zip(self.calls, needs, strict=True)]
        digest = hashlib.sha256(json.dumps([content, len(self.inputs)]).encode()).hexdigest()[:16]
        return OperatorGraph([call.name for call in self.calls], needs, digest, [call.nbytes for call in self.calls])


# Models.


def model_program(source: ModelSource, params: Params, device: Any) -> GraphProgram:
    """Return the program of a case of a model, with its weights on a device; made once per process."""
    written = json.dumps(dict(params), sort_keys=True)
    return _model_program(source, written, str(device))


@lru_cache(maxsize=1)
def _model_program(source: ModelSource, written: str, device: str) -> GraphProgram:
    params = json.loads(written)
    if params.get("outputs") == "layers" or params.get("stage") == "decode":
        raise Unsupported("only a model that returns its own outputs, and keeps no cache of tokens, can be scheduled")
    module = callable_of(placed(source, params, device), params)
    specs = source.inputs(params).values()
    given = tuple(torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype), device=device) for spec in specs)
    return export_program(module, given, source.name)


def export_program(module: Any, given: tuple[Any, ...], name: str) -> GraphProgram:
    """Return the program of a module, called with such tensors."""
    try:
        with torch.no_grad():
            exported = torch.export.export(module, given, strict=False)
    except Exception as error:  # noqa: BLE001 - torch.export raises anything, and it becomes a reason
        first = str(error).strip().partition("\n")[0]
        raise Unsupported(
            f"the operators of `{name}` cannot be found without its data: torch.export says: {first}",
            "capture a call of it with `opmark capture`, and schedule the trace",
        ) from None
    return _GraphReader(exported).read()


class _GraphReader:
    """Reads the graph of an exported program."""

    def __init__(self, exported: Any) -> None:
        self.module, self.form = exported.module(), exported.call_spec.out_spec
        self.slots: dict[Any, Any] = {}
        """What stands for a node: a slot, or a list of slots."""
        self.memory: dict[int, frozenset[Any]] = {}
        """The memory in which the value of a slot may lie."""
        self.program = GraphProgram([], 0, {}, [], [], lambda outputs: tree_unflatten(outputs, self.form))

    def read(self) -> GraphProgram:
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                slot = self._new({("input", len(self.program.inputs))})
                self.slots[node] = slot
                self.program.inputs.append(slot.number)
            elif node.op == "get_attr":
                value = operator.attrgetter(node.target)(self.module)
                key = ("given", value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else id(value))
                slot = self._new({key})
                self.slots[node], self.program.given[slot.number] = slot, value
            elif node.op == "call_function":
                self._add(node)
            elif node.op == "output":
                flat, _ = tree_flatten(self._replaced(node.args[0]))
                self.program.outputs = [one.number for one in flat if isinstance(one, Slot)]
                if len(self.program.outputs) != len(flat):
                    raise Unsupported("the model returns something that is no tensor")
            elif node.users:  # checks of the inputs are called as modules, and nothing uses them
                raise Unsupported(f"its graph calls `{node.target}`, which is no operator")
        return self.program

    def _new(self, memory: Iterable[Any]) -> Slot:
        slot = Slot(self.program.size)
        self.program.size += 1
        self.memory[slot.number] = frozenset(memory)
        return slot

    def _add(self, node: Any) -> None:
        args, kwargs = self._replaced(list(node.args)), self._replaced(dict(node.kwargs))
        if node.target is operator.getitem and not isinstance(args[0], Slot):
            self.slots[node] = args[0][args[1]]
            return
        schema = getattr(node.target, "_schema", None)
        taken = frozenset(m for slot in slots_in([args, kwargs]) for m in self.memory[slot.number])
        writes: set[Any] = set()
        shared = taken
        name = getattr(node.target, "__name__", str(node.target))
        if schema is not None:
            name = schema.name
            shared = frozenset()
            for place, argument in enumerate(schema.arguments):
                value = args[place] if place < len(args) else kwargs.get(argument.name)
                own = frozenset(m for slot in slots_in([value]) for m in self.memory[slot.number])
                if argument.alias_info is not None:
                    shared |= own
                    if argument.alias_info.is_write:
                        writes |= own
            if torch.Tag.nondeterministic_seeded in node.target.tags:
                writes.add(_RANDOM)
        value = node.meta.get("val")
        # A result that is no view lies in memory of its own; it may share that of what the schema names.
        alias = shared if schema is None or any(one.alias_info is not None for one in schema.returns) else frozenset()
        result = self._results(node, value, alias)
        self.slots[node] = result
        call = GraphCall(
            name, getattr(node.target, "_op", node.target), args, kwargs, result, taken, frozenset(writes),
            _describe(node, value), sum(one.nbytes for one in flatten(value)),
        )  # fmt: skip
        self.program.calls.append(call)

    def _results(self, node: Any, value: Any, alias: frozenset[Any]) -> Any:
        if isinstance(value, list | tuple):
            return [self._new(alias or {(node.name, place)}) for place in range(len(value))]
        return self._new(alias or {node.name})

    def _replaced(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return self.slots[value]
        if isinstance(value, list | tuple):
            return [self._replaced(one) for one in value]
        if isinstance(value, dict):
            return {key: self._replaced(one) for key, one in value.items()}
        return value


def _describe(node: Any, value: Any) -> str:
    """Return the arguments and the shapes of a call as text, the same in every process."""

    def plain(one: Any) -> Any:
        if isinstance(one, torch.fx.Node):
            return plain(one.meta.get("val"))
        if isinstance(one, torch.Tensor):
            return f"{str(one.dtype).removeprefix('torch.')}{list(one.shape)}"
        if isinstance(one, list | tuple):
            return [plain(each) for each in one]
        if isinstance(one, dict):
            return {key: plain(each) for key, each in one.items()}
        return str(one)

    return json.dumps([plain(list(node.args)), plain(dict(node.kwargs)), plain(value)])
