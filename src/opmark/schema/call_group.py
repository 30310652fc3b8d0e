"""CallGroup: the calls of one operator with the same shapes in a captured program. A child process finds them."""

from __future__ import annotations

from msgspec import Struct


class CallGroup(Struct, frozen=True):
    name: str
    """`aten::addmm`, or the name of a collective or kernel."""
    part: str
    """Part of the step that it belongs to: `backward`, `optimizer`, or empty."""
    shapes: str
    """Shapes of its tensors: `32x128, 128x64 float32`."""
    dtype: str
    """First floating-point type among them; empty if there is none."""
    count: int
    """Calls in all steps that were captured."""
    seconds: float
    """Time of all calls: on the device if there is one, else on the host."""
    flops: int | None = None
    """Operations of one call, by torch's counter; None if it does not count them."""
    bytes_read: int = 0
    bytes_written: int = 0


class CapturedSteps(Struct, frozen=True):
    """Steps of a program, taken apart into the calls that it made."""

    file: str
    steps: int
    seconds: float
    """Time of all steps while they were captured."""
    groups: list[CallGroup]
    """The longest first."""
    median: float
    """Time of one step while it was captured."""
    on_device: bool = False
    """Whether the times are of kernels on a device."""
    plain: float | None = None
    """Median time of one step without a profiler, if one was seen."""
    facts: dict[str, str | int | None] = {}
    """Where it ran: `device`, `gpu`, `threads`."""
    views: int = 0
    """Calls that only make views of tensors, and move no data."""
    between: float = 0.0
    """Seconds of the steps in which no call ran: Python, data loading, waiting."""
