"""ByteMicroPerf's operators of language models and of mixtures of experts: tokens, heads, caches, experts."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from random import Random
from typing import Any, NamedTuple

from opmark.interop.bytemicroperf.fields import (
    FEW,
    Arguments,
    Constant,
    Dtype,
    Field,
    Only,
    PointRefused,
    TokenRows,
    Unused,
    ValueField,
    Word,
    check_value,
    choices_of,
    dtype_of,
    foreign_dtype,
    missing_argument,
    quote,
    sizes_of,
)
from opmark.interop.bytemicroperf.forms import ROWS, Form, has
from opmark.schema.tensor import FLOATS8
from opmark.units import count_noun

_Q, _CACHE = ("q_len", "q_seq_len"), ("cache_len", "kv_seq_len")


@dataclass(frozen=True)
class Lengths(Field):
    """Lengths of the sequences: `batch_size`, `q_len` and `cache_len`, or lists with a number for each sequence."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("batch_size", *_Q, *_CACHE, "q_lens", "cache_lens", "kv_lens")

    @property
    def ours(self) -> tuple[str, ...]:
        return ("batch", "q_len", "cache_len", "q_lens", "cache_lens")

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        found = self._lengths(given)
        if "kv_lens" in given:
            expected = _kv_lengths(found)
            if given["kv_lens"] != expected:
                raise PointRefused(f"argument `kv_lens`: expected {quote(expected)}, cached and new tokens together, "
                              f"got {quote(given['kv_lens'])}", "kv_lens")  # fmt: skip
        return found

    def _lengths(self, given: Arguments) -> dict[str, Any]:
        lists = [check_value(name, "counts", given[name]) for name in ("q_lens", "cache_lens") if name in given]
        if not lists:
            batch = check_value("batch_size", "size", given.get("batch_size", 1), FEW)
            return {"batch": batch, **self._q(given), **self._cache(given)}
        if not all(lists) or len({len(numbers) for numbers in lists}) > 1:
            raise PointRefused(
                "arguments `q_lens` and `cache_lens`: expected a number for each sequence, as many in both, "
                f"got {' and '.join(str(len(numbers)) for numbers in lists)}"
            )
        batch = len(lists[0])
        if given.get("batch_size", batch) != batch:
            raise PointRefused(f"argument `batch_size`: expected {batch} as in the lists of lengths, "
                          f"got {quote(given['batch_size'])}", "batch_size")  # fmt: skip
        q = _one_or_list(given, "q_lens", "q_len") or self._q(given)
        return {"batch": batch, **q, **(_one_or_list(given, "cache_lens", "cache_len") or self._cache(given))}

    def _q(self, given: Arguments) -> dict[str, Any]:
        """Read the new tokens of each sequence; a decode has one by default, as in ByteMicroPerf."""
        name = next((name for name in _Q if name in given), None)
        if name is None and given.get("attn_mode", given.get("mode", "prefill")) != "decode":
            raise missing_argument("q_len", given)
        return {"q_len": check_value(name, "size", given[name]) if name else 1}

    def _cache(self, given: Arguments) -> dict[str, Any]:
        """Read the earlier tokens of each sequence; in files of spring 2025 `kv_seq_len` has the new ones as well."""
        if "kv_seq_len" not in given:
            return {"cache_len": check_value("cache_len", "count", given.get("cache_len", 0))}
        keys, new = check_value("kv_seq_len", "size", given["kv_seq_len"]), self._q(given)["q_len"]
        if "cache_len" in given or keys < new:
            raise PointRefused(f"argument `kv_seq_len`: expected cached and new tokens together, at least {new}, "
                          f"without `cache_len`; got {quote(given['kv_seq_len'])}", "kv_seq_len")  # fmt: skip
        return {"cache_len": keys - new}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        batch = params["batch"]
        if not params["q_lens"] and not params["cache_lens"]:
            return {"batch_size": batch, "cache_len": params["cache_len"], "q_len": params["q_len"]}
        return {
            "arg_type": "batch_llm",
            "cache_lens": params["cache_lens"] or [params["cache_len"]] * batch,
            "q_lens": params["q_lens"] or [params["q_len"]] * batch,
        }


