"""What communication operators share: how a size is stated, what of it each rank holds, what has to cross a link."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from opmark.interfaces import BLOCK, Exchange, Peers
from opmark.schema import Cost, Implementation, Launch, Operator, Param, Params, Rule, TensorSpec, Tolerance, Traffic
from opmark.schema.dtype import is_float, sizeof
from opmark.schema.param import choice, dtype, flag, integer, nbytes, real

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
REDUCTIONS = ("sum", "max", "min", "prod", "avg")

SIZE = nbytes("size", "bytes of the whole buffer, as nccl-tests states it: of a gather what all ranks bring together")
RANKS = integer("ranks", "processes, one a device", 2, kind="rank")
GROUP = integer("group", "ranks that take part in one; all groups of that size at once; 0: all ranks", 0, kind="rank")
DTYPE = dtype(*DTYPES)
ROOT = integer("root", "the rank of the group that sends to all, or gets from all", 0, kind="rank")
OP = choice("op", "what the buffers come to", REDUCTIONS, "sum")
OVERWRITES = flag("in_place", "the result replaces the input; otherwise it is copied first", default=True)
WITHIN = flag("in_place", "the part of a rank lies where it belongs in the whole buffer; otherwise it is another one")
LISTS = flag("lists", "a tensor for each rank instead of one for all")
IMBALANCE = real("imbalance", "parts differ by up to so much of their mean; 0: all the same", 0.0, kind="amount")
ASYNCHRONOUS = flag("asynchronous", "begun, then waited for: also tells what hides behind computation")
PINNED = flag("pinned", "host memory that stays where it is, so that the device fetches it by itself", default=True)

COMMON: tuple[Param, ...] = (SIZE, DTYPE, RANKS, GROUP)

PRESETS = {name: {"size": n} for name, n in (("small", 1 << 10), ("typical", 1 << 20), ("large", 1 << 26))}

_DOUBLINGS = {"float16": 16, "bfloat16": 127, "float32": 127, "float64": 1023}
"""Of a 1, before it is infinite."""


def group_size(p: Params) -> int:
    return int(p.get("group") or p["ranks"])


_RULES: dict[str, Rule] = {
    "ranks": Rule("ranks", "be at least 1 (got {ranks})", lambda p: p["ranks"] >= 1),
    "group": Rule(
        "group",
        "divide the number of ranks, or be 0 for all of them (got {group} of {ranks})",
        lambda p: p["group"] == 0 or (p["ranks"] >= 1 and p["ranks"] % p["group"] == 0),
    ),
    "root": Rule(
        "root",
        "be a rank of the group, counted from 0 (got {root} with ranks={ranks}, group={group})",
        lambda p: p["root"] < group_size(p),
    ),
    "op": Rule(
        "op", "not be avg of whole numbers (got {dtype})", lambda p: p["op"] != "avg" or is_float(str(p["dtype"]))
    ),
    "imbalance": Rule("imbalance", "be at most 1 (got {imbalance})", lambda p: p["imbalance"] <= 1),
    "lists": Rule(
        "lists",
        "be false where in_place is true: parts of a whole buffer are no tensors of their own",
        lambda p: not (p["lists"] and p.get("in_place")),
    ),
}
"""By the parameter that brings them along."""

OTHERS = Rule("ranks", "be at least 2 in a group, for there is nobody else", lambda p: group_size(p) >= 2)


def rules_of(params: Sequence[Param]) -> tuple[Rule, ...]:
    return tuple(_RULES[param.name] for param in params if param.name in _RULES)


RULES = rules_of(COMMON)


def communication(
    name: str,
    summary: str,
    build: Callable[..., Exchange],
    path: str = "",
    *,
    params: tuple[Param, ...],
    rules: tuple[Rule, ...] = (),
    **rest: Any,
) -> Operator:
    """An operator of several ranks, with what all of them have in common."""
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
    """Of the whole buffer; where ranks `share` it, rounded up to as many for each."""
    among = group_size(p) if shared else 1
    return -(-int(p["size"]) // (sizeof(p["dtype"]) * among)) * among


def parts(p: Params, row: int = 0) -> tuple[int, ...]:
    """Elements of the buffer that belong to each rank of the group; `row` is for another draw of an imbalance."""
    return divided(elements(p, shared=True), group_size(p), float(p.get("imbalance", 0.0)), row)


def exchanged(p: Params) -> tuple[tuple[int, ...], ...]:
    """[from][to]: elements that a rank sends to another. Each sends the whole buffer; what it gets is what comes."""
    return tuple(parts(p, row) for row in range(group_size(p)))


@lru_cache(maxsize=1024)
def divided(
    total: int, among: int, imbalance: float, row: int = 0, least: int = 1, most: int | None = None
) -> tuple[int, ...]:
    """`total` in so many parts between `least` and `most`, the farthest from their mean by `imbalance` times it. Drawn
    from the arguments alone, so that every rank finds the same."""
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
    """Where parts lie that follow each other."""
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


_EXACT = {"float64": 1 << 53, "float32": 1 << 24, "float16": 1 << 11, "bfloat16": 1 << 8}
"""Whole numbers up to here are exact in an element type, in whatever order they are added up."""
LARGEST = 2
"""Of the whole numbers that are reduced."""


def spec(p: Params, count: int, *, reduced: bool | None = None, **more: Any) -> TensorSpec:
    """Integers stay small: sums of them over many ranks have to fit. What is `reduced` (by default, where there is an
    operation) holds whole numbers also in floating point, where these come to the same in whatever order."""
    if not is_float(p["dtype"]):
        return TensorSpec((count,), p["dtype"], 0, 4, **more)
    if ("op" in p if reduced is None else reduced) and p.get("op", "sum") in ("sum", "max", "min"):
        return TensorSpec((count,), p["dtype"], -LARGEST, LARGEST + 1, _whole_numbers(count), **more)
    return TensorSpec((count,), p["dtype"], **more)


def _whole_numbers(count: int) -> Callable[[Any], Any]:
    def make(generator: Any) -> Any:
        from opmark.operators import _numpy as np

        block = generator.integers(-LARGEST, LARGEST + 1, min(count, BLOCK), dtype=np.int8)
        return np.resize(block, count).astype(np.float32)

    return make


def whole_buffer(p: Params) -> dict[str, TensorSpec]:
    return {"x": spec(p, elements(p, shared=False))}


def reduced_buffer(p: Params) -> dict[str, TensorSpec]:
    """Of an operator that adds up without saying so."""
    return {"x": spec(p, elements(p, shared=False), reduced=True)}


def shared_buffer(p: Params) -> dict[str, TensorSpec]:
    return {"x": spec(p, elements(p, shared=True))}


def own_part(p: Params) -> dict[str, TensorSpec]:
    """As large as the largest: which of them a rank has, only the rank knows."""
    return {"x": spec(p, max(parts(p)))}


# Costs


def cost(
    factor: Callable[[int], float], *, shared: bool, holds: tuple[Callable[[int], float], Callable[[int], float]]
) -> Callable[[Params], Cost]:
    """`factor`: of the number of ranks, as nccl-tests has it. `holds`: the part of the buffer that a rank takes in and
    that it gets out; of one with a root, what the root does."""

    def of(p: Params) -> Cost:
        n, nbytes = group_size(p), elements(p, shared=shared) * sizeof(p["dtype"])
        read, written = (round(nbytes * part(n)) for part in holds)
        return Cost(None, read, written, Traffic(nbytes, nbytes * factor(n), n))

    return of


def whole(n: int) -> float:
    return 1.0


def share(n: int) -> float:
    return 1.0 / n


def once(n: int) -> float:
    """Of what goes from one to others as it is: every link carries it once."""
    return 1.0


def twice_others(n: int) -> float:
    """Of all_reduce: what a rank has to send of its own and to pass on of the others'."""
    return 2 * (n - 1) / n


