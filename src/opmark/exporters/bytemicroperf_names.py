"""What ByteMicroPerf calls things: its tasks by generation and group, and our operators under its names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from msgspec.structs import replace

from opmark.errors import UserError
from opmark.importers.bytemicroperf.communication import rows
from opmark.importers.bytemicroperf.foreign import to_bytemicroperf
from opmark.importers.bytemicroperf.tasks import FORMS, NAMES, task_from_name
from opmark.registry import operator as find_operator
from opmark.schema import Case

GROUPS: dict[str, tuple[str, ...]] = {
    "gemm_ops": ("gemm", "gemv", "batch_gemm", "group_gemm"),
    "unary_ops": ("sin", "cos", "exp", "exponential", "log", "sqrt", "silu", "gelu", "cast", "swiglu"),
    "binary_ops": ("add", "sub", "mul", "div"),
    "reduction_ops": ("layernorm", "softmax", "reduce_sum", "reduce_max", "reduce_min"),
    "index_ops": ("index_add", "sort", "unique", "scatter", "gather", "hash_table", "topk"),
    "h2d_ops": ("host2device", "device2host", "device2device"),
    "ccl_ops": ("allreduce", "broadcast", "allgather", "reducescatter", "alltoall", "p2p"),
}
"""V1's tasks, by the groups that `--task` takes there."""

TASKS = frozenset(NAMES)
"""All generations."""

_V1_SPELLING = {
    "layer_norm": "layernorm", "all_reduce": "allreduce", "all_gather": "allgather", "all_to_all": "alltoall",
    "reduce_scatter": "reducescatter",
}  # fmt: skip

_WORDS = re.compile(r"(\w+)(?=\.json\b|\.csv\b)|(?<=#)(\w+)")
"""Of a source, what may be a task: the names of files, and what stands first behind `#`."""


def v1_name(case: Case) -> str:
    """The task of the first generation; its int8 products are an operator of their own here and later there."""
    name = v3_words(case)[0]
    return "gemm" if name == "quant_matmul" and "gemm" in filed_under(case.sources) else _V1_SPELLING.get(name, name)


def v3_words(case: Case) -> tuple[str, dict[str, Any]]:
    """(operator, arguments) as the third generation writes them; what it cannot say, as opmark does.

    It measures no gradient: that goes by the name of its operator, and `phase` among the arguments says what it is.
    """
    found = to_bytemicroperf(replace(case, phase="forward", wrt=()))
    op, arguments = found or (_tasks().get(case.op, case.op), case.params)
    if case.phase == "forward":
        return op, arguments
    return op, {**arguments, "phase": case.phase, **({"wrt": list(case.wrt)} if case.wrt else {})}


def said_by_shape(case: Case) -> bool:
    """Of communication: whether the shape and the number of ranks, all that V1 tells of it, are all there is."""
    return "src" not in case.params and to_bytemicroperf(case) is not None


@cache
def _tasks() -> dict[str, str]:
    """Its tasks by our operators."""
    return {form.op: task for task, forms in reversed(FORMS.items()) for form in forms if form.exported}


def filed_under(sources: Iterable[str]) -> list[str]:
    """The tasks that a case was asked for as: there, a file is called after its task, or names several."""
    words = (word for source in sources for words in _WORDS.findall(source) for word in words if word)
    found = dict.fromkeys(map(task_from_name, words))
    return [name for name in found if name in TASKS]


_ROW = 1024
"""Elements a row in every file that it ships for a copy; a copy itself has no rows."""


def _table_and_rows(p: dict[str, Any]) -> list[Any]:
    """The table alone where as many rows are moved as it has."""
    picked = [p["indices"], *p["shape"][1:]]
    return [p["shape"]] if picked == p["shape"] else [p["shape"], picked]


_Shapes = Callable[[dict[str, Any]], list[Any]]
_SHAPES: dict[str, _Shapes] = {
    "gemv": lambda p: [[1, p["K"]], [p["K"], p["M"]]],
    "quant_matmul": lambda p: [[p["num_tokens"], p["hidden_size"]], [p["hidden_size"], p["new_hidden_size"]]],
    "grouped_gemm": lambda p: [[[rows, p["K"]], [p["K"], p["N"]]] for rows in p["M"]],
    "topk": lambda p: [p["shape"], [*p["shape"][:-1], p["k"]]],
    "gather_rows": _table_and_rows,
    "scatter_rows_inplace": _table_and_rows,
    "index_add_inplace": lambda p: [p["shape"], [p["indices"], *p["shape"][1:]]],
    "layer_norm": lambda p: [p["shape"]],
    "rms_norm": lambda p: [p["shape"]],
    "random_exponential": lambda p: [p["shape"]],
    "copy": lambda p: [[p["n"] // _ROW, _ROW] if p["n"] % _ROW == 0 else [1, p["n"]]],
}
"""By our operator, what V1's workload calls the inputs, where these are not simply all the tensors that go in."""

_BATCH: dict[str, Callable[[dict[str, Any]], int]] = {
    "gemv": lambda p: 1,
    "grouped_gemm": lambda p: 1,
    "hash_table": lambda p: int(p["batch"]),
}


def tensor_shapes(case: Case) -> list[Any]:
    if case.op in _SHAPES:
        return _SHAPES[case.op](case.params)
    if {"size", "dtype", "ranks"} <= case.params.keys():
        return [rows(case.params["size"], case.params["dtype"]) or [case.params["size"]]]
    try:
        inputs = find_operator(case.op).inputs(case.params)
    except UserError:  # a plug-in that was there when the run was made
        inputs = {}
    shapes = [list(spec.shape) for spec in inputs.values()]
    return shapes or [case.params[name] for name in ("shape",) if name in case.params]


def batch(case: Case) -> int:
    """What QPS counts: the first dimension of the first tensor, the rows of a product, the batch of a lookup."""
    if case.op in _BATCH:
        return _BATCH[case.op](case.params)
    shapes = tensor_shapes(case)
    return int(shapes[0][0]) if shapes and shapes[0] else 1
