"""Common parts of communication operators: how a size is stated, each rank's part of it, bytes that cross a link."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from opmark.plugin import BLOCK, Exchange, Implementation, Launch, Operator, Param, ParamRule, Params, Peers, Tolerance
from opmark.plugin.param import choice, dtype, flag, integer, nbytes, real
from opmark.schema import Cost, TensorSpec, Traffic
from opmark.schema.tensor import is_float, sizeof

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
REDUCTIONS = ("sum", "max", "min", "prod", "avg")

SIZE = nbytes("size", "bytes of the whole buffer, as nccl-tests states it: for a gather, over all ranks")
RANKS = integer("ranks", "processes, one per device", 2, kind="rank")
GROUP = integer("group", "ranks of one group; all groups of that size run at once; 0: all ranks", 0, kind="rank")
DTYPE = dtype(*DTYPES)
ROOT = integer("root", "the rank of the group that sends to all, or gets from all", 0, kind="rank")
OP = choice("op", "how the buffers are reduced", REDUCTIONS, "sum")
OVERWRITES = flag("in_place", "the result replaces the input; otherwise it is written to another buffer", default=True)
WITHIN = flag("in_place", "the part of a rank lies at its place in the whole buffer; otherwise in a buffer of its own")
LISTS = flag("lists", "one tensor per rank instead of one for all")
IMBALANCE = real("imbalance", "parts differ from their mean by up to this fraction; 0: all equal", 0.0, kind="amount")
ASYNCHRONOUS = flag("asynchronous", "started, then waited for: also measures how much hides behind computation")
PINNED = flag("pinned", "page-locked host memory, which the device reads by itself", default=True)

COMMON: tuple[Param, ...] = (SIZE, DTYPE, RANKS, GROUP)

PRESETS = {name: {"size": n} for name, n in (("small", 1 << 10), ("typical", 1 << 20), ("large", 1 << 26))}

_DOUBLINGS = {"float16": 16, "bfloat16": 127, "float32": 127, "float64": 1023}
"""How often a 1 can be doubled before it is infinite."""


def group_size(p: Params) -> int:
    return int(p.get("group") or p["ranks"])


_RULES: dict[str, ParamRule] = {
    "ranks": ParamRule("ranks", "be at least 1 (got {ranks})", lambda p: p["ranks"] >= 1),
    "group": ParamRule(
        "group",
        "divide the number of ranks, or be 0 for all of them (got {group} of {ranks})",
        lambda p: p["group"] == 0 or (p["ranks"] >= 1 and p["ranks"] % p["group"] == 0),
    ),
    "root": ParamRule(
        "root",
        "be a rank of the group, counted from 0 (got {root} with ranks={ranks}, group={group})",
        lambda p: p["root"] < group_size(p),
    ),
    "op": ParamRule(
        "op", "not be avg of whole numbers (got {dtype})", lambda p: p["op"] != "avg" or is_float(str(p["dtype"]))
    ),
    "imbalance": ParamRule("imbalance", "be at most 1 (got {imbalance})", lambda p: p["imbalance"] <= 1),
    "lists": ParamRule(
        "lists",
        "be false if in_place is true: parts of a whole buffer are not separate tensors",
        lambda p: not (p["lists"] and p.get("in_place")),
    ),
}
"""Rules by the parameter that they come with."""

OTHERS = ParamRule("ranks", "be at least 2 in a group: a single rank has no partner", lambda p: group_size(p) >= 2)


def rules_of(params: Sequence[Param]) -> tuple[ParamRule, ...]:
    return tuple(_RULES[param.name] for param in params if param.name in _RULES)


RULES = rules_of(COMMON)


def communication(
    name: str,
    summary: str,
    build: Callable[..., Exchange],
    path: str = "",
    *,
    params: tuple[Param, ...],
    rules: tuple[ParamRule, ...] = (),
    **rest: Any,
) -> Operator:
    """Make an operator of several ranks."""
    usual: dict[str, Any] = {"category": "communication", "presets": PRESETS, "ranks": True}
    return Operator(
        name=name,
        summary=summary,
        params=params,
        rules=rules_of(params) + rules,
        implementations=(Implementation("torch", build, path=path),),
        **{**usual, **rest},
    )


# Sizes


def elements(p: Params, *, shared: bool) -> int:
    """Return the elements of the whole buffer; if ranks share it, rounded up to a multiple of their number."""
    among = group_size(p) if shared else 1
    return -(-int(p["size"]) // (sizeof(p["dtype"]) * among)) * among


def parts(p: Params, row: int = 0) -> tuple[int, ...]:
    """Return the elements of the buffer that belong to each rank of the group; `row` selects another imbalance."""
    return divide(elements(p, shared=True), group_size(p), float(p.get("imbalance", 0.0)), row)


def exchange_sizes(p: Params) -> tuple[tuple[int, ...], ...]:
    """Return [from][to], the elements that a rank sends to another. Each rank sends the whole buffer."""
    return tuple(parts(p, row) for row in range(group_size(p)))


@lru_cache(maxsize=1024)
def divide(
    total: int, among: int, imbalance: float, row: int = 0, least: int = 1, most: int | None = None
) -> tuple[int, ...]:
    """Divide `total` into `among` parts between `least` and `most`; the part farthest from the mean is off by
    `imbalance` times the mean. The result depends on the arguments alone, so every rank computes the same."""
    drawn = [random.Random(f"{among}/{row}/{i}").uniform(-1, 1) for i in range(among)]
    mean = sum(drawn) / among
    farthest = max(abs(one - mean) for one in drawn) or 1.0
    weights = [1 + imbalance * (one - mean) / farthest for one in drawn]
    found, left, most = list[int](), total, total if most is None else most
    for i in range(among):
        after, weight = among - i - 1, sum(weights[i:])
        fair = round(left * weights[i] / weight) if after and weight > 0 else left
        lowest, highest = max(least, left - after * most), min(most, left - after * least)
        found.append(max(min(fair, highest), lowest))
        left -= found[-1]
    return tuple(found)


def spans(sizes: Sequence[int]) -> list[slice]:
    """Return the slices of consecutive parts of these sizes."""
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


_EXACT = {"float64": 1 << 53, "float32": 1 << 24, "float16": 1 << 11, "bfloat16": 1 << 8}
"""Integers up to this are exact in an element type, so their sum does not depend on the order."""
LARGEST = 2
"""Largest of the integers that are reduced."""


def spec(p: Params, count: int, *, reduced: bool | None = None, **more: Any) -> TensorSpec:
    """Return the spec of a buffer. Integers stay small, so that sums over many ranks fit.

    A buffer that is `reduced` (by default, if the operator has `op`) holds integers also in floating point, so that the
    result does not depend on the order.
    """
    if not is_float(p["dtype"]):
        return TensorSpec((count,), p["dtype"], 0, 4, **more)
    if ("op" in p if reduced is None else reduced) and p.get("op", "sum") in ("sum", "max", "min"):
        return TensorSpec((count,), p["dtype"], -LARGEST, LARGEST + 1, _whole_numbers(count), **more)
    return TensorSpec((count,), p["dtype"], **more)


def _whole_numbers(count: int) -> Callable[[Any], Any]:
    def make(generator: Any) -> Any:
        from opmark.catalogue.operators import _numpy as np

        block = generator.integers(-LARGEST, LARGEST + 1, min(count, BLOCK), dtype=np.int8)
        return np.resize(block, count).astype(np.float32)

    return make


def whole_buffer(p: Params) -> dict[str, TensorSpec]:
    return {"x": spec(p, elements(p, shared=False))}


def reduced_buffer(p: Params) -> dict[str, TensorSpec]:
    """Return the buffer of an operator that always sums and has no parameter `op`."""
    return {"x": spec(p, elements(p, shared=False), reduced=True)}


def shared_buffer(p: Params) -> dict[str, TensorSpec]:
    return {"x": spec(p, elements(p, shared=True))}


def own_part(p: Params) -> dict[str, TensorSpec]:
    """Return a buffer as large as the largest part: the rank itself takes as much of it as it has."""
    return {"x": spec(p, max(parts(p)))}


# Costs


def cost(
    factor: Callable[[int], float], *, shared: bool, holds: tuple[Callable[[int], float], Callable[[int], float]]
) -> Callable[[Params], Cost]:
    """Return a cost function. `factor` is nccl-tests' bus factor for a number of ranks; `holds` are the parts of the
    buffer that a rank reads and writes (the root, if there is one)."""

    def of(p: Params) -> Cost:
        n, nbytes = group_size(p), elements(p, shared=shared) * sizeof(p["dtype"])
        read, written = (round(nbytes * part(n)) for part in holds)
        return Cost(None, read, written, Traffic(nbytes, nbytes * factor(n), n))

    return of


def full_buffer(n: int) -> float:
    return 1.0


def rank_share(n: int) -> float:
    return 1.0 / n


def once_factor(n: int) -> float:
    """Bus factor of data that goes from one rank to others unchanged: every link carries it once."""
    return 1.0


def all_reduce_factor(n: int) -> float:
    """Bus factor of all_reduce: a rank sends its own parts and passes on those of others."""
    return 2 * (n - 1) / n


def others_factor(n: int) -> float:
    """Bus factor of data that is divided among the ranks: all but a rank's own part."""
    return (n - 1) / n


