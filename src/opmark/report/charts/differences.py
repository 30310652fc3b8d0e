"""The chart of errors: how many elements of a model's outputs are off by how much, on each backend."""

from __future__ import annotations

from opmark.analysis.accuracy import bin_names, histogram_of
from opmark.analysis.rows import Row, RunView
from opmark.report.charts.elements import WayNames, address
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark


def differences(run_view: RunView) -> list[Chart]:
    """Return a chart for each case of a model. Errors are known from whole records only."""
    cases: dict[str, dict[str, tuple[Row, list[int]]]] = {}
    ways = WayNames()
    for row in run_view.rows:
        check = row.record.verification if row.is_model and row.records else None
        counts = histogram_of(check.numerics) if check else []
        if sum(counts):
            cases.setdefault(row.case, {})[f"{ways.name(row)} ×{row.threads}"] = row, counts
    return [_chart(found) for found in cases.values()]


def _chart(found: dict[str, tuple[Row, list[int]]]) -> Chart:
    first = next(row for row, _ in found.values())
    used = [i for i in range(len(bin_names())) if any(counts[i] for _, counts in found.values())]
    bins = range(used[0], used[-1] + 1)
    return Chart(
        id=address("differences", first.case),
        title=f"Differences of {first.name} from the reference",
        about="Share of the elements of all outputs by the size of their error, relative to the root mean square of "
        "the output; the smallest errors come first.",
        kind="bars",
        x=Axis("share of the elements", "share", "linear"),
        y=Axis("error", "", "category", tuple(bin_names()[i] for i in bins)),
        series=tuple(
            ChartSeries(
                name,
                tuple(
                    Mark(counts[i] / sum(counts), y, name, link=row.key, note=f"{counts[i]} of {sum(counts)}")
                    for y, i in enumerate(bins)
                    if counts[i]
                ),
                "bars",
            )
            for name, (row, counts) in found.items()
        ),
    )  # fmt: skip
