"""Common parts of attention over a cache of keys and values: the formula, and sequences of different lengths.

flash_attention, flash_decoding and MLA share this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import attention
from opmark.catalogue.operators._fusion import compile_for
from opmark.errors import Unsupported
from opmark.plugin import Launch, ParamRule, Params
from opmark.plugin.param import choice, counts, integer, size
from opmark.schema import TensorSpec
from opmark.schema.tensor import sizeof


class Job(NamedTuple):
    """One call of dense attention: over all sequences if they have similar lengths, else over one of them."""

    rows: slice
    """Rows of the packed queries."""
    batch: int
    q_len: int
    kv_len: int
    keys: Callable[[Any], Any]
    """keys(cache) -> [batch, head, kv_len, element]."""
    cached: tuple[int, ...] = ()
    """Earlier tokens of each sequence, where these differ: keys beyond those of a sequence are not for its queries."""


def jobs(sequences: Sequences, table: Any) -> Iterator[Job]:
    """Yield the attention calls. `table` is None for a linear cache; it is read when the keys are, not now."""
    if sequences.alike or sequences.decode_together:
        batch = len(sequences.q)
        keys = _keys(sequences, table, slice(0, batch))
        cached = () if sequences.alike else sequences.cache
        yield Job(slice(0, sequences.tokens), batch, sequences.q[0], max(sequences.kv), keys, cached)
        return
    start = 0
    for i, (q, kv) in enumerate(zip(sequences.q, sequences.kv, strict=True)):
        yield Job(slice(start, start + q), 1, q, kv, _keys(sequences, table, slice(i, i + 1)))
        start += q


def _keys(sequences: Sequences, table: Any, which: slice) -> Callable[[Any], Any]:
    kv, batch = max(sequences.kv[which]), which.stop - which.start
    if not sequences.block_size:
        return lambda cache: cache[which, :, :kv]
    pages = max(sequences.pages[which])

    def gather_pages(cache: Any) -> Any:
        _, heads, block, dim = cache.shape
        picked = cache.index_select(0, table[which, :pages].reshape(-1)).view(batch, pages, heads, block, dim)
        return picked.transpose(1, 2).reshape(batch, heads, pages * block, dim)[:, :, :kv]

    return gather_pages


def torch_attention(sequences: Sequences, q: Any, table: Any, inner: Any, fetch: Any, kv_heads: int) -> Launch:
    """Return a launch of attention over packed queries, [token, head, element].

    `inner(q, k, v, mask)` computes attention, `fetch(keys)` returns keys and values by a job's `keys`. The mask is None
    if every query sees every key, [query, key] if it is the same for all sequences, and else [sequence, 1, row, key]
    with a row for each query of the heads that share keys; there are `kv_heads` heads of keys.
    """
    import torch

    todo = [(job, _mask(job, q.shape[1] // kv_heads, q.device)) for job in jobs(sequences, table)]

    def one(job: Job, mask: Any) -> Any:
        packed = q[job.rows].unflatten(0, (job.batch, job.q_len)).transpose(1, 2)
        return inner(packed, *fetch(job.keys), mask).transpose(1, 2).flatten(0, 1)

    if len(todo) == 1:
        return lambda: one(*todo[0])
    return lambda: torch.cat([one(job, mask) for job, mask in todo])


def _mask(job: Job, sharing: int, device: Any) -> Any:
    import torch

    if job.cached:
        last = torch.tensor(job.cached, device=device)[:, None] + torch.arange(job.q_len, device=device)
        return (torch.arange(job.kv_len, device=device) <= last[:, :, None]).repeat(1, sharing, 1).unsqueeze(1)
    if job.q_len == 1:
        return None
    seen = torch.ones(job.q_len, job.kv_len, dtype=torch.bool, device=device)
    return seen.tril(job.kv_len - job.q_len)


def sdpa(scale: float) -> Callable[..., Any]:
    def inner(q: Any, k: Any, v: Any, mask: Any) -> Any:
        from torch.nn.functional import scaled_dot_product_attention

        by_sequence = mask is not None and mask.ndim == 4
        if by_sequence or (mask is None and q.shape[1] != k.shape[1]):
            # Heads that share keys become rows, so that keys are read once.
            rows = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])
            return scaled_dot_product_attention(rows, k, v, mask, scale=scale).reshape(*q.shape[:3], -1)
        if mask is not None and q.shape[2] == k.shape[2]:
            return scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)
        if mask is not None and _flash_takes(q, v):
            mask = _lower_right(q.shape[2], k.shape[2])
        return scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=True)

    return inner


def _flash_takes(q: Any, v: Any) -> bool:
    """Return whether torch has a kernel that needs no mask in memory for queries that follow a cache."""
    return bool(q.is_cuda and q.dtype.itemsize == 2 and q.shape[-1] == v.shape[-1] <= 256)


@lru_cache(maxsize=64)
def _lower_right(q_len: int, kv_len: int) -> Any:
    from torch.nn.attention.bias import causal_lower_right

    return causal_lower_right(q_len, kv_len)


# Compute capability of NVIDIA's first GPUs that multiply 8-bit floats (Ada).
_FIRST_WITH_FLOAT8 = (8, 9)


def flex_float8(scale: float) -> Callable[..., Any]:
    """Return attention of 8-bit floats, which is compiled for each shape."""
    compiled: dict[Any, Callable[..., Any]] = {}

    def inner(q: Any, k: Any, v: Any, mask: Any) -> Any:
        shapes = (q.shape, k.shape, mask is None)
        if shapes not in compiled:
            if mask is not None and mask.ndim == 4:
                raise Unsupported("sequences of different lengths are not computed together with 8-bit floats")
            compiled[shapes] = compile_flex(scale, q, k, v, causal=mask is not None)
        return compiled[shapes](q, k, v)

    return inner


def compile_flex(scale: float, q: Any, k: Any, v: Any, *, causal: bool) -> Callable[..., Any]:
    """Compile attention of 8-bit floats like these, with a result in bfloat16; the last query sees every key.

    flex_attention is the only one that torch has for them. The weights of the values are rounded to 8 bits, and so is
    the result before it becomes bfloat16.
    """
    import torch

    _refuse_without_float8(q)
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    earlier = k.shape[2] - q.shape[2]

    def sees(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return key <= query + earlier

    def attend(q: Any, k: Any, v: Any, blocks: Any) -> Any:
        return flex_attention(q, k, v, block_mask=blocks, scale=scale, enable_gqa=True)

    sizes = (q.shape[2], k.shape[2])
    blocks = create_block_mask(sees, None, None, *sizes, device=q.device.type) if causal else None
    call = compile_for(attend, q, k, v, blocks)
    return lambda q, k, v: call(q, k, v, blocks).to(torch.bfloat16)


def _refuse_without_float8(q: Any) -> None:
    import torch

    device = "AMD GPUs" if torch.version.hip else q.device.type
    if device != "cuda":
        raise Unsupported(
            f"torch has no attention of 8-bit floats on {device}: only flex_attention on NVIDIA GPUs is one"
        )
    major, minor = torch.cuda.get_device_capability(q.device)
    if (major, minor) < _FIRST_WITH_FLOAT8:
        raise Unsupported(
            f"this GPU has compute capability {major}.{minor}, and products of 8-bit floats came with "
            f"{'.'.join(map(str, _FIRST_WITH_FLOAT8))}"
        )


def chain_float8(scale: float) -> Callable[..., Any]:
    """Refuse 8-bit floats: torch's batched products take none, and products with scales are for matrices only."""
    raise Unsupported("torch has no batched products of 8-bit floats")


