"""What if a size were another one: changes a recorded size wherever it reaches, by computing the shapes again.

Tensors that exist before the step get the new size wherever they had the old one. From there on, shapes are those that
the calls return for tensors without data. Sizes among the arguments of a call are changed where the call needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import prod
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace

from opmark.errors import UserError
from opmark.traces.replay_part import OmittedCall
from opmark.traces.replay_values import dtype_of, geometry, strides_of
from opmark.traces.trace import OpaqueValue, ProgramTrace, TensorRef, TraceNode, Value, tensors_of

_SIZES = frozenset({
    "size", "sizes", "shape", "input_sizes", "self_sizes", "output_size", "input_size", "split_sizes", "split_size",
})  # fmt: skip
"""Names of arguments that are sizes of tensors."""
_MOST_DIMS = 6


class SizeChange(NamedTuple):
    """Recorded sizes with the sizes that replace them."""

    sizes: dict[int, int]

    def rewrite(self, trace: ProgramTrace, calls: list[TraceNode]) -> tuple[list[TraceNode], list[OmittedCall]]:
        """Return the calls with changed sizes, and the calls for which no sizes were found."""
        present = {size for call in calls for ref in tensors_of(call.inputs) for size in ref.shape}
        for old in self.sizes:
            if old not in present:
                common = sorted(present - {1}, key=lambda size: -size)[:12]
                raise UserError(
                    f"{trace.source}: no tensor of the chosen part has a dimension of {old}",
                    f"some recorded sizes: {', '.join(map(str, common))}",
                )
        return _Propagation(self.sizes).run(calls)


class _Propagation:
    def __init__(self, sizes: dict[int, int]) -> None:
        self.asked = sizes
        self.learned = dict(sizes)
        """New sizes by recorded size: those that were asked for, and what calls have made of them."""
        self.known: dict[Any, TensorRef] = {}
        """Tensors as they are now, by memory and recorded place in it."""

    def run(self, calls: list[TraceNode]) -> tuple[list[TraceNode], list[OmittedCall]]:
        found, lost = [], []
        for node in calls:
            inputs = [self._input(value) for value in node.inputs]
            changed = [value != old for value, old in zip(inputs, node.inputs, strict=True)]
            if not any(changed) and not self._has_size(node):
                self._keep(node.outputs, node.outputs)
                found.append(node)
                continue
            try:
                arguments, outputs = self._call(node, inputs)
            except _NoSizes as error:
                lost.append(OmittedCall(node, f"--scale: no sizes were found for it: {error}"))
                self._keep(node.outputs, [self._scaled_value(value) for value in node.outputs])
                continue
            self._keep(node.outputs, outputs)
            found.append(replace(node, inputs=arguments, outputs=outputs))
        return found, lost

    def _has_size(self, node: TraceNode) -> bool:
        """Return whether a call of unchanged tensors makes one of a changed size, as `zeros` and `expand` do."""
        there = {size for ref in tensors_of(node.inputs) for size in ref.shape}
        return any(size in self.asked and size not in there for ref in tensors_of(node.outputs) for size in ref.shape)

    def _key(self, ref: TensorRef) -> Any:
        return (ref.storage or ("tensor", ref.tensor), geometry(ref)) if ref.storage or ref.tensor else None

    def _input(self, value: Value) -> Value:
        if isinstance(value, list):
            return [self._input(one) for one in value]
        if not isinstance(value, TensorRef):
            return value
        key = self._key(value)
        if key in self.known:
            return self.known[key]
        found = self._scaled(value)
        if key is not None:
            self.known[key] = found
        return found

    def _scaled_value(self, value: Value) -> Value:
        if isinstance(value, list):
            return [self._scaled_value(one) for one in value]
        return self._scaled(value) if isinstance(value, TensorRef) else value

    def _scaled(self, ref: TensorRef) -> TensorRef:
        """Return a tensor with new sizes; the order of its axes in memory stays."""
        shape = tuple(self.learned.get(size, size) for size in ref.shape)
        if shape == ref.shape:
            return ref
        old = strides_of(ref)
        strides, step = [0] * len(shape), 1
        for axis in sorted(range(len(shape)), key=lambda axis: (old[axis], -axis)):
            if old[axis]:
                strides[axis] = step
                step *= max(1, shape[axis])
        ratio = prod(shape) / max(1, prod(ref.shape))
        return replace(ref, shape=shape, strides=tuple(strides), offset=int(ref.offset * ratio))

    def _keep(self, recorded: list[Value], now: list[Value]) -> None:
        for old, new in zip(recorded, now, strict=False):
            if isinstance(old, list) and isinstance(new, list):
                self._keep(old, new)
            elif isinstance(old, TensorRef) and isinstance(new, TensorRef):
                if (key := self._key(old)) is not None:
                    self.known[key] = new
                for before, after in zip(old.shape, new.shape, strict=False):
                    if any(before % one == 0 and before * other == after * one for one, other in self.asked.items()):
                        self.learned.setdefault(before, after)

    def _call(self, node: TraceNode, inputs: list[Value]) -> tuple[list[Value], list[Value]]:
        """Return (arguments, outputs) of a call with changed tensors."""
        from opmark.traces.replay_functions import Gap, find_overload

        if node.collective is not None or not any(True for _ in tensors_of(node.outputs)):
            return inputs, [self._input(value) for value in node.outputs]
        try:
            operator, schema = find_overload(node)
        except Gap as gap:
            raise _NoSizes(str(gap)) from None
        reason = "torch computes no shapes for it"
        for arguments in self._candidates(schema, node, inputs):
            try:
                results = _run_on_meta(operator, schema, arguments)
            except Exception as error:  # noqa: BLE001 - operators raise anything for sizes that do not fit
                reason = (str(error).strip().splitlines() or [""])[0][:120]
                continue
            return arguments, _as_recorded(node.outputs, results)
        raise _NoSizes(reason)

    def _candidates(self, schema: Any, node: TraceNode, inputs: list[Value]) -> Iterator[list[Value]]:
        """Yield arguments to try: sizes of a view that have as many elements, sizes replaced, everything as it was, all
        numbers replaced."""
        named = [argument.name for argument in schema.arguments[: len(inputs)]]
        tensor = next(tensors_of(inputs), None)
        name = schema.name.partition("::")[2]
        if tensor is not None and name in ("view", "reshape", "_unsafe_view", "_reshape_alias", "view_copy"):
            sizes = inputs[1]
            if isinstance(sizes, list) and all(isinstance(size, int) for size in sizes):
                made = next(tensors_of(node.outputs), tensor)
                for other in self._views(sizes, made.shape, prod(tensor.shape)):
                    yield [inputs[0], other, *inputs[2:]]
        yield [
            self._replaced(value) if argument in _SIZES else value
            for argument, value in zip(named, inputs, strict=True)
        ]
        yield inputs
        yield [self._replaced(value) for value in inputs]

    def _views(self, sizes: list[int], recorded: tuple[int, ...], elements: int) -> Iterator[list[int]]:
        """Yield sizes with so many elements, the fewest changes first. A size that is left open (-1) has to be one that
        the recorded size may have become."""
        places = [i for i, size in enumerate(sizes) if size > 0 and self._others(size)][:_MOST_DIMS]
        open_at = sizes.index(-1) if -1 in sizes else None
        for count in range(len(places) + 1):
            for chosen in combinations(places, count):
                for options in self._choices(sizes, chosen):
                    rest = prod(size for size in options if size != -1)
                    if open_at is None:
                        fits = rest == elements
                    else:
                        before = recorded[open_at] if open_at < len(recorded) else 0
                        left = elements // rest if rest and elements % rest == 0 else 0
                        fits = left == before or left in self._others(before)
                    if fits:
                        yield options

    def _choices(self, sizes: list[int], chosen: tuple[int, ...]) -> Iterator[list[int]]:
        if not chosen:
            yield list(sizes)
            return
        place, *rest = chosen
        for other in self._others(sizes[place]):
            yield from self._choices([*sizes[:place], other, *sizes[place + 1 :]], tuple(rest))

    def _others(self, size: int) -> list[int]:
        """Return what a size may have become: what is known of it, and multiples of a size that was changed."""
        found = [self.learned[size]] if size in self.learned else []
        found += [size // old * new for old, new in self.asked.items() if size % old == 0 and size != old]
        return list(dict.fromkeys(other for other in found if other != size))

    def _replaced(self, value: Value) -> Value:
        if isinstance(value, list):
            return [self._replaced(one) for one in value]
        if isinstance(value, int) and not isinstance(value, bool):
            return self.learned.get(value, value)
        return value


class _NoSizes(Exception):
    """A call whose arguments do not fit tensors of the new sizes."""


def _run_on_meta(operator: Any, schema: Any, arguments: list[Value]) -> list[Any]:
    """Return the results of a call for tensors without data."""

    def given(value: Value, kind: str) -> Any:
        if isinstance(value, TensorRef):
            return torch.empty_strided(value.shape, strides_of(value), dtype=dtype_of(value), device="meta")
        if isinstance(value, list):
            return [given(one, kind) for one in value]
        if isinstance(value, OpaqueValue):
            if value.kind == "Device":
                return torch.device("meta")
            if value.kind in ("Undefined", "Generator"):
                return None
            raise _NoSizes(f"an argument is {value.text or 'an object'}")
        return torch.device("meta") if "Device" in kind and isinstance(value, str) else value

    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument, value in zip(schema.arguments, arguments, strict=False):
        found = given(value, str(argument.type))
        if argument.kwarg_only:
            kwargs[argument.name] = found
        else:
            args.append(found)
    with torch.no_grad():
        result = operator._op(*args, **kwargs)
    if len(schema.returns) == 1:
        return [result]
    return [] if result is None else list(result)


def _as_recorded(recorded: list[Value], results: list[Any]) -> list[Value]:
    """Return the recorded results with the shapes of new ones."""
    found: list[Value] = []
    for old, new in zip(recorded, results, strict=False):
        if isinstance(old, list) and isinstance(new, list | tuple):
            found.append(_as_recorded(old, list(new)))
        elif isinstance(old, TensorRef) and isinstance(new, torch.Tensor):
            found.append(replace(old, shape=tuple(new.shape), strides=tuple(new.stride()), offset=_offset(old, new)))
        else:
            found.append(old)
    return found + recorded[len(found) :]


def _offset(old: TensorRef, new: torch.Tensor) -> int:
    ratio = new.numel() / max(1, prod(old.shape))
    return int(old.offset * ratio)
