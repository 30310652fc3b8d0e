"""What is known of operators that ran at the same time: slowdowns, makespan, and whether it pays."""

from __future__ import annotations

from msgspec import Struct

from opmark.schema.comparison import Verdict
from opmark.schema.record import Status


class CorunRatio(Struct, frozen=True):
    """A ratio of two times over the processes, each of which measured both in turns."""

    ratio: float
    low: float | None
    high: float | None
    """Ends of its interval; None where too few processes have both."""
    verdict: Verdict
    processes: int


class CorunMember(Struct, frozen=True):
    """One of the operators that ran together."""

    op: str
    params: str
    """The parameters as people read them."""
    phase: str
    backend: str
    implementation: str
    threads: int
    cores: tuple[int, ...]
    case: str
    """Id of the case."""
    status: Status
    """The most severe one of its processes, beside the others."""
    reason: str
    alone: float | None
    beside: float | None
    """Seconds of a call: geometric means over the processes."""
    slowdown: CorunRatio | None
    """Time beside the others over time alone; `slower` means that the others are felt."""
    bound: str = ""
    """What limits it alone: `compute`, `memory`, `latency` (neither explains its time); empty if the peaks of the
    machine are not known."""
    configuration: tuple[tuple[str, bool | int | float | str | tuple[int, ...]], ...] = ()

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.op, self.params, "" if self.phase == "forward" else self.phase)))

    @property
    def where(self) -> str:
        from opmark.schema.company import cores_text

        return f"{self.backend} ×{self.threads}" + (f" on {cores_text(self.cores)}" if self.cores else "")


class CorunResult(Struct, frozen=True):
    """A company: operators that ran at the same time."""

    members: tuple[CorunMember, ...]
    makespan: float | None
    """Seconds of one round of all, together."""
    sequence: float | None
    """Seconds of one round, one operator after the other, each with what it is fastest with alone."""
    together: CorunRatio | None
    """Makespan over sequence: `faster` means that running them together pays."""
    efficiency: float | None
    """Sequence over makespan: 1 if nothing is gained, as many as there are operators if all overlap."""
    fairness: float | None
    """Jain's index of the speeds beside the others relative to alone: 1 if all suffer alike."""
    notes: tuple[str, ...] = ()
