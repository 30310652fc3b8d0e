"""What communication operators share: how a size is stated, what of it each rank holds, what has to cross a link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opmark.schema import Cost, Param, Params, Rule, TensorSpec, Tolerance, Traffic
from opmark.schema.dtype import is_float, sizeof
from opmark.schema.param import dtype, integer, nbytes

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
SIZE = nbytes("size", "bytes of the whole buffer, as nccl-tests states it: of a gather what all ranks bring together")
RANKS = integer("ranks", "processes, one a device", 2, kind="rank")
GROUP = integer("group", "ranks that take part in one; all groups of that size at once; 0: all ranks", 0, kind="rank")
DTYPE = dtype(*DTYPES)

COMMON: tuple[Param, ...] = (SIZE, DTYPE, RANKS, GROUP)

RULES: tuple[Rule, ...] = (
    Rule("ranks", "be at least 1 (got {ranks})", lambda p: p["ranks"] >= 1),
    Rule(
        "group",
        "divide the number of ranks, or be 0 for all of them (got {group} of {ranks})",
        lambda p: p["group"] == 0 or (p["ranks"] >= 1 and p["ranks"] % p["group"] == 0),
    ),
)

PRESETS = {name: {"size": n} for name, n in (("small", 1 << 10), ("typical", 1 << 20), ("large", 1 << 26))}

_MANTISSA_LEFT = {"float16": 16, "bfloat16": 127, "float32": 127, "float64": 1023}
"""Powers of two that a number of this type can grow by from 1 before it is infinite."""


def group_size(p: Params) -> int:
    return int(p["group"] or p["ranks"])


def elements(p: Params, *, shared: bool) -> int:
    """Of the whole buffer; where ranks `share` it, rounded up to as many for each."""
    parts = group_size(p) if shared else 1
    return -(-int(p["size"]) // (sizeof(p["dtype"]) * parts)) * parts


def spec(p: Params, count: int, **more: Any) -> TensorSpec:
    """Integers stay small: sums of them over many ranks have to fit."""
    domain = (-1.0, 1.0) if is_float(p["dtype"]) else (0, 4)
    return TensorSpec((count,), p["dtype"], *domain, **more)


def cost(
    factor: Callable[[int], float], *, shared: bool, holds: tuple[Callable[[int], float], Callable[[int], float]]
) -> Callable[[Params], Cost]:
    """`factor`: of the number of ranks, as nccl-tests has it. `holds`: the part of the buffer that a rank takes in and
    that it gets out."""

    def of(p: Params) -> Cost:
        n, whole = group_size(p), elements(p, shared=shared) * sizeof(p["dtype"])
        read, written = (int(whole * part(n)) for part in holds)
        return Cost(None, read, written, Traffic(whole, whole * factor(n), n))

    return of


def whole(n: int) -> float:
    return 1.0


def share(n: int) -> float:
    return 1.0 / n


def twice_others(n: int) -> float:
    """Of all_reduce: what a rank has to send of its own and to pass on of the others'."""
    return 2 * (n - 1) / n


def others(n: int) -> float:
    """Of what is divided among the ranks: all but one's own part."""
    return (n - 1) / n


def summing(p: Params) -> int:
    return group_size(p)


ADDING_UP = Tolerance(terms=lambda p: 64 * summing(p) ** 2)
"""Partial sums are rounded to the element type on their way from rank to rank."""


def finite_calls(p: Params) -> int:
    """How often n ranks can add up in place what lies below 1 before it is infinite; integers wrap around."""
    doublings = max(1, (group_size(p) - 1).bit_length())
    return max(1, _MANTISSA_LEFT.get(p["dtype"], 1 << 20) // doublings - 1)


def by_rank(inputs: Sequence[dict[str, Any]], name: str = "x") -> list[Any]:
    return [one[name] for one in inputs]
