"""From measuring options to the settings of tasks."""

from __future__ import annotations

import os
from typing import Any

from msgspec.structs import replace

from opmark.errors import InvalidParameter, UserError
from opmark.hardware.detect import affinity
from opmark.schema import EFFORTS, MODES, PROCESSES, Sampling, Settings
from opmark.schema.options import MOST_THREADS, MeasureOptions, as_list, split_names

_SAMPLING = ("rel_ci", "min_time", "max_time", "min_samples", "warmup", "samples")
"""Options that replace the field of the same name in the sampling of the effort."""


def settings_for(options: MeasureOptions) -> list[Settings]:
    """One for each process and each number of threads."""
    mode, timer, quantities = options.mode, options.timer, split_names(options.quantity)
    if mode and (quantities or timer):
        what = "--quantity" if quantities else "--timer"
        raise UserError(f"a mode measures one quantity in its own way ({mode}: {MODES[mode]})", f"leave {what} out")
    if timer in ("events", "graph") and "device_time" in quantities and "device_span" not in quantities:
        raise UserError(f"{timer} cannot tell device_time, only device_span", "--quantity device_span, or no --timer")
    named: dict[str, Any] = {
        "quantities": tuple(dict.fromkeys(quantities)),
        "caches": tuple(dict.fromkeys(split_names(options.cache))),
        "mode": mode,
        "timer": timer,
    }
    base = Settings(
        threads=1, effort=options.effort, sampling=_sampling(options), seed=options.seed, verify=options.verify, **named
    )  # fmt: skip
    rounds = PROCESSES[options.effort] if options.processes is None else options.processes
    counts = list(dict.fromkeys(as_list(options.threads))) or [default_threads()]
    return [replace(base, threads=count, process=process) for process in range(rounds) for count in counts]


def default_threads() -> int:
    """As many as the environment says, in the words that math libraries know, or else one per core."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdecimal() and 1 <= int(told) <= MOST_THREADS else len(affinity())


def _sampling(options: MeasureOptions) -> Sampling:
    """The sampling of the effort, with what was asked for in its place."""
    asked = {name: getattr(options, name) for name in _SAMPLING}
    given = {name: value for name, value in asked.items() if value is not None}
    if "samples" in given and given.keys() & {"rel_ci", "min_time", "max_time", "min_samples"}:
        raise InvalidParameter("a fixed number of samples leaves nothing to stop earlier", "leave --samples out")
    found = replace(EFFORTS[options.effort], **given)
    if found.min_time <= found.max_time:
        return found
    if "min_time" in given and "max_time" in given:
        raise InvalidParameter(
            f"min_time {found.min_time:g} s is longer than max_time {found.max_time:g} s", "leave one of them out"
        )
    # Who asks for a long minimum gets it, and who asks for a short budget has it kept.
    least = found.min_time if "min_time" in given else found.max_time
    return replace(found, min_time=least, max_time=least)
