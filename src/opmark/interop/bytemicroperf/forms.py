"""Forms: how ByteMicroPerf writes an operator, and which operator of opmark it means. Here are its basic operators, of
all three generations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opmark.interop.bytemicroperf.fields import (
    SHAPE,
    Arguments,
    Constant,
    Dtype,
    Elements,
    Field,
    Only,
    OwnTokens,
    PointRefused,
    ShapeField,
    TokenRows,
    Unused,
    ValueField,
    Word,
    check_value,
    dtype_of,
    sizes_of,
)
from opmark.plugin.registry import operator
from opmark.schema.tensor import FLOATS8


@dataclass(frozen=True)
class Form:
    task: str
    """ByteMicroPerf's operator."""
    op: str
    """opmark's operator."""
    fields: tuple[Field, ...]
    when: Callable[[Arguments], bool] = lambda _: True
    """Whether arguments are in this form; the first form that matches is used."""
    arg_type: str = "default"
    exported: bool = True
    """Whether any case of the operator is written in this form."""
    tagged: bool = False
    """Whether cases imported in this form are tagged with it, so that they are exported in it again."""
    note: str = ""
    """How opmark measures this differently from ByteMicroPerf."""

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for field in self.fields for name in field.names) | {"arg_type"}

    @property
    def tag(self) -> str:
        """The tag of cases that were imported in this form, as in `gemm llm`."""
        return f"{self.task} {self.arg_type}" if self.tagged else ""

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        """Parameters that no field sets: a case can be exported only if they have their defaults."""
        decided = {name for field in self.fields for name in field.ours}
        return {param.name: param.default for param in operator(self.op).params if param.name not in decided}

    def notes(self, given: Arguments) -> Iterator[str]:
        """Say how opmark measures a point differently from ByteMicroPerf."""
        if self.note:
            yield self.note
        for field in self.fields:
            remark = field.remark(given)
            if remark:
                yield f"`{self.task}`: {remark}"

    def params(self, given: Arguments) -> dict[str, Any]:
        """Return opmark's parameters of a point; raise Refused for values that opmark cannot measure."""
        found: dict[str, Any] = {}
        for field in self.fields:
            found.update(field.read(given, self.op))
        return found

    def arguments(self, params: Arguments) -> dict[str, Any] | None:
        """Return ByteMicroPerf's arguments; None where it cannot express the parameters."""
        if any(params.get(name, value) != value for name, value in self._defaults.items()):
            return None
        found: dict[str, Any] = {"arg_type": self.arg_type}
        for field in self.fields:
            written = field.write(params)
            if written is None:
                return None
            found.update(written)
        return found


ROWS, DTYPE = ShapeField(), Dtype()
SAME_RESULT = Only("dst_dtype")
WITH_RESIDUAL = Only("add_residual", value=True, exported=True)
M_K_N = (ValueField("M"), ValueField("K"), ValueField("N"))

_CASTS = {"float32": "bfloat16", "float16": "float32", "bfloat16": "float32", "int8": "int32"}


def has(*names: str) -> Callable[[Arguments], bool]:
    return lambda given: all(name in given for name in names)


def _is_narrow(given: Arguments) -> bool:
    """Whether a product is one of 8-bit numbers."""
    return given.get("dtype") in ("int8", "float8", *FLOATS8)


def _adds_residual(given: Arguments) -> bool:
    return given.get("add_residual") is True


@dataclass(frozen=True)
class Cast(Field):
    """The target type of a cast: `dst_dtype`, or ByteMicroPerf's usual target for `dtype`."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("dst_dtype",)

    @property
    def ours(self) -> tuple[str, ...]:
        return ("to",)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        if "dst_dtype" in given:
            return {"to": dtype_of("dst_dtype", given["dst_dtype"])}
        source = dtype_of("dtype", given.get("dtype"))
        if source not in _CASTS:
            raise PointRefused(
                f"argument `dtype`: expected one of {', '.join(_CASTS)}, got `{given['dtype']}`",
                "dtype",
                "or name the target type with `dst_dtype`",
            )
        return {"to": _CASTS[source]}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {} if _CASTS.get(params["dtype"]) == params["to"] else {"dst_dtype": params["to"]}


@dataclass(frozen=True)
class Bias(Field):
    """Whether layer_norm adds a bias: in the first generation it does not, and its shapes are read as `bias` false."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("bias",)

    @property
    def ours(self) -> tuple[str, ...]:
        return ("bias",)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {"bias": check_value("bias", "bool", given["bias"])} if "bias" in given else {}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {} if params.get("bias", True) else {"bias": False}


