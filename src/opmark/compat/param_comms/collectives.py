"""PARAM's collectives as operators of opmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opmark.errors import UnknownName

PT2PT = "pt2pt"


@dataclass(frozen=True)
class Collective:
    op: str
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters as in PARAM, where results replace the input (all_reduce) or have tensors of their own."""
    shared: bool = False
    """Whether the size is that of all ranks together, so that it has to divide evenly."""
    per_sender: bool = False
    """Whether the size is what each rank but the root sends; the operator's size is what the root receives."""
    uneven: bool = False
    """Whether parts may differ, with --imbalance and --i or --o."""
    split: tuple[str, ...] = ()
    """The options --i and --o that PARAM accepts for it."""


_IN_PLACE = {"in_place": True}
_LISTS, _ONE_TENSOR = {"lists": True}, {"lists": False}

COLLECTIVES: dict[str, Collective] = {
    "reduce": Collective("reduce", _IN_PLACE),
    "all_reduce": Collective("all_reduce", _IN_PLACE),
    "all_to_all": Collective("all_to_all", _LISTS, shared=True),
    "all_to_allv": Collective("all_to_all", _ONE_TENSOR, shared=True, uneven=True, split=("i", "o")),
    "all_gather": Collective("all_gather", _LISTS, shared=True),
    "all_gather_v": Collective("all_gather", _LISTS, shared=True, uneven=True, split=("o",)),
    "all_gather_object": Collective("all_gather_object", shared=True),
    "broadcast": Collective("broadcast", _IN_PLACE),
    "broadcast_object_list": Collective("broadcast_object"),
    "reduce_scatter": Collective("reduce_scatter", _LISTS, shared=True),
    "reduce_scatter_v": Collective("reduce_scatter", _LISTS, shared=True, uneven=True, split=("i",)),
    "reduce_scatter_base": Collective("reduce_scatter", _ONE_TENSOR, shared=True),
    "all_gather_base": Collective("all_gather", _ONE_TENSOR, shared=True),
    "incast": Collective("incast", per_sender=True),
    "multicast": Collective("multicast"),
    "gather": Collective("gather_ranks", shared=True),
    "scatter": Collective("scatter_ranks", shared=True),
}

_ALIASES = {"".join(filter(str.isalpha, name)): name for name in COLLECTIVES} | {"alltoallbase": "all_to_allv"}
"""Collectives by the letters of their names, as PARAM accepts AllReduce and all-reduce."""


def find_collective(text: str) -> str:
    found = _ALIASES.get("".join(filter(str.isalpha, text.lower())))
    if found is None:
        raise UnknownName("collective", text, COLLECTIVES, "opmark param comms -h")
    return found


DTYPES: dict[str, str] = {
    "float32": "float32", "float": "float32", "float64": "float64", "double": "float64", "float16": "float16",
    "half": "float16", "bfloat16": "bfloat16", "int32": "int32", "int": "int32", "int64": "int64", "long": "int64",
    "int8": "int8", "char": "int8", "uint8": "uint8", "byte": "uint8",
}  # fmt: skip
"""PARAM's names of element types, and opmark's."""


def find_dtype(text: str) -> str:
    """Return opmark's name; no operator of communication has PARAM's other types (bool)."""
    found = DTYPES.get(text.lower())
    if found is None:
        raise UnknownName("data type", text, DTYPES, "opmark param comms -h")
    return found
