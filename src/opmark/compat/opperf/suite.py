"""The shipped suite `opperf`, in parts: by opperf's categories and names, in another element type, in large sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache

from msgspec.structs import replace

from opmark.compat.opperf.large import enlarged
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
    """Names: opperf's, which choose results of that name alone, or ours, which choose all results of an operator.

    With `*` and `?` they choose by opperf's names, and by ours where none of opperf's fits.
    """
    categories: Sequence[str] = ()

    def chosen(self, op: str, names: Sequence[str]) -> list[str]:
        """Under which of opperf's names an operator of ours is wanted."""
        listed = {name for category in self.categories for name in CATEGORIES[category]}
        here = [name for name in names if not self.categories or name in listed]
        if not self.ops:
            return here
        found = [name for name in here if any(fnmatchcase(name, wish) for wish in self.ops)]
        ours = any(fnmatchcase(op, wish) for wish in self.ops if wish not in _NAMES)
        return found or (here if ours else [])


@dataclass
class Part:
    """What is to be measured, and what cannot be."""

    entries: list[Entry] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """opperf's names under which results are wanted."""
    refused: list[Line] = field(default_factory=list)


@cache
def _suite() -> tuple[Entry, ...]:
    """Read once: a program may call a function for each of the categories."""
    return tuple(suite("opperf").cases)


def part_of_suite(wanted: Wanted) -> Part:
    """UserError where nothing of it is left."""
    _check(wanted)
    part = Part()
    for entry in _suite():
        names = wanted.chosen(entry.op, names_of(entry.op, [entry.source]))
        if names:
            part.names.update(names)
            _add(part, entry, names, wanted)
    if not part.entries and not part.refused:
        asked = ", ".join([*wanted.ops, *wanted.categories])
        raise UserError(f"the suite has no operator for {asked}", "`opmark opperf --list` lists them by category")
    return part


def without_benchmark() -> list[str]:
    """Operators that the suite does not have: ours, then opperf's that have no counterpart here."""
    there = {entry.op for entry in _suite()}
    ours = [name for name, op in catalogue().items() if name not in there and op.category != DRILL]
    return [*sorted(ours), *NO_COUNTERPART]


def _check(wanted: Wanted) -> None:
    check_profiler(wanted.profiler)
    if wanted.dtype not in DTYPES:
        raise UnknownName("data type", wanted.dtype, DTYPES)
    for category in wanted.categories:
        if category not in CATEGORIES:
            raise UnknownName("category of opperf", category, CATEGORIES, "opmark opperf --list")


def _add(part: Part, entry: Entry, names: Sequence[str], wanted: Wanted) -> None:
    typed, reason = _typed(replace(entry, phases=_phases(entry, wanted)), wanted.dtype)
    if typed is None:
        part.refused += _refused(entry, names, "skipped", reason)
    elif not wanted.large:
        part.entries.append(typed)
    else:
        found, status, reason = enlarged(next(_cases(typed)), typed)
        part.entries += [] if reason else [found]
        part.refused += _refused(found, names, status, reason) if reason else []


def _phases(entry: Entry, wanted: Wanted) -> list[Phase]:
    if not set(_BACKWARD) & set(entry.phases) or not is_float(wanted.dtype):
        return ["forward"]
    return ["both"] if wanted.profiler == "python" else ["forward", "backward"]


def _typed(entry: Entry, dtype: str) -> tuple[Entry | None, str]:
    """In another element type; what has one of its own by nature (indices, 16-bit weights) keeps it."""
    param = find_operator(entry.op).by_name.get("dtype")
    if param is None or param.default != USUAL or dtype == USUAL:
        return entry, ""
    try:
        param.check(dtype)
    except InvalidParameter as error:
        return None, error.message
    return replace(entry, params={**entry.params, "dtype": dtype}), ""


def _refused(entry: Entry, names: Sequence[str], status: str, reason: str) -> Iterator[Line]:
    failed = [{"phase": str(phase), "status": status, "reason": reason} for phase in entry.phases]
    seen: set[str] = set()
    for case in _cases(entry):
        for name in names:
            inputs, operator = inputs_of(name, case)
            if f"{name} {inputs}" not in seen:
                seen.add(f"{name} {inputs}")
                yield Line(name, inputs, failed=failed, operator=operator)


def _cases(entry: Entry) -> Iterator[Case]:
    """The points of an entry; in float32, where it cannot be had as asked."""
    yield from expand(Workload(VERSION, "opperf", [replace(entry, phases=["forward"])]), find_operator)