@dataclass(frozen=True)
class Lookup(Field):
    """A table with `table` rows, of which `count` are read or written."""

    table: str
    count: str
    to: str
    """opmark's parameter for the count."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.table, self.count, "dim_size")

    @property
    def ours(self) -> tuple[str, ...]:
        return (SHAPE, self.to)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        rows, count, width = sizes_of(given, (self.table, self.count, "dim_size"))
        return {SHAPE: [rows, width], self.to: count}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        if len(params[SHAPE]) != 2:
            return None
        rows, width = params[SHAPE]
        return {self.table: rows, self.count: params[self.to], "dim_size": width}


@dataclass(frozen=True)
class GroupSizes(Field):
    """One size of each product of a grouped product."""

    letter: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.letter,)

    @property
    def ours(self) -> tuple[str, ...]:
        return (self.letter,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {self.letter: check_value(self.letter, "shape", given.get(self.letter))}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {self.letter: params[self.letter]}


@dataclass(frozen=True)
class EqualGroups(Field):
    """`num_groups` products of `M` rows each, as experts that have `M` tokens each."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("num_groups", "M")

    @property
    def ours(self) -> tuple[str, ...]:
        return ("num_experts", "num_tokens", "topk")

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        groups, rows = sizes_of(given, self.names)
        return {"num_experts": groups, "num_tokens": groups * rows, "topk": 1}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        rows, rest = divmod(params["num_tokens"], params["num_experts"])
        return {"num_groups": params["num_experts"], "M": rows} if params["topk"] == 1 and not rest else None


def _read_rows(task: str, op: str, to: str) -> Form:
    return Form(task, op, (Lookup("src_batch_size", "dst_batch_size", to), DTYPE))


def _write_rows(task: str, op: str, to: str) -> Form:
    return Form(task, op, (Lookup("dst_batch_size", "src_batch_size", to), DTYPE))


_ELEMENTWISE = ("add", "sub", "mul", "div", "cos", "sin", "exp", "log", "sqrt", "gelu", "silu")
_ROW_OPERATORS = {"sort": "sort", "dropout": "dropout", "exponential": "random_exponential"}
_NORM = (DTYPE, SAME_RESULT, Only("add_residual", value=False))
_FP8_NOTE = "{0} is {1} here: one scale per row and column; in ByteMicroPerf one per quant_group_size elements"


def _narrow_note(task: str, op: str) -> str:
    return f"{task} of 8-bit numbers is {op} here: one scale per row and column, the result in bfloat16"