def others(n: int) -> float:
    """Of what is divided among the ranks: all but one's own part."""
    return (n - 1) / n


# Right answers


class Reducing(Tolerance):
    """None for what whole numbers come to exactly: a rank that is missing from a sum of many would else be no larger
    than the rounding of 16 bits. Products and means are rounded on their way from rank to rank."""

    def bounds(self, dtype: str, params: Params) -> tuple[float, float]:
        n, op = group_size(params), params.get("op", "sum")
        if op in ("max", "min") or (op == "sum" and LARGEST * n <= _EXACT.get(dtype, 0)):
            return 0.0, 0.0
        return super().bounds(dtype, params)


ADDING_UP = Reducing(terms=lambda p: 64 * group_size(p))


def by_rank(inputs: Sequence[dict[str, Any]], name: str = "x") -> list[Any]:
    return [one[name] for one in inputs]


def reduced(p: Params, arrays: Sequence[Any]) -> Any:
    """What arrays come to; whole numbers wrap around at the end of their type, as they do on the way."""
    from opmark.operators import _numpy as np

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
    """`begin(asynchronous)` returns what there is to wait for: nothing, one, or a list of them."""
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
        """The buffers are in use until the call before is done: an engine with several threads would mix them up."""
        finish()
        pending.append(begin(True))

    return Exchange(start, outputs, finish, restore, most_calls)


def _wait(begun: Any) -> None:
    for work in begun if isinstance(begun, list) else [begun]:
        if work is not None:
            work.wait()


def overwritten(p: Params, x: Any) -> tuple[Any, Launch | None]:
    """Where the result comes to lie, and what puts the input back if that is there too."""
    import torch

    if not p["in_place"]:
        return torch.empty_like(x), None
    before = x.clone()
    return x, lambda: x.copy_(before)


def finite_calls(p: Params) -> int | None:
    """How often n ranks can add up in place what was small at first before it is infinite; integers wrap around."""
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
    """Begins messages to and from (rank of the group, tensor), all of them as one; none to oneself."""
    import torch.distributed as dist

    messages = [
        dist.P2POp(call, tensor, peers.world_rank(rank), peers.group)
        for call, tensors in ((dist.isend, sends), (dist.irecv, receives))
        for rank, tensor in tensors
        if rank != peers.rank
    ]
    return lambda: dist.batch_isend_irecv(messages) if messages else None
