"""Prints the first layer of a model that differs, for each backend."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from opmark.analysis.layer_differences import LayerDifference
from opmark.report.console.table import print_prose, print_rows

HEADS = ("model", "backend", "differs", "layer", "of", "error", "bound")


def print_layer_differences(found: Sequence[LayerDifference], console: Console) -> None:
    """Print a line for each backend, and below what the columns mean."""
    lines = [
        [
            Text(one.model),
            Text(one.backend),
            Text("yes" if one.differs else "no" if one.layer else "?", style="red" if one.differs else ""),
            Text(one.layer or "-"),
            Text(f"{one.number} of {one.layers}" if one.layer else "-"),
            Text(
                "not finite"
                if one.error is None and one.layer
                else f"{one.error:.2g}"
                if one.error is not None
                else "-"
            ),
            Text(f"{one.bound:.2g}" if one.bound is not None else "-"),
        ]
        for one in found
    ]
    print_rows(HEADS, lines, console, 2, left=HEADS[:4])
    console.print()
    print_prose(
        "layer: the first whose output is further from the float64 reference than rounding explains; where none is, "
        "the one nearest to its bound. error and bound: relative to the root mean square of the layer's output.",
        console,
    )
    for one in found:
        if not one.layer:
            print_prose(f"{one.model} on {one.backend}: {one.status}: {one.reason}", console)
