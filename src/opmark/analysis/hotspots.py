"""The operators of captured steps by their share of the time, and how far they are from the roofline."""

from __future__ import annotations

from msgspec import Struct

from opmark.analysis.metrics import peak_share
from opmark.schema import Cost
from opmark.schema.call_group import CallGroup, CapturedSteps
from opmark.schema.machine import Peaks


class HotOperator(Struct, frozen=True):
    """Calls of one operator with the same shapes, in one step."""

    op: str
    part: str
    """`backward`, `optimizer`, or empty."""
    shapes: str
    count: float
    """Calls per step."""
    seconds: float
    """Mean of one call."""
    total: float
    """Seconds per step."""
    share: float
    """`total` relative to the step."""
    flops: int | None = None
    bytes: int | None = None
    """Bytes that one call has to move; None if it moves none."""
    least: float | None = None
    """Seconds of one call at the roofline; None if the cost or a peak is not known."""
    bound: str = ""
    """What limits it there: `compute`, or a level of memory."""
    gain: float | None = None
    """Seconds that a step would save if all calls reached the roofline."""


class StepProfile(Struct, frozen=True):
    file: str
    """The capture."""
    where: str
    """Device, and number of threads."""
    steps: int
    seconds: float
    """Mean of one step while it was captured: shares are relative to it."""
    median: float
    rows: list[HotOperator]
    """The largest share first."""
    calls: float
    """Calls per step, views included."""
    between: float
    """Share of the step in which no call ran; on a device, in which none of its kernels ran."""
    on_device: bool = False
    plain: float | None = None
    """Median of a step without the profiler."""
    peaks: str = ""
    """Where the peaks come from; empty if they are not known."""

    @property
    def first(self) -> HotOperator | None:
        """The operator to look at first: the largest gain, or the largest share where no roofline is known."""
        return max(self.rows, key=lambda row: (row.gain or 0.0, row.share), default=None)


def make_step_profile(captured: CapturedSteps, where: str, peaks: Peaks | None) -> StepProfile:
    whole, steps = captured.seconds, captured.steps
    return StepProfile(
        captured.file,
        where,
        steps,
        whole / steps,
        captured.median,
        [_row(group, whole, steps, peaks) for group in captured.groups],
        sum(group.count for group in captured.groups) / steps,
        captured.between / whole if whole else 0.0,
        captured.on_device,
        captured.plain,
        peaks.source if peaks else "",
    )


def _row(group: CallGroup, whole: float, steps: int, peaks: Peaks | None) -> HotOperator:
    one, total = group.seconds / group.count, group.seconds / steps
    moved = group.bytes_read + group.bytes_written
    least, bound = None, ""
    if peaks is not None and one > 0 and (moved or group.flops):
        # Operations that nobody counts are taken as free: moving the data is still a bound.
        cost = Cost(group.flops or 0, group.bytes_read, group.bytes_written)
        if found := peak_share(cost, one, group.dtype, peaks, cold=False):
            least, bound = found.share * one, found.bound
    return HotOperator(
        group.name,
        group.part,
        group.shapes,
        group.count / steps,
        one,
        total,
        group.seconds / whole if whole else 0.0,
        group.flops,
        moved or None,
        least,
        bound,
        max(0.0, total - least * group.count / steps) if least is not None else None,
    )