def _one_or_list(given: Arguments, name: str, same: str) -> dict[str, Any]:
    """Return the list `name`, or the parameter `same` if all its numbers are equal."""
    if name not in given:
        return {}
    numbers = given[name]
    if len(set(numbers)) > 1:
        return {name: list(numbers)}
    return {same: check_value(name, "size" if same == "q_len" else "count", numbers[0])}


def _kv_lengths(found: Arguments) -> list[int]:
    """Return the tokens of each sequence, cached and new ones together."""
    batch = found["batch"]
    q = found.get("q_lens") or [found["q_len"]] * batch
    cache = found.get("cache_lens") or [found["cache_len"]] * batch
    return [one + other for one, other in zip(q, cache, strict=True)]


_SESSION, _DECODE = "prefill_session_cache", "decode"
_SPREAD = 10
"""In the second generation, lengths differ from their average by up to a tenth."""


class DrawnLengths(NamedTuple):
    given: Arguments
    """Arguments of the third generation, with a list of lengths."""
    note: str = ""


def draw_lengths(task: str, given: Arguments, seed: int) -> DrawnLengths:
    """Draw the lengths of sequences as the second generation does, whose `mode` says how; keep all other arguments.

    In prefill_session_cache the sequences share `q_seq_len`, and new and cached tokens vary. In decode only the cached
    ones vary. A prefill has one sequence. ByteMicroPerf draws other lengths in every run; here the seed and the sizes
    determine them, so that all operators of a model have the same.
    """
    mode = given.get("mode", given.get("attn_mode"))
    drawn = mode == _SESSION or ("mode" in given and mode in ("prefill", _DECODE))
    if task not in SEQUENCE_TASKS or not drawn or "q_lens" in given or "cache_lens" in given:
        return DrawnLengths(given)
    batch = check_value("batch_size", "size", given.get("batch_size", 1), FEW)
    rest = {name: value for name, value in given.items() if name != "mode"} | {"attn_mode": MODE.words[mode]}
    if mode == "prefill":
        remark = "a prefill has one sequence in the second generation, whatever batch_size is" if batch > 1 else ""
        return DrawnLengths({**rest, "batch_size": 1}, remark and f"`{task}`: {remark}")
    q_name = next((name for name in _Q if name in given), None)
    if q_name is None:
        raise missing_argument(_Q[1], given)
    q = check_value(q_name, "size", given[q_name])
    cache = check_value("cache_len", "count", given.get("cache_len", 0))
    generator = Random(f"{seed} {mode} {batch} {q} {cache}")
    if mode == _SESSION:
        share, left = divmod(q, batch)
        if not share:
            raise PointRefused(f"argument `{q_name}`: expected at least one token for each of {batch} sequences, "
                               f"got `{q}`", q_name)  # fmt: skip
        q_lens = [share + (i < left) + _vary(share, generator) for i in range(batch)]
        how = f"the sequences share {q_name}, and their new and cached tokens vary"
    else:
        q_lens = [q] * batch
        how = "the cached tokens of the sequences vary"
    lists = {"q_lens": q_lens, "cache_lens": [cache + _vary(cache, generator) for _ in range(batch)]}
    rest = {name: value for name, value in rest.items() if name not in (*_Q, "cache_len", "batch_size")}
    note = f"`{task}`: in mode {mode} {how} by up to a tenth, as in ByteMicroPerf; they were drawn with seed {seed}"
    return DrawnLengths({**rest, **lists}, note)


