"""Causal attention over a cache, for each sequence or for all at once. flash_attention and MLA share this."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from opmark.operators import _numpy as np
from opmark.operators._formulas import attention
from opmark.operators._sequences import Sequences
from opmark.schema import Launch


class Job(NamedTuple):
    """One call of dense attention: over all sequences if they have equal lengths, else over one of them."""

    rows: slice
    """Rows of the packed queries."""
    batch: int
    q_len: int
    kv_len: int
    keys: Callable[[Any], Any]
    """keys(cache) -> [batch, head, kv_len, element]."""


def jobs(sequences: Sequences, table: Any) -> Iterator[Job]:
    """Yield the attention calls. `table` is None for a linear cache; it is read when the keys are, not now."""
    if sequences.alike:
        batch = len(sequences.q)
        whole = slice(0, batch)
        yield Job(slice(0, sequences.tokens), batch, sequences.q[0], sequences.kv[0], _keys(sequences, table, whole))
        return
    start = 0
    for i, (q, kv) in enumerate(zip(sequences.q, sequences.kv, strict=True)):
        yield Job(slice(start, start + q), 1, q, kv, _keys(sequences, table, slice(i, i + 1)))
        start += q


def _keys(sequences: Sequences, table: Any, which: slice) -> Callable[[Any], Any]:
    kv, batch = sequences.kv[which.start], which.stop - which.start
    if not sequences.block_size:
        return lambda cache: cache[which, :, :kv]
    pages = sequences.pages[which.start]

    def gather_pages(cache: Any) -> Any:
        _, heads, block, dim = cache.shape
        picked = cache.index_select(0, table[which, :pages].reshape(-1)).view(batch, pages, heads, block, dim)
        return picked.transpose(1, 2).reshape(batch, heads, pages * block, dim)[:, :, :kv]

    return gather_pages


def torch_attention(sequences: Sequences, q: Any, table: Any, inner: Any, fetch: Any) -> Launch:
    """Return a launch of attention over packed queries, [token, head, element].

    `inner(q, k, v, mask)` computes attention, `fetch(keys)` returns keys and values by a job's `keys`. The mask is None
    if every query sees every key.
    """
    import torch

    todo = [(job, _mask(job, q.device)) for job in jobs(sequences, table)]

    def one(job: Job, mask: Any) -> Any:
        packed = q[job.rows].unflatten(0, (job.batch, job.q_len)).transpose(1, 2)
        return inner(packed, *fetch(job.keys), mask).transpose(1, 2).flatten(0, 1)

    if len(todo) == 1:
        return lambda: one(*todo[0])
    return lambda: torch.cat([one(job, mask) for job, mask in todo])


def _mask(job: Job, device: Any) -> Any:
    import torch

    if job.q_len == 1:
        return None
    seen = torch.ones(job.q_len, job.kv_len, dtype=torch.bool, device=device)
    return seen.tril(job.kv_len - job.q_len)


def sdpa(scale: float) -> Callable[..., Any]:
    def inner(q: Any, k: Any, v: Any, mask: Any) -> Any:
        from torch.nn.functional import scaled_dot_product_attention

        if mask is None and q.shape[1] != k.shape[1]:  # heads that share keys become rows, so that keys are read once
            rows = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])
            return scaled_dot_product_attention(rows, k, v, scale=scale).reshape(*q.shape[:3], -1)
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


def matmul_chain(scale: float) -> Callable[..., Any]:
    """Return attention as two products and a softmax, each a call of its own; heads that share keys form one batch."""

    def inner(q: Any, k: Any, v: Any, mask: Any) -> Any:
        import torch

        rows = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])
        scores = (rows @ k.transpose(-1, -2)) * scale
        if mask is not None:
            scores = scores.unflatten(2, (-1, q.shape[2])).masked_fill(~mask, float("-inf")).flatten(2, 3)
        return (torch.softmax(scores, -1) @ v).reshape(*q.shape[:3], -1)

    return inner


def keys_of(sequences: Sequences, row: int, cache: Any, table: Any) -> Any:
    """Return one sequence's part of a NumPy cache, [head, token, element]."""
    if not sequences.block_size:
        return cache[row, :, : sequences.kv[row]]
    pages = cache[table[row, : sequences.pages[row]]]
    return np.concatenate(list(pages), axis=1)[:, : sequences.kv[row]]


def numpy_attention(sequences: Sequences, q: Any, keys: Any, values: Any, scale: float) -> Any:
    """Compute the reference. `keys(row)` and `values(row)` are [head, token, element]."""
    outputs, start = [], 0
    for row, (count, kv) in enumerate(zip(sequences.q, sequences.kv, strict=True)):
        of_row = np.swapaxes(q[start : start + count], 0, 1)
        seen = np.tri(count, kv, kv - count, dtype=bool)
        outputs.append(np.swapaxes(attention(of_row, keys(row), values(row), scale, seen), 0, 1))
        start += count
    return np.concatenate(outputs)


def scale_by_keys_seen(attention: Any) -> tuple[Any, Any]:
    """Return (reference, observe), which multiply each result of an attention by the root of the number of its keys.

    Results and their errors are then of similar size: without it, the first tokens of a prompt have far larger ones.
    """

    def weigh(p: Any, output: Any) -> Any:
        seen = Sequences.of(p).positions()[1] + 1.0
        return output * np.sqrt(seen)[:, None, None]

    def reference(p: Any, **inputs: Any) -> Any:
        return weigh(p, attention(p, **inputs))

    def observe(p: Any, output: Any, **inputs: Any) -> Any:
        return weigh(p, output)

    return reference, observe
