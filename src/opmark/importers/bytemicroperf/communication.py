"""Their communication and transfers: how they state a size and who takes part, and what that is here.

A size is batch_size x dim_size (or num_tokens x hidden_size) elements: of all operators the whole buffer, as
nccl-tests counts it. Of all_gather that is what every rank ends up with, of reduce_scatter what it starts from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from math import ceil, prod
from typing import Any, NamedTuple

from opmark.importers.bytemicroperf.basic import DTYPE, has
from opmark.importers.bytemicroperf.fields import Constant, Dtype, Field, Unused, Value
from opmark.importers.bytemicroperf.form import Form
from opmark.importers.bytemicroperf.values import (
    FEW,
    LARGEST,
    SHAPE,
    Arguments,
    Refused,
    checked,
    dtype_of,
    missing,
    sizes,
)
from opmark.schema.dtype import sizeof

_ROW = 1024
"""Elements a row in every file that they ship."""
_WORLD = ("world_size", "group")
"""Their names for the number of processes, the newer first."""
_PAIR = ("src_device", "dst_device")
_FEWEST_PAIRED = 2
"""Ranks of p2p, also where a file does not say how many."""
_MOST_PAIRED = 256
"""Ranks of which all pairs are taken."""


def _nbytes(given: Arguments, names: tuple[str, ...]) -> int:
    shape = checked(SHAPE, "shape", given[SHAPE]) if SHAPE in given else sizes(given, names)
    if "dtype" not in given:
        raise missing("dtype", given)
    found = prod(shape) * sizeof(dtype_of("dtype", given["dtype"]))
    if found > LARGEST:
        raise Refused(f"a buffer of {found} bytes; at most {LARGEST} are taken", names[0])
    return int(found)


@dataclass(frozen=True)
class Buffer(Field):
    """Bytes of the whole buffer; how many rows it has is a matter of taste."""

    theirs: tuple[str, ...] = ("batch_size", "dim_size")

    @property
    def names(self) -> tuple[str, ...]:
        return (SHAPE, *self.theirs)

    @property
    def ours(self) -> tuple[str, ...]:
        return ("size",)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {"size": _nbytes(given, self.theirs)}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        shape = rows(params["size"], params["dtype"])
        return dict(zip(self.theirs, shape, strict=True)) if shape else None


def rows(nbytes: int, dtype: str) -> list[int] | None:
    """A buffer as they write it, in rows of 1024 where it can be; None where it is no whole number of elements."""
    count, rest = divmod(nbytes, sizeof(dtype))
    if rest:
        return None
    return [count // _ROW, _ROW] if count % _ROW == 0 else [1, count]


@dataclass(frozen=True)
class Ranks(Field):
    default: int | None = None
    """Where a file says nothing; None: it has to."""

    @property
    def names(self) -> tuple[str, ...]:
        return _WORLD

    @property
    def ours(self) -> tuple[str, ...]:
        return ("ranks",)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        name = next((name for name in _WORLD if name in given), None)
        if name is not None:
            return {"ranks": checked(name, "size", given[name], FEW)}
        if self.default is None:
            raise missing(_WORLD[0], given)
        return {"ranks": self.default}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {_WORLD[0]: params["ranks"]}


PAIRED = Ranks(_FEWEST_PAIRED)


@dataclass(frozen=True)
class Pair(Field):
    """From whom to whom."""

    @property
    def names(self) -> tuple[str, ...]:
        return _PAIR

    @property
    def ours(self) -> tuple[str, ...]:
        return ("src", "dst")

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        ranks, found = PAIRED.read(given, op)["ranks"], []
        for name in _PAIR:
            if name not in given:
                raise missing(name, given)
            rank = checked(name, "count", given[name])
            if rank >= ranks:
                raise Refused(f"argument `{name}`: expected a rank from 0 to {ranks - 1}, got `{rank}`", name,
                              "`world_size` says how many there are")  # fmt: skip
            found.append(rank)
        return dict(zip(self.ours, found, strict=True))

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return dict(zip(_PAIR, (params["src"], params["dst"]), strict=True))


class Meant(NamedTuple):
    """What a point stands for."""

    points: Sequence[Arguments]
    note: str = ""


def meant(task: str, given: Arguments) -> Meant:
    """Itself, but for p2p that names no pair: then every pair in turn, of the first generation the neighbours."""
    if task != "p2p" or any(name in given for name in _PAIR):
        return Meant((given,))
    ranks = _few(given)
    if SHAPE in given:  # as the first generation gives its sizes
        pairs = list(pairwise(range(ranks)))
        note = "there all ranks send at once, each to the next; here one pair after the other"
    else:
        pairs = [(0, 0), *permutations(range(ranks), 2)]
        said = any(name in given for name in _WORLD)
        world = "" if said else f" of {ranks} ranks (there of all devices of the machine: `world_size` says how many)"
        note = f"every pair{world} in both directions, and once a copy within a device"
    return Meant([{**given, **dict(zip(_PAIR, pair, strict=True))} for pair in pairs], f"`p2p`: {note}")


def _few(given: Arguments) -> int:
    """Ranks of which every pair can be taken."""
    ranks = int(PAIRED.read(given, "p2p")["ranks"])
    if _FEWEST_PAIRED <= ranks <= _MOST_PAIRED:
        return ranks
    name = next(name for name in _WORLD if name in given)
    few = f"expected {_FEWEST_PAIRED} to {_MOST_PAIRED} where every pair of ranks is meant"
    raise Refused(f"argument `{name}`: {few}, got `{ranks}`", name, "`src_device` and `dst_device` name one of them")


def _to_itself(given: Arguments) -> bool:
    return "src_device" in given and given["src_device"] == given.get("dst_device")


@dataclass(frozen=True)
class Copied(Field):
    """What a device copies within its own memory: as many bytes, of a type that our copy has."""

    @property
    def names(self) -> tuple[str, ...]:
        return (SHAPE, "batch_size", "dim_size", "dtype")

    @property
    def ours(self) -> tuple[str, ...]:
        return ("n", "dtype")

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        nbytes, dtype = _nbytes(given, ("batch_size", "dim_size")), dtype_of("dtype", given["dtype"])
        stands = "float16" if sizeof(dtype) < sizeof("float16") else dtype
        return {"n": ceil(nbytes / sizeof(stands)), **Dtype().read({"dtype": stands}, op)}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return None

    def remark(self, given: Arguments) -> str:
        narrow = sizeof(dtype_of("dtype", given["dtype"])) < sizeof("float16")
        return f"`{given['dtype']}` within a device is copied as so many bytes of float16" if narrow else ""


@dataclass(frozen=True)
class Dealt(Field):
    """Tokens of all ranks together, each dealt out to so many of them; they have no experts there, only ranks."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*_WORLD, "num_tokens", "topk")

    @property
    def ours(self) -> tuple[str, ...]:
        return ("ranks", "num_tokens", "topk", "num_experts")

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        ranks = Ranks().read(given, op)["ranks"]
        tokens, topk = sizes(given, ("num_tokens", "topk"))
        if tokens < ranks:
            raise Refused(f"argument `num_tokens`: expected at least one for each of {ranks} ranks, got `{tokens}`",
                          "num_tokens")  # fmt: skip
        checked("topk", "size", topk, FEW)
        return {"ranks": ranks, "num_tokens": tokens // ranks, "topk": topk, "num_experts": _experts(ranks, topk)}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        ranks, topk = params["ranks"], params["topk"]
        if params["num_experts"] != _experts(ranks, topk):
            return None
        return {"world_size": ranks, "num_tokens": params["num_tokens"] * ranks, "topk": topk}


def _experts(ranks: int, topk: int) -> int:
    """As few as can be: the same number on every rank, and enough for a token to choose from."""
    return int(ranks * ceil(topk / ranks))


BUFFER, TOKEN_BUFFER = Buffer(), Buffer(("num_tokens", "hidden_size"))
IN_PLACE, OUT_OF_PLACE = Constant("in_place", value=True), Constant("in_place", value=False)
PINNED = Constant("pinned", value=True)

_BROADCAST = "broadcast: xpu-perf does one from every rank in turn and divides by their number; here rank 0 alone does"
_OVERLAP = "all_reduce_h2d: xpu-perf never waits for its all_reduce; here both are waited for"
_DISPATCH = (
    "moe_dispatch_tokens: there rows go out as they lie, to each rank up to a tenth more or less than to another; here "
    "tokens are copied to the rows of their experts first, one expert a rank, and the tenth is drawn for these"
)


def _collective(name: str, *rest: Field, note: str = "") -> tuple[Form, ...]:
    """With the sizes of a tensor, or with those of tokens."""
    tokens = Form(name, name, (Ranks(), DTYPE, TOKEN_BUFFER, *rest), has("num_tokens"), "llm", back=False, asked=True,
                  note=note)  # fmt: skip
    return tokens, Form(name, name, (Ranks(), DTYPE, BUFFER, *rest), note=note)


FORMS = (
    *_collective("all_reduce", IN_PLACE),
    *_collective("reduce_scatter", OUT_OF_PLACE),
    *_collective("all_gather", OUT_OF_PLACE),
    *_collective("all_to_all"),
    *_collective("broadcast", IN_PLACE, note=_BROADCAST),
    Form("p2p", "copy", (Copied(), Unused((*_WORLD, *_PAIR))), _to_itself, back=False,
         note="p2p from a device to itself is copy"),
    Form("p2p", "p2p", (PAIRED, DTYPE, BUFFER, Pair())),
    Form("all_reduce_h2d", "all_reduce_h2d", (Ranks(), DTYPE, BUFFER, PINNED), note=_OVERLAP),
    Form("host2device", "host2device", (Ranks(1), DTYPE, BUFFER, PINNED)),
    Form("device2host", "device2host", (Ranks(1), DTYPE, BUFFER, PINNED)),
    Form("moe_dispatch_tokens", "moe_dispatch", (Dealt(), Value("hidden_size"), Dtype(default="bfloat16"),
         Constant("imbalance", value=0.1)), arg_type="llm", note=_DISPATCH),
)  # fmt: skip
