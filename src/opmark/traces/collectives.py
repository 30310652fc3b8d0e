"""Communication in traces: what torch records of a collective, in opmark's words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from opmark.traces.trace import OpaqueValue, TensorRef, TraceCollective, TraceGroup, Value, tensors_of

ASIDE = "gloo:"
"""Nodes in which gloo does the work of a collective, beside the operator that asked for it."""

_NAMES = {
    "allreduce": "all_reduce", "allreduce_coalesced": "all_reduce", "allreduce_sparse": "all_reduce",
    "allgather": "all_gather", "allgather_base": "all_gather", "allgatherv": "all_gather",
    "allgather_coalesced": "all_gather", "allgather_into_tensor_coalesced": "all_gather",
    "allgather_into_tensor": "all_gather", "allgather_into_tensor_out": "all_gather",
    "reducescatter": "reduce_scatter", "reducescatter_base": "reduce_scatter", "reducescatterv": "reduce_scatter",
    "reducescatter_tensor": "reduce_scatter", "reducescatter_tensor_coalesced": "reduce_scatter",
    "reducescatter_coalesced": "reduce_scatter",
    "alltoall": "all_to_all", "alltoallv": "all_to_all", "alltoall_base": "all_to_all", "alltoall_single": "all_to_all",
    "broadcast": "broadcast", "broadcastuniqueness": "broadcast", "broadcast_oop": "broadcast",
    "reduce": "reduce", "reduce_oop": "reduce", "gather": "gather", "scatter": "scatter",
    "barrier": "barrier", "monitored_barrier": "barrier", "send": "send", "recv": "recv",
    "recv_any_source": "recv", "recvanysource": "recv",
}  # fmt: skip
_OUTPUT_FIRST = frozenset({"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"})
"""Collectives whose operators take the outputs before the inputs."""
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter", "send", "recv"})


def collective_name(written: str) -> str:
    """Return opmark's name of a collective (`all_reduce`), or nothing for what is none: `wait`, `init`."""
    short = written.lower().rpartition("::")[2].strip("_")
    short = re.sub(r"^(nccl|gloo|ucc|mpi|xccl|hccl):_?", "", short)
    for spaced in ("all_reduce", "all_gather", "all_to_all", "reduce_scatter"):
        short = short.replace(spaced, spaced.replace("_", ""))
    return _NAMES.get(short, "")


def collective_of_call(name: str, inputs: Sequence[Value], outputs: Sequence[Value]) -> TraceCollective | None:
    """Return the communication of an operator of c10d; None if it is none, as `wait_tensor`."""
    found = collective_name(name)
    if not found:
        return None
    functional = "functional::" in name
    places = [list(tensors_of([value])) for value in inputs]
    filled = [place for place in places if place]
    received, sent = filled[0] if filled else [], filled[0] if filled else []
    if functional:
        received = list(tensors_of(list(outputs)))
    elif found in _OUTPUT_FIRST and len(filled) > 1:
        received, sent = filled[0], filled[1]
    flags = [value for value in inputs if isinstance(value, bool)]
    numbers = [value for value in inputs if type(value) is int]
    splits = [tuple(value) for value in inputs if isinstance(value, list) and value and _are_whole(value)]
    out_splits, in_splits = (splits[0], splits[1]) if found == "all_to_all" and len(splits) > 1 else ((), ())
    texts = [value for value in inputs if isinstance(value, str)]
    return TraceCollective(
        found,
        texts[-1] if functional and texts else "",
        numbers[0] if functional and numbers and found in ("all_gather", "reduce_scatter") else None,
        (sent or received)[0].dtype if sent or received else "",
        _elements(sent) if found != "barrier" else 0,
        _elements(received) if found != "barrier" else 0,
        in_splits,
        out_splits,
        numbers[0] if found in _ROOTED and numbers else None,
        flags[0] if flags else functional,
    )


