"""The result of one case of a PARAM config."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from opmark.exporters.param_lines import METRICS, PHASES, Place, echo, line, untimed_line
from opmark.schema import Case, Record
from opmark.units import seconds


@dataclass(frozen=True, repr=False)
class CaseResult:
    """Result of a case, with times in milliseconds and memory in MB, as in PARAM's result file."""

    place: Place
    cases: tuple[Case, ...]
    """One per phase, forward first."""
    records: tuple[Record, ...]
    """opmark's records, one per phase: samples, interval, cost, verification, environment."""
    run_id: str
    counts: tuple[int, int] = (1, 1)
    """Requested calls of warm-up and of measurement."""
    specs: dict[str, Any] | None = None
    """`build` and `input` as in the file, if there is one."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Requested phases that the case does not have, and why."""

    def __repr__(self) -> str:
        times = ((name, self._median(name)) for name in ("forward", "backward"))
        medians = [f"{name} {seconds(ms / 1e3)}" for name, ms in times if ms is not None]
        return f"<{self.op_run_id}: {', '.join([self.status if self.records else 'not run', *medians])}>"

    @property
    def op_name(self) -> str:
        return self.place.op

    @property
    def id(self) -> str:
        """The id without the operator, as in `config|build|input`."""
        return self.place.id

    @property
    def op_run_id(self) -> str:
        return str(self.place)

    @cached_property
    def config(self) -> dict[str, Any]:
        """`build` and `input`, as in the file."""
        return self.specs or echo(self.cases[0])

    @cached_property
    def line(self) -> dict[str, Any]:
        """The line in PARAM's result file."""
        if not self.records:
            return untimed_line(self.place, self.config)
        found = line(self.place, self.records, self.run_id, self.config)
        if not self.counts[1]:
            found = _remove_sample(found, warmed=self.counts[0] > 0)
        for phase, reason in self.left_out.items():
            found["opmark"][PHASES[phase]] = {"status": "skipped", "reason": reason}
            if found["metric"]:
                found["metric"][PHASES[phase]] = {name: [] for name in METRICS}
        return found

    @property
    def metric(self) -> dict[str, dict[str, list[float]]]:
        """Figures as in `metric["forward"]["measure.time"]`; empty for a failure."""
        return dict(self.line["metric"])

    @property
    def status(self) -> str:
        """`ok`, or the status of the first phase that is not."""
        return next((record.status for record in self.records if record.status != "ok"), "ok")

    @property
    def error(self) -> dict[str, str] | None:
        """Status, phase and reason of a failure."""
        return self.line.get("error")

    @property
    def forward_ms(self) -> float | None:
        """The median; None for a failure."""
        return self._median("forward")

    @property
    def backward_ms(self) -> float | None:
        return self._median("backward")

    def _median(self, phase: str) -> float | None:
        found = self.line.get("opmark", {}).get(phase, {}).get("median_ms")
        return None if found is None else float(found)


def _remove_sample(found: dict[str, Any], *, warmed: bool) -> dict[str, Any]:
    """Remove the one sample that is taken even if none is requested."""
    for phase, metric in found["metric"].items():
        metric["measure.time"] = metric["measure.gpu.memory"] = []
        for name in ("samples", "median_ms", "interval_ms", "gb_per_s", "gflop_per_s", "cautions"):
            found["opmark"][phase].pop(name, None)
    return found if warmed else {**found, "metric": {}}
