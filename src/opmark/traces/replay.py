"""Replays a trace: the calls of a program, compiled to one function without arguments. Only workers import this.

Every call becomes one line of a Python function that opmark writes: `v3 = f2(v1, v2, c0)`. Tensors are local variables
and are deleted after their last use, so that memory is free as early as it was in the program. Results of calls are the
arguments of later ones, as in the program; what no replayed call makes exists before the function is called. No text of
the trace gets into the source: functions and constants have numbered names.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

import psutil
import torch

from opmark.errors import OutOfMemory
from opmark.models.index_bounds import value_bounds
from opmark.schema.replay import ReplayedCall, ReplayReport
from opmark.traces.replay_collectives import OUTPUT_FIRST, ReplayGroups, make_exchange, return_received
from opmark.traces.replay_functions import (
    Gap,
    call_kernel,
    find_overload,
    find_substitute,
    kernel_arguments,
    load_kernel,
)
from opmark.traces.replay_host import HostFunction
from opmark.traces.replay_part import OmittedCall, ReplayPart, choose_calls, is_communication
from opmark.traces.replay_report import make_report, recorded_time
from opmark.traces.replay_streams import StreamPlan
from opmark.traces.replay_values import (
    Geometry,
    ReplayStorage,
    ReplayVariable,
    dtype_of,
    extent,
    geometry,
    make_tensors,
)
from opmark.traces.trace import (
    LAUNCHED_ALONE,
    OpaqueValue,
    ProgramTrace,
    TensorRef,
    TraceNode,
    Value,
    tensors_of,
    why_no_operator,
)
from opmark.units import count_bytes

_NO_AUTOGRAD = frozenset({"requires_grad_", "_backward", "retain_grad", "set_data", "_version", "is_leaf", "output_nr"})
_BOOKKEEPING = frozenset({"record_stream", "is_pinned"})
"""Calls about memory of a device that move no data."""
_SQUARE_ROOTS = frozenset({"sqrt", "sqrt_", "rsqrt", "rsqrt_", "log", "log_", "_foreach_sqrt", "_foreach_sqrt_"})
_VARIANCES = frozenset({"running_var", "exp_avg_sqs", "max_exp_avg_sqs", "state_sums", "save_invstd"})
"""Arguments that are never negative."""
_FLAGS = frozenset({"found_inf"})
"""Arguments that have to be 0: otherwise an optimizer skips its step."""
_COPIES = frozenset({"to", "_to_copy", "clone", "contiguous", "copy_", "cat", "stack", "repeat", "detach", "alias"})
"""Calls whose result has the values of their arguments."""
_LAST_OFFSET = 7
"""Place of `include_last_offset` among the arguments of an embedding bag."""
_UNWRITTEN = frozenset({"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty"})
"""Calls whose result has no values yet."""
_MOST_ROUNDS = 8
_MOST_DIFFERENCES = 20
_TRITON = "triton"
_ACCUMULATES = "AccumulateGrad"
"""Part of the label of what stores the gradient of a parameter."""

Expression = Any
"""A ReplayVariable, a constant, or a list of these."""


@dataclass(eq=False)
class ReplayStep:
    """One call: a line of the compiled function."""

    node: TraceNode
    function: Callable[..., Any]
    args: list[Expression]
    kwargs: dict[str, Expression] = field(default_factory=dict)
    targets: Expression = None
    """Variables in the form in which the call returns them; None for what is not kept."""
    writes: set[ReplayStorage] = field(default_factory=set)
    limits: list[tuple[ReplayVariable, int]] = field(default_factory=list)
    """Indices, and the number that all of them have to be below."""
    handle: bool = False
    """Whether it returns a handle to wait for before its tensors are used."""

    def variables(self) -> Iterator[ReplayVariable]:
        yield from _variables([self.args, list(self.kwargs.values())])

    def results(self) -> Iterator[ReplayVariable]:
        yield from _variables([self.targets])


def _variables(value: Expression) -> Iterator[ReplayVariable]:
    if isinstance(value, ReplayVariable):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _variables(one)


@dataclass(eq=False)
class Replay:
    """A compiled part of a trace: call it to replay it once."""

    trace: ProgramTrace
    steps: list[ReplayStep]
    left_out: list[OmittedCall]
    notes: list[str]
    differences: list[str]
    """Results whose shape or type is not the recorded one."""
    tensors: dict[str, torch.Tensor]
    """Tensors that exist before the function is called, by the name of their variable."""
    function: Callable[..., Any]
    synchronize: Callable[[], None]
    names: dict[str, Any]
    lines: list[list[str]]
    finish: list[str]
    compared: int = 0
    kept: list[torch.Tensor] = field(default_factory=list)
    """Gradients of the last replay, which a program drops when its next step begins."""

    def __call__(self) -> tuple[()]:
        self.kept = []
        self.kept = self.function(*self.reads)
        return ()

    def __post_init__(self) -> None:
        self.reads = list(self.tensors.values())

    @property
    def made_bytes(self) -> int:
        """Bytes of the memory that exists before a replay."""
        return sum({one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in self.reads}.values())

    @property
    def described(self) -> str:
        return self.report().headline

    def report(self, timed: bool = False) -> ReplayReport:
        """Return what is replayed and what is not; with `timed`, run the calls one by one and add their times."""
        times = self._time_calls() if timed else [(0.0, 0.0)] * len(self.steps)
        notes = list(self.notes)
        if timed and (lost := sum(_is_not_finite(one) for one in self.reads)):
            notes.append(
                f"values of {lost} tensors that exist before the step are not finite any more: calls whose time "
                "depends on values may take another time than recorded"
            )
        calls = [
            ReplayedCall(step.node.name, recorded_time(step.node), step.node.start, start, seconds, step.node.thread)
            for step, (start, seconds) in zip(self.steps, times, strict=True)
        ]
        return make_report(
            self.trace, calls, self.left_out, notes, self.differences, self.compared, self.made_bytes, timed
        )

    def _time_calls(self) -> list[tuple[float, float]]:
        """Return (start, seconds) of every call, each waited for. The clock's own cost is subtracted."""
        codes = [compile("\n".join(lines) or "pass", "<replay>", "exec") for lines in self.lines]
        values = {**self.names, **self.tensors}
        empty, nothing = [], compile("pass", "<replay>", "exec")
        for _ in range(200):
            began = time.perf_counter()
            exec(nothing, values)
            self.synchronize()
            empty.append(time.perf_counter() - began)
        overhead = sorted(empty)[len(empty) // 2]
        found = []
        with torch.no_grad():
            for code in codes:
                began = time.perf_counter()
                exec(code, values)
                self.synchronize()
                found.append((began, max(0.0, time.perf_counter() - began - overhead)))
            exec("\n".join(self.finish) or "pass", values)
        return found


def _is_not_finite(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dtype.itemsize > 1 and not bool(torch.isfinite(tensor).all())


def compile_replay(
    trace: ProgramTrace,
    part: ReplayPart | None = None,
    device: str = "cpu",
    *,
    seed: int = 0,
    groups: ReplayGroups | None = None,
    rewrite: Callable[[ProgramTrace, list[TraceNode]], tuple[list[TraceNode], list[OmittedCall]]] | None = None,
) -> Replay:
    """Compile a part of a trace for a device. Calls that cannot be replayed are left out, each with a reason.
    `rewrite` changes sizes."""
    chosen, left_out = choose_calls(trace, part or ReplayPart())
    calls = expand_calls(trace, chosen)
    if rewrite is not None:
        calls, lost = rewrite(trace, calls)
        left_out += lost
    place = torch.device(device)
    builder = _Builder(trace, calls, place, groups or ReplayGroups(described=trace.groups), seed)
    builder.left_out += left_out
    return builder.build()


def expand_calls(trace: ProgramTrace, calls: list[TraceNode]) -> list[TraceNode]:
    """Return the calls, with some replaced by the calls that they made: where a later call takes a tensor that was made
    inside, as a backward pass takes the mask of a dropout."""
    children: dict[int | None, list[TraceNode]] = defaultdict(list)
    for node in trace.nodes:
        children[node.parent].append(node)

    def inner(node: TraceNode) -> list[TraceNode]:
        found: list[TraceNode] = []
        for child in children[node.id]:
            found += [child] if child.kind != "label" else inner(child)
        return found

    def deep(node: TraceNode) -> Iterator[TraceNode]:
        for child in inner(node):
            yield child
            yield from deep(child)

    for _ in range(_MOST_ROUNDS):
        inside: dict[int, TraceNode] = {}
        wanted: set[int] = set()
        for call in calls:
            taken = {ref.storage for ref in tensors_of(call.inputs)}
            wanted |= {inside[storage].id for storage in taken if storage in inside}
            given = {ref.storage for ref in tensors_of(call.outputs)}
            for child in deep(call):
                for ref in tensors_of(child.outputs):
                    if ref.storage not in taken and ref.storage not in given:
                        inside[ref.storage] = call
            for storage in given - taken:
                inside.pop(storage, None)
        wanted = {call.id for call in calls if call.id in wanted and inner(call) and _only_calls(call)}
        if not wanted:
            break
        calls = [one for call in calls for one in (inner(call) if call.id in wanted else [call])]
    return calls


def _only_calls(node: TraceNode) -> bool:
    """Return whether an operator does nothing itself but call others."""
    schema = node.schema.partition("(")[0]
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(schema, "CompositeImplicitAutograd"))
    except RuntimeError:  # no such operator
        return False


class _Builder:
    """Compiles calls one after the other."""

    def __init__(
        self, trace: ProgramTrace, calls: list[TraceNode], device: torch.device, groups: ReplayGroups, seed: int
    ) -> None:
        self.trace, self.calls, self.device, self.groups = trace, calls, device, groups
        devices = {ref.device.partition(":")[0] for call in calls for ref in tensors_of(call.inputs + call.outputs)}
        self.host_only = not (devices - {"", "cpu", "meta"})
        self.generator = torch.Generator(device).manual_seed(seed)
        self.host_generator = torch.Generator("cpu").manual_seed(seed)
        torch.manual_seed(seed)
        self.free = _free_bytes(device)
        self.steps: list[ReplayStep] = []
        self.left_out: list[OmittedCall] = []
        self.notes: dict[str, int] = {}
        self.differences: list[str] = []
        self.compared = 0
        self.names: dict[str, Any] = {}
        self._function_names: dict[int, str] = {}
        self._storages: dict[Any, ReplayStorage] = {}
        self._made: list[ReplayStorage] = []
        self._count = 0
        self._substitutes: dict[str, Callable[..., Any]] = {}

    def build(self) -> Replay:
        for node in self.calls:
            try:
                self._add(node)
            except Gap as gap:
                self.left_out.append(OmittedCall(node, str(gap)))
        self._fill_unwritten()
        self._spread_rules()
        tensors = self._make_all()
        self._try_steps(tensors)
        kept = self._gradients()
        lines, finish = self._write_lines(kept)
        names = list(tensors)
        source = [f"def replay({', '.join(names)}):"] + [f"    {line}" for step in lines for line in step]
        source += [f"    {line}" for line in finish] + [f"    return [{', '.join(kept)}]"]
        values = dict(self.names)
        exec(compile("\n".join(source), "<replay>", "exec"), values)
        return Replay(
            self.trace, self.steps, self.left_out,
            [f"{note}: {count} calls" if count > 1 else note for note, count in self.notes.items()],
            self.differences, tensors, torch.no_grad()(values["replay"]), _synchronizer(self.device), self.names, lines,
            finish, self.compared,
        )  # fmt: skip

    # One call at a time: arguments become variables and constants.

    def _add(self, node: TraceNode) -> None:
        for ref in tensors_of(node.inputs + node.outputs):
            self._check(ref)
        if node.collective is not None:
            self._add_collective(node)
        elif node.kind == "kernel":
            self._add_kernel(node)
        elif is_communication(node) and node.name.startswith("c10d::"):
            raise Gap("a collective that opmark does not know")
        else:
            self._add_operator(node)

    def _check(self, ref: TensorRef) -> None:
        if any(size < 0 for size in ref.shape) or ref.offset < 0 or any(n < 0 for n in ref.strides or ()):
            raise Gap("a tensor has a negative size, offset or stride")
        if dtype_of(ref) is None:
            raise Gap(f"torch {torch.__version__} has no element type `{ref.dtype}`")
        if extent(ref) > self.free:
            raise Gap(f"a tensor of {count_bytes(extent(ref))} does not fit: {count_bytes(self.free)} are free")

    def _add_operator(self, node: TraceNode) -> None:
        operator, schema = find_overload(node)
        name = schema.name.partition("::")[2]
        if name in _NO_AUTOGRAD:
            raise Gap("it only concerns automatic differentiation, which a replay does not use")
        if name in _BOOKKEEPING:
            raise Gap("it moves no data: memory is kept by the replay itself")
        given = list(node.inputs)
        used: dict[int, int] = defaultdict(int)
        place = self._place(_first_device(node))
        function, results = operator._op, len(schema.returns)
        if (substitute := find_substitute(operator, place)) is not None:
            function, results = self._bound(operator, substitute), substitute.results
            self._note(f"{node.name} is replayed by what computes the same on the host")
        if len(given) > len(schema.arguments):
            raise Gap(f"recorded with {len(given)} arguments; here it takes {len(schema.arguments)}")
        args: list[Expression] = []
        kwargs: dict[str, Expression] = {}
        writes: set[ReplayStorage] = set()
        first = next(tensors_of(node.outputs), None)
        for argument, value in zip(schema.arguments, given, strict=False):
            if isinstance(value, TensorRef) and self._is_number(value, first) and argument.alias_info is None:
                args.append(1.0 if value.dtype == "float64" else 1)
                continue
            if argument.name == "pin_memory" and place.type == "cpu":
                value = None
            expression = self._argument(argument, value, used)
            if argument.kwarg_only:
                kwargs[argument.name] = expression
            else:
                args.append(expression)
            storages = {one.storage for one in _variables(expression)}
            if argument.alias_info is not None and argument.alias_info.is_write:
                writes |= storages
            if argument.name in _VARIANCES or (name in _SQUARE_ROOTS and argument.name == "self"):
                for storage in storages:
                    storage.positive = True
            if argument.name in _FLAGS:
                for storage in storages:
                    storage.zero = True
        step = ReplayStep(node, function, args, kwargs, writes=writes)
        self._limit_indices(name, step, [*args, *kwargs.values()])
        outputs = list(node.outputs)[:results]
        outputs += [None] * (results - len(outputs))
        found = [self._result(value, node) for value in outputs]
        step.targets = found[0] if len(found) == 1 else found or None
        self.steps.append(step)

    def _bound(self, operator: Any, substitute: HostFunction) -> Callable[..., Any]:
        """Return one function for all calls of an operator."""
        return self._substitutes.setdefault(str(operator), substitute.bind(operator._schema))

    def _limit_indices(self, name: str, step: ReplayStep, args: list[Expression]) -> None:
        """Note which values tensors have to have: indices below a number, offsets that divide rows, probabilities."""
        bounds = value_bounds(name, args, _shape_of, _is_mask)
        for (place, *inside), bound in bounds.items():
            variable = args[place][inside[0]] if inside else args[place]
            storage, limit = variable.storage, int(bound.high)
            if bound.floats:
                storage.positive = True
            elif bound.values == "offsets":
                storage.divides = limit
                storage.ends = len(args) > _LAST_OFFSET and args[_LAST_OFFSET] is True
            elif not _is_mask(variable):
                storage.limit = limit if storage.limit is None else min(storage.limit, limit)
                step.limits.append((variable, limit))

    def _argument(self, argument: Any, value: Value, used: dict[int, int]) -> Expression:
        kind = str(argument.type)
        if value is None and not kind.startswith(("Optional[", "NoneType")):
            return self._missing(argument, kind)
        if isinstance(value, TensorRef):
            return self._variable(value, used)
        if isinstance(value, list):
            return [None if one is None else self._argument(argument, one, used) for one in value]
        if isinstance(value, OpaqueValue):
            if value.kind in ("Undefined", "Generator", "None"):
                return None
            if value.kind == "Device":
                return self._place(value.text) if value.text else None
            if value.kind == "Scalar":  # an old profiler recorded that there is a number, not which one
                return self._missing(argument, kind)
            raise Gap(
                f"its argument `{argument.name}` is {value.text or 'an object'}, which the trace does not contain"
            )
        if "Device" in kind and isinstance(value, str):
            return self._place(value)
        if ("number" in kind or "float" in kind) and isinstance(value, str):
            special = {"inf": inf, "-inf": -inf, "nan": nan}
            if value.lower() in special:
                return special[value.lower()]
        return value

    def _missing(self, argument: Any, kind: str) -> Expression:
        """Return what stands for an argument that the file does not have."""
        if argument.has_default_value():
            return argument.default_value
        if "Device" in kind:
            return self.device
        raise Gap(f"its argument `{argument.name}` was not recorded")

    def _is_number(self, ref: TensorRef, first: TensorRef | None) -> bool:
        """Return whether a tensor without axes was a number of the program: it did not decide the type of the
        result."""
        if ref.shape or ref.dtype not in ("float64", "int64") or first is None or first.dtype == ref.dtype:
            return False
        storage = self._storages.get(_storage_key(ref))
        return storage is None or geometry(ref) not in storage.variables

    def _place(self, recorded: str) -> torch.device:
        """Return the device for a recorded one: what ran on an accelerator runs on the backend's device, and so does a
        program of the host alone."""
        kind = recorded.partition(":")[0]
        if kind == "meta":
            return torch.device("meta")
        return torch.device("cpu") if kind in ("cpu", "") and not self.host_only else self.device

    def _variable(self, ref: TensorRef, used: dict[int, int]) -> ReplayVariable:
        """Return the variable that holds a tensor: the result of an earlier call, or one that exists before."""
        key, own = _storage_key(ref), geometry(ref)
        if key is None:  # the file has no identities: equal tensors of different calls share memory
            alike = hash((own, ref.device))
            used[alike] += 1
            key = (own, ref.device, used[alike])
        storage = self._storages.get(key)
        if storage is not None and own in storage.variables:
            _note_range(storage, ref)
            return storage.variables[own]
        if storage is not None and not storage.made:
            base = self._base(storage, ref)
            if base is not None:
                return self._view(base, ref, own)
            storage = None  # the memory was freed, and what followed it there was not recorded
        if storage is None:
            storage = self._new_storage(key, ref, made=True)
            self._made.append(storage)
        storage.grow(ref)
        _note_range(storage, ref)
        return self._new_variable(storage, ref, own)

    def _base(self, storage: ReplayStorage, ref: TensorRef) -> ReplayVariable | None:
        """Return a tensor in the memory of which another one lies."""
        if extent(ref) > storage.nbytes:
            return None
        return next((one for one in storage.variables.values() if one.ref.dtype == ref.dtype), None)

    def _view(self, base: ReplayVariable, ref: TensorRef, own: Geometry) -> ReplayVariable:
        """Add a call that makes a view which the program made without a recorded call."""
        view = self._new_variable(base.storage, ref, own)
        node = TraceNode(-1, "aten::as_strided", "operator")
        offset, shape, strides, _ = own
        self.steps.append(
            ReplayStep(
                node, torch.ops.aten.as_strided.default._op, [base, list(shape), list(strides), offset], targets=view
            )
        )
        return view

    def _new_storage(self, key: Any, ref: TensorRef, *, made: bool) -> ReplayStorage:
        storage = ReplayStorage(ref, made)
        self._storages[key] = storage
        return storage

    def _new_variable(self, storage: ReplayStorage, ref: TensorRef, own: Geometry) -> ReplayVariable:
        self._count += 1
        variable = ReplayVariable(f"v{self._count}", ref, storage)
        storage.variables[own] = variable
        return variable

    def _result(self, value: Value, node: TraceNode) -> Expression:
        """Return the variable for a result; None for what is in a variable already, or is no tensor."""
        if isinstance(value, list):
            return [self._result(one, node) for one in value]
        if not isinstance(value, TensorRef):
            return None
        key, own = _storage_key(value), geometry(value)
        if key is None:
            return None
        inputs = list(tensors_of(node.inputs))
        storage = self._storages.get(key)
        if storage is None or key not in {_storage_key(ref) for ref in inputs}:
            storage = self._new_storage(key, value, made=False)
        elif own in storage.variables:
            return None
        else:  # in place, a tensor may get another shape: its old one is gone
            for ref in inputs:
                if ref.tensor and ref.tensor == value.tensor and _storage_key(ref) == key:
                    storage.variables.pop(geometry(ref), None)
        storage.grow(value)
        return self._new_variable(storage, value, own)

    def _add_collective(self, node: TraceNode) -> None:
        assert node.collective is not None
        exchange, simulated = make_exchange(node.collective, self.groups)
        used: dict[int, int] = defaultdict(int)
        places = [refs for value in node.inputs if (refs := list(tensors_of([value])))]
        functional = "functional::" in node.name
        results = list(tensors_of(node.outputs)) if functional else []
        first = places[0] if places else []
        sent, received = first, first
        if node.collective.name in OUTPUT_FIRST and len(places) > 1 and not functional:
            received, sent = places[0], places[1]
        elif not functional and not node.name.startswith("c10d::"):
            received = list(tensors_of(node.outputs)) or first
        if not sent and node.collective.name != "barrier":
            raise Gap("the trace does not contain its tensors")
        if simulated:
            self._note(f"simulated by shape: {simulated}")
        given = [self._variable(ref, used) for ref in sent]
        if functional:
            shapes = [(ref.shape, dtype_of(ref)) for ref in results]
            targets: list[Expression] = [self._result(ref, node) for ref in results]
            call = return_received(node.collective.name, exchange, shapes)
            self.steps.append(ReplayStep(node, call, [given], targets=targets))
            return
        taken = given if received is sent else [self._variable(ref, used) for ref in received]
        writes = {one.storage for one in (*given, *taken)}
        waits = node.collective.is_async and not simulated.endswith(("process", "nothing"))
        self.steps.append(ReplayStep(node, exchange, [given, taken], writes=writes, handle=waits))

    def _add_kernel(self, node: TraceNode) -> None:
        """Add a kernel that a compiler wrote, if its file lies beside the trace."""
        if LAUNCHED_ALONE in node.attributes:
            raise Gap(why_no_operator(node))
        backend = str(node.attributes.get("kernel_backend", ""))
        if backend != _TRITON:
            raise Gap(f"a kernel of {backend or 'an unknown compiler'}, which cannot be called from its file")
        kernel = load_kernel(node, Path(self.trace.source).absolute())
        given, grid = kernel_arguments(node.inputs)
        used: dict[int, int] = defaultdict(int)
        args: list[Expression] = []
        for value in given:
            if isinstance(value, TensorRef):
                args.append(self._variable(value, used))
            elif isinstance(value, OpaqueValue):
                raise Gap("an argument of the kernel is an object, which the trace does not contain")
            else:
                args.append(value)
        call = call_kernel(kernel, grid, self.device)
        writes = {one.storage for one in _variables(args)}  # which arguments it writes to is not recorded
        self.steps.append(ReplayStep(node, call, args, writes=writes))

    def _note(self, text: str) -> None:
        self.notes[text] = self.notes.get(text, 0) + 1

    # Values: rules for indices reach the tensors that indices were copied from.

    def _fill_unwritten(self) -> None:
        """Write ones into new memory that no recorded call writes before it is read: the program wrote there itself, as
        `torch.tensor(1.0)` does."""
        fresh: dict[ReplayStorage, ReplayStep] = {}
        for step in self.steps:
            for storage in {one.storage for one in step.variables()} & fresh.keys():
                maker = fresh.pop(storage)
                if storage not in step.writes:
                    maker.function = _filled(maker.function)
            if step.node.name in _UNWRITTEN:
                fresh |= {one.storage: step for one in step.results()}

    def _spread_rules(self) -> None:
        for step in reversed(self.steps):
            name = step.node.name.partition("::")[2]
            if name not in _COPIES:
                continue
            for result in step.results():
                for source in step.variables():
                    if result.storage.limit is not None and source.storage.limit is None:
                        source.storage.limit = result.storage.limit
                    if result.storage.divides is not None and source.ref.shape == result.ref.shape:
                        source.storage.divides = result.storage.divides

    def _make_all(self) -> dict[str, torch.Tensor]:
        """Make the tensors that exist before the step. Those of calls that were left out are not needed."""
        used = {variable.storage for step in self.steps for variable in step.variables()}
        wanted = [storage for storage in self._made if storage in used]
        before = sum(storage.nbytes for storage in wanted)
        total = before + self._most_temporary()
        if total > self.free:
            raise OutOfMemory(
                f"the step needs {count_bytes(total)}, of which {count_bytes(before)} exist before it; "
                f"{count_bytes(self.free)} are free"
            )
        found: dict[str, torch.Tensor] = {}
        for storage in wanted:
            found |= self._make(storage)
        return found

    def _most_temporary(self) -> int:
        """Return the most bytes that results of the calls take at once."""
        ends: dict[ReplayStorage, int] = {}
        for number, step in enumerate(self.steps):
            ends |= dict.fromkeys((one.storage for one in (*step.variables(), *step.results())), number)
        live: set[ReplayStorage] = set()
        now = most = 0
        for number, step in enumerate(self.steps):
            fresh = {one.storage for one in step.results() if not one.storage.made} - live
            live |= fresh
            now += sum(storage.nbytes for storage in fresh)
            most = max(most, now)
            gone = {storage for storage in live if ends[storage] <= number}
            live -= gone
            now -= sum(storage.nbytes for storage in gone)
        return most

    def _make(self, storage: ReplayStorage) -> dict[str, torch.Tensor]:
        device = self._place(storage.first.device)
        generator = self.host_generator if device.type == "cpu" else self.generator
        return make_tensors(storage, device, generator)

    # The first run: whatever fails is left out, and results are compared with what was recorded.

    def _try_steps(self, tensors: dict[str, torch.Tensor]) -> None:
        values: dict[str, Any] = {**tensors}
        last = {one.name: -1 for step in self.steps for one in step.results()} | self._last_uses()
        kept: list[ReplayStep] = []
        with torch.no_grad():
            for number, step in enumerate(self.steps):
                self._repair_indices(step, values, tensors)
                line = self._line(step, last, number)
                try:
                    exec(line, {**self.names}, _LineVariables(values))
                    if step.handle and (handle := values.pop(f"w{number}", None)) is not None:
                        handle.wait()
                    if self.device.type != "cpu":
                        _synchronizer(self.device)()
                    self._compare(step, values)
                    kept.append(step)
                except Exception as error:  # noqa: BLE001 - operators raise anything, and it becomes a named gap
                    self._drop(step, error, values, tensors)
                for name in {one.name for one in (*step.variables(), *step.results())}:
                    if last.get(name, -1) <= number and name not in tensors:
                        values.pop(name, None)
        self.steps = kept

    def _repair_indices(self, step: ReplayStep, values: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """Replace indices that a call computed and that lie outside, which a device would answer with a crash."""
        for variable, limit in step.limits:
            value = values.get(variable.name)
            if value is None or not value.numel() or value.dtype.is_floating_point:
                continue
            if int(value.max()) < limit and int(value.min()) >= -limit:
                continue
            other = ReplayStorage(variable.ref, True, extent(variable.ref), limit=limit)
            made = self._new_variable(other, variable.ref, geometry(variable.ref))
            tensors |= (found := self._make(other))
            values |= found
            step.args = _replaced(step.args, variable, made)
            step.kwargs = {name: _replaced(one, variable, made) for name, one in step.kwargs.items()}
            self._note(f"{step.node.name}: its indices lay outside and were drawn anew")

    def _drop(
        self, step: ReplayStep, error: Exception, values: dict[str, Any], tensors: dict[str, torch.Tensor]
    ) -> None:
        """Leave a call out. What it would have returned exists before the step then."""
        said = str(error).strip().splitlines()
        self.left_out.append(OmittedCall(step.node, f"{type(error).__name__}: {said[0][:200] if said else ''}"))
        for variable in step.results():
            storage = ReplayStorage(variable.ref, True, extent(variable.ref), limit=variable.storage.limit)
            storage.divides = variable.storage.divides
            storage.variables[geometry(variable.ref)] = variable
            tensors |= (found := self._make(storage))
            values |= found

    def _compare(self, step: ReplayStep, values: dict[str, Any]) -> None:
        for variable in step.results():
            value = values.get(variable.name)
            if not isinstance(value, torch.Tensor):
                continue
            self.compared += 1
            shape, dtype = tuple(value.shape), str(value.dtype).removeprefix("torch.")
            if (shape, dtype) != (variable.ref.shape, variable.ref.dtype) and len(self.differences) < _MOST_DIFFERENCES:
                self.differences.append(
                    f"{step.node.name} returned {list(shape)} {dtype}, recorded {list(variable.ref.shape)} "
                    f"{variable.ref.dtype}"
                )

    # Source code.

    def _last_uses(self) -> dict[str, int]:
        """Return the number of the last step that uses each variable; a result that nothing uses is not there."""
        return {one.name: number for number, step in enumerate(self.steps) for one in step.variables()}

    def _line(self, step: ReplayStep, last: dict[str, int], number: int) -> str:
        args = [self._text(one) for one in step.args]
        args += [f"{name}={self._text(one)}" for name, one in step.kwargs.items()]
        call = f"{self._function(step.function)}({', '.join(args)})"
        if step.handle:
            return f"w{number} = {call}"
        pattern = _pattern(step.targets, last)
        if pattern == "_":
            return call
        unused = "; del _" if "_" in pattern.strip("[]").split(", ") or "[_" in pattern or "_]" in pattern else ""
        return f"{pattern} = {call}{unused}"

    def _text(self, value: Expression) -> str:
        if isinstance(value, ReplayVariable):
            return value.name
        if isinstance(value, list) and any(True for _ in _variables(value)):
            return f"[{', '.join(self._text(one) for one in value)}]"
        if value is None or isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
            return repr(value)
        return self._constant(value)

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def _function(self, function: Callable[..., Any]) -> str:
        known = self._function_names.get(id(function))
        if known is None:
            known = self._function_names[id(function)] = f"f{len(self.names)}"
            self.names[known] = function
        return known

    def _gradients(self) -> list[str]:
        """Return the variables that hold gradients of parameters: they outlive the step, until the next one begins."""
        found = [
            one.name
            for step in self.steps
            if step.node.name == "aten::detach"
            and any(_ACCUMULATES in label.name for label in self.trace.ancestors(step.node))
            for one in (*step.variables(), *step.results())
        ]
        return list(dict.fromkeys(found))

    def _write_lines(self, kept: list[str]) -> tuple[list[list[str]], list[str]]:
        """Return the lines of every step, and those at the end. Variables that are kept are not deleted."""
        last = self._last_uses() | dict.fromkeys(kept, len(self.steps))
        streams = StreamPlan(self.steps, self.device, self.names)
        pending: dict[ReplayStorage, str] = {}
        found: list[list[str]] = []
        for number, step in enumerate(self.steps):
            touched = {one.storage for one in step.variables()}
            lines = [f"{handle}.wait()" for handle in dict.fromkeys(pending[one] for one in touched if one in pending)]
            done = {line.partition(".")[0] for line in lines}
            pending = {storage: handle for storage, handle in pending.items() if handle not in done}
            lines += streams.before(number)
            lines.append(self._line(step, last, number))
            if step.handle:
                pending |= dict.fromkeys(step.writes, f"w{number}")
            lines += streams.after(number)
            gone = {one.name for one in step.variables() if last[one.name] == number}
            if gone:
                lines.append(f"del {', '.join(sorted(gone))}")
            found.append(lines)
        finish = [f"{handle}.wait()" for handle in dict.fromkeys(pending.values())]
        return found, finish + streams.finish()


def _filled(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: make(*args, **kwargs).fill_(1)


def _pattern(targets: Expression, last: dict[str, int]) -> str:
    """Return the left side of an assignment; `_` for what nothing uses."""
    if isinstance(targets, ReplayVariable):
        return targets.name if targets.name in last else "_"
    if isinstance(targets, list):
        parts = [_pattern(one, last) for one in targets]
        return "_" if all(part == "_" for part in parts) else f"[{', '.join(parts)}]"
    return "_"


def _replaced(value: Expression, old: ReplayVariable, new: ReplayVariable) -> Expression:
    if isinstance(value, list):
        return [_replaced(one, old, new) for one in value]
    return new if value is old else value


class _LineVariables(dict[str, Any]):
    """Local variables of one line, which are written back to all of them."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__()
        self._all = values

    def __missing__(self, name: str) -> Any:
        return self._all[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._all[name] = value

    def __delitem__(self, name: str) -> None:
        del self._all[name]


def _shape_of(value: Expression) -> tuple[int, ...] | None:
    return value.ref.shape if isinstance(value, ReplayVariable) else None


def _is_mask(value: Expression) -> bool:
    return isinstance(value, ReplayVariable) and value.ref.dtype in ("bool", "uint8")


def _storage_key(ref: TensorRef) -> Any:
    """Return what tells memory apart; None where the file does not say."""
    if ref.storage:
        return ref.storage
    return ("tensor", ref.tensor) if ref.tensor else None


def _note_range(storage: ReplayStorage, ref: TensorRef) -> None:
    if ref.low is not None and ref.high is not None and storage.low is None:
        storage.low, storage.high = ref.low, ref.high


def _first_device(node: TraceNode) -> str:
    return next((ref.device for ref in tensors_of(node.inputs + node.outputs)), "")


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    return int(psutil.virtual_memory().available)


def _synchronizer(device: torch.device) -> Callable[[], None]:
    if device.type == "cpu":
        return lambda: None
    found: Callable[[], None] = torch.get_device_module(device).synchronize
    return found
