"""`svg`: a chart as a picture. It has classes and no colours; those are the style sheet's."""

from __future__ import annotations

from collections.abc import Callable

from opmark.report.drawing.kinds import bars, heatmap, plot, samples
from opmark.report.drawing.kinds.heatmap import identifier
from opmark.report.drawing.kinds.picture import Picture
from opmark.schema.chart import Chart

_KINDS: dict[str, Callable[[Chart], Picture]] = {
    "plot": plot.picture,
    "bars": bars.picture,
    "heatmap": heatmap.picture,
    "samples": samples.picture,
}
_MANY = 300
"""Marks, from which on they let each other shine through."""
_WIDE, _WIDEST = 900.0, 1300.0


def svg(chart: Chart) -> str:
    """Named by two elements of the page around it: `ID-title` and `ID-about`."""
    picture = _KINDS[chart.kind](chart)
    classes = ["many"] if sum(len(series.marks) for series in chart.series) > _MANY else []
    classes += ["wide"] if _WIDE < picture.width <= _WIDEST else ["widest"] if picture.width > _WIDEST else []
    name = identifier(chart)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {picture.width:.0f} {picture.height:.0f}" role="img"'
        f' aria-labelledby="{name}-title {name}-about"{_class(classes)}>{"".join(picture.parts)}</svg>'
    )


def _class(names: list[str]) -> str:
    return f' class="{" ".join(names)}"' if names else ""
