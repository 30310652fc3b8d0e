"""Parts of the suite `opperf`: by opperf's categories and names, in another element type, in large sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache

from msgspec.structs import replace

from opmark.compat.opperf.large import enlarge
from opmark.compat.opperf.measure import Profiler, check_profiler
from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.exporters.opperf_rows import Line, inputs_of, names_of
from opmark.importers.opperf.names import CATEGORIES, NO_COUNTERPART
from opmark.registry import DRILL, catalogue
from opmark.registry import operator as find_operator
from opmark.schema import Case, Entry, Phase, Workload
from opmark.schema.dtype import DTYPES, is_float
from opmark.schema.workload import VERSION
from opmark.workloads.expand import expand
from opmark.workloads.load import suite

USUAL = "float32"
_NAMES = {name for names in CATEGORIES.values() for name in names}
_BACKWARD: tuple[Phase, ...] = ("backward", "both")


@dataclass(frozen=True)
class Wanted:
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
class Part:
    """The selected part of the suite."""

    entries: list[Entry] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """opperf's names of the results."""
    refused: list[Line] = field(default_factory=list)
    """Results that cannot be measured, with the reason."""


@cache
def _suite() -> tuple[Entry, ...]:
    """Read the suite once, because a program may call the functions of all categories."""
    return tuple(suite("opperf").cases)


def part_of_suite(request: Wanted) -> Part:
    """Select entries of the suite; raise UserError if nothing is left."""
    _check(request)
    part = Part()
    for entry in _suite():
        names = request.select_names(entry.op, names_of(entry.op, [entry.source]))
        if names:
            part.names.update(names)
            _add(part, entry, names, request)
    if not part.entries and not part.refused:
        selection = ", ".join([*request.ops, *request.categories])
        raise UserError(f"the suite has no operator for {selection}", "`opmark opperf --list` lists them by category")
    return part


def operators_without_benchmark() -> list[str]:
    """Return opmark's operators that the suite lacks, then opperf's operators without a counterpart."""
    measured = {entry.op for entry in _suite()}
    missing = [name for name, op in catalogue().items() if name not in measured and op.category != DRILL]
    return [*sorted(missing), *NO_COUNTERPART]


def _check(request: Wanted) -> None:
    check_profiler(request.profiler)
    if request.dtype not in DTYPES:
        raise UnknownName("data type", request.dtype, DTYPES)
    for category in request.categories:
        if category not in CATEGORIES:
            raise UnknownName("category of opperf", category, CATEGORIES, "opmark opperf --list")


def _add(part: Part, entry: Entry, names: Sequence[str], request: Wanted) -> None:
    typed, reason = _set_dtype(replace(entry, phases=_phases(entry, request)), request.dtype)
    if typed is None:
        part.refused += _refused_lines(entry, names, "skipped", reason)
    elif not request.large:
        part.entries.append(typed)
    else:
        found, status, reason = enlarge(next(_cases(typed)), typed)
        part.entries += [] if reason else [found]
        part.refused += _refused_lines(found, names, status, reason) if reason else []


def _phases(entry: Entry, request: Wanted) -> list[Phase]:
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
    return replace(entry, params={**entry.params, "dtype": dtype}), ""


def _refused_lines(entry: Entry, names: Sequence[str], status: str, reason: str) -> Iterator[Line]:
    failed = [{"phase": str(phase), "status": status, "reason": reason} for phase in entry.phases]
    seen: set[str] = set()
    for case in _cases(entry):
        for name in names:
            inputs, operator = inputs_of(name, case)
            if f"{name} {inputs}" not in seen:
                seen.add(f"{name} {inputs}")
                yield Line(name, inputs, failed=failed, operator=operator)


def _cases(entry: Entry) -> Iterator[Case]:
    yield from expand(Workload(VERSION, "opperf", [replace(entry, phases=["forward"])]), find_operator)