def matmul_chain(scale: float) -> Callable[..., Any]:
    """Return attention as two products and a softmax, each a call of its own; heads that share keys form one batch."""

    def inner(q: Any, k: Any, v: Any, mask: Any) -> Any:
        import torch

        rows = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])
        scores = (rows @ k.transpose(-1, -2)) * scale
        if mask is not None and mask.ndim == 4:
            scores = scores.masked_fill(~mask, float("-inf"))
        elif mask is not None:
            scores = scores.unflatten(2, (-1, q.shape[2])).masked_fill(~mask, float("-inf")).flatten(2, 3)
        return (torch.softmax(scores, -1) @ v).reshape(*q.shape[:3], -1)

    return inner


def keys_of(sequences: Sequences, row: int, cache: Any, table: Any) -> Any:
    """Return one sequence's part of a NumPy cache, [head, token, element]."""
    if not sequences.block_size:
        return cache[row, :, : sequences.kv[row]]
    pages = cache[table[row, : sequences.pages[row]]]
    return np.concatenate(list(pages), axis=1)[:, : sequences.kv[row]]


def numpy_attention(sequences: Sequences, q: Any, keys: Any, values: Any, scale: float, at: Any = None) -> Any:
    """Compute the reference. `keys(row)` and `values(row)` are [head, token, element]. `at`: the only new tokens of
    each sequence that `q` has."""
    outputs, start = [], 0
    for row, (tokens, kv) in enumerate(zip(sequences.q, sequences.kv, strict=True)):
        count = tokens if at is None else len(at)
        of_row = np.swapaxes(q[start : start + count], 0, 1)
        seen = np.tri(tokens, kv, kv - tokens, dtype=bool)[slice(None) if at is None else at]
        outputs.append(np.swapaxes(attention(of_row, keys(row), values(row), scale, seen), 0, 1))
        start += count
    return np.concatenate(outputs)


