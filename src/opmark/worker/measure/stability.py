"""Checks that make a number doubtful. Each caution says what was measured, what the limit is and what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from opmark.schema import Caution, Conditions, Sampling
from opmark.schema.load import LoadFacts
from opmark.schema.measurement import PREEMPTED, Stop
from opmark.stats import noise, outlier_limit, relative_half_width
from opmark.units import count_noun, percent, seconds, significant

NOISE_LIMIT = 0.10
DRIFT_LIMIT = 0.05
OUTLIER_SHARE = 0.05
SWITCHES_PER_SECOND = 100.0
# Interruptions per sample: from here on the samples last as long as the turns that the scheduler gives.
PREEMPTED_SHARE = 0.5
SCHEDULER_TURN = 1e-3
# Less than this share of the time is no matter: long samples are always interrupted now and then. Where the system does
# not tell how long they waited, whoever takes the core has it for at most so many seconds.
LONGEST_TURN = 10e-3
LOST_LIMIT = 0.05
# Number of cores that other processes may keep busy.
OTHERS_LIMIT = 0.3
STEAL_LIMIT = 0.02
# Share of the highest clock that was seen: below this the clock is part of the result.
CLOCK_LIMIT = 0.97
# Below this share of the harness's own cost, a time from which that cost was subtracted means nothing.
OVERHEAD_SHARE = 0.5


class Observed(NamedTuple):
    """Everything that the checks look at."""

    samples: Sequence[float]
    rule: Sampling
    stop: Stop
    settled: bool
    overhead: float
    elapsed: float
    conditions: Conditions
    real_clock: bool
    lost: int = 0
    stray: int = 0
    traces: bool = False


def cautions(observed: Observed) -> tuple[Caution, ...]:
    if preempted := tuple(_check_preemption(observed)):
        return preempted  # what the other checks would say, and advise, does not apply
    checks = (
        _check_warm_up, _check_precision, _check_noise, _check_drift, _check_outliers, _check_overhead,
        _check_records, _check_clocks, *([_check_switches, _check_other_load] if observed.real_clock else []),
    )  # fmt: skip
    return tuple(caution for check in checks for caution in check(observed))


def _check_preemption(observed: Observed) -> Iterator[Caution]:
    if observed.traces:  # the device's own times do not depend on who has the core
        return
    switches = observed.conditions.switches
    # Threads that hand over to each other do it faster than the scheduler.
    lasting = observed.elapsed / len(observed.samples) >= SCHEDULER_TURN
    # Threads that hand over to each other are interrupted often, and lose little by it.
    waited = observed.conditions.waited
    matters = (switches * LONGEST_TURN if waited is None else waited) >= LOST_LIMIT * observed.elapsed
    if observed.real_clock and lasting and matters and switches >= PREEMPTED_SHARE * len(observed.samples):
        yield Caution(
            PREEMPTED,
            f"the core was taken away {switches} times in {len(observed.samples)} samples: the median is the "
            f"scheduler's, not the operator's; the fastest sample took {seconds(min(observed.samples))}",
            "do not use this number; stop other work, or use fewer --threads than there are idle cores",
        )


def _check_warm_up(observed: Observed) -> Iterator[Caution]:
    if not observed.settled:
        limit, spent = percent(observed.rule.warmup_agreement), seconds(observed.rule.warmup_max)
        yield Caution(
            "unsettled",
            f"warm-up ended after {spent} without two windows within {limit} of each other",
            "use a higher --effort, or quieten the machine (`opmark doctor`)",
        )


def _check_precision(observed: Observed) -> Iterator[Caution]:
    if observed.stop != "budget":
        return
    width = relative_half_width(observed.samples)
    if width > observed.rule.rel_ci:
        known = f"the median is known to ± {percent(width)} after {count_noun(len(observed.samples), 'sample')}"
        found = (
            known
            if width < 1e9
            else f"{count_noun(len(observed.samples), 'sample')} are too few to tell how sure the median is"
        )
        yield Caution(
            "imprecise",
            f"{found}, in {seconds(observed.elapsed)}; ± {percent(observed.rule.rel_ci)} was asked for",
            "use a higher --effort",
        )


def _check_noise(observed: Observed) -> Iterator[Caution]:
    spread = noise(observed.samples)
    if spread > NOISE_LIMIT:
        yield Caution(
            "noisy",
            f"samples spread by {percent(spread)} of the median; up to {percent(NOISE_LIMIT)} is usual",
            "look for other load (`opmark doctor`), or pin the process to cores",
        )


def _check_drift(observed: Observed) -> Iterator[Caution]:
    half = len(observed.samples) // 2
    if half < 10:
        return
    first, second = median(observed.samples[:half]), median(observed.samples[half:])
    change = (second - first) / first if first > 0 else 0.0
    if abs(change) > DRIFT_LIMIT:
        word = "slower" if change > 0 else "faster"
        yield Caution(
            "drifting",
            f"the second half of the samples is {percent(abs(change))} {word} than the first; "
            f"up to {percent(DRIFT_LIMIT)} is usual",
            "clocks or load changed while sampling: measure again, with a higher --effort",
        )


def _check_outliers(observed: Observed) -> Iterator[Caution]:
    centre, far = median(observed.samples), outlier_limit(observed.samples)
    found = sum(value > far for value in observed.samples)
    if len(observed.samples) >= 10 and found > OUTLIER_SHARE * len(observed.samples):
        yield Caution(
            "outliers",
            f"{found} of {len(observed.samples)} samples took longer than {seconds(far)}, "
            f"the median is {seconds(centre)}",
            "something interrupts this machine regularly; the median stands, a mean would not",
        )


def _check_overhead(observed: Observed) -> Iterator[Caution]:
    centre = median(observed.samples)
    if centre < OVERHEAD_SHARE * observed.overhead:
        yield Caution(
            "below-overhead",
            f"a call takes {seconds(centre)}, less than half of the harness's own {seconds(observed.overhead)}",
            "too little work to measure: enlarge the case",
        )


def _check_switches(observed: Observed) -> Iterator[Caution]:
    switches = observed.conditions.switches
    if observed.elapsed > 0.05 and switches / observed.elapsed > SWITCHES_PER_SECOND:
        yield Caution(
            "interrupted",
            f"another process took the core {switches} times in {seconds(observed.elapsed)}",
            "stop other work, or use fewer --threads than cores",
        )


def _check_other_load(observed: Observed) -> Iterator[Caution]:
    yield from _look_at_others(observed.conditions)


def _look_at_others(conditions: Conditions, own: float = 0.0) -> Iterator[Caution]:
    """Yield cautions about work of others. `own` is the part of the load average that is the measurement's own."""
    cores, load, others = os.cpu_count() or 1, conditions.load - own, conditions.others
    if others is not None and others > OTHERS_LIMIT:
        yield Caution(
            "loaded",
            f"other processes kept {significant(others, 2)} of {cores} cores busy; up to {OTHERS_LIMIT:g} is usual",
            "stop them, or wait until the machine is idle (`opmark doctor` names them)",
        )
    elif load > cores + 0.5:
        yield Caution(
            "loaded",
            f"the load of the last minute is {load:.1f} on {cores} cores",
            "wait until the machine is idle (`opmark doctor`)",
        )
    steal = conditions.steal
    if steal is not None and steal > STEAL_LIMIT:
        yield Caution(
            "stolen",
            f"the hypervisor took {percent(steal)} of the time; up to {percent(STEAL_LIMIT)} is usual",
            "another virtual machine shares these cores: repeat, or use a dedicated host",
        )


