"""How a person wants things measured, in words, as settings."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_args

from msgspec.structs import replace

from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.hardware.detect import affinity
from opmark.schema import CACHES, EFFORTS, MODES, PROCESSES, QUANTITIES, Sampling, Settings
from opmark.schema.task import TimerName

MOST_THREADS = 4096
MOST_PROCESSES = 1000
MOST_SAMPLES = 10_000_000
LONGEST = 1e6
TIMERS = tuple(name for name in get_args(TimerName) if name)


def settings_for(
    *,
    threads: Sequence[int] = (),
    effort: str = "standard",
    seed: int = 0,
    verify: bool = True,
    quantities: Sequence[str] = (),
    caches: Sequence[str] = (),
    mode: str = "",
    timer: str = "",
    processes: int | None = None,
    sampling: Mapping[str, Any] | None = None,
) -> list[Settings]:
    """One for each number of threads and each process; `sampling` goes on top of the effort."""
    if effort not in EFFORTS:
        raise UnknownName("effort", effort, EFFORTS)
    _whole("seed", seed, 0, None, "as in --seed 1")
    for count in threads:
        _whole("threads", count, 1, MOST_THREADS, "as in --threads 1,2")
    rounds = PROCESSES[effort] if processes is None else processes
    _whole("processes", rounds, 1, MOST_PROCESSES, "as in --processes 5")
    _known("quantity", quantities, QUANTITIES)
    _known("cache", caches, CACHES)
    _known("mode", [mode] if mode else [], MODES)
    _known("timer", [timer] if timer else [], TIMERS)
    if mode and (quantities or timer):
        what = "--quantity" if quantities else "--timer"
        raise UserError(f"a mode measures one quantity in its own way ({mode}: {MODES[mode]})", f"leave {what} out")
    if timer in ("events", "graph") and "device_time" in quantities and "device_span" not in quantities:
        raise UserError(f"{timer} cannot tell device_time, only device_span", "--quantity device_span, or no --timer")
    named: dict[str, Any] = {
        "quantities": tuple(dict.fromkeys(quantities)),
        "caches": tuple(dict.fromkeys(caches)),
        "mode": mode,
        "timer": timer,
    }
    rule = _sampling(EFFORTS[effort], sampling or {})
    base = Settings(threads=1, effort=effort, sampling=rule, seed=seed, verify=verify, **named)
    counts = list(dict.fromkeys(threads)) or [default_threads()]
    return [replace(base, threads=count, process=process) for process in range(rounds) for count in counts]


def default_threads() -> int:
    """As many as the environment says, in the words that math libraries know, or else one a core."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdecimal() and 1 <= int(told) <= MOST_THREADS else len(affinity())


def _sampling(rule: Sampling, asked: Mapping[str, Any]) -> Sampling:
    given = {key: value for key, value in asked.items() if value is not None}
    for key in ("min_time", "max_time"):
        if key in given:
            _number(key, given[key], 0.0, LONGEST, "seconds")
    if "rel_ci" in given:
        _number("rel_ci", given["rel_ci"], 0.0, 1.0, "a fraction of the median, as in --rel-ci 0.005")
    for key in ("warmup", "samples"):
        if key in given:
            _whole(key, given[key], 0 if key == "warmup" else 1, MOST_SAMPLES, f"as in --{key} 100")
    if "samples" in given and given.keys() & {"rel_ci", "min_time", "max_time"}:
        raise InvalidParameter("a fixed number of samples leaves nothing to stop earlier", "leave --samples out")
    found = replace(rule, **given)
    if found.min_time <= found.max_time:
        return found
    if "min_time" in given and "max_time" in given:
        raise InvalidParameter(
            f"min_time {found.min_time:g} s is longer than max_time {found.max_time:g} s", "leave one of them out"
        )
    # Who asks for a long minimum gets it, and who asks for a short budget has it kept.
    least = found.min_time if "min_time" in given else found.max_time
    return replace(found, min_time=least, max_time=least)


def _known(kind: str, names: Sequence[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise UnknownName(kind, name, known)


def _whole(name: str, value: Any, least: int, most: int | None, hint: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        upto = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise InvalidParameter(f"{name}: expected a whole number {upto}, got {value!r}", hint)


def _number(name: str, value: Any, above: float, most: float, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidParameter(f"{name}: expected a number, got {value!r}", what)
    if not above < value <= most:
        raise InvalidParameter(f"{name}: expected above {above:g} and up to {most:g}, got {value:g}", what)
