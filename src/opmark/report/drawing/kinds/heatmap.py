"""Two lists of names, and a colour and a number where they meet."""

from __future__ import annotations

from collections.abc import Iterator

from opmark.report.drawing import axes, sound
from opmark.report.drawing.heat import STEPS, Heat, heat
from opmark.report.drawing.kinds.picture import Picture
from opmark.report.drawing.labels import single, titled
from opmark.report.drawing.marks import cells
from opmark.report.drawing.panel import WIDTH, Panel, Spot
from opmark.report.drawing.scale import fitting
from opmark.report.drawing.text import clean, width
from opmark.report.drawing.words import text
from opmark.schema.chart import Axis, Chart

_NARROWEST, _WIDEST, _HIGH = 26.0, 96.0, 26.0
_LEGEND = 44.0
_SWATCH = 26.0
_PERCENT = 0.01
_NOTHING = "no number"


def picture(chart: Chart) -> Picture:
    columns, rows = max(1, len(chart.x.names)), max(1, len(chart.y.names))
    across, down = fitting(chart.x, ()), fitting(chart.y, ())
    beside, left = axes.beside(down, chart.y, _HIGH * rows)
    left = max(left, axes.beneath(across, chart.x, WIDTH - left).reach)
    wide = min(_WIDEST, max(_NARROWEST, (WIDTH - left - 16) / columns))
    panel = Panel(left, axes.TITLE + 4, wide * columns, _HIGH * rows)
    beneath = axes.beneath(across, chart.x, panel.width)
    values = chart.values or Axis("", "", "linear")
    spots = [
        Spot(i, panel.across(across.place(mark.x)), panel.down(down.place(mark.y)), None, mark)
        for kept in sound.kept(chart)
        for i, mark in kept.marks
    ]
    colours = heat(values, [spot.mark.value for spot in spots if spot.mark.value is not None])
    foot = panel.bottom + beneath.height + 34
    parts = [
        _behind(chart, panel),
        *cells.draw(spots, colours, (wide, _HIGH), lambda value: _written(value, values)),
        *axes.labels_beneath(panel, beneath, chart.x),
        *axes.labels_beside(panel, beside, downwards=True),
        axes.title_above(chart.y, panel),
        *_legend(chart, values, colours, foot, hollow=len(spots) < columns * rows or _some_empty(spots)),
    ]
    return Picture(max(WIDTH, panel.right + 16), foot + _LEGEND, parts)


def _some_empty(spots: list[Spot]) -> bool:
    return any(spot.mark.value is None for spot in spots)


def _behind(chart: Chart, panel: Panel) -> str:
    """Hatched: what no cell covers has no number."""
    return (
        f'<defs><pattern id="{_hatch(chart)}" width="7" height="7" patternUnits="userSpaceOnUse"'
        f' patternTransform="rotate(45)"><path class="hatch" d="M0 0V7"/></pattern></defs>'
        f'<rect class="nothing" x="{panel.left:.1f}" y="{panel.top:.1f}" width="{panel.width:.1f}"'
        f' height="{panel.height:.1f}" fill="url(#{_hatch(chart)})"/>'
    )


def _hatch(chart: Chart) -> str:
    return f"{identifier(chart)}-hatch"


def identifier(chart: Chart) -> str:
    """Letters, digits and `-`, whatever its maker wrote."""
    return "".join(one if one.isascii() and (one.isalnum() or one == "-") else "-" for one in chart.id) or "chart"


def _written(value: float, axis: Axis) -> str:
    if axis.unit == "share":
        return f"{100 * value:.0f}" if value == 0 or abs(value) >= _PERCENT else f"{100 * value:.1g}"
    return f"{value:.3g}" if axis.unit in ("ratio", "flop/B", "count", "") else single(float(f"{value:.3g}"), axis.unit)


def _legend(chart: Chart, axis: Axis, colours: Heat, top: float, *, hollow: bool) -> Iterator[str]:
    """The colours with the values at which they begin, and what a hatched cell means."""
    unit = " (%)" if axis.unit == "share" and "%" not in axis.title else ""
    words = clean(titled(axis)) + unit
    yield '<g class="legend">'
    yield text(4, top + 13, words)
    x = 4 + width(words, axes.SMALL) + 14
    for step in range(STEPS):
        place = f'x="{x + step * _SWATCH:.1f}" y="{top:.1f}" width="{_SWATCH:g}" height="14"'
        yield f'<g class="cells h{step}"><rect {place}/></g>'
    yield '<g text-anchor="middle">'
    for step in (0, STEPS // 2, STEPS):
        said = _written(float(f"{colours.border(step):.3g}"), axis)
        yield text(x + step * _SWATCH, top + 28, said)
    yield "</g>"
    if hollow:
        x += STEPS * _SWATCH + 28
        yield f'<rect class="nothing" x="{x:.1f}" y="{top:.1f}" width="26" height="14" fill="url(#{_hatch(chart)})"/>'
        yield text(x + 32, top + 12, _NOTHING)
    yield "</g>"