def _check_records(observed: Observed) -> Iterator[Caution]:
    if observed.lost:
        yield Caution(
            "records-lost",
            f"the profiler lost records of {count_noun(observed.lost, 'call')}; these are no samples, the other "
            f"{len(observed.samples)} are whole",
            "shorten the case, or measure it alone",
        )
    if observed.stray:
        yield Caution(
            "stray-work",
            f"{count_noun(observed.stray, 'activity', 'activities')} of the device belong to no call: the operator "
            "launches work after it has returned, or something else uses this device",
            "device_time leaves them out; wait for all work inside the launch, and keep the device to yourself",
        )
    if observed.traces and not observed.lost and not any(observed.samples):
        yield Caution(
            "no-kernels",
            "the call ran nothing on the device",
            "it may return a view or a remembered result: look at latency, and at what the implementation does",
        )


def _check_clocks(observed: Observed) -> Iterator[Caution]:
    yield from _look_at_clocks(observed.conditions)


def _look_at_clocks(conditions: Conditions) -> Iterator[Caution]:
    clocks, highest = conditions.clocks, conditions.highest_clock
    if not clocks or not highest or min(clocks) >= CLOCK_LIMIT * highest:
        return
    reasons = sorted({reason for reading in conditions.readings for reason in reading.throttle})
    why = f", held down by {' and '.join(reasons)}" if reasons else ""
    low, high = (f"{clock / 1e6:.0f}" for clock in (min(clocks), max(clocks)))
    between = low if low == high else f"between {low} and {high}"
    yield Caution(
        "clocks-moved",
        f"the clock was {between} MHz{why}; this device was seen at "
        f"{highest / 1e6:.0f}, and less than {percent(CLOCK_LIMIT)} of that is noted",
        "compare cycles instead of seconds, let the device cool, or lock its clocks",
    )


