"""ByteMicroPerf's names: the forms of all its operators, its tasks by generation and group, and opmark's cases in its
terms."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from opmark.errors import UserError, nearest
from opmark.interop.bytemicroperf import communication, forms, llm
from opmark.interop.bytemicroperf.communication import buffer_shape
from opmark.interop.bytemicroperf.fields import (
    SHAPE,
    Arguments,
    Dtype,
    Field,
    OwnParameter,
    PointRefused,
    ShapeField,
    split_rows,
)
from opmark.interop.bytemicroperf.forms import OTHER_NAMES, Form
from opmark.plugin import Operator
from opmark.plugin.registry import aliases, catalogue
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Case


class ForeignCase(NamedTuple):
    op: str
    """ByteMicroPerf's operator, as in `gemm`."""
    arguments: dict[str, Any]
    """One point, as in `{"arg_type": "default", "M": 8, "K": 64, "N": 64, "dtype": "float16"}`."""


@cache
def _forms(op: str) -> tuple[Form, ...]:
    """Return the forms of an operator; the forms that only imported cases have come first."""
    found = [form for forms in FORMS.values() for form in forms if form.op == op and (form.exported or form.tagged)]
    return tuple(sorted(found, key=lambda form: form.exported))


def to_bytemicroperf(case: Case) -> ForeignCase | None:
    """Return the operator and the arguments of ByteMicroPerf's third generation for a case, or None if it has none.

    An operator of an earlier generation keeps its name there, with arguments in the style of the third generation.
    An imported case comes back in the form that it had, and is the same case when it is imported again.
    """
    if case.phase != "forward" or case.wrt:
        return None
    for form in _forms(case.op):
        if form.tagged and form.tag not in case.tags:
            continue
        arguments = form.arguments(case.params)
        if arguments is not None:
            return ForeignCase(form.task, arguments)
    return None


_FORMAT = "bytemicroperf"


def write_words(op: str, arguments: Arguments) -> str:
    """Return a point of a file as `Entry.written_as` keeps it."""
    return msgspec.json.encode({"format": _FORMAT, "op": op, "arguments": arguments}).decode()


def _read_words(case: Case) -> list[ForeignCase]:
    """Return the points of ByteMicroPerf's files that a case was imported from, word for word."""
    found = (msgspec.json.decode(words) for words in case.written_as)
    return [ForeignCase(words["op"], words["arguments"]) for words in found if words.get("format") == _FORMAT]


# The forms of every operator of ByteMicroPerf.

FORMS: dict[str, tuple[Form, ...]] = {}
for _form in (*forms.FORMS, *llm.FORMS, *communication.FORMS):
    FORMS[_form.task] = (*FORMS.get(_form.task, ()), _form)

BETWEEN_DEVICES = tuple(dict.fromkeys(form.task for form in communication.FORMS))
"""Operators that are measured on several processes, or between two kinds of memory."""

ARGUMENTS = frozenset(name for forms in FORMS.values() for form in forms for name in form.names)
"""All arguments of all operators."""

NAMES = (*FORMS, *forms.OTHER_NAMES)


def forms_of(task: str) -> tuple[Form, ...]:
    """Return the forms of an operator in the order in which they are tried; raise Refused for an unknown one."""
    task = forms.OTHER_NAMES.get(task, task)
    if task in FORMS:
        return FORMS[task]
    found = own_operator(task)
    if found:
        return (_form_of_operator(task, found),)
    near = nearest(task, (*NAMES, *catalogue(), *aliases()))
    raise PointRefused(
        f"neither ByteMicroPerf nor opmark has an operator `{task}`", hint=f"did you mean `{near}`?" if near else ""
    )


def own_operator(task: str) -> Operator | None:
    """Return the operator of opmark's catalogue or of a plug-in, if ByteMicroPerf has none of this name."""
    if task in TASKS:
        return None
    return catalogue().get(task) or aliases().get(task)


def _form_of_operator(task: str, op: Operator) -> Form:
    """Return the form of an operator that ByteMicroPerf lacks: its arguments are opmark's parameters.

    A shape can also be written as ByteMicroPerf does for its own operators, with `batch_size` and `dim_size`.
    """
    fields: list[Field] = []
    for param in op.params:
        if param.kind == "dtype":
            fields.append(Dtype(param.name, param.name, param.default))
        elif param.name == SHAPE and not {"batch_size", "dim_size"} & op.by_name.keys():
            fields.append(ShapeField())
        else:
            fields.append(OwnParameter(param))
    return Form(task, op.name, tuple(fields), exported=False)


def is_task(name: str) -> bool:
    return name in TASKS or own_operator(name) is not None


def task_from_name(stem: str) -> str:
    """Return the operator that a file is named after: the longest one that its name is, or ends in after a `_`."""
    words = stem.split("_")
    ends = ("_".join(words[start:]) for start in range(len(words)))
    return next(filter(is_task, ends), stem)


GROUPS: dict[str, tuple[str, ...]] = {
    "gemm_ops": ("gemm", "gemv", "batch_gemm", "group_gemm"),
    "unary_ops": ("sin", "cos", "exp", "exponential", "log", "sqrt", "silu", "gelu", "cast", "swiglu"),
    "binary_ops": ("add", "sub", "mul", "div"),
    "reduction_ops": ("layernorm", "softmax", "reduce_sum", "reduce_max", "reduce_min"),
    "index_ops": ("index_add", "sort", "unique", "scatter", "gather", "hash_table", "topk"),
    "h2d_ops": ("host2device", "device2host", "device2device"),
    "ccl_ops": ("allreduce", "broadcast", "allgather", "reducescatter", "alltoall", "p2p"),
}
"""Tasks of the first generation, by the groups that its `--task` accepts."""

