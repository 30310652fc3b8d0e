"""Prints how accurate models are on labelled data, and what differs from the reference."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from opmark.analysis.evaluation import AccuracyRow, accuracy_rows
from opmark.report.console.table import print_prose, print_rows
from opmark.report.evaluation import HEADS, accuracy_cells, accuracy_notes
from opmark.schema import Record

_STYLES = {"worse": "red", "better": "green", "undecided": "yellow"}


def print_record_accuracy(records: Sequence[Record], console: Console) -> None:
    """Print the accuracy of the records of a run; its first backend is the reference."""
    print_accuracy(accuracy_rows(records), console)


def print_accuracy(rows: Sequence[AccuracyRow], console: Console) -> None:
    """Print a line for each figure, and below what is to be said of them."""
    lines = []
    for row in rows:
        for cells in accuracy_cells(row):
            *others, verdict, samples = cells
            lines.append([*map(Text, others), Text(verdict, style=_STYLES.get(verdict, "")), Text(samples)])
    print_rows(HEADS, lines, console, 3, left=HEADS[:5], optional=[("params",), ("p",)])
    console.print()
    for note in accuracy_notes(rows):
        print_prose(note, console)
