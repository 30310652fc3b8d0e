"""opperf's Python functions: `run_performance_test`, one for each of the 23 categories, and one for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from typing import Any

from msgspec.structs import replace as structs_replace

from opmark.api.requests import talk
from opmark.catalogue.expansion import expand
from opmark.catalogue.workload_file import suite
from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.interop.opperf.class_inputs import check_dtype
from opmark.interop.opperf.exporter import OpperfResult, document, groups, inputs_of, line_of, lines, names_of
from opmark.interop.opperf.importer import CommonOptions, OperatorRequest, make_entry, tensor_names
from opmark.interop.opperf.measurement import CPU, Profiler, check_profiler, enlarge, measure, print_doubts_by_operator
from opmark.interop.opperf.operators import CATEGORIES, NO_COUNTERPART, OPERATORS, plain_name
from opmark.plugin.registry import DRILL, catalogue
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Case, Entry, Phase, Workload
from opmark.schema.options import PathLike
from opmark.schema.tensor import DTYPES, is_float
from opmark.schema.workload import VERSION

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
    runs: int = 100, *, framework: str = "torch", threads: int | None = None, db: PathLike | None = None,
    timeout: float | None = None,
) -> Results:  # fmt: skip
    """Measure the whole suite: minutes to hours on a CPU."""
    return run_request(
        SuiteRequest(dtype, profiler, _is_on(int64_tensor)),
        ctx=ctx, warmup=warmup, runs=runs, framework=framework, threads=threads, db=db, timeout=timeout,
    )  # fmt: skip


@cache
def category_function(name: str) -> Callable[..., Results]:
    category = CATEGORY_FUNCTIONS[name]

    def run(
        ctx: Any = CPU, dtype: str = "float32", profiler: Profiler = "native", int64_tensor: str = "off",
        warmup: int = 25, runs: int = 100, *, framework: str = "torch", threads: int | None = None,
        db: PathLike | None = None, timeout: float | None = None,
    ) -> Results:  # fmt: skip
        return run_request(
            SuiteRequest(dtype, profiler, _is_on(int64_tensor), categories=[category]),
            ctx=ctx, warmup=warmup, runs=runs, framework=framework, threads=threads, db=db, timeout=timeout,
        )  # fmt: skip

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"Measure opperf's category {category}."
    return run


def run_request(
    request: SuiteRequest, *, ctx: Any, warmup: int, runs: int, framework: str, threads: int | None,
    db: PathLike | None, timeout: float | None,
) -> Results:  # fmt: skip
    part = part_of_suite(request)
    found = list(part.refused)
    if part.entries:
        result = measure(
            part.entries, profiler=request.profiler, ctx=ctx, framework=framework, warmup=warmup, runs=runs,
            threads=threads, db=db, timeout=timeout,
        )  # fmt: skip
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
            entry, notes = make_entry(OperatorRequest(name, data, common), f"{_SOURCE}#{name}[{i}]")
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


def run_benchmark_operator(
    name: str, size: Sequence[int] = (128, 128), additional_inputs: Mapping[str, Any] | None = None,
    dtype: str = "float32", run_backward: bool = False, ctx: Any = CPU, warmup: int = 10, runs: int = 50,
    profiler: Profiler = "native", *, framework: str = "torch", threads: int | None = None, db: PathLike | None = None,
) -> list[list[Results]]:  # fmt: skip
    """Measure one operator with tensors of one size, except for those in `additional_inputs`.

    MXNet may have it as nd, np and npx, and opperf returns one result for each of them; here there is one result.
    """
    given = dict(additional_inputs or {})
    rows = OPERATORS.get(plain_name(name), ())
    for names in list(rows[0].tensors)[: rows[0].needed] if rows else ():
        alike = [word.rstrip("*") for word in names.split("|")]
        if not any(word in given for word in alike):
            given[alike[0]] = tuple(size)
    found = run_performance_test(
        name, [given], run_backward, dtype, ctx, profiler, warmup, runs, framework=framework, threads=threads, db=db
    )
    return [found]


def run_op_benchmarks(
    ops: Iterable[str], dtype: str = "float32", ctx: Any = CPU, profiler: Profiler = "native",
    int64_tensor: str = "off", warmup: int = 25, runs: int = 100, *, framework: str = "torch",
    threads: int | None = None, db: PathLike | None = None, timeout: float | None = None,
) -> Results:  # fmt: skip
    """Measure operators by name, or a dictionary with these names as keys, with opperf's default inputs."""
    return run_request(
        SuiteRequest(dtype, profiler, _is_on(int64_tensor), ops=[plain_name(name) for name in ops]),
        ctx=ctx, warmup=warmup, runs=runs, framework=framework, threads=threads, db=db, timeout=timeout,
    )  # fmt: skip


CALLS: dict[str, Callable[..., Any]] = {
    "run_performance_test": run_performance_test,
    "run_benchmark_operator": run_benchmark_operator,
    "run_op_benchmarks": run_op_benchmarks,
    "run_all_mxnet_operator_benchmarks": run_all_mxnet_operator_benchmarks,
}
"""Functions that do not belong to a category."""


# Parts of the suite `opperf`: by opperf's categories and names, in another element type, in large sizes.

USUAL = "float32"
_NAMES = {name for names in CATEGORIES.values() for name in names}
_BACKWARD: tuple[Phase, ...] = ("backward", "both")