def _vary(average: int, generator: Random) -> int:
    return generator.randint(-(average // _SPREAD), average // _SPREAD)


@dataclass(frozen=True)
class Pages(Field):
    """The page size of a cache. opmark draws which pages a sequence has; a table in the file is only checked."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("block_size", "block_table", "slot_mapping")

    @property
    def ours(self) -> tuple[str, ...]:
        return ("block_size",)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        if "block_size" not in given:
            return {}
        size = check_value("block_size", "count", given["block_size"])
        if size and "block_table" in given:
            _check_block_table(given["block_table"], size, _kv_lengths(Lengths().read(given, op)))
        return {"block_size": size}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {"block_size": params["block_size"]}

    def remark(self, given: Arguments) -> str:
        ignored = [f"`{name}`" for name in self.names[1:] if name in given]
        if not ignored:
            return ""
        why = "opmark draws the pages itself, and no two sequences share one" if given.get("block_size") else (
            "without `block_size` there are no pages, and the sequences follow each other")  # fmt: skip
        return f"{', '.join(ignored)}: {why}"


def _check_block_table(table: Any, size: int, lengths: list[int]) -> None:
    """Refuse a table unless every sequence has enough pages and no page is used twice."""
    if not isinstance(table, list) or len(table) != len(lengths):
        raise PointRefused(f"argument `block_table`: expected a row for each of {len(lengths)} sequences, "
                      f"got {quote(table)}", "block_table")  # fmt: skip
    seen: set[int] = set()
    for row, tokens in zip(table, lengths, strict=True):
        needed = ceil(tokens / size)
        pages = row[:needed] if isinstance(row, list) else []
        if len(pages) < needed or not all(type(page) is int and page >= 0 for page in pages):
            raise PointRefused(f"argument `block_table`: expected {count_noun(needed, 'page')} of {size} for {tokens} "
                          f"tokens, got {quote(row)}", "block_table")  # fmt: skip
        for page in pages:
            if page in seen:
                raise PointRefused(f"argument `block_table`: page {page} is in it twice; "
                              "opmark has no cache that sequences share", "block_table")  # fmt: skip
            seen.add(page)


@dataclass(frozen=True)
class CacheDtype(Field):
    """Element type of the cache: one of 8 bits, or the type of the new tokens."""

    default: str = "bfloat16"
    """Type of the new tokens where a file does not name it."""
    also: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return ("cache_dtype", *self.also)

    @property
    def ours(self) -> tuple[str, ...]:
        return ("cache_dtype",)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        name = next((name for name in self.names if name in given), None)
        if name is None:
            return {"cache_dtype": "same"}
        cache, tokens = dtype_of(name, given[name]), dtype_of("dtype", given.get("dtype", self.default))
        narrow = [kind for kind in choices_of(op, "cache_dtype") if kind != "same"]
        if cache not in (tokens, *narrow):
            raise PointRefused(
                f"argument `{name}`: `{op}` has a cache of {', '.join(narrow)}, or of the type of its tokens "
                f"({tokens}); got {quote(given[name])}",
                name,
            )
        return {"cache_dtype": "same" if cache == tokens else cache}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {"cache_dtype": foreign_dtype(params["dtype" if params["cache_dtype"] == "same" else "cache_dtype"])}


@dataclass(frozen=True)
class KeyHeads(Field):
    """Heads of keys and values; opmark's 0 means as many as there are of queries."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("kv_head_num",)

    @property
    def ours(self) -> tuple[str, ...]:
        return ("kv_heads",)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        if "kv_head_num" not in given:
            raise missing_argument("kv_head_num", given)
        return {"kv_heads": check_value("kv_head_num", "size", given["kv_head_num"])}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {"kv_head_num": params["kv_heads"] or params["q_heads"]}


FLOAT = Dtype(default="bfloat16")
SP_SIZE = ValueField("sp_size", optional=True)
TOKENS = (ValueField("num_tokens"), SP_SIZE)
HIDDEN = ValueField("hidden_size")
NEW_HIDDEN = ValueField("new_hidden_size")
QUANTIZED = Dtype("dst_dtype", "quantized_dtype", "int8")
SAME_RESULT = Only("dst_dtype", default_dtype="bfloat16")


@dataclass(frozen=True)
class NarrowWeights(Field):
    """Element type of the weights of a product of 8-bit numbers: that of the tokens, or the float8 that goes with
    it."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("w_dtype",)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        expected = self._weights(dtype_of("dtype", given.get("dtype", "int8")))
        if "w_dtype" in given and dtype_of("w_dtype", given["w_dtype"]) != expected:
            raise PointRefused(f"argument `w_dtype`: `{op}` accepts only {quote(expected)} with the `dtype`, "
                               f"got {quote(given['w_dtype'])}", "w_dtype")  # fmt: skip
        return {}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {"w_dtype": foreign_dtype(self._weights(params["dtype"]))}

    def _weights(self, tokens: str) -> str:
        """Matrix units multiply float8_e5m2 by float8_e4m3fn and not by itself."""
        return "float8_e4m3fn" if tokens == "float8_e5m2" else tokens


NARROW = (
    Dtype(default="int8"),
    NarrowWeights(),
    Only("compute_dtype", exported=True, default_dtype="int8"),
    Dtype("dst_dtype", "out_dtype", "bfloat16"),
)
"""Element types of products of 8-bit numbers."""

WIDE = (
    Dtype(default="bfloat16"),
    *(Only(name, exported=True, default_dtype="bfloat16") for name in ("w_dtype", "compute_dtype", "dst_dtype")),
)
"""The same arguments where nothing is of 8 bits."""

EXPERTS = ValueField("num_experts", most=FEW)
TOPK = ValueField("topk", most=FEW)
_ROUTED: tuple[Field, ...] = (
    ValueField("num_tokens"), EXPERTS, TOPK, ValueField("ep_size", optional=True, most=FEW),
    ValueField("ep_rank", kind="count", optional=True, also=("rank",)),
    Only("num_shared_experts", value=0), Unused(("world_size", "dp_size")),
)  # fmt: skip
ROUTING = (*_ROUTED, Constant("routing", "balanced"))
"""Tokens are distributed to the experts in turn, rank after rank, as in the third generation."""
ALL_TOKENS = Unused(("sp_size",))
"""These operators work on the tokens of all ranks, so that `sp_size` changes nothing."""
COMBINE = (
    SP_SIZE,
    ValueField("sp_rank", kind="count", optional=True),
    ValueField("res_scale", kind="float", optional=True),
)

MODE = Word("attn_mode", "mode", also=("mode", "phase"),
            words={"prefill": "prefill", "decode": "decode", "prefill_session_cache": "prefill"})  # fmt: skip
Q_HEADS, HEAD_DIM = ValueField("q_head_num", "q_heads"), ValueField("head_dim")
ALIKE = (Only("unbalance_q", value=0), Only("unbalance_cache", value=0), Unused(("random_seed",)))
"""Random lengths are not imported: ByteMicroPerf's lists of lengths are."""
SEQUENCES = (MODE, Lengths(), *ALIKE)


@dataclass(frozen=True)
class AttentionResult(Field):
    """Element type of the result of attention: bfloat16 where queries are of a float8, and else the type of these."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("dst_dtype",)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        queries = dtype_of("dtype", given.get("dtype", FLOAT.default))
        expected = "bfloat16" if queries in FLOATS8 else queries
        if "dst_dtype" in given and dtype_of("dst_dtype", given["dst_dtype"]) != expected:
            raise PointRefused(f"argument `dst_dtype`: `{op}` of {queries} accepts only {quote(expected)}, "
                               f"got {quote(given['dst_dtype'])}", "dst_dtype")  # fmt: skip
        return {}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {}


ATTENTION = (
    *SEQUENCES, Q_HEADS, KeyHeads(), HEAD_DIM, Pages(), FLOAT, CacheDtype(), *(Only(name, default_dtype="bfloat16") for
    name in ("compute_dtype", "qk_compute_dtype", "pv_compute_dtype")), AttentionResult(),
    Only("is_causal", value=True),
)  # fmt: skip


@dataclass(frozen=True)
class AllOutputs(Field):
    """In the second generation the operator always returns the sum and the norm beside the integers and their scales.

    Without a residual the sum is the input itself, which costs nothing.
    """

    @property
    def ours(self) -> tuple[str, ...]:
        return ("output_mode",)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {"output_mode": "both" if given.get("add_residual", True) else "norm"}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return None

    def remark(self, given: Arguments) -> str:
        return "" if given.get("add_residual", True) else "without a residual, the input is not returned a second time"


@dataclass(frozen=True)
class GateDtype(Field):
    """In ByteMicroPerf the weights of a gate have the type of the tokens."""

    @property
    def ours(self) -> tuple[str, ...]:
        return ("gate_dtype",)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {} if dtype_of("dtype", given.get("dtype", FLOAT.default)) == "float32" else {"gate_dtype": "same"}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        own = params.get("gate_dtype", "float32")
        return {} if (own == "float32") == (params["dtype"] == "float32") else None


@dataclass(frozen=True)
class LocalRouting(Field):
    """Routing of the second generation: a token's experts are all on one rank.

    Where only the number of rows matters and the ranks share the tokens equally, this is balanced routing.
    """

    needed: bool = False
    """Whether it matters which tokens the rows come from."""

    @property
    def ours(self) -> tuple[str, ...]:
        return ("routing",)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        experts, topk, tokens = sizes_of(given, ("num_experts", "topk", "num_tokens"))
        ranks = check_value("ep_size", "size", given.get("ep_size", 1))
        differs = self.needed or (tokens % ranks > 0 and topk * ranks <= experts)
        return {"routing": "local" if differs else "balanced"}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return None


@dataclass(frozen=True)
class GatheredRows(Field):
    """Rows of this rank's experts that are added to as many different rows of all tokens."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("num_tokens", "topk", "ep_size", "hidden_size")

    @property
    def ours(self) -> tuple[str, ...]:
        return ("shape", "indices")

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        tokens, topk, hidden = sizes_of(given, ("num_tokens", "topk", "hidden_size"))
        ranks = check_value("ep_size", "size", given.get("ep_size", 1))
        rows = tokens // ranks * topk
        if not 1 <= rows <= tokens:
            raise PointRefused(f"argument `ep_size`: the rank has {count_noun(rows, 'row')} for {tokens} tokens; "
                               "expected at least one, and at most one for each token", "ep_size")  # fmt: skip
        return {"shape": [tokens, hidden], "indices": rows}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return None


IN_CASES = "__cases"
"""Mark of a point that is in a list `cases`: the second generation writes all its files so, the third basic ones."""
_ONLY_SECOND = frozenset(("rank", "world_size", "dp_size", "num_shared_experts"))
_ONLY_THIRD = frozenset(("ep_rank", "sp_rank", "res_scale", "output_mode", "w_dtype", "compute_dtype"))


def is_second(given: Arguments) -> bool:
    """Whether a point of a language model is of the second generation, by its arguments and its place in the file."""
    names = given.keys()
    return not names & _ONLY_THIRD and (IN_CASES in names or bool(names & _ONLY_SECOND))


@dataclass(frozen=True)
class NormWeights(Field):
    """ByteMicroPerf keeps the weights of a norm in float32 whatever the dtype of the tokens is."""

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {}

    def remark(self, given: Arguments) -> str:
        dtype = dtype_of("dtype", given.get("dtype", FLOAT.default))
        return "" if dtype == "float32" else f"the weights of the norm are float32 in ByteMicroPerf, {dtype} here"


@dataclass(frozen=True)
class Latent(Field):
    """Sizes of attention over latent vectors, by FlashMLA's names.

    `s` counts the new tokens too. A vector has `dv` elements; the `d - dv` behind it are the positional part.
    """

    @property
    def names(self) -> tuple[str, ...]:
        return ("b", "s_q", "s", "h_q", "h_kv", "d", "dv")

    @property
    def ours(self) -> tuple[str, ...]:
        return ("batch", "q_len", "cache_len", "heads", "kv_lora_rank", "rope_dim", "nope_dim")

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        batch, new, keys, heads, key_heads, key, value = sizes_of(given, self.names)
        for name, fits in {"h_kv": key_heads == 1, "s": keys >= new, "d": key > value}.items():
            if not fits:
                raise PointRefused(
                    f"argument `{name}`: expected h_kv=1, s of at least s_q={new} and d above dv={value}, "
                    f"got {quote(given[name])}",
                    name,
                )
        # FlashMLA scales the scores by the length of a key, d; opmark by nope_dim + rope_dim.
        sizes = (batch, new, keys - new, heads, value, key - value, value)
        return dict(zip(self.ours, sizes, strict=True))

    def write(self, params: Arguments) -> dict[str, Any] | None:
        if params["nope_dim"] != params["kv_lora_rank"]:
            return None
        new, value = params["q_len"], params["kv_lora_rank"]
        sizes = (params["batch"], new, params["cache_len"] + new, params["heads"], 1, value + params["rope_dim"], value)
        return dict(zip(self.names, sizes, strict=True))


def _llm(task: str, *fields: Field, op: str = "", exported: bool = True, note: str = "") -> Form:
    return Form(task, op or task, fields, arg_type="llm", exported=exported, note=note)


def _second(task: str, *fields: Field, op: str = "", note: str = "") -> Form:
    return Form(task, op or task, fields, is_second, "llm", exported=False, note=note)


_GATHER = (
    "moe_gather of the second generation adds rows to the tokens in place, without weights and a residual: it is "
    "index_add_inplace here, with random rows"
)


FORMS = (
    _llm("scale_dynamic_quant", *TOKENS, HIDDEN, FLOAT, QUANTIZED),
    _llm("add_rms_norm", *TOKENS, HIDDEN, FLOAT, SAME_RESULT),
    _second("add_rms_norm_dynamic_quant", *TOKENS, HIDDEN, ValueField("add_residual", kind="bool", optional=True),
            AllOutputs(), FLOAT, QUANTIZED, NormWeights()),
    _llm("add_rms_norm_dynamic_quant", *TOKENS, HIDDEN, ValueField("add_residual", kind="bool", optional=True),
         Word("output_mode", words={"none": "none", "res": "res", "norm": "norm"}), FLOAT, QUANTIZED, NormWeights()),
    _llm("head_rms_norm", *TOKENS, ValueField("total_head_num", "heads"), HEAD_DIM,
         ValueField("norm_head_start", "norm_start", kind="count", optional=True),
         ValueField("norm_head_num", "norm_heads", kind="count", optional=True), FLOAT, SAME_RESULT, NormWeights()),
    _llm("head_rms_norm_dynamic_quant", *TOKENS, ValueField("head_num", "heads", also=("total_head_num",)), HEAD_DIM,
         FLOAT, QUANTIZED),
    _llm("qk_rms_norm", *TOKENS, Q_HEADS, ValueField("kv_head_num", "kv_heads"),
         ValueField("qk_head_dim", also=("head_dim",)), ValueField("v_head_dim", also=("head_dim",)),
         FLOAT, SAME_RESULT, NormWeights()),
    _llm("rotary_embedding", *SEQUENCES, Q_HEADS, ValueField("kv_head_num", "kv_heads"), HEAD_DIM,
         ValueField("rope_offset", kind="count", optional=True), ValueField("rope_dim", kind="count", optional=True),
         Unused(("block_size", "block_table", "slot_mapping")), FLOAT, SAME_RESULT),
    _llm("store_kv_cache", *SEQUENCES, Q_HEADS, ValueField("kv_head_num", "kv_heads"), HEAD_DIM, Pages(),
         Word("store_mode", words={"both": "both", "k": "k", "v": "v"}), CacheDtype(also=("dst_dtype",)), FLOAT,
         Only("quant_mode", value="static")),
    _llm("store_paged_kv_cache", *SEQUENCES, Q_HEADS, ValueField("kv_head_num", "kv_heads"), HEAD_DIM, Pages(),
         Word("store_mode", words={"both": "both", "k": "k", "v": "v"}), CacheDtype(also=("dst_dtype",)), FLOAT,
         op="store_kv_cache", exported=False),
    _llm("flash_attention", *ATTENTION),
    _llm("flash_attention_session_cache", *ATTENTION, op="flash_attention", exported=False),
    _llm("flash_decoding", *ATTENTION),
    _llm("flash_mla", Latent(), Word("phase", "mode", words={"decode": "decode"}), Constant("block_size", 64), FLOAT,
         Only("causal", value=True, exported=True), Only("varlen", value=False, exported=True), op="mla_decode"),
    _llm("quant_matmul", *TOKENS, HIDDEN, NEW_HIDDEN, ValueField("has_bias", kind="bool", optional=True), *NARROW,
         Only("transpose_o", value=False)),
    _llm("moe_quant_matmul", *TOKENS, HIDDEN, NEW_HIDDEN, ValueField("has_bias", kind="bool", optional=True), *NARROW,
         op="quant_matmul", exported=False),
    _llm("quant_group_gemm_reduce_sum", ValueField("num_tokens"), ValueField("sp_size"), HIDDEN, NEW_HIDDEN, *NARROW,
         Unused(("trans_w",), "the layout of the weight here is [new_hidden_size, hidden_size]")),
    Form("swiglu", "swiglu", (TokenRows(2), FLOAT, SAME_RESULT), has("num_tokens"), "llm"),
    Form("swiglu", "swiglu", (ROWS, Dtype()), exported=False,
         note="swiglu of the first generation is silu(x) x; here the same number of elements is a gate and a value"),
    _llm("swiglu_dynamic_quant", *TOKENS, HIDDEN, FLOAT, QUANTIZED),
    _llm("moe_gating_gemm", *TOKENS, HIDDEN, EXPERTS, FLOAT, GateDtype(), Only("compute_dtype", value="float32"),
         Only("dst_dtype", value="float32", exported=True)),
    _llm("moe_softmax_topk", *TOKENS, EXPERTS, TOPK,
         Word("compute_mode", words={"pre-softmax": "pre-softmax", "post-softmax": "post-softmax"}),
         Dtype(default="float32"), Unused(("hidden_size",))),
    _second("moe_scatter_dynamic_quant", *_ROUTED, LocalRouting(needed=True), HIDDEN, FLOAT, QUANTIZED, ALL_TOKENS),
    _llm("moe_scatter_dynamic_quant", *ROUTING, HIDDEN, FLOAT, QUANTIZED, ALL_TOKENS),
    Form("moe_quant_group_gemm", "moe_group_gemm", (*ROUTING, HIDDEN, NEW_HIDDEN, *WIDE, ALL_TOKENS),
         lambda given: given.get("dtype") in ("bfloat16", "float16", "half"), "llm", exported=False, tagged=True,
         note="moe_quant_group_gemm of 16-bit numbers is moe_group_gemm here, a product without scales"),
    _second("moe_quant_group_gemm", *_ROUTED, LocalRouting(), HIDDEN, NEW_HIDDEN, *NARROW, ALL_TOKENS),
    _llm("moe_quant_group_gemm", *ROUTING, HIDDEN, NEW_HIDDEN, *NARROW, ALL_TOKENS),
    _llm("moe_quant_group_gemm_combine", *ROUTING, *COMBINE, HIDDEN, NEW_HIDDEN, *NARROW),
    _llm("moe_swiglu", *ROUTING, HIDDEN, FLOAT, SAME_RESULT, ALL_TOKENS),
    _second("moe_swiglu_dynamic_quant", *_ROUTED, LocalRouting(), HIDDEN, FLOAT, QUANTIZED, ALL_TOKENS),
    _llm("moe_swiglu_dynamic_quant", *ROUTING, HIDDEN, FLOAT, QUANTIZED, ALL_TOKENS),
    _second("moe_gather", GatheredRows(), FLOAT, SAME_RESULT, Only("num_shared_experts", value=0),
            Unused(("num_experts", "rank", "world_size", "dp_size", "sp_size")), op="index_add_inplace", note=_GATHER),
    _llm("moe_gather", *ROUTING, *COMBINE, HIDDEN, FLOAT, SAME_RESULT),
)  # fmt: skip

SEQUENCE_TASKS = frozenset(form.task for form in FORMS if Lengths() in form.fields)
"""Operators that work on sequences, each with its length."""
