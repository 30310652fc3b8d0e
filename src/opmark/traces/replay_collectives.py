"""Replays communication: on process groups as recorded, and with ranks that are not there simulated by shape.

The same code runs on every engine of torch.distributed: gloo on a CPU, NCCL on NVIDIA's GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist

from opmark.traces.trace import TraceCollective, TraceGroup

Tensors = list[torch.Tensor]
Exchanged = Callable[[Tensors, Tensors], Any]
"""exchange(sent, received) starts a collective and returns the handle to wait for, or None if it is done."""

OUTPUT_FIRST = frozenset({"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"})
"""Collectives whose operators in c10d take the received tensors before the sent ones."""
_SIZED = frozenset({"all_gather", "reduce_scatter", "all_to_all"})
"""Collectives whose buffers grow with the number of ranks."""
_gather_single: Any = getattr(dist, "all_gather_single", None) or getattr(dist, "all_gather_into_tensor", None)
_scatter_single: Any = getattr(dist, "reduce_scatter_single", None) or getattr(dist, "reduce_scatter_tensor", None)


@dataclass
class ReplayGroups:
    """The process groups of a trace, in a world of the ranks that are there."""

    rank: int = 0
    world: int = 1
    recorded_world: int = 1
    described: Mapping[str, TraceGroup] = field(default_factory=dict)
    made: dict[tuple[int, ...], Any] = field(default_factory=dict)

    @cached_property
    def simulated(self) -> bool:
        """Whether this process is alone."""
        return self.world <= 1

    def members(self, name: str) -> tuple[int, ...]:
        """Return the ranks of a group that are there; with more ranks than recorded, a group of all of them grows."""
        group = self.described.get(name)
        everyone = tuple(range(self.world))
        if group is None or not group.ranks or len(group.ranks) >= self.recorded_world:
            return everyone
        present = tuple(rank for rank in group.ranks if rank < self.world)
        return present if self.rank in present else (self.rank,)

    def handle(self, ranks: tuple[int, ...]) -> Any:
        """Return torch's group of these ranks. It is made by its members alone, when they first need it."""
        if len(ranks) == self.world:
            return dist.group.WORLD
        if ranks not in self.made:
            self.made[ranks] = dist.new_group(list(ranks), use_local_synchronization=True)
        return self.made[ranks]

    def size(self, collective: TraceCollective) -> int:
        """Return the number of ranks that a collective had when it was recorded."""
        group = self.described.get(collective.group)
        return collective.group_size or (group.size if group and group.size else self.recorded_world)


def make_exchange(collective: TraceCollective, groups: ReplayGroups) -> tuple[Exchanged, str]:
    """Return the function of a collective, and what is simulated of it (nothing, if all of its ranks are there)."""
    recorded = groups.size(collective)
    ranks = groups.members(collective.group)
    name = collective.name
    if len(ranks) <= 1:
        said = "a copy within this process" if name != "barrier" else "nothing"
        return _copy_locally(name, collective), f"{name} of {recorded} ranks, of which one is there: {said}"
    note = ""
    if len(ranks) != recorded:
        note = f"{name} of {recorded} ranks, replayed by {len(ranks)}"
    return _Exchange(name, collective, groups, ranks, recorded), note


def _copy_locally(name: str, collective: TraceCollective) -> Exchanged:
    """Return what a rank does alone: it copies what it sends to where it would receive, as far as both reach."""

    def copy(sent: Tensors, received: Tensors) -> None:
        if name in ("all_reduce", "broadcast", "reduce", "send", "recv", "barrier"):
            return
        own = torch.cat([one.reshape(-1) for one in sent]) if len(sent) > 1 else sent[0].reshape(-1)
        for target in received:
            _fill_from(target, own)

    return copy


def _fill_from(target: torch.Tensor, source: torch.Tensor) -> None:
    """Write a tensor as often as it fits, and a part of it where it does not."""
    if not target.numel() or not source.numel() or not target.is_contiguous():
        return
    flat, size = target.view(-1), source.numel()
    for start in range(0, flat.numel(), size):
        part = flat[start : start + size]
        part.copy_(source[: part.numel()])