TASKS = frozenset(NAMES)
"""Tasks of all generations."""

_V1_TASKS = {task for tasks in GROUPS.values() for task in tasks}
_V1_NAMES = {later: first for first, later in OTHER_NAMES.items() if first in _V1_TASKS}

_WORDS = re.compile(r"(\w+)(?=\.json\b|\.csv\b)|(?<=#)(\w+)")
"""Words of a source that may be a task: the names of files, and the first word behind `#`."""


def v1_name(case: Case) -> str:
    """Return the task of the first generation, whose gemm includes int8 products."""
    name = reported_cases(case)[0].op
    is_gemm = name == "quant_matmul" and "gemm" in tasks_in_sources(case.sources)
    return "gemm" if is_gemm else _V1_NAMES.get(name, name)


def reported_cases(case: Case) -> list[ForeignCase]:
    """Return operator and arguments as the files of the case write them: one for each point that is this case.

    A case of no such file is written as the third generation does, or as opmark does if that has no words for it.
    ByteMicroPerf measures no gradients. A backward case has the name of its operator and an argument `phase`.
    """
    found = _read_words(case)
    if not found:
        translated = to_bytemicroperf(replace(case, phase="forward", wrt=()))
        found = [translated or ForeignCase(_tasks_by_operator().get(case.op, case.op), case.params)]
    if case.phase == "forward":
        return found
    phase = {"phase": case.phase, **({"wrt": list(case.wrt)} if case.wrt else {})}
    return [ForeignCase(op, {**arguments, **phase}) for op, arguments in found]


def is_complete_in_v1(case: Case) -> bool:
    """Whether shape and number of ranks, all that the first generation reports, describe a communication fully."""
    return "src" not in case.params and to_bytemicroperf(case) is not None


@cache
def _tasks_by_operator() -> dict[str, str]:
    return {form.op: task for task, forms in reversed(FORMS.items()) for form in forms if form.exported}


def tasks_in_sources(sources: Iterable[str]) -> list[str]:
    """Return the tasks that a case was imported from, by the names of files and of keys in them."""
    words = (word for source in sources for words in _WORDS.findall(source) for word in words if word)
    found = dict.fromkeys(map(task_from_name, words))
    return [name for name in found if name in TASKS]


def _table_and_rows(p: dict[str, Any]) -> list[Any]:
    """Return the table and the rows; a table of which all rows are moved stands alone."""
    rows = [p["indices"], *p["shape"][1:]]
    return [p["shape"]] if rows == p["shape"] else [p["shape"], rows]


_SHAPES: dict[str, Callable[[dict[str, Any]], list[Any]]] = {
    "gemv": lambda p: [[1, p["K"]], [p["K"], p["M"]]],
    "quant_matmul": lambda p: [[p["num_tokens"], p["hidden_size"]], [p["hidden_size"], p["new_hidden_size"]]],
    "grouped_gemm": lambda p: [[[rows, p["K"]], [p["K"], p["N"]]] for rows in p["M"]],
    "grouped_gemm_mixed": lambda p: [[[m, k], [k, n]] for m, k, n in zip(p["M"], p["K"], p["N"], strict=True)],
    "topk": lambda p: [p["shape"], [*p["shape"][:-1], p["k"]]],
    "gather_rows": _table_and_rows,
    "scatter_rows_inplace": _table_and_rows,
    "index_add_inplace": lambda p: [p["shape"], [p["indices"], *p["shape"][1:]]],
    "layer_norm": lambda p: [p["shape"]],
    "rms_norm": lambda p: [p["shape"]],
    "random_exponential": lambda p: [p["shape"]],
    "copy": lambda p: [split_rows(p["n"])],
}
"""Shapes of inputs in workloads of the first generation, by opmark's operator, where they are not all its inputs."""

_BATCH: dict[str, Callable[[dict[str, Any]], int]] = {
    "gemv": lambda p: 1,
    "grouped_gemm": lambda p: 1,
    "grouped_gemm_mixed": lambda p: 1,
    "hash_table": lambda p: int(p["batch"]),
}


def tensor_shapes(case: Case) -> list[Any]:
    if case.op in _SHAPES:
        return _SHAPES[case.op](case.params)
    if {"size", "dtype", "ranks"} <= case.params.keys():
        return [buffer_shape(case.params["size"], case.params["dtype"]) or [case.params["size"]]]
    try:
        inputs = find_operator(case.op).inputs(case.params)
    except UserError:  # the operator of a plug-in that is no longer installed
        inputs = {}
    shapes = [list(spec.shape) for spec in inputs.values()]
    return shapes or [case.params[name] for name in ("shape",) if name in case.params]


def batch_size(case: Case) -> int:
    """Return what QPS counts: the first dimension of the first tensor, the rows of a product, the batch of a lookup."""
    if case.op in _BATCH:
        return _BATCH[case.op](case.params)
    shapes = tensor_shapes(case)
    return int(shapes[0][0]) if shapes and shapes[0] else 1
