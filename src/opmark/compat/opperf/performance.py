"""opperf's Python functions: `run_performance_test`, one for each of the 23 categories, and one for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

from opmark.api import talk
from opmark.compat.opperf.context import CPU
from opmark.compat.opperf.doubts import print_doubts_by_operator
from opmark.compat.opperf.measure import Profiler, check_profiler, measure
from opmark.compat.opperf.suite import Wanted, part_of_suite
from opmark.errors import UserError
from opmark.exporters.opperf import document
from opmark.exporters.opperf_rows import groups, line_of, lines
from opmark.importers.opperf.ask import Ask, CommonOptions, make_entry, tensor_names
from opmark.importers.opperf.classes import check_dtype
from opmark.importers.opperf.names import plain_name
from opmark.schema import Entry
from opmark.schema.options import PathLike

CATEGORY_FUNCTIONS = {
    "run_mx_unary_operators_benchmarks": "unary",
    "run_mx_binary_broadcast_operators_benchmarks": "binary-broadcast",
    "run_mx_binary_element_wise_operators_benchmarks": "binary-elementwise",
    "run_mx_binary_misc_operators_benchmarks": "binary-misc",
    "run_gemm_operators_benchmarks": "gemm",
    "run_mx_random_sampling_operators_benchmarks": "random",
    "run_mx_reduction_operators_benchmarks": "reduction",
    "run_sorting_searching_operators_benchmarks": "sorting",
    "run_indexing_routines_benchmarks": "indexing",
    "run_rearrange_operators_benchmarks": "rearrange",
    "run_shape_operators_benchmarks": "shape",
    "run_expanding_operators_benchmarks": "expanding",
    "run_rounding_operators_benchmarks": "rounding",
    "run_join_split_operators_benchmarks": "join-split",
    "run_nn_basic_operators_benchmarks": "nn-basic",
    "run_activation_operators_benchmarks": "activation",
    "run_pooling_operators_benchmarks": "pooling",
    "run_convolution_operators_benchmarks": "convolution",
    "run_transpose_convolution_operators_benchmarks": "transposed-convolution",
    "run_optimizer_operators_benchmarks": "optimizer",
    "run_loss_operators_benchmarks": "loss",
    "run_mx_misc_operators_benchmarks": "misc",
    "run_linalg_operators_benchmarks": "linalg",
}

Results = dict[str, list[dict[str, Any]]]
_SOURCE = "run_performance_test"
_EXAMPLE = 'as in inputs=[{"lhs": (1024, 1024), "rhs": (1024, 1024)}]'
_EACH = ("forward", "backward")
_SHAPES = ("shape", "target_shape", "output_size", "pooled_size")
"""Options that are always shapes, also if they are written as lists."""


def run_performance_test(
    ops: Any, inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]], run_backward: bool = True,
    dtype: str = "float32", ctx: Any = CPU, profiler: Profiler = "native", warmup: int = 10, runs: int = 50, *,
    framework: str = "torch", threads: int | None = None, db: PathLike | None = None,
) -> list[Results]:  # fmt: skip
    """Measure operators, given by name or as MXNet's functions, with all inputs; a tuple is a shape, a list values."""
    check_profiler(profiler)
    check_dtype(dtype, "dtype")
    names, listed = _names(ops), _list_of_inputs(inputs)
    phases: Any = ("forward",) if not run_backward else ("both",) if profiler == "python" else _EACH
    entries = _entries(names, listed, CommonOptions(phases, dtype))
    result = measure(
        entries, ctx=ctx, framework=framework, warmup=warmup, runs=runs, profiler=profiler, threads=threads, db=db
    )
    found = []
    for entry, (name, given) in zip(entries, product(names, listed), strict=True):
        group = next(g for g in groups(result.records) if entry.source in g[0].task.case.sources)
        found.append(replace(line_of(name, group, profiler), inputs=dict(given), operator=""))
    print_doubts_by_operator(found, result)
    return [{name: results} for name, results in document(found).items()]


