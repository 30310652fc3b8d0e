"""Result: a run with its records, as programs get it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opmark.interfaces import Results
from opmark.report.gain import gains
from opmark.report.rows import rows
from opmark.report.view import Known, view
from opmark.schema import Problem, Record, Run
from opmark.tabular import to_arrow, to_pandas


@dataclass(frozen=True, repr=False)
class Result:
    """A run with its records, oldest first."""

    run: Run
    records: list[Record]
    db: str | Path
    """Where it is stored: a file, or the address of a server."""
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Facts by environment id."""
    peaks: dict[str, Known] = field(default_factory=dict)
    """What is known of the chip of an environment, by its id."""
    problems: tuple[Problem, ...] = ()
    """What of a foreign workload could not be used."""

    rank: int = 0
    """Of the process among those that a launcher started; records are with rank 0 alone."""
    told: int = 0
    """By rank 0: how it ended, as an exit code."""

    @property
    def exit_code(self) -> int:
        """As the command line ends: 1 where nothing was measured, something failed, or a part of a file was no use."""
        if self.rank:
            return self.told
        measured = any(record.status == "ok" for record in self.records)
        return 0 if measured and not self.failed and not self.problems else 1

    def results(self) -> Results:
        """As exporters take it."""
        chips = {key: known.datasheet for key, known in self.peaks.items() if known.datasheet}
        measured = {key: known.measured for key, known in self.peaks.items() if known.measured}
        return Results(self.run, self.records, self.environments, chips, measured)

    @property
    def failed(self) -> bool:
        return any(record.failed for record in self.records)

    def rows(self) -> list[dict[str, Any]]:
        """What `--json` prints: medians, intervals, rates and everything else but the samples, as plain data."""
        found = rows(self.records)
        known = [self.peaks.get(row.record.environment) for row in found]
        return [view(*facts) for facts in zip(found, [self.run.id] * len(found), known, gains(found), strict=True)]

    def to_pandas(self) -> Any:
        """The rows as a `pandas.DataFrame`: what is nested is a column with dots."""
        return to_pandas(self.rows())

    def to_arrow(self) -> Any:
        """The rows as a `pyarrow.Table`."""
        return to_arrow(self.rows())

    def __repr__(self) -> str:
        counts = Counter(record.status for record in self.records)
        listed = ", ".join(f"{count} {status}" for status, count in counts.items())
        return f"<opmark run {self.run.id}: {listed}>"