class _Exchange:
    """A collective of several processes. Where some of its ranks are not there, only the parts of the buffers that
    belong to the others are moved."""

    def __init__(
        self, name: str, collective: TraceCollective, groups: ReplayGroups, ranks: tuple[int, ...], recorded: int
    ) -> None:
        self.name, self.collective, self.groups, self.ranks, self.recorded = name, collective, groups, ranks, recorded
        self.waits = not collective.is_async

    def __call__(self, sent: Tensors, received: Tensors) -> Any:
        group = self.groups.handle(self.ranks)
        handles = [work for work in self._start(sent, received, group) if work is not None]
        if self.waits:
            for work in handles:
                work.wait()
            return None
        return handles[0] if len(handles) == 1 else _Handles(handles)

    def _start(self, sent: Tensors, received: Tensors, group: Any) -> list[Any]:
        name, root = self.name, self._root()
        if name == "barrier":
            return [dist.barrier(group, async_op=True)]
        if name == "all_reduce":
            return [dist.all_reduce(one, group=group, async_op=True) for one in sent]
        if name == "broadcast":
            return [dist.broadcast(one, root, group=group, async_op=True) for one in sent]
        if name == "reduce":
            return [dist.reduce(one, root, group=group, async_op=True) for one in sent]
        if name in _SIZED:
            return self._start_sized(sent, received, group)
        if name in ("send", "recv"):
            peer = self.collective.peer
            if peer is None or peer not in self.ranks:
                return []
            move = dist.isend if name == "send" else dist.irecv
            return [move(one, peer, group=group) for one in sent]
        here = self.groups.rank == root
        if name == "gather":
            return [dist.gather(sent[0], received if here else None, root, group=group, async_op=True)]
        return [dist.scatter(received[0], sent if here else None, root, group=group, async_op=True)]

    def _start_sized(self, sent: Tensors, received: Tensors, group: Any) -> list[Any]:
        there, recorded = len(self.ranks), self.recorded
        if self.name != "all_to_all" and len(sent) == len(received) > 1:  # several collectives, recorded as one
            pairs = zip(sent, received, strict=True)
            return [work for one, other in pairs for work in self._start_sized([one], [other], group)]
        if self.name == "all_gather":
            if len(received) == 1 and len(sent) == 1:
                return [_gather_single(self._fit(received[0], there), sent[0], group=group, async_op=True)]
            parts = _pad(received, there)
            return [dist.all_gather(parts, sent[0], group=group, async_op=True)]
        if self.name == "reduce_scatter":
            if len(received) == 1 and len(sent) == 1:
                return [_scatter_single(received[0], self._fit(sent[0], there), group=group, async_op=True)]
            return [dist.reduce_scatter(received[0], _pad(sent, there), group=group, async_op=True)]
        if len(received) == 1 and len(sent) == 1:
            take, give = self.collective.out_splits, self.collective.in_splits
            if there == recorded:
                splits = (list(take) or None, list(give) or None)
                return [dist.all_to_all_single(received[0], sent[0], *splits, group=group, async_op=True)]
            # A part of each buffer for each rank that is there; equal, because both sides have to agree.
            share = min(received[0].numel(), sent[0].numel()) // max(recorded, there)
            out, given = (one.reshape(-1)[: share * there] for one in (received[0], sent[0]))
            return [dist.all_to_all_single(out, given, group=group, async_op=True)]
        return [dist.all_to_all(_pad(received, there), _pad(sent, there), group=group, async_op=True)]

    def _fit(self, whole: torch.Tensor, there: int) -> torch.Tensor:
        """Return the buffer of all ranks with a part for each rank that is there: a part of it, or a larger one."""
        if there == self.recorded:
            return whole
        flat = whole.reshape(-1)
        share = flat.numel() // self.recorded
        if there < self.recorded:
            return flat[: share * there]
        return flat.new_empty(share * there)

    def _root(self) -> int:
        """Return the rank in the world of the root, which a trace names by its place in the group."""
        peer = self.collective.peer or 0
        return self.ranks[peer] if peer < len(self.ranks) else self.ranks[0]


class _Handles:
    """Several started operations that are waited for together."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self._handles = handles

    def wait(self) -> None:
        for one in self._handles:
            one.wait()


def _pad(parts: Tensors, there: int) -> Tensors:
    """Return one tensor for each rank: ranks that were not recorded get buffers of their own."""
    return parts[:there] + [torch.empty_like(parts[0]) for _ in range(there - len(parts))]


def return_received(
    name: str, exchange: Exchanged, shapes: Sequence[tuple[tuple[int, ...], Any]]
) -> Callable[[Any], Any]:
    """Return a collective that returns its result, as functional collectives do."""

    def call(sent: Tensors) -> Tensors:
        if name in ("all_reduce", "broadcast", "reduce"):
            received = [one.clone() for one in sent]
            work = exchange(received, received)
        else:
            received = [
                torch.empty(shape, dtype=dtype, device=sent[0].device) for shape, dtype in shapes
            ]  # fmt: skip
            work = exchange(sent, received)
        if work is not None:
            work.wait()
        return received

    return call
