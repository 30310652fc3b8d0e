"""Sequences of different lengths in a batch, and the cache that holds what they have seen: linear, or in pages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from opmark.operators import _numpy as np
from opmark.schema import Params, Rule, TensorSpec
from opmark.schema.dtype import sizeof
from opmark.schema.param import choice, counts, integer, size

# More new tokens at once than anybody guesses ahead: that is a prefill.
_MOST_GUESSED = 16


def sequence_params(mode: str = "prefill") -> tuple[Any, ...]:
    return (
        choice("mode", "prefill: a prompt, or a part of one; decode: one new token a sequence, or a few that are "
               "guessed", ("prefill", "decode"), mode),
        size("batch", "sequences"),
        size("q_len", "new tokens a sequence", 1),
        integer("cache_len", "tokens a sequence that came before", 0, kind="count"),
        counts("q_lens", "new tokens of each sequence, where they differ; then q_len does not matter", []),
        counts("cache_lens", "earlier tokens of each sequence, where they differ; then cache_len does not matter", []),
    )  # fmt: skip


BLOCK_SIZE = integer("block_size", "tokens a page of the cache; 0: a linear cache", 0, kind="count")


def _one_each(name: str) -> Rule:
    return Rule(name, f"be a list of batch={{batch}} numbers, or empty (got {{{name}}})",
                lambda p: not p[name] or len(p[name]) == p["batch"])  # fmt: skip


def _few(p: Params) -> bool:
    q = Sequences.of(p).q
    return p["mode"] == "prefill" or (len(set(q)) == 1 and q[0] <= _MOST_GUESSED)


SEQUENCE_RULES = (
    _one_each("q_lens"),
    _one_each("cache_lens"),
    Rule("q_lens", "be at least 1 for every sequence (got {q_lens})", lambda p: all(n >= 1 for n in p["q_lens"])),
    Rule("mode", f"be prefill unless every sequence has the same number of new tokens, at most {_MOST_GUESSED}", _few),
)


@dataclass(frozen=True)
class Sequences:
    """How many tokens of each sequence are new (`q`) and how many were there before (`cache`)."""

    q: tuple[int, ...]
    cache: tuple[int, ...]
    block_size: int = 0

    @classmethod
    def of(cls, p: Params) -> Sequences:
        return cls(
            tuple(p["q_lens"] or [p["q_len"]] * p["batch"]),
            tuple(p["cache_lens"] or [p["cache_len"]] * p["batch"]),
            p.get("block_size", 0),
        )

    @property
    def kv(self) -> tuple[int, ...]:
        """Keys that each sequence has once the new tokens are in the cache."""
        return tuple(q + cache for q, cache in zip(self.q, self.cache, strict=True))

    @property
    def tokens(self) -> int:
        """New ones."""
        return sum(self.q)

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees: what was there before, and new keys up to its own."""
        return sum(q * cache + q * (q + 1) // 2 for q, cache in zip(self.q, self.cache, strict=True))

    @property
    def alike(self) -> bool:
        return len(set(self.q)) == len(set(self.cache)) == 1

    @property
    def pages(self) -> tuple[int, ...]:
        """Pages of each sequence; the last may be filled in part."""
        return tuple(-(-n // self.block_size) for n in self.kv)

    @property
    def new_pages(self) -> int:
        """Pages that new tokens lie in."""
        filled = (cache // self.block_size for cache in self.cache)
        return sum(pages - before for pages, before in zip(self.pages, filled, strict=True))

    def cache_spec(self, heads: int, dim: int, dtype: str, low: float = -1.0, high: float = 1.0) -> TensorSpec:
        """[sequence, head, token, element], or [page, head, token of the page, element]."""
        first, tokens = (sum(self.pages), self.block_size) if self.block_size else (len(self.kv), max(self.kv))
        return TensorSpec((first, heads, tokens, dim), dtype, low, high)

    def table_spec(self) -> TensorSpec:
        """Which pages hold a sequence, in order; rows of short sequences end in zeros that nobody reads."""
        return TensorSpec((len(self.q), max(self.pages)), "int32", 0, max(2, sum(self.pages)), self._table)

    def _table(self, generator: Any) -> Any:
        """Pages lie anywhere, as in a cache that has been in use for a while."""
        order = generator.permutation(sum(self.pages))
        table = np.zeros((len(self.q), max(self.pages)), np.int32)
        start = 0
        for row, pages in enumerate(self.pages):
            table[row, :pages] = order[start : start + pages]
            start += pages
        return table

    def table_bytes(self, pages: int) -> int:
        return pages * sizeof("int32") if self.block_size else 0

    def positions(self) -> tuple[Any, Any]:
        """Of each new token: its sequence, and where in that it stands."""
        return _positions(self.q, self.cache)

    def places_used(self) -> int:
        """Different positions that new tokens have."""
        spans = sorted((cache, cache + q) for q, cache in zip(self.q, self.cache, strict=True))
        used, end = 0, 0
        for start, stop in spans:
            used += max(0, stop - max(start, end))
            end = max(end, stop)
        return used


@lru_cache(maxsize=16)
def _positions(q: tuple[int, ...], cache: tuple[int, ...]) -> tuple[Any, Any]:
    """Remembered: what a launch needs of the lengths is no part of its work."""
    rows = np.repeat(np.arange(len(q)), q)
    places = np.concatenate([np.arange(start, start + count) for count, start in zip(q, cache, strict=True)])
    return rows, places
