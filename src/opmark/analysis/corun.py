"""Reads what was measured of operators that run together: slowdowns, makespan against sequence, fairness, and which of
them a scheduler may expect."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from opmark.analysis.metrics import peak_share
from opmark.analysis.rows import MachineFacts, case_parameters
from opmark.schema import Case, Record, Task
from opmark.schema.company import Companion
from opmark.schema.corun import CorunMember, CorunRatio, CorunResult
from opmark.schema.measurement import CORUN_LATENCY, MAKESPAN, SEQUENCE_TIME
from opmark.schema.record import COUNTED, severity
from opmark.stats import geometric_mean
from opmark.stats.verdict import ALPHA, MARGIN, Comparison, compare_pairs, control_false_discoveries
from opmark.store.protocol import Store
from opmark.units import count_noun

LATENCY_BOUND = 0.1
"""Share of the roofline below which neither computing nor moving data explains a time."""

Members = tuple[Companion, ...]
Medians = dict[int, float]
"""Medians by process."""


class _Company:
    """The records of operators that ran together."""

    def __init__(self, members: Members) -> None:
        self.members = members
        self.beside: list[list[Record]] = [[] for _ in members]
        self.alone: list[list[Record]] = [[] for _ in members]

    def medians(self, records: Sequence[Record], quantity: str) -> Medians:
        """Return the medians of the processes that count."""
        found: Medians = {}
        for record in records:
            measured = record.measurement(quantity) if record.status in COUNTED else None
            if measured and measured.samples and (centre := median(measured.samples)) > 0:
                found[record.task.settings.process] = centre
        return found


def members_of(task: Task) -> Members:
    """Return all operators that run together with a task, the task itself among them, in their order."""
    company = task.settings.company
    assert company is not None
    own = Companion.of(task, company.cores)
    return (*company.others[: company.place], own, *company.others[company.place :])


def corun_results(
    records: Iterable[Record],
    machines: Mapping[str, MachineFacts] | None = None,
    *,
    margin: float = MARGIN,
    looks: int = 1,
) -> list[CorunResult]:
    """Return one result for each company, in the order of their records. `machines` has facts by environment id;
    `looks` is how often the comparison is evaluated while it goes on."""
    companies: dict[Members, _Company] = {}
    every = [record for record in records if record.task.settings.company]
    for record in every:
        company = record.task.settings.company
        assert company is not None
        if not company.alone:
            members = members_of(record.task)
            companies.setdefault(members, _Company(members)).beside[company.place].append(record)
    for record in every:
        company = record.task.settings.company
        assert company is not None
        if company.alone and (found := companies.get(members_of(record.task))):
            found.alone[company.place].append(record)
    together = [_compare_makespans(one, margin, looks) for one in companies.values()]
    judged = control_false_discoveries([one for one in together if one is not None])
    verdicts = iter(judged)
    return [
        _result(one, next(verdicts) if found else None, machines or {}, margin, looks)
        for one, found in zip(companies.values(), together, strict=True)
    ]


def _compare_makespans(company: _Company, margin: float, looks: int) -> Comparison | None:
    first = company.beside[0]
    return _compare(company.medians(first, SEQUENCE_TIME), company.medians(first, MAKESPAN), margin, looks)


def _compare(a: Medians, b: Medians, margin: float, looks: int) -> Comparison | None:
    rounds = sorted(a.keys() & b.keys())
    if not rounds:
        return None
    return compare_pairs([a[i] for i in rounds], [b[i] for i in rounds], 0.0, ALPHA, margin, looks)


def _ratio(found: Comparison | None, processes: int) -> CorunRatio | None:
    if found is None:
        return None
    known = math.isfinite(found.high) and processes >= 2
    return CorunRatio(
        found.ratio, found.low if known else None, found.high if known else None, found.verdict, processes
    )


def _result(
    company: _Company, together: Comparison | None, machines: Mapping[str, MachineFacts], margin: float, looks: int
) -> CorunResult:
    members = tuple(
        _member(company, place, machines, margin, looks) for place in range(len(company.members))
    )  # fmt: skip
    makespan, sequence = (company.medians(company.beside[0], name) for name in (MAKESPAN, SEQUENCE_TIME))
    speeds = [1 / one.slowdown.ratio for one in members if one.slowdown]
    fair = sum(speeds) ** 2 / (len(speeds) * sum(speed**2 for speed in speeds)) if len(speeds) == len(members) else None
    rounds = {record.task.settings.process for records in company.beside for record in records}
    spoilt = {
        record.task.settings.process
        for records in (*company.beside, *company.alone) for record in records if record.status == "disturbed"
    }  # fmt: skip
    said = Counter(note for record in company.beside[0] for note in record.notes)
    notes = {
        note if count == len(rounds) else f"{note} ({count} of {count_noun(len(rounds), 'round')})": None
        for note, count in said.items()
    }
    if spoilt:
        left_out = f"{len(spoilt)} of {count_noun(len(rounds), 'round')} disturbed by other work, and left out"
        notes[f"{left_out}: `opmark doctor` names it"] = None
    return CorunResult(
        members,
        geometric_mean(list(makespan.values())) if makespan else None,
        geometric_mean(list(sequence.values())) if sequence else None,
        _ratio(together, len(makespan.keys() & sequence.keys())),
        1 / together.ratio if together else None,
        fair,
        tuple(notes),
    )


def _member(
    company: _Company, place: int, machines: Mapping[str, MachineFacts], margin: float, looks: int
) -> CorunMember:
    one, records = company.members[place], company.beside[place]
    alone, beside = (
        company.medians(own, CORUN_LATENCY) for own in (company.alone[place], records)
    )  # fmt: skip
    slowdown = _ratio(_compare(alone, beside, margin, looks), len(alone.keys() & beside.keys()))
    # Rounds that other work disturbed do not count, and say nothing of the others.
    counted = [record for record in records if record.status != "disturbed"] or records
    worst = min(counted, key=lambda record: severity(record.status)) if counted else None
    seconds = geometric_mean(list(alone.values())) if alone else None
    measured = next((record for record in company.alone[place] if record.cost), None)
    bound = ""
    if measured and seconds:
        bound = _bound(measured, seconds, machines.get(measured.environment))
    return CorunMember(
        one.op, case_parameters(one.case), " d".join((one.phase, *one.wrt)), one.backend, one.implementation,
        one.threads, one.cores, one.case.id, worst.status if worst else "skipped", worst.reason if worst else "",
        seconds, geometric_mean(list(beside.values())) if beside else None, slowdown, bound, one.configuration,
    )  # fmt: skip


def _bound(record: Record, seconds: float, machine: MachineFacts | None) -> str:
    """Return what limits an operator by the roofline; empty if the peaks of the machine are not known."""
    peaks = (machine.measured or machine.datasheet) if machine else None
    if peaks is None:
        return ""
    share = peak_share(record.cost, seconds, str(record.task.case.params.get("dtype", "")), peaks, cold=False)
    if share is None:
        return ""
    if share.share < LATENCY_BOUND:
        return "latency"
    return "compute" if share.bound == "compute" else "memory"


def slowdown_matrix(results: Sequence[CorunResult]) -> tuple[list[str], dict[tuple[str, str], CorunRatio]]:
    """Return the operators of all pairs, and the slowdown of each beside each other one."""
    names: dict[str, None] = {}
    cells: dict[tuple[str, str], CorunRatio] = {}
    for result in results:
        if len(result.members) != 2:
            continue
        own = [one.name for one in result.members]
        names |= dict.fromkeys(own)
        for place, one in enumerate(result.members):
            if one.slowdown:
                cells[own[place], own[1 - place]] = one.slowdown
    return list(names), cells


# What a scheduler asks.


Pair = tuple[CorunMember, CorunMember]
"""An operator, and what it ran beside."""


def stored_slowdowns(store: Store, machine: str = "", case: str | None = None) -> Iterator[tuple[Pair, CorunRatio]]:
    """Yield how much slower operators of pairs are beside each other than alone, the newest run first. `machine`: only
    on the machine of this name; `case`: only from runs that have measured this case."""
    runs = dict.fromkeys(
        figure.run for figure in store.figures(case=case) if figure.quantity == CORUN_LATENCY and figure.load
    )
    for run in reversed(runs):
        records = [record for record in store.records(run) if record.task.settings.company]
        if machine:
            facts = store.environments({record.environment for record in records} - {""})
            here = {key for key, environment in facts.items() if environment.facts.get("machine") == machine}
            records = [record for record in records if record.environment in here]
        for result in corun_results(records):
            if len(result.members) == 2:
                for one, beside in (result.members, result.members[::-1]):
                    if one.slowdown:
                        yield (one, beside), one.slowdown


def known_slowdown(
    store: Store,
    case: Case,
    other: Case,
    backend: str,
    other_backend: str = "",
    *,
    threads: int | None = None,
    other_threads: int | None = None,
    machine: str = "",
) -> CorunRatio | None:
    """Return how much slower a case is beside another one than alone, from the newest run of a store that has measured
    this; None if none has. `threads`: only with so many threads; `machine`: only on the machine of this name."""
    for (one, beside), slowdown in stored_slowdowns(store, machine, case.id):
        fits = (one.case, beside.case) == (case.id, other.id)
        fits &= (one.backend, beside.backend) == (backend, other_backend or backend)
        fits &= threads in (None, one.threads) and other_threads in (None, beside.threads)
        if fits:
            return slowdown
    return None