@dataclass(frozen=True)
class SuiteRequest:
    dtype: str = USUAL
    profiler: Profiler = "native"
    large: bool = False
    """Tensors of at least 2**32 elements (`--int64-tensor on`)."""
    ops: Sequence[str] = ()
    """Operators: a name of opperf selects results of that name alone, a name of opmark all results of the operator.

    Patterns with `*` and `?` match opperf's names, or opmark's if none of opperf's matches.
    """
    categories: Sequence[str] = ()

    def select_names(self, op: str, names: Sequence[str]) -> list[str]:
        """Return the selected ones of opperf's names of an operator of opmark."""
        listed = {name for category in self.categories for name in CATEGORIES[category]}
        in_categories = [name for name in names if not self.categories or name in listed]
        if not self.ops:
            return in_categories
        found = [name for name in in_categories if any(fnmatchcase(name, pattern) for pattern in self.ops)]
        by_operator = any(fnmatchcase(op, pattern) for pattern in self.ops if pattern not in _NAMES)
        return found or (in_categories if by_operator else [])


@dataclass
class SuitePart:
    """The selected part of the suite."""

    entries: list[Entry] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """opperf's names of the results."""
    refused: list[OpperfResult] = field(default_factory=list)
    """Results that cannot be measured, with the reason."""


@cache
def _suite() -> tuple[Entry, ...]:
    """Read the suite once, because a program may call the functions of all categories."""
    return tuple(suite("opperf").cases)


@cache
def _named_suite() -> tuple[tuple[Entry, list[str]], ...]:
    """Return the entries of the suite, each with opperf's names of it."""
    return tuple((entry, names_of(entry.op, [entry.source])) for entry in _suite())


def part_of_suite(request: SuiteRequest) -> SuitePart:
    """Select entries of the suite; raise UserError if nothing is left."""
    _check(request)
    part = SuitePart()
    for entry, all_names in _named_suite():
        names = request.select_names(entry.op, all_names)
        if names:
            part.names.update(names)
            _add(part, entry, names, request)
    if not part.entries and not part.refused:
        selection = ", ".join([*request.ops, *request.categories])
        raise UserError(f"the suite has no operator for {selection}", "`opmark opperf --list` lists them by category")
    return part


def has_backward(name: str) -> bool:
    """Whether the suite measures the backward pass of an operator of opperf."""
    return any(set(_BACKWARD) & set(entry.phases) for entry, names in _named_suite() if name in names)


def default_inputs(name: str, *, large: bool = False) -> list[dict[str, Any]]:
    """Return the inputs of the suite for an operator, in opperf's words, with shapes as tuples; none if there are no
    words for them."""
    part = part_of_suite(SuiteRequest(large=large, ops=[name]))
    found: dict[str, dict[str, Any]] = {}
    for entry in part.entries:
        for case in _cases(entry):
            inputs, other_words = inputs_of(name, case)
            if not other_words:
                line = OpperfResult(name, inputs)
                found.setdefault(line.format_inputs(), line.inputs_with_tuples())
    return list(found.values())


def operators_without_benchmark() -> list[str]:
    """Return opmark's operators that the suite lacks, then opperf's operators without a counterpart."""
    measured = {entry.op for entry in _suite()}
    missing = [name for name, op in catalogue().items() if name not in measured and op.category != DRILL]
    return [*sorted(missing), *NO_COUNTERPART]


def _check(request: SuiteRequest) -> None:
    check_profiler(request.profiler)
    if request.dtype not in DTYPES:
        raise UnknownName("data type", request.dtype, DTYPES)
    for category in request.categories:
        if category not in CATEGORIES:
            raise UnknownName("category of opperf", category, CATEGORIES, "opmark opperf --list")


def _add(part: SuitePart, entry: Entry, names: Sequence[str], request: SuiteRequest) -> None:
    typed, reason = _set_dtype(structs_replace(entry, phases=_phases(entry, request)), request.dtype)
    if typed is None:
        part.refused += _refused_lines(entry, names, "skipped", reason)
    elif not request.large:
        part.entries.append(typed)
    else:
        found, status, reason = enlarge(next(_cases(typed)), typed)
        part.entries += [] if reason else [found]
        part.refused += _refused_lines(found, names, status, reason) if reason else []


def _phases(entry: Entry, request: SuiteRequest) -> list[Phase]:
    if not set(_BACKWARD) & set(entry.phases) or not is_float(request.dtype):
        return ["forward"]
    return ["both"] if request.profiler == "python" else ["forward", "backward"]


def _set_dtype(entry: Entry, dtype: str) -> tuple[Entry | None, str]:
    """Set another element type, or say why not; operators with a type of their own, as of indices, keep it."""
    param = find_operator(entry.op).by_name.get("dtype")
    if param is None or param.default != USUAL or dtype == USUAL:
        return entry, ""
    try:
        param.check(dtype)
    except InvalidParameter as error:
        return None, error.message
    return structs_replace(entry, params={**entry.params, "dtype": dtype}), ""


def _refused_lines(entry: Entry, names: Sequence[str], status: str, reason: str) -> Iterator[OpperfResult]:
    failed = [{"phase": str(phase), "status": status, "reason": reason} for phase in entry.phases]
    seen: set[str] = set()
    for case in _cases(entry):
        for name in names:
            inputs, operator = inputs_of(name, case)
            if f"{name} {inputs}" not in seen:
                seen.add(f"{name} {inputs}")
                yield OpperfResult(name, inputs, failed=failed, operator=operator)


def _cases(entry: Entry) -> Iterator[Case]:
    yield from expand(Workload(VERSION, "opperf", [structs_replace(entry, phases=["forward"])]), find_operator)
