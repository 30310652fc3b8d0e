"""ByteMicroPerf's communication and transfers: its sizes, ranks and pairs as parameters of opmark.

A size is batch_size x dim_size (or num_tokens x hidden_size) elements. For every operator it is the whole buffer, as
nccl-tests counts it: for all_gather the result of every rank, for reduce_scatter its input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from math import ceil, prod
from typing import Any, NamedTuple

from opmark.interop.bytemicroperf.fields import (
    FEW,
    LARGEST,
    SHAPE,
    Arguments,
    Constant,
    Dtype,
    Field,
    PointRefused,
    Unused,
    ValueField,
    check_value,
    dtype_of,
    missing_argument,
    sizes_of,
    split_rows,
)
from opmark.interop.bytemicroperf.forms import DTYPE, Form, has
from opmark.schema.tensor import sizeof

_WORLD = ("world_size", "group")
"""ByteMicroPerf's names for the number of processes, the newer first."""
_PAIR = ("src_device", "dst_device")
_FEWEST_PAIRED = 2
"""Ranks of p2p at least, and where a file does not say how many."""
_MOST_PAIRED = 256
"""With more ranks than this, a file has to name the pairs."""


def _nbytes(given: Arguments, names: tuple[str, ...]) -> int:
    shape = check_value(SHAPE, "shape", given[SHAPE]) if SHAPE in given else sizes_of(given, names)
    if "dtype" not in given:
        raise missing_argument("dtype", given)
    found = prod(shape) * sizeof(dtype_of("dtype", given["dtype"]))
    if found > LARGEST:
        raise PointRefused(f"the buffer has {found} bytes; expected at most {LARGEST}", names[0])
    return int(found)


@dataclass(frozen=True)
class Buffer(Field):
    """Bytes of the whole buffer; its division into rows does not matter."""

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
        shape = buffer_shape(params["size"], params["dtype"])
        return dict(zip(self.theirs, shape, strict=True)) if shape else None


def buffer_shape(nbytes: int, dtype: str) -> list[int] | None:
    """Return a buffer's shape as ByteMicroPerf writes it; None for bytes that are not a whole number of elements."""
    count, rest = divmod(nbytes, sizeof(dtype))
    return None if rest else split_rows(count)


@dataclass(frozen=True)
class Ranks(Field):
    default: int | None = None
    """Ranks where a file does not say how many; None: it has to."""

    @property
    def names(self) -> tuple[str, ...]:
        return _WORLD

    @property
    def ours(self) -> tuple[str, ...]:
        return ("ranks",)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        name = next((name for name in _WORLD if name in given), None)
        if name is not None:
            return {"ranks": check_value(name, "size", given[name], FEW)}
        if self.default is None:
            raise missing_argument(_WORLD[0], given)
        return {"ranks": self.default}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {_WORLD[0]: params["ranks"]}


PAIRED = Ranks(_FEWEST_PAIRED)


@dataclass(frozen=True)
class RankPair(Field):
    """The sending and the receiving rank."""

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
                raise missing_argument(name, given)
            rank = check_value(name, "count", given[name])
            if rank >= ranks:
                raise PointRefused(f"argument `{name}`: expected a rank from 0 to {ranks - 1}, got `{rank}`", name,
                              "`world_size` is the number of ranks")  # fmt: skip
            found.append(rank)
        return dict(zip(self.ours, found, strict=True))

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return dict(zip(_PAIR, (params["src"], params["dst"]), strict=True))


class ExpandedPoint(NamedTuple):
    points: Sequence[Arguments]
    note: str = ""


def expand_point(task: str, given: Arguments) -> ExpandedPoint:
    """Expand a p2p without a pair to every pair of ranks (first generation: to neighbours); keep all other points."""
    if task != "p2p" or any(name in given for name in _PAIR):
        return ExpandedPoint((given,))
    ranks = _read_paired_ranks(given)
    if SHAPE in given:  # only the first generation gives shapes
        pairs = list(pairwise(range(ranks)))
        note = "in ByteMicroPerf all ranks send to the next one at once; here one pair is measured after the other"
    else:
        pairs = [(0, 0), *permutations(range(ranks), 2)]
        named = any(name in given for name in _WORLD)
        world = "" if named else f" of {ranks} ranks (ByteMicroPerf takes all devices; `world_size` sets the number)"
        note = f"every pair{world} is measured in both directions, and one copy within a device"
    return ExpandedPoint([{**given, **dict(zip(_PAIR, pair, strict=True))} for pair in pairs], f"`p2p`: {note}")


def _read_paired_ranks(given: Arguments) -> int:
    ranks = int(PAIRED.read(given, "p2p")["ranks"])
    if _FEWEST_PAIRED <= ranks <= _MOST_PAIRED:
        return ranks
    name = next(name for name in _WORLD if name in given)
    expected = f"expected {_FEWEST_PAIRED} to {_MOST_PAIRED} where every pair of ranks is measured"
    raise PointRefused(
        f"argument `{name}`: {expected}, got `{ranks}`", name, "`src_device` and `dst_device` name one pair"
    )


