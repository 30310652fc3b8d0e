"""The rows of a request in PARAM's order: by element type, then by collective, then by size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opmark.compat.param_comms.collectives import COLLECTIVES, PT2PT, Collective, find_dtype
from opmark.compat.param_comms.options import Asked
from opmark.compat.param_comms.sizes import elements_of, split_size, whole_sizes
from opmark.errors import UserError
from opmark.registry import operator as find_operator
from opmark.schema import Case, Entry
from opmark.schema.dtype import sizeof
from opmark.workloads.expand import cases_of

PATTERNS = ("ping", "ping_pong", "one_way", "both_ways")
"""The cases of a row of pt2pt, in their order."""


@dataclass(frozen=True)
class Row:
    collective: str
    dtype: str
    """The element type as the command line names it."""
    tag: str
    size: int
    """Requested bytes, rounded to whole elements."""
    elements: int
    """Elements of each rank."""
    cases: tuple[Case, ...]
    """One case, or for pt2pt one for each of PATTERNS."""
    per_iteration: int = 1
    window: int = 1

    @property
    def label(self) -> str:
        return f"COMMS-RES-{self.collective}-{self.dtype}{self.tag}"

    @property
    def table(self) -> tuple[str, str]:
        """Rows with the same key are below one header."""
        return self.collective, self.dtype


def rows_of(request: Asked) -> list[Row]:
    """Return the rows of a request; raise UserError if an operator does not accept its parameters."""
    return [
        row
        for dtype in request.dtypes
        for name in request.collectives
        for row in (_pair_rows(request, dtype) if name == PT2PT else _collective_rows(request, name, dtype))
    ]


def _collective_rows(request: Asked, name: str, dtype: str) -> Iterator[Row]:
    found, element = COLLECTIVES[name], sizeof(find_dtype(dtype))
    parts = request.group_size if found.shared else 1
    known = find_operator(found.op).by_name
    for size in _row_sizes(request, element, parts):
        operator_size = size * max(1, request.group_size - 1) if found.per_sender else size
        params = {"size": operator_size, "ranks": request.ranks, **found.params}
        params |= _known_params(request, found, dtype, known)
        (case,) = cases_of(Entry(found.op, params), find_operator)
        elements = elements_of(size, element, parts)
        yield Row(name, dtype, request.tag, size, elements, (case,), per_iteration=request.per_iteration)


def _row_sizes(request: Asked, element: int, parts: int) -> list[int]:
    if request.splits:
        option, splits = request.splits
        return [split_size(splits, option, request.group_size, element)]
    return whole_sizes(request.sizes, element, parts)


def _known_params(request: Asked, found: Collective, dtype: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters that the operator has: objects have no element type, barriers no root."""
    params = {
        "dtype": find_dtype(dtype),
        "group": request.group,
        "root": request.root,
        "asynchronous": not request.blocking,
    }
    if found.uneven and request.imbalance:
        params["imbalance"] = request.imbalance
    return {name: value for name, value in params.items() if name in known}


def _pair_rows(request: Asked, dtype: str) -> Iterator[Row]:
    """Yield rows of four cases: ping, ping-pong, and many messages in flight in one direction and in both."""
    if request.group:
        raise UserError("--multi-comms: pt2pt has one pair and no groups", "leave it out")
    element = sizeof(find_dtype(dtype))
    for size in whole_sizes(request.sizes, element, 1):
        cases = tuple(_pair_case(request, dtype, size, pattern) for pattern in PATTERNS)
        yield Row(
            PT2PT, dtype, request.tag, size, size // element, cases,
            per_iteration=request.per_iteration, window=request.window,
        )  # fmt: skip


def _pair_case(request: Asked, dtype: str, size: int, pattern: str) -> Case:
    """Return a case; as in PARAM, latency is that of a single message, bandwidth that of a window of messages."""
    src, dst = request.pair
    is_single = pattern in ("ping", "ping_pong")
    params: dict[str, Any] = {
        "size": size, "dtype": find_dtype(dtype), "ranks": request.ranks, "src": src, "dst": dst,
        "pattern": "one_way" if pattern == "ping" else pattern, "window": 1 if is_single else request.window,
    }  # fmt: skip
    if "asynchronous" in find_operator("p2p").by_name:
        params["asynchronous"] = not is_single
    (case,) = cases_of(Entry("p2p", params), find_operator)
    return case