# Right answers


class Reducing(Tolerance):
    """Exact where integers are reduced exactly: otherwise a rank that is missing from a long sum would be within the
    rounding of 16 bits. Products and means are rounded on their way from rank to rank."""

    def bounds(self, dtype: str, params: Params) -> tuple[float, float]:
        n, op = group_size(params), params.get("op", "sum")
        if op in ("max", "min") or (op == "sum" and LARGEST * n <= _EXACT.get(dtype, 0)):
            return 0.0, 0.0
        return super().bounds(dtype, params)


ADDING_UP = Reducing(terms=lambda p: 64 * group_size(p))


def by_rank(inputs: Sequence[dict[str, Any]], name: str = "x") -> list[Any]:
    return [one[name] for one in inputs]


def reduce_arrays(p: Params, arrays: Sequence[Any]) -> Any:
    """Reduce arrays; integers wrap around in their own type, as they do in a reduction from rank to rank."""
    from opmark.catalogue.operators import _numpy as np

    reduce = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod, "avg": np.mean}[p.get("op", "sum")]
    return reduce(np.stack(arrays), axis=0).astype(arrays[0].dtype)


# Calls


def exchange(
    p: Params,
    begin: Callable[[bool], Any],
    outputs: Callable[[], Sequence[Any]] = tuple,
    restore: Launch | None = None,
    most_calls: int | None = None,
) -> Exchange:
    """Make an Exchange. `begin(asynchronous)` returns what to wait for: nothing, one work handle, or a list of them."""
    if not p.get("asynchronous"):

        def do() -> None:
            begun = begin(False)
            if begun:
                _wait(begun)

        return Exchange(do, outputs, restore=restore, most_calls=most_calls)
    pending: list[Any] = []

    def finish() -> None:
        while pending:
            _wait(pending.pop())

    def start() -> None:
        """Finish the call before, which still uses the buffers: an engine with several threads would mix them up."""
        finish()
        pending.append(begin(True))

    return Exchange(start, outputs, finish, restore, most_calls)


