"""ProgramTrace: the calls of a program in the order in which they began, whatever file they were read from.

Times are in seconds. No framework is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import prod
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from opmark.schema import ImportProblem

NodeKind = Literal["operator", "collective", "kernel", "label"]
"""
operator    a call with a schema, as in aten::mm(Tensor self, Tensor mat2) -> Tensor
collective  communication of a process group
kernel      a kernel that was called directly, as inductor's Triton kernels are, and work of a device that no recorded
            call launched, as that of a CUDA graph
label       everything else: steps, modules, nodes of autograd, record_function
"""


LAUNCHED_ALONE = "launched_alone"
"""Attribute of work of a device that no recorded call launched: how many kernels, copies and sets it is."""


class TensorRef(Struct, frozen=True):
    """A tensor of a call. Tensors with the same storage share memory."""

    shape: tuple[int, ...]
    dtype: str
    """torch's name of the element type: `float32`. A type that opmark does not know is kept as the file has it."""
    device: str = ""
    """As recorded: `cpu`, `cuda:0`; empty where the file does not say."""
    tensor: int = 0
    """Id of the tensor; 0 where the file has none."""
    storage: int = 0
    """Id of the memory; 0 where the file has none."""
    offset: int = 0
    """Elements between the beginning of the storage and the first one of the tensor."""
    strides: tuple[int, ...] | None = None
    """None where the file does not say: contiguous."""
    low: int | None = None
    """Smallest value of an integer tensor, where it was recorded."""
    high: int | None = None
    """Largest value, inclusive."""

    @property
    def elements(self) -> int:
        return prod(self.shape)


class OpaqueValue(Struct, frozen=True):
    """An argument that is neither a tensor nor plain data: a generator, a device, a stream, an undefined tensor."""

    kind: str
    """`Generator`, `Device`, `Stream`, `Storage`, `Object`, `Undefined` (a tensor that is not there)."""
    text: str = ""


Value: TypeAlias = Any
"""TensorRef, OpaqueValue, None, bool, int, float, str, or a list of these."""


class TraceCollective(Struct, frozen=True):
    """Communication of one rank with its group."""

    name: str
    """As the catalogue names it: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `broadcast`, `barrier`."""
    group: str = ""
    """Name of the process group; a key of ProgramTrace.groups where the file describes it."""
    group_size: int | None = None
    dtype: str = ""
    in_elements: int | None = None
    out_elements: int | None = None
    in_splits: tuple[int, ...] = ()
    out_splits: tuple[int, ...] = ()
    peer: int | None = None
    """Root of a broadcast, the other side of a send."""
    is_async: bool = False


class TraceGroup(Struct, frozen=True):
    name: str
    ranks: tuple[int, ...] = ()
    backend: str = ""
    size: int | None = None


class TraceNode(Struct):
    id: int
    name: str
    """`aten::mm`, `ProfilerStep#3`, `autograd::engine::evaluate_function: MmBackward0`."""
    kind: NodeKind
    schema: str = ""
    parent: int | None = None
    """Id of the node that called it; None for a root or where the parent is not in the file."""
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    thread: int = 0
    start: float | None = None
    """When it began, in seconds of the file's own clock."""
    duration: float | None = None
    """Time on the host."""
    device_time: float | None = None
    """Summed time of the kernels that it launched, itself or through what it called."""
    stream: int | None = None
    """Stream of the device that its kernels ran on."""
    collective: TraceCollective | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    """What else the file says: rf_id, seq_id, fw_parent, scope, kernel_file, kernel_backend."""


class ProgramTrace(Struct, dict=True):
    source: str
    """Path of the file."""
    format: str
    """`PyTorch execution trace 1.1.1-chakra.0.0.4`, `Chrome trace`, `Chakra`."""
    nodes: list[TraceNode]
    """In the order in which they began."""
    rank: int | None = None
    world_size: int | None = None
    groups: dict[str, TraceGroup] = field(default_factory=dict)
    problems: list[ImportProblem] = field(default_factory=list)
    """Parts of the file that could not be read, each with its place."""
    notes: list[str] = field(default_factory=list)
    """What was assumed where the file does not say it."""

    @cached_property
    def by_id(self) -> dict[int, TraceNode]:
        return {node.id: node for node in self.nodes}

    @cached_property
    def calls(self) -> list[TraceNode]:
        """The calls that the program itself made: operators, collectives and kernels that no other one called."""
        inside: dict[int, TraceNode] = {}
        found = []
        for node in self.nodes:  # a parent begins before its children
            if node.parent in inside and not _is_misplaced(node, inside[node.parent]):
                inside[node.id] = node
            elif node.kind != "label":
                inside[node.id] = node
                found.append(node)
        return found

    def forget(self) -> None:
        """Work out `by_id` and `calls` anew when they are next asked for: the nodes have changed."""
        for name in ("by_id", "calls"):
            self.__dict__.pop(name, None)

    def ancestors(self, node: TraceNode) -> Iterator[TraceNode]:
        """Yield the nodes that a node was called by, the nearest first; a cycle ends it."""
        seen = {node.id}
        while node.parent is not None and node.parent not in seen and node.parent in self.by_id:
            node = self.by_id[node.parent]
            seen.add(node.id)
            yield node


def _is_misplaced(node: TraceNode, parent: TraceNode) -> bool:
    """Return whether a file names a wrong parent: what an asynchronous collective ends, torch's observer takes for the
    call that began last. An operator calls no collective, and nothing begins in a call that has ended."""
    if node.kind == "collective" and parent.kind == "operator":
        return True
    if node.start is None or parent.start is None or parent.duration is None:
        return False
    return node.start > parent.start + parent.duration


def why_no_operator(node: TraceNode) -> str:
    """Return why a kernel is not called as an operator is."""
    if LAUNCHED_ALONE in node.attributes:
        return "work of a device that no recorded operator launched: of a CUDA graph, or called directly"
    return "a kernel that a compiler made is no operator that a workload can name"


def tensors_of(values: list[Value]) -> Iterator[TensorRef]:
    """Yield the tensors among arguments, also those in lists."""
    for value in values:
        if isinstance(value, TensorRef):
            yield value
        elif isinstance(value, list):
            yield from tensors_of(value)