# Load: requests of several clients.

LITTLE_TOLERANCE = 0.05
"""How far the number of requests in flight may be from throughput times mean latency, as a share."""
IDLE_TOLERANCE = 0.10
"""Share of the time that clients of a closed loop may be without a request."""
OVERHEAD_OF_LATENCY = 0.05
"""Share of a request's latency that the generator's own work may be."""
SCHEDULE_LIMIT = 1e-3
"""Seconds by which 99 % of the requests of an open loop have to begin after they are due, if a client is free."""
BACKLOG_SHARE = 0.05


def load_cautions(facts: LoadFacts, samples: Sequence[float], conditions: Conditions) -> tuple[Caution, ...]:
    """Return what makes the figures of a load doubtful. That threads of clients take cores from each other is what a
    load is about, so context switches are no reason."""
    found = [*_check_little(facts, samples), *_check_request_cost(facts, samples)]
    if facts.load.arrival == "closed":
        found += _check_idle_clients(facts)
    else:
        found += [*_check_backlog(facts, samples), *_check_schedule(facts)]
    return (
        *found,
        *_look_at_clocks(conditions),
        *_look_at_others(conditions, min(facts.in_flight, facts.load.clients)),
    )


def _check_little(facts: LoadFacts, samples: Sequence[float]) -> Iterator[Caution]:
    # Throughput times mean latency is this sum over the window.
    expected = sum(samples) / facts.window
    if abs(facts.in_flight - expected) > LITTLE_TOLERANCE * expected:
        yield Caution(
            "little",
            f"{significant(facts.in_flight, 3)} requests were in flight on average, throughput times mean latency is "
            f"{significant(expected, 3)}; by Little's law both are the same, and {percent(LITTLE_TOLERANCE)} apart is "
            "usual",
            "the requests are too short to be timed one by one: enlarge the case or the batch",
        )


def _check_idle_clients(facts: LoadFacts) -> Iterator[Caution]:
    clients = facts.load.clients
    if facts.in_flight < (1 - IDLE_TOLERANCE) * clients:
        yield Caution(
            "idle-clients",
            f"{significant(facts.in_flight, 3)} requests of {count_noun(clients, 'client')} were in flight on average; "
            f"in a closed loop every client has one, up to {percent(IDLE_TOLERANCE)} less is usual",
            "clients end at different times: send more --requests; or the requests are too short, enlarge the batch",
        )


def _check_request_cost(facts: LoadFacts, samples: Sequence[float]) -> Iterator[Caution]:
    centre = median(samples)
    if facts.overhead > OVERHEAD_OF_LATENCY * centre:
        yield Caution(
            "below-overhead",
            f"a request takes {seconds(centre)}, and the load generator spends {seconds(facts.overhead)} on it; "
            f"up to {percent(OVERHEAD_OF_LATENCY)} is usual",
            "too little work to put under load: enlarge the case or the batch",
        )


def _check_backlog(facts: LoadFacts, samples: Sequence[float]) -> Iterator[Caution]:
    last = facts.due[-1]
    waiting = sum(due + latency > last for due, latency in zip(facts.due, samples, strict=True))
    if waiting > max(2 * facts.load.clients, BACKLOG_SHARE * len(samples)):
        yield Caution(
            "overloaded",
            f"{waiting} of {count_noun(len(samples), 'request')} had no answer yet when the last one was due: "
            f"{facts.load.rate:g} requests/s are more than this model answers, and the longer the load lasts, the "
            "longer they wait",
            f"lower --rate to at most {significant(len(samples) / facts.window, 2)}, or use more --clients if cores "
            "are idle",
        )


def _check_schedule(facts: LoadFacts) -> Iterator[Caution]:
    late = sorted(facts.late)[int(0.99 * (len(facts.late) - 1))]
    if late >= SCHEDULE_LIMIT:
        yield Caution(
            "late",
            f"1 % of the requests began {seconds(late)} or more after they were due although a client was free; "
            f"below {seconds(SCHEDULE_LIMIT)} is usual",
            "the latencies contain it; leave a core to the load generator (fewer --threads), or stop other work",
        )
