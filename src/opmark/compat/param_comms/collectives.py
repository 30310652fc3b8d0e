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
    """That make it PARAM's: there results replace what went in (all_reduce) or have tensors of their own."""
    shared: bool = False
    """The size is of what all ranks hold together, so that it has to divide evenly."""
    each: bool = False
    """The size is of what every rank but the root sends; the operator's is of what the root takes in."""
    uneven: bool = False
    """Its parts may differ: --imbalance and --i or --o are about these."""
    split: tuple[str, ...] = ()
    """Of --i and --o, those that PARAM takes for it."""


_SAME = {"in_place": True}
_LISTS, _ONE = {"lists": True}, {"lists": False}

COLLECTIVES: dict[str, Collective] = {
    "reduce": Collective("reduce", _SAME),
    "all_reduce": Collective("all_reduce", _SAME),
    "all_to_all": Collective("all_to_all", _LISTS, shared=True),
    "all_to_allv": Collective("all_to_all", _ONE, shared=True, uneven=True, split=("i", "o")),
    "all_gather": Collective("all_gather", _LISTS, shared=True),
    "all_gather_v": Collective("all_gather", _LISTS, shared=True, uneven=True, split=("o",)),
    "all_gather_object": Collective("all_gather_object", shared=True),
    "broadcast": Collective("broadcast", _SAME),
    "broadcast_object_list": Collective("broadcast_object"),
    "reduce_scatter": Collective("reduce_scatter", _LISTS, shared=True),
    "reduce_scatter_v": Collective("reduce_scatter", _LISTS, shared=True, uneven=True, split=("i",)),
    "reduce_scatter_base": Collective("reduce_scatter", _ONE, shared=True),
    "all_gather_base": Collective("all_gather", _ONE, shared=True),
    "incast": Collective("incast", each=True),
    "multicast": Collective("multicast"),
    "gather": Collective("gather_ranks", shared=True),
    "scatter": Collective("scatter_ranks", shared=True),
}

_ALIASES = {"".join(filter(str.isalpha, name)): name for name in COLLECTIVES} | {"alltoallbase": "all_to_allv"}
"""By letters alone, as PARAM reads names: AllReduce, all-reduce."""


def collective_named(text: str) -> str:
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


def dtype_named(text: str) -> str:
    """As opmark names it. What PARAM has beyond these (bool) no operator of communication knows."""
    found = DTYPES.get(text.lower())
    if found is None:
        raise UnknownName("data type", text, DTYPES, "opmark param comms -h")
    return found
