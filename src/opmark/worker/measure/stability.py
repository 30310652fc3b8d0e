"""All checks that make a number doubtful, each with what was measured, the limit and what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from opmark.schema import Caution, Conditions, Sampling
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
# Number of cores that other processes may keep busy.
OTHERS_LIMIT = 0.3
STEAL_LIMIT = 0.02
# Share of the highest clock that was seen: below this the clock is part of the result.
CLOCK_LIMIT = 0.97
# Below this share of the harness's own cost, what is left after taking it off means nothing.
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


def cautions(seen: Observed) -> tuple[Caution, ...]:
    return tuple(_all(seen))


def _all(seen: Observed) -> Iterator[Caution]:
    if preempted := list(_preempted(seen)):
        yield from preempted  # what the other checks would say, and advise, does not apply
        return
    yield from _unsettled(seen)
    yield from _imprecise(seen)
    yield from _noisy(seen)
    yield from _drifting(seen)
    yield from _outliers(seen)
    yield from _below_overhead(seen)
    yield from _incomplete(seen)
    yield from _clocks_moved(seen)
    if seen.real_clock:
        yield from _disturbed(seen)


def _preempted(seen: Observed) -> Iterator[Caution]:
    switches = seen.conditions.switches
    lasting = seen.elapsed / len(seen.samples) >= SCHEDULER_TURN  # threads that hand over to each other do it faster
    if seen.real_clock and lasting and switches >= PREEMPTED_SHARE * len(seen.samples):
        yield Caution(
            PREEMPTED,
            f"the core was taken away {switches} times in {len(seen.samples)} samples: the median is the scheduler's, "
            f"not the operator's; the fastest sample took {seconds(min(seen.samples))}",
            "do not use this number; stop other work, or use fewer --threads than there are idle cores",
        )


def _unsettled(seen: Observed) -> Iterator[Caution]:
    if not seen.settled:
        limit, spent = percent(seen.rule.warmup_agreement), seconds(seen.rule.warmup_max)
        yield Caution(
            "unsettled",
            f"warm-up ended after {spent} without two windows within {limit} of each other",
            "use a higher --effort, or quieten the machine (`opmark doctor`)",
        )


def _imprecise(seen: Observed) -> Iterator[Caution]:
    if seen.stop != "budget":
        return
    width = relative_half_width(seen.samples)
    if width > seen.rule.rel_ci:
        known = f"the median is known to ± {percent(width)} after {count_noun(len(seen.samples), 'sample')}"
        found = (
            known
            if width < 1e9
            else f"{count_noun(len(seen.samples), 'sample')} are too few to tell how sure the median is"
        )
        yield Caution(
            "imprecise",
            f"{found}, in {seconds(seen.elapsed)}; ± {percent(seen.rule.rel_ci)} was asked for",
            "use a higher --effort",
        )


def _noisy(seen: Observed) -> Iterator[Caution]:
    spread = noise(seen.samples)
    if spread > NOISE_LIMIT:
        yield Caution(
            "noisy",
            f"samples spread by {percent(spread)} of the median; up to {percent(NOISE_LIMIT)} is usual",
            "look for other load (`opmark doctor`), or pin the process to cores",
        )


def _drifting(seen: Observed) -> Iterator[Caution]:
    half = len(seen.samples) // 2
    if half < 10:
        return
    first, second = median(seen.samples[:half]), median(seen.samples[half:])
    change = (second - first) / first if first > 0 else 0.0
    if abs(change) > DRIFT_LIMIT:
        word = "slower" if change > 0 else "faster"
        yield Caution(
            "drifting",
            f"the second half of the samples is {percent(abs(change))} {word} than the first; "
            f"up to {percent(DRIFT_LIMIT)} is usual",
            "clocks or load changed while sampling: measure again, with a higher --effort",
        )


def _outliers(seen: Observed) -> Iterator[Caution]:
    centre, far = median(seen.samples), outlier_limit(seen.samples)
    found = sum(value > far for value in seen.samples)
    if len(seen.samples) >= 10 and found > OUTLIER_SHARE * len(seen.samples):
        yield Caution(
            "outliers",
            f"{found} of {len(seen.samples)} samples took longer than {seconds(far)}, the median is {seconds(centre)}",
            "something interrupts this machine regularly; the median stands, a mean would not",
        )


def _below_overhead(seen: Observed) -> Iterator[Caution]:
    centre = median(seen.samples)
    if centre < OVERHEAD_SHARE * seen.overhead:
        yield Caution(
            "below-overhead",
            f"a call takes {seconds(centre)}, less than half of the harness's own {seconds(seen.overhead)}",
            "too little work to measure: enlarge the case",
        )


def _disturbed(seen: Observed) -> Iterator[Caution]:
    switches = seen.conditions.switches
    if seen.elapsed > 0.05 and switches / seen.elapsed > SWITCHES_PER_SECOND:
        yield Caution(
            "interrupted",
            f"another process took the core {switches} times in {seconds(seen.elapsed)}",
            "stop other work, or use fewer --threads than cores",
        )
    cores, load, others = os.cpu_count() or 1, seen.conditions.load, seen.conditions.others
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
    steal = seen.conditions.steal
    if steal is not None and steal > STEAL_LIMIT:
        yield Caution(
            "stolen",
            f"the hypervisor took {percent(steal)} of the time; up to {percent(STEAL_LIMIT)} is usual",
            "another virtual machine shares these cores: repeat, or use a dedicated host",
        )


def _incomplete(seen: Observed) -> Iterator[Caution]:
    if seen.lost:
        yield Caution(
            "records-lost",
            f"the profiler lost records of {count_noun(seen.lost, 'call')}; these are no samples, the other "
            f"{len(seen.samples)} are whole",
            "shorten the case, or measure it alone",
        )
    if seen.stray:
        yield Caution(
            "stray-work",
            f"{count_noun(seen.stray, 'activity', 'activities')} of the device belong to no call: the operator "
            "launches work after it has returned, or something else uses this device",
            "device_time leaves them out; wait for all work inside the launch, and keep the device to yourself",
        )
    if seen.traces and not seen.lost and not any(seen.samples):
        yield Caution(
            "no-kernels",
            "the call ran nothing on the device",
            "it may return a view or a remembered result: look at latency, and at what the implementation does",
        )


def _clocks_moved(seen: Observed) -> Iterator[Caution]:
    clocks, highest = seen.conditions.clocks, seen.conditions.highest_clock
    if not clocks or not highest or min(clocks) >= CLOCK_LIMIT * highest:
        return
    reasons = sorted({reason for reading in seen.conditions.readings for reason in reading.throttle})
    why = f", held down by {' and '.join(reasons)}" if reasons else ""
    low, high = (f"{clock / 1e6:.0f}" for clock in (min(clocks), max(clocks)))
    between = low if low == high else f"between {low} and {high}"
    yield Caution(
        "clocks-moved",
        f"the clock was {between} MHz{why}; this device was seen at "
        f"{highest / 1e6:.0f}, and less than {percent(CLOCK_LIMIT)} of that is noted",
        "compare cycles instead of seconds, let the device cool, or lock its clocks",
    )
