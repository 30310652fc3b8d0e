"""Sampling: how long to warm up, how finely to sample, when to stop."""

from __future__ import annotations

from msgspec import Struct


class Sampling(Struct, frozen=True):
    """Times are seconds of measured time; fractions are relative to the median."""

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
    """Exact number of warm-up calls, which replaces the rules above."""
    samples: int | None = None
    """Exact number of samples of one call each, which replaces the rules above."""


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
"""Number of fresh processes per case on a CPU: placement of threads and pages and the state of the machine differ
between processes by more than the samples of one process can show."""

DEVICE_PROCESSES: dict[str, int] = {"quick": 1, "standard": 1, "thorough": 5}
"""Number of fresh processes per case on a device: device time hardly depends on the process, and frameworks start
slowly there."""