def scale_by_keys_seen(attention: Any) -> tuple[Any, Any]:
    """Return (reference, observe), which multiply each result of an attention by the root of the number of its keys.

    Results and their errors are then of similar size: without it, the first tokens of a prompt have far larger ones.
    """

    def weigh(p: Any, output: Any) -> Any:
        sequences = Sequences.of(p)
        seen = sequences.positions()[1] + 1.0
        if "q_len_at" in p:
            seen = seen.reshape(len(sequences.q), -1)[:, p["q_len_at"]].ravel()
        return output * np.sqrt(seen)[:, None, None]

    def reference(p: Any, **inputs: Any) -> Any:
        return weigh(p, attention(p, **inputs))

    return reference, weigh


# Sequences of different lengths in a batch, and the cache of their keys and values: linear or paged.

# Largest number of speculative tokens per step; more new tokens are a prefill.
_MOST_GUESSES = 16
# Keys that one call over all sequences may read, beyond those that it has to: a call per sequence costs a launch each.
_MOST_PADDED = 1.25


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


def _one_each(name: str) -> ParamRule:
    return ParamRule(name, f"be a list of batch={{batch}} numbers, or empty (got {{{name}}})",
                lambda p: not p[name] or len(p[name]) == p["batch"])  # fmt: skip


def _decodes_few(p: Params) -> bool:
    return p["mode"] == "prefill" or max(Sequences.of(p).q) <= _MOST_GUESSES


SEQUENCE_RULES = (
    _one_each("q_lens"),
    _one_each("cache_lens"),
    ParamRule("q_lens", "be at least 1 for every sequence (got {q_lens})", lambda p: all(n >= 1 for n in p["q_lens"])),
    ParamRule(
        "mode",
        f"be prefill if a sequence has more than {_MOST_GUESSES} new tokens",
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
    def decode_together(self) -> bool:
        """Whether sequences with a few new tokens each are so similar that one call over the longest wastes little."""
        few = len(set(self.q)) == 1 and self.q[0] <= _MOST_GUESSES
        return few and len(self.kv) * max(self.kv) <= _MOST_PADDED * sum(self.kv)

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
