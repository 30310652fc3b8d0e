"""Measure: `opmark run`, and what it would do."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from msgspec.structs import replace

from opmark.analysis.rows import Row, RowCollector
from opmark.api.common import (
    DEFAULT_EFFORT,
    DEFAULT_TIMEOUT,
    PathLike,
    check_timeout,
    machine_at,
    open_store,
    result_of,
    talk,
)
from opmark.errors import UserError
from opmark.interfaces import Store
from opmark.result import Result
from opmark.runner.chosen import backends_for
from opmark.runner.intake import Source, complaints, wishes
from opmark.runner.plan import Plan, make_plan
from opmark.runner.profiling import Profiling, profiled
from opmark.runner.ranks.agent import attend
from opmark.runner.ranks.muster import mustered
from opmark.runner.request import default_backends
from opmark.runner.session import new_run, perform, recorded, run_to_resume
from opmark.runner.settings import settings_for
from opmark.runner.supervisor import DEFAULT_COMPILE_TIMEOUT
from opmark.runner.wanted import ARGUMENTS, OF_CASES, Wanted, many, numbers, wanted
from opmark.schema import (
    Environment,
    Record,
    Run,
)
from opmark.store.location import shown
from opmark.units import counted


def plan(
    ops: str | Sequence[str] = (),
    *,
    workload: Source | None = None,
    suite: str | None = None,
    op: str | Sequence[str] = (),
    category: str | Sequence[str] = (),
    tag: str | Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
    size: str | Sequence[str] = (),
    phase: str | Sequence[str] = (),
    python: str | Sequence[str] = (),
    wrt: str | Sequence[str] = (),
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    build: Mapping[str, Any] | Sequence[Any] | None = None,
    backend: str | Sequence[str] = (),
    threads: int | Sequence[int] = (),
    ranks: int | Sequence[int] = (),
    group_size: int | Sequence[int] = (),
    effort: str = DEFAULT_EFFORT,
    quantity: str | Sequence[str] = (),
    cache: str | Sequence[str] = (),
    mode: str = "",
    timer: str = "",
    processes: int | None = None,
    rel_ci: float | None = None,
    min_time: float | None = None,
    max_time: float | None = None,
    warmup: int | None = None,
    samples: int | None = None,
    seed: int = 0,
    verify: bool = True,
    strict: bool = False,
) -> Plan:
    """What `run` would do: `--dry-run`. A workload is a file, a folder, or an object; a foreign file is recognised."""
    asked = wanted(
        ops, workload=workload, suite=suite, op=op, category=category, tag=tag, params=params, size=size, phase=phase,
        wrt=wrt, args=args, kwargs=kwargs, build=build, ranks=ranks, group_size=group_size, seed=seed, strict=strict,
    )  # fmt: skip
    return planned(
        asked, python=python, backend=backend, threads=threads, effort=effort, quantity=quantity, cache=cache,
        mode=mode, timer=timer, processes=processes, rel_ci=rel_ci, min_time=min_time, max_time=max_time,
        warmup=warmup, samples=samples, seed=seed, verify=verify,
    )  # fmt: skip


def planned(
    asked: Wanted,
    *,
    python: str | Sequence[str] = (),
    backend: str | Sequence[str] = (),
    threads: int | Sequence[int] = (),
    effort: str = DEFAULT_EFFORT,
    quantity: str | Sequence[str] = (),
    cache: str | Sequence[str] = (),
    mode: str = "",
    timer: str = "",
    processes: int | None = None,
    seed: int = 0,
    verify: bool = True,
    **sampling: Any,
) -> Plan:
    """The rest of `plan`, of cases that are known."""
    settings = settings_for(
        threads=numbers(threads), effort=effort, seed=seed, verify=verify, quantities=many(quantity),
        caches=many(cache), mode=mode, timer=timer, processes=processes, sampling=sampling,
    )  # fmt: skip
    chosen, absent = backends_for(many(backend) or default_backends(asked.cases), many(python))
    shared = not numbers(threads) and not os.environ.get("OMP_NUM_THREADS")
    whole = make_plan(asked.cases, chosen, settings, by_device=processes is None, divided=shared)
    notes = (*asked.left_out, *absent)
    if asked.taken is None:
        return dataclasses.replace(whole, notes=notes)
    told = () if sampling.get("samples") or sampling.get("warmup") else tuple(wishes(asked.taken.asked))
    return dataclasses.replace(whole, problems=asked.taken.problems, notes=(*asked.taken.notes, *told, *notes))


def run(
    ops: str | Sequence[str] = (),
    *,
    timeout: float = DEFAULT_TIMEOUT,
    compile_timeout: float = DEFAULT_COMPILE_TIMEOUT,
    label: str = "",
    session: str = "",
    db: PathLike | None = None,
    resume: bool = False,
    profile: Profiling | Sequence[Profiling] | None = None,
    on_start: Callable[[Run, Plan, list[Record]], None] | None = None,
    on_record: Callable[[Record], None] | None = None,
    on_row: Callable[[Row], None] | None = None,
    on_environment: Callable[[Environment], None] | None = None,
    say: Callable[[str], None] = talk,
    **asked: Any,
) -> Result:
    """Measure, store, return: all that `plan` takes, and where to keep it.

    `session` marks it as a part of something larger, so that histories leave it out. `profile` names profilers that
    look at what was measured, afterwards. `on_row` is given each row as soon as its last process has a record; what
    `--json` prints is made of it. Ctrl-C passes through; what was measured until then is in the store.
    """
    if not label.isprintable():
        raise UserError(f"label: expected printable text, got {label!a}")
    check_timeout(timeout)
    check_timeout(compile_timeout, "compile_timeout")
    cases = wanted(ops, **{name: value for name, value in asked.items() if name in ARGUMENTS})
    if cases.place and cases.place.rank > 0:
        return _attended(cases, label, db, say)
    with ExitStack() as stack:
        # First of all: what is wrong from here on is told to all ranks at once.
        muster = stack.enter_context(mustered(cases.place, cases.cases))
        whole = planned(cases, **{name: value for name, value in asked.items() if name not in OF_CASES})
        for line in complaints(whole.problems, whole.notes):
            say(line)
        store = stack.enter_context(closing(open_store(db, create=True, say=say)))
        this = run_to_resume(store, whole, label) if resume else replace(new_run(whole, label), session=session)
        records = store.records(this.id) if resume else []
        rest = whole.without({record.task.id for record in records})
        if on_start:
            on_start(this, rest, list(records))
        tasks = [*(record.task for record in (*records, *rest.skipped)), *rest.tasks]
        rows = RowCollector(this.id, tasks, partial(machine_at, store), on_row) if on_row else None
        for record in records:
            if rows:
                rows.add(record)
        made = perform(
            rest, timeout, say, _keeping(store, on_environment), fresh=not records, compile_timeout=compile_timeout,
            muster=muster,
        )  # fmt: skip
        stream = profiled(made, profile, this.id, say)
        try:
            _take(recorded(store, this, stream, begun=resume), records, on_record, rows)
        finally:  # nothing is left unless it was interrupted
            _take(recorded(store, this, stream.left(), begun=resume or bool(records)), records, on_record, rows)
            if rows:
                rows.end()
        result = dataclasses.replace(result_of(store, this, records, db), problems=whole.problems)
        muster.tell_outcome(result.exit_code, f"rank 0 stored run {this.id}: {counted(len(records), 'record')}")
        return result


_INTERRUPTED = 130


def _attended(asked: Wanted, label: str, db: PathLike | None, say: Callable[[str], None]) -> Result:
    """Of a process that is another rank than 0: it has done its part, and rank 0 has the records."""
    assert asked.place is not None
    try:
        code = attend(asked.place, asked.cases, say)
    except KeyboardInterrupt:
        say("interrupted: what was measured is with rank 0")
        code = _INTERRUPTED
    return Result(new_run(Plan((), ()), label), [], shown(db), rank=asked.place.rank, told=code)


def _keeping(store: Store, told: Callable[[Environment], None] | None) -> Callable[[Environment], None]:
    def keep(environment: Environment) -> None:
        store.add_environment(environment)
        if told:
            told(environment)

    return keep


def _take(
    made: Iterable[Record],
    records: list[Record],
    on_record: Callable[[Record], None] | None,
    rows: RowCollector | None,
) -> None:
    for record in made:
        records.append(record)
        if on_record:
            on_record(record)
        if rows:
            rows.add(record)
