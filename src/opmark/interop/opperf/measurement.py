"""Measures entries as opperf would: its backend, its number of calls, its large tensors; and names doubtful numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

from msgspec.structs import replace

from opmark.api.requests import talk
from opmark.api.result import Result
from opmark.api.run import Plan, run
from opmark.errors import UserError, nearest
from opmark.interop.opperf.exporter import OpperfResult
from opmark.interop.visible_devices import select_device, set_variables
from opmark.plugin import Operator
from opmark.plugin.operator import count_elements, resize_to_elements
from opmark.plugin.registry import backends
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Case, Entry, Record, Run, Workload
from opmark.schema.cost import nbytes
from opmark.schema.measurement import PREEMPTED
from opmark.schema.options import PathLike
from opmark.schema.workload import VERSION
from opmark.store.location import display_address
from opmark.store.memory import NAME as IN_MEMORY
from opmark.units import count_bytes, count_noun


def show_command(result: Result) -> str:
    """Return the command that shows a run; empty if it is not stored."""
    if str(result.db) == IN_MEMORY:
        return ""
    option = "" if result.db == display_address() else f" --db {result.db}"
    return f"opmark show {result.run.id}{option}"


def print_doubt(what: str, codes: Iterable[str], command: str) -> None:
    """Print only the codes: on a busy machine most numbers have cautions, and the run stores their full text."""
    kinds = list(dict.fromkeys(codes))
    worthless = "; do not use numbers of a preempted call" if PREEMPTED in kinds else ""
    more = f"; `{command}` shows details" if command else ""
    talk(f"{what} to be doubted: {', '.join(kinds)}{worthless}{more}")


_MOST_LETTERS = 200


def brief_reason(reason: str) -> str:
    """Return the first line of a reason for a message: the error of a compiler may have tens of kilobytes."""
    first = reason.strip().partition("\n")[0][:_MOST_LETTERS].rstrip()
    left = len(reason.strip()) - len(first)
    return f"{first} ... ({left} more characters are in the record)" if left else first


def print_doubts_by_operator(lines: Iterable[OpperfResult], result: Result) -> None:
    by_name: dict[str, list[OpperfResult]] = {}
    for line in lines:
        by_name.setdefault(line.name, []).append(line)
    for name, own in by_name.items():
        doubtful = [line for line in own if line.cautions]
        if doubtful:
            what = f"{name}: {len(doubtful)} of {count_noun(len(own), 'result')}"
            print_doubt(what, _codes(doubtful), show_command(result))


def print_doubts_of_file(lines: Iterable[OpperfResult], result: Result) -> None:
    doubtful = [line for line in lines if line.cautions]
    if doubtful:
        print_doubt(count_noun(len(doubtful), "result"), _codes(doubtful), show_command(result))


def _codes(lines: Iterable[OpperfResult]) -> list[str]:
    return [caution.partition(":")[0] for line in lines for caution in line.cautions]


# The backend for a context of MXNet and the name of a framework.

CPU = "cpu"
_DEVICES = {"cpu": ("-cpu", ""), "gpu": ("-cuda", "-gpu")}


def device_of(ctx: Any) -> tuple[str, int]:
    """Return cpu or gpu and its number, from `cpu`, `gpu`, `gpu(1)` or MXNet's object for it."""
    text = f"{ctx.device_type}({getattr(ctx, 'device_id', 0)})" if hasattr(ctx, "device_type") else ctx
    found = re.fullmatch(r"(cpu|gpu)(?:\((\d{1,3})\))?", text.strip().lower()) if isinstance(text, str) else None
    if found is None:
        raise UserError(f"ctx: expected cpu, gpu or gpu(N), got `{ctx}`", "as in --ctx gpu(0)")
    return found[1], int(found[2] or 0)


def backend_of(ctx: Any, framework: str) -> str:
    device, known = device_of(ctx)[0], backends()
    for ending in _DEVICES[device]:
        if framework + ending in known:
            return framework + ending
    frameworks = sorted({info.framework for info in known.values()})
    raise UserError(
        f"no backend runs {framework} on a {device}",
        f"`opmark list backends` lists all; the frameworks are {', '.join(frameworks)}",
    )


@contextmanager
def select_context(ctx: Any) -> Iterator[None]:
    """Make workers see the GPU of a context as their first one."""
    device, number = device_of(ctx)
    if device == "cpu" or number == 0:
        yield
        return
    with set_variables(select_device("cuda", number, f"ctx gpu({number})")):
        yield


# Cases with tensors of at least 2**32 elements, which an index of 32 bits cannot address.

LEAST = 2**32
_STEPS = 4


def enlarge(case: Case, entry: Entry) -> tuple[Entry, str, str]:
    """Return an entry with one large case, and status and reason if it cannot be measured."""
    operator = find_operator(case.op)
    params = _grow(operator, case)
    if params is None:
        return entry, "skipped", f"`{case.op}` cannot have 2**32 elements"
    need = nbytes(operator.inputs(params).values()) + operator.cost(params).bytes_written
    need *= 2 if set(entry.phases) - {"forward"} else 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = replace(entry, params=params, sizes=[])
    if need > memory:
        return found, "oom", f"it needs {count_bytes(need)}, and this machine has {count_bytes(memory)}"
    return found, "", ""


def _grow(operator: Operator, case: Case) -> dict[str, object] | None:
    params = dict(case.params)
    for _ in range(_STEPS):
        largest = _largest(operator, params)
        if largest >= LEAST:
            return params
        found = resize_to_elements(
            operator, params, int(1.4 * LEAST * count_elements(operator, params) / max(1, largest))
        )
        if found is None or found == params:
            return None
        params = found
    return None


def _largest(operator: Operator, params: dict[str, object]) -> int:
    specs = operator.inputs(params)
    largest_input = max((spec.elements for spec in specs.values()), default=0)
    return max(largest_input, count_elements(operator, params) - sum(spec.elements for spec in specs.values()))


# Entries are measured in one run, with as many calls as opperf would make.

TIMEOUT = 600.0
"""Seconds per task; generous, because a hundred large products take long on a CPU."""

Profiler = Literal["native", "python"]


def check_profiler(name: Any) -> None:
    known = get_args(Profiler)
    if name not in known:
        near = nearest(str(name), known)
        raise UserError(
            f"profiler: expected {' or '.join(known)}, got {name!r}", f"did you mean `{near}`?" if near else None
        )


def measure(
    entries: Sequence[Entry],
    *,
    ctx: Any,
    framework: str,
    warmup: int,
    runs: int,
    profiler: Profiler = "native",
    threads: int | None = None,
    timeout: float | None = None,
    db: PathLike | None = None,
    resume: bool = False,
    verify: bool = True,
    on_start: Callable[[Run, Plan, list[Record]], None] | None = None,
    on_record: Callable[[Record], None] | None = None,
    say: Callable[[str], None] = talk,
) -> Result:
    """Measure entries. MXNet's profiler measures the device, Python's clock the caller; on a CPU both agree."""
    on_device = device_of(ctx)[0] != "cpu"
    with select_context(ctx):
        return run(
            workload=Workload(VERSION, "opperf", list(entries)),
            backend=backend_of(ctx, framework),
            warmup=warmup,
            samples=runs,
            processes=1,
            effort="quick",
            quantity=() if not on_device else "latency" if profiler == "python" else "device_time",
            cache="warm" if on_device and profiler != "python" else (),
            threads=() if threads is None else threads,
            timeout=TIMEOUT if timeout is None else timeout,
            label="opperf",
            db=db,
            resume=resume,
            verify=verify,
            on_start=on_start,
            on_record=on_record,
            say=say,
        )
