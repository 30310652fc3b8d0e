"""Sequences of different lengths in a batch, and the cache of their keys and values: linear or paged."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from opmark.operators import _numpy as np
from opmark.schema import Params, Rule, TensorSpec
from opmark.schema.dtype import sizeof
from opmark.schema.param import choice, counts, integer, size

# Largest number of speculative tokens per step; more new tokens are a prefill.
_MOST_GUESSES = 16


def sequence_params(mode: str = "prefill") -> tuple[Any, ...]:
    return (
        choice("mode", "prefill: a prompt, or a part of one; decode: one new token per sequence, or a few "
               "speculative ones", ("prefill", "decode"), mode),
        size("batch", "sequences"),
        size("q_len", "new tokens per sequence", 1),
        integer("cache_len", "earlier tokens per sequence", 0, kind="count"),
        counts("q_lens", "new tokens of each sequence, if they differ; q_len is then ignored", []),
        counts("cache_lens", "earlier tokens of each sequence, if they differ; cache_len is then ignored", []),
    )  # fmt: skip


BLOCK_SIZE = integer("block_size", "tokens per page of the cache; 0: a linear cache", 0, kind="count")


def _one_each(name: str) -> Rule:
    return Rule(name, f"be a list of batch={{batch}} numbers, or empty (got {{{name}}})",
                lambda p: not p[name] or len(p[name]) == p["batch"])  # fmt: skip


def _decodes_few(p: Params) -> bool:
    q = Sequences.of(p).q
    return p["mode"] == "prefill" or (len(set(q)) == 1 and q[0] <= _MOST_GUESSES)


SEQUENCE_RULES = (
    _one_each("q_lens"),
    _one_each("cache_lens"),
    Rule("q_lens", "be at least 1 for every sequence (got {q_lens})", lambda p: all(n >= 1 for n in p["q_lens"])),
    Rule(
        "mode",
        f"be prefill unless every sequence has the same number of new tokens, at most {_MOST_GUESSES}",
        _decodes_few,
    ),
)


@dataclass(frozen=True)
class Sequences:
    """The numbers of new (`q`) and earlier (`cache`) tokens of each sequence."""

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
        """Number of keys of each sequence, with the new tokens in the cache."""
        return tuple(q + cache for q, cache in zip(self.q, self.cache, strict=True))

    @property
    def tokens(self) -> int:
        """Number of new tokens."""
        return sum(self.q)

    @property
    def pairs(self) -> int:
        """Number of pairs of a query and a key that it sees: earlier keys, and new ones up to its own."""
        return sum(q * cache + q * (q + 1) // 2 for q, cache in zip(self.q, self.cache, strict=True))

    @property
    def alike(self) -> bool:
        return len(set(self.q)) == len(set(self.cache)) == 1

    @property
    def pages(self) -> tuple[int, ...]:
        """Number of pages of each sequence; the last page may be partly filled."""
        return tuple(-(-n // self.block_size) for n in self.kv)

    @property
    def new_pages(self) -> int:
        """Number of pages that hold new tokens."""
        filled = (cache // self.block_size for cache in self.cache)
        return sum(pages - before for pages, before in zip(self.pages, filled, strict=True))

    def cache_spec(self, heads: int, dim: int, dtype: str, low: float = -1.0, high: float = 1.0) -> TensorSpec:
        """Return a cache [sequence, head, token, element], or [page, head, token of the page, element]."""
        first, tokens = (sum(self.pages), self.block_size) if self.block_size else (len(self.kv), max(self.kv))
        return TensorSpec((first, heads, tokens, dim), dtype, low, high)

    def table_spec(self) -> TensorSpec:
        """Return the table of the pages of each sequence, in order; rows of short sequences end in zeros that are not
        read."""
        return TensorSpec((len(self.q), max(self.pages)), "int32", 0, max(2, sum(self.pages)), self._table)

    def _table(self, generator: Any) -> Any:
        """Shuffle the pages, as in a cache that has been in use for a while."""
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
        """Return the sequence of each new token, and its position there."""
        return _positions(self.q, self.cache)

    def places_used(self) -> int:
        """Return the number of different positions of new tokens."""
        spans = sorted((cache, cache + q) for q, cache in zip(self.q, self.cache, strict=True))
        used, end = 0, 0
        for start, stop in spans:
            used += max(0, stop - max(start, end))
            end = max(end, stop)
        return used


@lru_cache(maxsize=16)
def _positions(q: tuple[int, ...], cache: tuple[int, ...]) -> tuple[Any, Any]:
    """Cached: a launch that needs it should not be timed computing it."""
    rows = np.repeat(np.arange(len(q)), q)
    places = np.concatenate([np.arange(start, start + count) for count, start in zip(q, cache, strict=True)])
    return rows, places