def _is_within_device(given: Arguments) -> bool:
    return "src_device" in given and given["src_device"] == given.get("dst_device")


@dataclass(frozen=True)
class DeviceCopy(Field):
    """A copy within one device: as many bytes, in an element type that opmark's `copy` has."""

    @property
    def names(self) -> tuple[str, ...]:
        return (SHAPE, "batch_size", "dim_size", "dtype")

    @property
    def ours(self) -> tuple[str, ...]:
        return ("n", "dtype")

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        nbytes, dtype = _nbytes(given, ("batch_size", "dim_size")), dtype_of("dtype", given["dtype"])
        copied = "float16" if sizeof(dtype) < sizeof("float16") else dtype
        return {"n": ceil(nbytes / sizeof(copied)), **Dtype().read({"dtype": copied}, op)}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return None

    def remark(self, given: Arguments) -> str:
        narrow = sizeof(dtype_of("dtype", given["dtype"])) < sizeof("float16")
        return f"`{given['dtype']}` within a device is copied as float16, with as many bytes" if narrow else ""


@dataclass(frozen=True)
class DispatchedTokens(Field):
    """Tokens of all ranks together, each sent to `topk` ranks; ByteMicroPerf has only ranks here, no experts."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*_WORLD, "num_tokens", "topk")

    @property
    def ours(self) -> tuple[str, ...]:
        return ("ranks", "num_tokens", "topk", "num_experts")

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        ranks = Ranks().read(given, op)["ranks"]
        tokens, topk = sizes_of(given, ("num_tokens", "topk"))
        if tokens < ranks:
            raise PointRefused(
                f"argument `num_tokens`: expected at least one for each of {ranks} ranks, got `{tokens}`", "num_tokens"
            )
        check_value("topk", "size", topk, FEW)
        return {"ranks": ranks, "num_tokens": tokens // ranks, "topk": topk, "num_experts": _count_experts(ranks, topk)}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        ranks, topk = params["ranks"], params["topk"]
        if params["num_experts"] != _count_experts(ranks, topk):
            return None
        return {"world_size": ranks, "num_tokens": params["num_tokens"] * ranks, "topk": topk}


def _count_experts(ranks: int, topk: int) -> int:
    """Return the smallest number of experts that is equal on every rank and has `topk` experts to choose from."""
    return int(ranks * ceil(topk / ranks))


@dataclass(frozen=True)
class BroadcastRoot(Field):
    """The rank that broadcasts: in the first generation rank 0, later every rank in turn."""

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {}

    def remark(self, given: Arguments) -> str:
        first_generation = SHAPE in given  # only that gives shapes
        return "" if first_generation else "xpu-perf averages broadcasts from every rank; here rank 0 alone broadcasts"


BUFFER, TOKEN_BUFFER = Buffer(), Buffer(("num_tokens", "hidden_size"))
IN_PLACE, OUT_OF_PLACE = Constant("in_place", value=True), Constant("in_place", value=False)
PINNED = Constant("pinned", value=True)

_OVERLAP = "all_reduce_h2d: xpu-perf never waits for its all_reduce; opmark waits for both"
_DISPATCH = (
    "moe_dispatch_tokens: xpu-perf sends rows as they are, to each rank up to a tenth more or less than to another; "
    "opmark first copies tokens to the rows of their experts, and draws the tenth for each expert"
)


def _collective(name: str, *rest: Field) -> tuple[Form, ...]:
    """Return the two forms of a collective: with the sizes of tokens, and with those of a tensor."""
    tokens = Form(name, name, (Ranks(), DTYPE, TOKEN_BUFFER, *rest), has("num_tokens"), "llm", exported=False,
                  tagged=True)  # fmt: skip
    return tokens, Form(name, name, (Ranks(), DTYPE, BUFFER, *rest))


FORMS = (
    *_collective("all_reduce", IN_PLACE),
    *_collective("reduce_scatter", OUT_OF_PLACE),
    *_collective("all_gather", OUT_OF_PLACE),
    *_collective("all_to_all"),
    *_collective("broadcast", IN_PLACE, BroadcastRoot()),
    Form("p2p", "copy", (DeviceCopy(), Unused((*_WORLD, *_PAIR))), _is_within_device, exported=False,
         note="p2p from a device to itself is copy here"),
    Form("p2p", "p2p", (PAIRED, DTYPE, BUFFER, RankPair())),
    Form("all_reduce_h2d", "all_reduce_h2d", (Ranks(), DTYPE, BUFFER, PINNED), note=_OVERLAP),
    Form("host2device", "host2device", (Ranks(1), DTYPE, BUFFER, PINNED)),
    Form("device2host", "device2host", (Ranks(1), DTYPE, BUFFER, PINNED)),
    Form("moe_dispatch_tokens", "moe_dispatch", (DispatchedTokens(), ValueField("hidden_size"),
         Dtype(default="bfloat16"), Constant("imbalance", value=0.1)), arg_type="llm", note=_DISPATCH),
)  # fmt: skip
