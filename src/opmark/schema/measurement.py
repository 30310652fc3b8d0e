"""Measurement: raw samples of one quantity, how they were taken, why sampling stopped, what is doubtful."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Stop = Literal["precise", "budget"]
"""`precise`: the interval is as narrow as asked. `budget`: the time was spent first."""


PREEMPTED = "preempted"
"""The code of the one caution that makes a number worthless: it is the scheduler's and not the operator's."""


class Caution(Struct, frozen=True):
    """A reason to doubt a number: what was measured, what the limit is, what to do."""

    code: str
    message: str
    hint: str = ""


class Measurement(Struct, frozen=True):
    quantity: str
    """`latency`: call to completion."""
    cache: Literal["cold", "warm"]
    timer: str
    samples: list[float]
    """Seconds a call, in the order taken, outliers included; the harness's own cost is already taken off."""
    calls: int
    """Calls a sample: each sample is the mean of that many back-to-back calls."""
    overhead: float
    """Seconds a call that were taken off each sample as the harness's own."""
    warmup_calls: int
    warmup_time: float
    stop: Stop
    cautions: tuple[Caution, ...] = ()