def run_all_mxnet_operator_benchmarks(
    ctx: Any = CPU, dtype: str = "float32", profiler: Profiler = "native", int64_tensor: str = "off", warmup: int = 25,
    runs: int = 100, **more: Any,
) -> Results:  # fmt: skip
    """Measure the whole suite: minutes to hours on a CPU. `more` are framework, threads, db and timeout."""
    return run_request(Wanted(dtype, profiler, _is_on(int64_tensor)), ctx=ctx, warmup=warmup, runs=runs, **more)


@cache
def category_function(name: str) -> Callable[..., Results]:
    category = CATEGORY_FUNCTIONS[name]

    def run(
        ctx: Any = CPU, dtype: str = "float32", profiler: Profiler = "native", int64_tensor: str = "off",
        warmup: int = 25, runs: int = 100, **more: Any,
    ) -> Results:  # fmt: skip
        request = Wanted(dtype, profiler, _is_on(int64_tensor), categories=[category])
        return run_request(request, ctx=ctx, warmup=warmup, runs=runs, **more)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"Measure opperf's category {category}. Further options: framework, threads, db, timeout."
    return run


def run_request(request: Wanted, *, ctx: Any, warmup: int, runs: int, framework: str = "torch", **more: Any) -> Results:
    part = part_of_suite(request)
    found = list(part.refused)
    if part.entries:
        settings: dict[str, Any] = {"ctx": ctx, "framework": framework, "warmup": warmup, "runs": runs}
        result = measure(part.entries, profiler=request.profiler, **settings, **more)
        found = [*lines(result.results(), request.profiler, part.names), *found]
        print_doubts_by_operator(found, result)
    return document(found)


def _is_on(word: Any) -> bool:
    if word not in ("on", "off", True, False):
        raise UserError(f"int64_tensor: expected on or off, got `{word}`")
    return word in ("on", True)


def _names(ops: Any) -> list[str]:
    names = list(dict.fromkeys(_name(op) for op in (ops if isinstance(ops, list | tuple) else [ops])))
    if not names:
        raise UserError("ops: an empty list names no operator")
    return names


def _list_of_inputs(inputs: Any) -> list[Mapping[str, Any]]:
    listed = [inputs] if isinstance(inputs, Mapping) else inputs
    if not isinstance(listed, list | tuple) or not listed:
        raise UserError(f"inputs: expected a list of dictionaries, got {inputs!r}", _EXAMPLE)
    for i, one in enumerate(listed):
        if not isinstance(one, Mapping):
            raise UserError(f"inputs[{i}]: expected a dictionary, got {one!r}", _EXAMPLE)
    return list(listed)


def _entries(names: Sequence[str], listed: Sequence[Mapping[str, Any]], common: CommonOptions) -> list[Entry]:
    """Return an entry for each operator with each of the inputs, and print notes."""
    entries: list[Entry] = []
    lines: dict[str, None] = {}
    for name in names:
        tensors = tensor_names(name) - set(_SHAPES)
        for i, given in enumerate(listed):
            data = {key: _plain(value, values=key in tensors) for key, value in given.items()}
            entry, notes = make_entry(Ask(name, data, common), f"{_SOURCE}#{name}[{i}]")
            lines |= {f"{name}: {note}": None for note in notes}
            entries.append(entry)
    for line in lines:
        talk(line)
    return entries


def _name(op: Any) -> str:
    name = op if isinstance(op, str) else getattr(op, "__name__", None)
    if not isinstance(name, str):
        raise UserError(f"ops: expected the name of an operator or a function, got `{op!r}`")
    return plain_name(name)


def _plain(value: Any, *, values: bool) -> Any:
    """Return plain data: a tuple is a shape; with `values`, whole numbers of a list are values and not sizes."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, list):
        whole = values and value and all(isinstance(v, int) and not isinstance(v, bool) for v in value)
        return [float(v) for v in value] if whole else [_plain(v, values=values) for v in value]
    return list(value.shape) if hasattr(value, "shape") else value


CALLS: dict[str, Callable[..., Any]] = {
    "run_performance_test": run_performance_test,
    "run_all_mxnet_operator_benchmarks": run_all_mxnet_operator_benchmarks,
}
"""Functions that do not belong to a category."""
