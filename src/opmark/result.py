"""Result: a run with its records, as programs get it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opmark.analysis.rows import MachineFacts, rows_of_records
from opmark.interfaces import Results
from opmark.report.view import row_view
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
    peaks: dict[str, MachineFacts] = field(default_factory=dict)
    """What is known of the chip of an environment, by its id."""
    problems: tuple[Problem, ...] = ()
    """The parts of a foreign workload that could not be used."""

    rank: int = 0
    """The rank of this process among those that a launcher started; only rank 0 has records."""
    told: int = 0
    """The exit code that rank 0 gave to this process."""

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: 1 where nothing was measured, something failed, or a part of a file could
        not be used."""
        if self.rank:
            return self.told
        measured = any(record.status == "ok" for record in self.records)
        return 0 if measured and not self.failed and not self.problems else 1

    def results(self) -> Results:
        """The run as exporters take it."""
        chips = {key: known.datasheet for key, known in self.peaks.items() if known.datasheet}
        measured = {key: known.measured for key, known in self.peaks.items() if known.measured}
        return Results(self.run, self.records, self.environments, chips, measured)

    @property
    def failed(self) -> bool:
        return any(record.failed for record in self.records)

    def rows(self) -> list[dict[str, Any]]:
        """What `--json` prints: medians, intervals, rates and everything else but the samples, as plain data."""
        return [row_view(row) for row in rows_of_records(self.records, self.run.id, self.peaks, named=False)]

    def to_pandas(self) -> Any:
        """The rows as a `pandas.DataFrame`; nested values are columns with dots in their names."""
        return to_pandas(self.rows())

    def to_arrow(self) -> Any:
        """The rows as a `pyarrow.Table`."""
        return to_arrow(self.rows())

    def __repr__(self) -> str:
        counts = Counter(record.status for record in self.records)
        listed = ", ".join(f"{count} {status}" for status, count in counts.items())
        return f"<opmark run {self.run.id}: {listed}>"
