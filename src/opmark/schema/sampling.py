"""Sampling: how long to warm up, how finely to sample, when to stop."""

from __future__ import annotations

from msgspec import Struct


class Sampling(Struct, frozen=True):
    """All times in seconds of measured time; a fraction is of the median."""

    warmup_min: float
    warmup_max: float
    warmup_agreement: float
    """Warm-up ends when the medians of two successive windows differ by no more than this fraction."""
    sample_time: float
    """A sample lasts at least this long: short calls are batched until it does."""
    min_samples: int
    min_time: float
    max_time: float
    rel_ci: float
    """Stop when the half-width of the median's 95 % interval is no more than this fraction."""
    warmup: int | None = None
    """Exactly so many calls of warm-up, whatever they show."""
    samples: int | None = None
    """Exactly so many samples of one call each, whatever they show."""


EFFORTS: dict[str, Sampling] = {
    "quick": Sampling(
        warmup_min=0.005, warmup_max=0.1, warmup_agreement=0.03,
        sample_time=1e-4, min_samples=20, min_time=0.015, max_time=0.2, rel_ci=0.02,
    ),
    "standard": Sampling(
        warmup_min=0.05, warmup_max=0.5, warmup_agreement=0.02,
        sample_time=5e-4, min_samples=30, min_time=0.15, max_time=0.4, rel_ci=0.005,
    ),
    "thorough": Sampling(
        warmup_min=0.2, warmup_max=2.0, warmup_agreement=0.01,
        sample_time=1e-3, min_samples=100, min_time=0.5, max_time=2.0, rel_ci=0.002,
    ),
}  # fmt: skip

PROCESSES: dict[str, int] = {"quick": 1, "standard": 5, "thorough": 10}
"""Fresh processes in which each case is measured on a CPU: where threads and pages come to lie, and which state the
machine is in, differ between processes and minutes by more than samples of one of them can show."""

DEVICE_PROCESSES: dict[str, int] = {"quick": 1, "standard": 1, "thorough": 5}
"""The same on a device, whose own time hardly depends on the process, and whose frameworks start slowly."""
