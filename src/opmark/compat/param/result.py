"""What became of one case of a PARAM config."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from opmark.exporters.param_lines import Place, echo, line, untimed
from opmark.schema import Case, Record


@dataclass(frozen=True)
class CaseResult:
    """Times in milliseconds, memory in MB, as in PARAM's result file."""

    place: Place
    cases: tuple[Case, ...]
    """One a phase, forward first."""
    records: tuple[Record, ...]
    """Of opmark, one a phase: samples, interval, cost, verification, environment."""
    run_id: str
    counts: tuple[int, int] = field(default=(1, 1), repr=False)
    """Calls of warm-up and of measurement that were asked for."""

    @property
    def op_name(self) -> str:
        return self.place.op

    @property
    def id(self) -> str:
        """`config|build|input`; `op_run_id` has the operator in front."""
        return self.place.id

    @property
    def op_run_id(self) -> str:
        return str(self.place)

    @cached_property
    def config(self) -> dict[str, Any]:
        """`build` and `input`, in PARAM's notation."""
        return echo(self.cases[0])

    @cached_property
    def line(self) -> dict[str, Any]:
        """Its line of PARAM's result file."""
        if not self.records:
            return untimed(self.place, self.config)
        found = line(self.place, self.records, self.run_id, self.config)
        return found if self.counts[1] else _unmeasured(found, warmed=self.counts[0] > 0)

    @property
    def metric(self) -> dict[str, dict[str, list[float]]]:
        """As in `metric["forward"]["measure.time"]`; nothing where it failed."""
        return dict(self.line["metric"])

    @property
    def status(self) -> str:
        """`ok`, or that of the first phase that is not."""
        return next((record.status for record in self.records if record.status != "ok"), "ok")

    @property
    def error(self) -> dict[str, str] | None:
        """Its status, its phase and the reason."""
        return self.line.get("error")

    @property
    def forward_ms(self) -> float | None:
        """The median; None where it failed."""
        return self._median("forward")

    @property
    def backward_ms(self) -> float | None:
        return self._median("backward")

    def _median(self, phase: str) -> float | None:
        found = self.line.get("opmark", {}).get(phase, {}).get("median_ms")
        return None if found is None else float(found)


def _unmeasured(found: dict[str, Any], *, warmed: bool) -> dict[str, Any]:
    """Without the one sample that had to be taken."""
    for phase, metric in found["metric"].items():
        metric["measure.time"] = metric["measure.gpu.memory"] = []
        for name in ("samples", "median_ms", "interval_ms", "gb_per_s", "gflop_per_s", "cautions"):
            found["opmark"][phase].pop(name, None)
    return found if warmed else {**found, "metric": {}}
