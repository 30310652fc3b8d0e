"""What a replay of a trace covers: calls replayed and left out, with reasons, and replayed against recorded time."""

from __future__ import annotations

from msgspec import Struct, field

from opmark.units import count_noun


class ReplayedCall(Struct, frozen=True, array_like=True):
    """A replayed call: seconds as recorded and as replayed."""

    name: str
    recorded: float | None
    recorded_start: float | None
    start: float
    replayed: float
    thread: int = 0


class ReplayGap(Struct, frozen=True):
    """Calls that are left out for one reason."""

    reason: str
    calls: int
    recorded: float | None
    """Their recorded time; None where the trace has no times."""
    operators: dict[str, int]
    """Number of calls by the name of the operator."""


class OperatorTimes(Struct, frozen=True):
    """All calls of an operator in a replay."""

    name: str
    calls: int
    recorded: float | None
    replayed: float | None
    ratio: float | None
    """Replayed over recorded time."""


class ReplayReport(Struct, frozen=True):
    source: str
    backend: str
    rank: int | None
    calls: int
    """Calls of the chosen part of the trace."""
    replayed: int
    share: float | None
    """Share of the recorded time of these calls that is replayed; None where the trace has no times."""
    recorded_time: float | None
    """Summed recorded time of the replayed calls."""
    replayed_time: float | None
    """Summed time of the same calls, one by one, in a replay that waits for each; None where none was made."""
    gaps: list[ReplayGap]
    chosen: list[ReplayGap]
    """Calls that the request leaves out."""
    notes: list[str]
    compared: int
    """Results whose shape and type were compared with the recorded ones."""
    differences: list[str]
    made_bytes: int
    """Bytes of the tensors that exist before a replay."""
    operators: list[OperatorTimes] = field(default_factory=list)
    timeline: list[ReplayedCall] = field(default_factory=list)

    @property
    def headline(self) -> str:
        """The coverage in one line."""
        share = "" if self.share is None else f", {self.share:.1%} of recorded time"
        lost = sum(gap.calls for gap in self.gaps)
        return f"{self.replayed} of {count_noun(self.calls, 'call')}{share}" + (f"; {lost} left out" if lost else "")