FORMS = (
    Form("gemm", "quant_matmul", (ValueField("M", "num_tokens"), ValueField("K", "hidden_size"),
         ValueField("N", "new_hidden_size"), DTYPE, Dtype("dst_dtype", "out_dtype", "bfloat16")),
         lambda given: _is_narrow(given) and "M" in given,
         exported=False, tagged=True, note=_narrow_note("gemm", "quant_matmul")),
    Form("gemm", "quant_matmul", (ValueField("num_tokens"), ValueField("sp_size", optional=True),
         ValueField("hidden_size"), ValueField("new_hidden_size"), DTYPE, Dtype("dst_dtype", "out_dtype", "bfloat16")),
         _is_narrow, "llm",
         exported=False, tagged=True, note=_narrow_note("gemm", "quant_matmul")),
    Form("gemm", "matmul", (OwnTokens("M"), ValueField("hidden_size", "K"), ValueField("new_hidden_size", "N"), DTYPE,
         SAME_RESULT), has("num_tokens"), "llm", exported=False, tagged=True),
    Form("gemm", "matmul", (*M_K_N, DTYPE, SAME_RESULT)),
    # These are in the second generation only, of spring 2025.
    Form("gemm_fp8", "quant_matmul", (ValueField("M", "num_tokens"), ValueField("K", "hidden_size"),
         ValueField("N", "new_hidden_size"), DTYPE, Unused(("quant_group_size",)), Constant("out_dtype", "bfloat16")),
         exported=False, tagged=True, note=_FP8_NOTE.format("gemm_fp8", "quant_matmul")),
    Form("group_gemm_fp8", "moe_quant_group_gemm", (EqualGroups(), ValueField("K", "hidden_size"),
         ValueField("N", "new_hidden_size"), DTYPE, Word("mode", "routing", words={"contiguous": "balanced",
         "masked": "balanced"}), Unused(("quant_group_size",)), Constant("out_dtype", "bfloat16")),
         exported=False, tagged=True, note=_FP8_NOTE.format("group_gemm_fp8", "moe_quant_group_gemm")),
    *(Form(name, name, (ROWS, DTYPE)) for name in _ELEMENTWISE),
    Form("cast", "cast", (ROWS, DTYPE, Cast())),
    *(Form(name, name, (ROWS, DTYPE, Constant("keepdims", value=True))) for name in ("reduce_max", "reduce_min",
                                                                                      "reduce_sum")),
    Form("topk", "topk", (ROWS, ValueField("k"), DTYPE)),
    Form("rms_norm", "add_rms_norm", (ValueField("num_tokens"), ValueField("sp_size", optional=True),
         ValueField("hidden_size"), DTYPE, SAME_RESULT, WITH_RESIDUAL),
         lambda given: _adds_residual(given) and "num_tokens" in given, "llm", exported=False, tagged=True,
         note="rms_norm with add_residual is add_rms_norm here, which also returns the sum"),
    Form("rms_norm", "add_rms_norm", (ValueField("batch_size", "num_tokens"), ValueField("dim_size", "hidden_size"),
         DTYPE, SAME_RESULT, WITH_RESIDUAL), _adds_residual, exported=False, tagged=True,
         note="rms_norm with add_residual is add_rms_norm here, which also returns the sum"),
    Form("rms_norm", "rms_norm", (TokenRows(), *_NORM), has("num_tokens"), "llm", exported=False, tagged=True),
    Form("rms_norm", "rms_norm", (ROWS, *_NORM)),
    Form("layer_norm", "layer_norm", (TokenRows(), *_NORM, Bias()), has("num_tokens"), "llm", exported=False,
         tagged=True),
    Form("layer_norm", "layer_norm", (ROWS, *_NORM, Bias())),
    Form("softmax", "softmax", (ShapeField(("batch_size", "head_num", "q_seq_len", "kv_seq_len")), DTYPE),
         has("head_num"), "llm"),
    Form("softmax", "softmax", (ROWS, DTYPE)),
    _read_rows("index_select", "index_select", "indices"),
    _read_rows("gather", "gather_rows", "indices"),
    _write_rows("scatter", "scatter_rows_inplace", "indices"),
    _write_rows("index_add", "index_add_inplace", "indices"),
    Form("embedding", "embedding", (ValueField("src_batch_size", "rows"), ValueField("dst_batch_size", "indices"),
         ValueField("dim_size", "dim"), DTYPE)),
    Form("device2device", "copy", (Elements(), DTYPE, Unused(("world_size",)))),
    # These are in the first generation only. Its gemv is a row times a matrix; opmark's is a matrix times a column.
    Form("gemv", "gemv", (Only("M", value=1, exported=True), ValueField("K"), ValueField("N", "M"), DTYPE),
         lambda given: given.get("M", 1) == 1),
    Form("gemv", "matmul", (*M_K_N, DTYPE), exported=False, note="gemv of several rows is matmul here"),
    Form("batch_gemm", "quant_batched_matmul", (ValueField("batch_size", "B"), *M_K_N, DTYPE), _is_narrow,
         exported=False, tagged=True, note=_narrow_note("batch_gemm", "quant_batched_matmul")),
    Form("batch_gemm", "batched_matmul", (ValueField("batch_size", "B"), *M_K_N, DTYPE)),
    Form("group_gemm", "quant_grouped_gemm", (GroupSizes("M"), ValueField("K"), ValueField("N"), DTYPE), _is_narrow,
         exported=False, tagged=True, note=_narrow_note("group_gemm", "quant_grouped_gemm")),
    Form("group_gemm", "grouped_gemm_mixed", (*map(GroupSizes, "MKN"), DTYPE),
         lambda given: isinstance(given.get("K"), list)),
    Form("group_gemm", "grouped_gemm", (GroupSizes("M"), ValueField("K"), ValueField("N"), DTYPE)),
    *(Form(task, op, (ROWS, DTYPE)) for task, op in _ROW_OPERATORS.items()),
    Form("unique", "unique", (ROWS, DTYPE, Constant("repeats", value=128), Constant("counts", value=True)),
         note="unique: each element occurs 128 times on average"),
    Form("hash_table", "hash_table", (ValueField("entries"), ValueField("dim"), ValueField("batch"),
         ValueField("lookups"), DTYPE)),
)  # fmt: skip

OTHER_NAMES = {
    "layernorm": "layer_norm", "indexadd": "index_add", "allreduce": "all_reduce", "allgather": "all_gather",
    "reducescatter": "reduce_scatter", "alltoall": "all_to_all", "reducemax": "reduce_max", "reducemin": "reduce_min",
    "reducesum": "reduce_sum",
}  # fmt: skip
"""Later names of operators, by their name in the first generation."""
