"""The rows that are asked for, in PARAM's order: element types, of each the collectives, of each the sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opmark.compat.param_comms.collectives import COLLECTIVES, PT2PT, Collective, dtype_named
from opmark.compat.param_comms.options import Asked
from opmark.compat.param_comms.sizes import elements_of, split_size, whole_sizes
from opmark.errors import UserError
from opmark.registry import operator as find_operator
from opmark.schema import Case, Entry
from opmark.schema.dtype import sizeof
from opmark.workloads.expand import cases_of

PATTERNS = ("ping", "ping_pong", "one_way", "both_ways")
"""What makes a row of pt2pt, in the order of its cases."""


@dataclass(frozen=True)
class Row:
    collective: str
    dtype: str
    """As the command line names it."""
    tag: str
    size: int
    """Bytes that are asked for, in whole elements."""
    elements: int
    """Of each rank."""
    cases: tuple[Case, ...]
    """One; of pt2pt, one for each of PATTERNS."""
    per_iteration: int = 1
    window: int = 1

    @property
    def label(self) -> str:
        return f"COMMS-RES-{self.collective}-{self.dtype}{self.tag}"

    @property
    def table(self) -> tuple[str, str]:
        """Rows that stand below one header."""
        return self.collective, self.dtype


def rows_of(asked: Asked) -> list[Row]:
    """UserError where an operator does not take what is asked for."""
    return [
        row
        for dtype in asked.dtypes
        for name in asked.collectives
        for row in (_pairs(asked, dtype) if name == PT2PT else _collective(asked, name, dtype))
    ]


def _collective(asked: Asked, name: str, dtype: str) -> Iterator[Row]:
    found, element = COLLECTIVES[name], sizeof(dtype_named(dtype))
    parts = asked.taking_part if found.shared else 1
    known = find_operator(found.op).by_name
    for size in _sizes(asked, element, parts):
        told = size * max(1, asked.taking_part - 1) if found.each else size
        params = {"size": told, "ranks": asked.ranks, **found.params, **_if_known(asked, found, dtype, known)}
        (case,) = cases_of(Entry(found.op, params), find_operator)
        elements = elements_of(size, element, parts)
        yield Row(name, dtype, asked.tag, size, elements, (case,), per_iteration=asked.per_iteration)


def _sizes(asked: Asked, element: int, parts: int) -> list[int]:
    if asked.splits:
        option, splits = asked.splits
        return [split_size(splits, option, asked.taking_part, element)]
    return whole_sizes(asked.sizes, element, parts)


def _if_known(asked: Asked, found: Collective, dtype: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """What some operators have and others do not: objects have no element type, barriers no root."""
    wanted = {
        "dtype": dtype_named(dtype),
        "group": asked.group,
        "root": asked.root,
        "asynchronous": not asked.blocking,
    }
    if found.uneven and asked.imbalance:
        wanted["imbalance"] = asked.imbalance
    return {name: value for name, value in wanted.items() if name in known}


def _pairs(asked: Asked, dtype: str) -> Iterator[Row]:
    """A row is four cases: there, there and back, and the same with many messages in flight, one way and both."""
    if asked.group:
        raise UserError("--multi-comms: pt2pt has one pair and no groups", "leave it out")
    element = sizeof(dtype_named(dtype))
    for size in whole_sizes(asked.sizes, element, 1):
        cases = tuple(_pair_case(asked, dtype, size, pattern) for pattern in PATTERNS)
        yield Row(
            PT2PT, dtype, asked.tag, size, size // element, cases,
            per_iteration=asked.per_iteration, window=asked.window,
        )  # fmt: skip


def _pair_case(asked: Asked, dtype: str, size: int, pattern: str) -> Case:
    """As in PARAM, latency is of one message that is waited for, bandwidth of a window of them."""
    src, dst = asked.pair
    alone = pattern in ("ping", "ping_pong")
    params: dict[str, Any] = {
        "size": size, "dtype": dtype_named(dtype), "ranks": asked.ranks, "src": src, "dst": dst,
        "pattern": "one_way" if pattern == "ping" else pattern, "window": 1 if alone else asked.window,
    }  # fmt: skip
    if "asynchronous" in find_operator("p2p").by_name:
        params["asynchronous"] = not alone
    (case,) = cases_of(Entry("p2p", params), find_operator)
    return case