def collective_of_record(
    inputs: Sequence[Value], outputs: Sequence[Value], attributes: Mapping[str, Any]
) -> TraceCollective | None:
    """Return the communication of `record_param_comms`.

    Its inputs are tensors, a number of the request, the group, the rank, the name, splits of inputs and outputs, and
    since 1.0.3 the group's first rank, its stride and its size. Since 1.1.0 attributes say the same.
    """
    shift = 1 if len(inputs) in (7, 9) else 0  # a record without tensors

    def given(place: int) -> Any:
        return inputs[place - shift] if 0 <= place - shift < len(inputs) else None

    written = attributes.get("collective_name") or given(4)
    name = collective_name(str(written)) if isinstance(written, str) else ""
    if not name:
        return None
    group = given(2)
    if isinstance(group, list):  # name and description
        group = group[0] if group else ""
    sent = list(tensors_of([given(0)])) if not shift else []
    received = list(tensors_of(list(outputs))) or sent
    size = attributes.get("pg_size", given(9))
    peer = given(3)
    return TraceCollective(
        name,
        str(attributes.get("pg_name") or ("" if group is None or isinstance(group, OpaqueValue) else group)),
        size if type(size) is int and size > 0 else None,
        _DTYPES.get(str(attributes.get("dtype", "")), str(attributes.get("dtype", "")).lower())
        or (sent[0].dtype if sent else ""),
        _whole(attributes.get("in_msg_nelems"), _elements(sent)),
        _whole(attributes.get("out_msg_nelems"), _elements(received)),
        _splits(attributes.get("in_split_size", given(5))),
        _splits(attributes.get("out_split_size", given(6))),
        peer if name in _ROOTED and type(peer) is int and peer >= 0 else None,
        True,
    )


_DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64",
    "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128", "Float8_e4m3fn": "float8_e4m3fn", "Float8_e5m2": "float8_e5m2",
}  # fmt: skip
"""c10's names of element types, which attributes of communication have."""


def groups_of(inputs: Sequence[Value]) -> dict[str, TraceGroup]:
    """Return the process groups that `## process_group:init ##` describes, as JSON in a text."""
    text = inputs[0] if inputs else ""
    try:
        described = json.loads(text) if isinstance(text, str) and text else []
    except json.JSONDecodeError:
        return {}
    return groups_of_description(described)


def groups_of_description(described: Any) -> dict[str, TraceGroup]:
    """Return process groups by name from the list that torch writes. No ranks stand for all ranks of the world."""
    found: dict[str, TraceGroup] = {}
    for one in described if isinstance(described, list) else ():
        if isinstance(one, dict) and one.get("pg_name") is not None:
            size = one.get("group_size", one.get("pg_size"))
            size = size if type(size) is int and 0 < size < 10**7 else None
            ranks = one.get("ranks")
            if isinstance(ranks, dict):
                ranks = [int(rank) for rank in ranks if str(rank).isdigit()]
            whole = tuple(ranks) if isinstance(ranks, list) and _are_whole(ranks) else ()
            name = str(one["pg_name"])
            backend = str(one.get("backend_config", one.get("backend", "")))
            found[name] = TraceGroup(name, whole or tuple(range(size or 0)), backend, size or len(whole) or None)
    return found


def join_collectives(call: TraceCollective, record: TraceCollective) -> TraceCollective:
    """Return the communication of a call, with what a record below it knows better."""
    return TraceCollective(
        call.name,
        record.group or call.group,
        record.group_size or call.group_size,
        call.dtype or record.dtype,
        record.in_elements if call.in_elements is None else call.in_elements,
        record.out_elements if call.out_elements is None else call.out_elements,
        call.in_splits or record.in_splits,
        call.out_splits or record.out_splits,
        call.peer if call.peer is not None else record.peer,
        call.is_async,
    )


def place_in_group(
    collective: TraceCollective, groups: Mapping[str, TraceGroup], only: TraceGroup | None
) -> TraceCollective:
    """Return a collective with the size of its group. One that names no group is in the only one, if there is one."""
    group = groups.get(collective.group) if collective.group else only
    if group is None:
        return collective
    return TraceCollective(
        collective.name, group.name, collective.group_size or group.size, collective.dtype, collective.in_elements,
        collective.out_elements, collective.in_splits, collective.out_splits, collective.peer, collective.is_async,
    )  # fmt: skip


def _are_whole(value: Sequence[Any]) -> bool:
    return all(type(one) is int for one in value)


def _elements(tensors: Sequence[TensorRef]) -> int | None:
    return sum(one.elements for one in tensors) if tensors else None


def _whole(value: Any, otherwise: int | None) -> int | None:
    return value if type(value) is int and value >= 0 else otherwise


def _splits(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        numbers = re.findall(r"\d+", value)
        return tuple(map(int, numbers))
    return tuple(value) if isinstance(value, list) and _are_whole(value) else ()