def _wait(begun: Any) -> None:
    for work in begun if isinstance(begun, list) else [begun]:
        if work is not None:
            work.wait()


def prepare_output(p: Params, x: Any) -> tuple[Any, Launch | None]:
    """Return the tensor for the result, and a function that restores the input if the result overwrites it."""
    import torch

    if not p["in_place"]:
        return torch.empty_like(x), None
    before = x.clone()
    return x, lambda: x.copy_(before)


def finite_calls(p: Params) -> int | None:
    """Return how often n ranks can sum in place before values are infinite; None if they stay finite or wrap around."""
    if not p.get("in_place", True) or p.get("op", "sum") != "sum" or not is_float(p["dtype"]):
        return None
    doublings = max(1, (group_size(p) - 1).bit_length())
    return max(1, (_DOUBLINGS[p["dtype"]] - 1) // doublings - 1)


def torch_op(p: Params) -> Any:
    import torch.distributed as dist

    return getattr(dist.ReduceOp, {"prod": "PRODUCT"}.get(p["op"], p["op"].upper()))


def point_to_point(
    peers: Peers, sends: Sequence[tuple[int, Any]], receives: Sequence[tuple[int, Any]]
) -> Callable[[], Any]:
    """Return a function that starts all messages to and from (rank of the group, tensor) at once, none to itself."""
    import torch.distributed as dist

    messages = [
        dist.P2POp(call, tensor, peers.world_rank(rank), peers.group)
        for call, tensors in ((dist.isend, sends), (dist.irecv, receives))
        for rank, tensor in tensors
        if rank != peers.rank
    ]
    return lambda: dist.batch_isend_irecv(messages) if messages else None
