"""Draws a chart as SVG: bars and forest plots, heatmaps, plots of two numeric axes, and sample charts.

The picture has CSS classes and no colours, which come from the style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from opmark.report.charts.svg import axes, labels
from opmark.report.charts.svg.labels import LabelGrid, draw_rule, draw_rule_name
from opmark.report.charts.svg.marks import (
    STEPS,
    WIDTH,
    Drawn,
    PlacedMark,
    choose_colours,
    choose_styles,
    draw_cells,
    draw_marker,
    draw_series,
)
from opmark.report.charts.svg.scale import (
    NO_NUMBER,
    DrawableSeries,
    Linear,
    Panel,
    Places,
    Scaled,
    fit_scale,
    format_exactly,
    format_round,
    is_drawable,
    select_marks,
    select_rules,
    title_with_unit,
)
from opmark.report.charts.svg.text import clean, shorten_apart, text, width
from opmark.schema.chart import Axis, Chart, ReferenceLine

_MANY = 300
"""Number of marks from which on they let each other shine through."""
_WIDE, _WIDEST = 900.0, 1300.0
"""Widths of pictures from which on a page gives them more room."""


class Picture(NamedTuple):
    width: float
    height: float
    content: str


def svg(chart: Chart) -> str:
    """Return the picture of a chart. Two elements of the page around it name it: `ID-title` and `ID-about`."""
    if chart.kind == "bars":
        picture = draw_bar_chart(chart)
    elif chart.kind == "heatmap":
        picture = draw_heatmap(chart)
    else:
        picture = draw_plot(chart)
    classes = ["many"] if sum(len(series.marks) for series in chart.series) > _MANY else []
    classes += ["wide"] if _WIDE < picture.width <= _WIDEST else ["widest"] if picture.width > _WIDEST else []
    looks = f' class="{" ".join(classes)}"' if classes else ""
    name = identifier(chart)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {picture.width:.0f} {picture.height:.0f}" role="img"'
        f' aria-labelledby="{name}-title {name}-about"{looks}>{picture.content}</svg>'
    )


def identifier(chart: Chart) -> str:
    """Return the id of a chart in letters, digits and `-`."""
    return "".join(one if one.isascii() and (one.isalnum() or one == "-") else "-" for one in chart.id) or "chart"


def values_of_rules(rules: Sequence[ReferenceLine], across: str) -> list[float]:
    """Return the values of rules on one axis."""
    both = [(rule.at, rule.to) for rule in rules if rule.across == across]
    return [value for pair in both for value in pair if value is not None]


# Bar charts and forest plots: names from top to bottom, values to the right.

_ROW, _GAP = 15.0, 9.0
"""Height of a bar, and gap between the groups of two names."""
_TOP = 14.0
_NAME = 16.0
"""Height of the name of a rule."""
_TOLD = 120
"""With more marks, values are in the table alone."""
_WIDEST_NAME = 270.0
_SIGN = 13.0
"""Width of a marker beside a bar."""


class BarRows(NamedTuple):
    """Where the marks of each name lie, from the top: only those that it has take room."""

    at: dict[int, float]
    """By the number of a mark."""
    middles: list[float]
    """Middle of the rows of each name."""
    borders: list[float]
    """Above each name but the first."""
    height: float


def draw_bar_chart(chart: Chart) -> Picture:
    found, rules = select_marks(chart), select_rules(chart)
    marks = [one for kept in found for one in kept.marks]
    rows = _place_rows(len(chart.y.names), found)
    barred = any(series.shape == "bars" for series in chart.series)
    ends = [end for one in marks for end in one.ends or ()]
    across = fit_scale(chart.x, [*(one.mark.x for one in marks), *ends, *values_of_rules(rules, "x")], zero=barred)
    told = {one.i: format_exactly(one.mark.x, chart.x, 3) for one in marks} if len(marks) <= _TOLD else {}
    names = shorten_apart(chart.y.names, _WIDEST_NAME, axes.SMALL)
    left = max((width(name, axes.SMALL) for name in names), default=0) + 14
    signed = sum(series.shape == "bars" and bool(series.marks) for series in chart.series) > 1
    right = max((width(words, axes.SMALL) for words in told.values()), default=10) + 14 + (_SIGN if signed else 0)
    upright = [one for one in rules if one.across == "x" and one.name]
    panel = Panel(left, _TOP + _NAME * len(upright), WIDTH - left - right, rows.height)
    styles = choose_styles(chart.series)
    drawn = []
    foot = panel.across(across.place(0.0)) if isinstance(across, Linear) else panel.left
    for kept, look in zip(found, styles, strict=True):
        spots = []
        for i, mark, interval in kept.marks:
            reach = interval and (panel.across(across.place(interval[0])), panel.across(across.place(interval[1])))
            spots.append(PlacedMark(i, panel.across(across.place(mark.x)), panel.top + rows.at[i], reach, mark))
        drawn.append(Drawn(kept.series, look, spots, 4.5, foot, _ROW - 3, sideways=True))
    beneath = axes.place_beneath(across, chart.x, panel.width)
    legend = axes.place_legend(list(zip(chart.series, styles, strict=True)), WIDTH - 8)
    low = panel.bottom + beneath.height + 28
    up = Places(chart.y.names)
    parts = [draw_rule(one, panel, across, up) for one in rules if one.to is not None]
    borders = "".join(f"M{panel.left:.1f} {panel.top + y:.1f}H{panel.right:.1f}" for y in rows.borders)
    parts += [f'<path class="grid minor" d="{borders}"/>'] if borders else []
    parts += [axes.draw_frame(panel, beneath.ticks, None), axes.draw_beneath(panel, beneath, chart.x)]
    places = zip(names, rows.middles, strict=True)
    beside = "".join([text(panel.left - 7, panel.top + middle + 4, name) for name, middle in places])
    parts += [f'<g class="ticks" text-anchor="end">{beside}</g>']
    parts += [draw_rule(one, panel, across, up) for one in rules if one.to is None]
    for k, one in enumerate(upright):  # names above the picture, a line each: inside there are bars everywhere
        above = panel._replace(top=panel.top - _NAME * (k + 1), height=_NAME)
        parts.append(draw_rule_name(one, above, across, up, LabelGrid(above)))
    parts += map(draw_series, drawn)
    for series in drawn if signed else []:  # markers as in the legend, for readers who do not distinguish colours
        if series.series.shape == "bars":
            x = panel.right + _SIGN / 2 + 3
            signs = "".join([draw_marker(series.look.marker, 3.8, x, spot.y) for spot in series.spots])
            parts.append(f'<g class="series {series.look.classes}"><g class="dots">{signs}</g></g>')
    if told:  # in a column at the right: behind their bars they would meet whiskers and rules
        spots = [spot for series in drawn for spot in series.spots]
        values = "".join([text(WIDTH - 4, spot.y + 4, told[spot.i]) for spot in spots])
        parts.append(f'<g class="told" text-anchor="end">{values}</g>')
    parts.append(legend.draw(4, low))
    return Picture(WIDTH, low + legend.height + (6 if legend.height else 0), "".join(parts))


def _place_rows(names: int, found: Sequence[DrawableSeries]) -> BarRows:
    of_name: list[list[int]] = [[] for _ in range(names)]
    for kept in found:
        for one in kept.marks:
            of_name[round(one.mark.y)].append(one.i)
    at, middles, borders, y = {}, [], [], 0.0
    for numbers in of_name:
        borders.append(y)
        y += _GAP / 2
        for k, i in enumerate(numbers):
            at[i] = y + _ROW * (k + 0.5)
        high = _ROW * max(1, len(numbers))
        middles.append(y + high / 2)
        y += high + _GAP / 2
    return BarRows(at, middles, borders[1:], y or _ROW)


# Heatmaps: two lists of names, with a colour and a number for each pair.

_NARROWEST, _WIDEST_CELL, _HIGH = 26.0, 96.0, 26.0
_LEGEND = 44.0
_SWATCH = 26.0
_PERCENT = 0.01


def draw_heatmap(chart: Chart) -> Picture:
    columns, rows = max(1, len(chart.x.names)), max(1, len(chart.y.names))
    across, down = fit_scale(chart.x, ()), fit_scale(chart.y, ())
    beside, left = axes.place_beside(down, chart.y, _HIGH * rows)
    left = max(left, axes.place_beneath(across, chart.x, WIDTH - left).reach)
    wide = min(_WIDEST_CELL, max(_NARROWEST, (WIDTH - left - 16) / columns))
    panel = Panel(left, axes.TITLE + 4, wide * columns, _HIGH * rows)
    beneath = axes.place_beneath(across, chart.x, panel.width)
    values = chart.values or Axis("", "", "linear")
    spots = [
        PlacedMark(i, panel.across(across.place(mark.x)), panel.down(down.place(mark.y)), None, mark)
        for kept in select_marks(chart)
        for i, mark, _ in kept.marks
    ]
    colours = choose_colours(values, [spot.mark.value for spot in spots if spot.mark.value is not None])
    hatch = f"{identifier(chart)}-hatch"
    behind = (  # hatched: where no cell covers it, there is no number
        f'<defs><pattern id="{hatch}" width="7" height="7" patternUnits="userSpaceOnUse"'
        f' patternTransform="rotate(45)"><path class="hatch" d="M0 0V7"/></pattern></defs>'
        f'<rect class="nothing" x="{panel.left:.1f}" y="{panel.top:.1f}" width="{panel.width:.1f}"'
        f' height="{panel.height:.1f}" fill="url(#{hatch})"/>'
    )
    foot = panel.bottom + beneath.height + 34
    parts = [
        behind,
        draw_cells(spots, colours, (wide, _HIGH), lambda value: _write_cell(value, values)),
        axes.draw_beneath(panel, beneath, chart.x),
        axes.draw_beside(panel, beside, chart.y),
    ]
    # The legend: the colours with the values at which they begin, and what a hatched cell means.
    words = clean(title_with_unit(values)) + (" (%)" if values.unit == "share" and "%" not in values.title else "")
    parts += ['<g class="legend">', text(4, foot + 13, words)]
    x = 4 + width(words, axes.SMALL) + 14
    for step in range(STEPS):
        place = f'x="{x + step * _SWATCH:.1f}" y="{foot:.1f}" width="{_SWATCH:g}" height="14"'
        parts.append(f'<g class="cells h{step}"><rect {place}/></g>')
    parts.append('<g text-anchor="middle">')
    for step in (0, STEPS // 2, STEPS):
        said = _write_cell(float(f"{colours.border(step):.3g}"), values)
        parts.append(text(x + step * _SWATCH, foot + 28, said))
    parts.append("</g>")
    if len(spots) < columns * rows or any(spot.mark.value is None for spot in spots):
        x += STEPS * _SWATCH + 28
        parts.append(f'<rect class="nothing" x="{x:.1f}" y="{foot:.1f}" width="26" height="14" fill="url(#{hatch})"/>')
        parts.append(text(x + 32, foot + 12, NO_NUMBER))
    parts.append("</g>")
    return Picture(max(WIDTH, panel.right + 16), foot + _LEGEND, "".join(parts))


def _write_cell(value: float, axis: Axis) -> str:
    if axis.unit == "share":
        return f"{100 * value:.0f}" if value == 0 or abs(value) >= _PERCENT else f"{100 * value:.1g}"
    short = f"{value:.3g}"
    return short if axis.unit in ("ratio", "flop/B", "count", "") else format_round(float(short), axis.unit)


# Plots of two numeric axes: points, lines, bands and steps; those of samples have a histogram at the right edge.

HEIGHT = 340.0
_TALL = 420.0
"""With ceilings whose names stand in the right margin: these make the picture wider, and so many of them higher."""
_RIGHT = 22.0
_RADII = ((60, 5.0), (300, 4.4), (1_500, 3.6), (5_000, 2.4))
"""Up to so many points, so large is each."""
_SMALLEST = 1.8
_ORDER = {"guide": 0, "ceiling": 1, "data": 2, "alarm": 3}
"""Later ones lie above."""
_HISTOGRAM, _HISTOGRAM_GAP = 96.0, 10.0
"""Width of a histogram, and its distance from the plot."""


def draw_plot(chart: Chart) -> Picture:
    found, rules = select_marks(chart), select_rules(chart)
    marks = [one for kept in found for one in kept.marks]
    across = fit_scale(chart.x, [*(one.mark.x for one in marks), *values_of_rules(rules, "x")])
    ends = [end for one in marks for end in one.ends or ()]
    counted = [end for one in chart.spread for end in (one.low, one.high) if is_drawable(chart.y, end)]
    up = fit_scale(chart.y, [*(one.mark.y for one in marks), *ends, *values_of_rules(rules, "y"), *counted])
    right = _HISTOGRAM + _HISTOGRAM_GAP + 16 if chart.kind == "samples" else _RIGHT
    margin = labels.measure_margin(found)
    high = _TALL if margin else HEIGHT
    beside, left = axes.place_beside(up, chart.y, high)
    left = max(left, axes.place_beneath(across, chart.x, WIDTH - left - right).reach)
    panel = Panel(left, axes.TITLE + 4, WIDTH - left - right, high)
    wide = panel.right + max(right, margin)
    styles = choose_styles(chart.series)
    legend = axes.place_legend(list(zip(chart.series, styles, strict=True)), wide - 8)
    beneath = axes.place_beneath(across, chart.x, panel.width)
    foot = panel.bottom + beneath.height + 28

    points = sum(len(kept.marks) for kept in found if kept.series.shape in ("points", "band"))
    radius = next((radius for most, radius in _RADII if points <= most), _SMALLEST)
    rise = panel.down if isinstance(up, Places) else panel.up
    drawn = []
    for kept, look in zip(found, styles, strict=True):
        spots = []
        for i, mark, interval in kept.marks:
            reach = interval and (rise(up.place(interval[0])), rise(up.place(interval[1])))
            spots.append(PlacedMark(i, panel.across(across.place(mark.x)), rise(up.place(mark.y)), reach, mark))
        drawn.append(Drawn(kept.series, look, spots, radius))

    parts = [_draw_histogram(chart, panel, up)] if chart.kind == "samples" else []
    parts += [draw_rule(one, panel, across, up) for one in rules if one.to is not None]
    parts += [
        axes.draw_frame(panel, beneath.ticks, None if isinstance(up, Places) else beside),
        axes.draw_beneath(panel, beneath, chart.x),
        axes.draw_beside(panel, beside, chart.y),
    ]
    parts += [draw_rule(one, panel, across, up) for one in rules if one.to is None]
    parts += map(draw_series, sorted(drawn, key=lambda one: _ORDER[one.series.role]))
    room = LabelGrid(panel)  # names come after the marks, over which they have a rim
    for one in drawn:
        if one.series.shape in ("points", "band"):
            sides = (-radius, radius)
            room.take((spot.x + dx, spot.y + dy) for spot in one.spots for dx in sides for dy in sides)
        if one.series.shape != "points":
            room.take(labels.points_of_line(one), labels.LINE)
    parts.append(labels.draw_names(drawn, panel, room))
    parts += [draw_rule_name(rule, panel, across, up, room) for rule in rules]
    parts.append(legend.draw(4, foot))
    # A chart of samples is as wide as any other: it has no ceilings with names in the margin.
    whole = WIDTH if chart.kind == "samples" else wide
    return Picture(whole, foot + legend.height + (6 if legend.height else 0), "".join(parts))


def _draw_histogram(chart: Chart, panel: Panel, up: Scaled) -> str:
    """Return the histogram of all values, also of those without a mark, on the upright axis of the plot."""
    side = Panel(panel.right + _HISTOGRAM_GAP, panel.top, _HISTOGRAM, panel.height)
    counts = [
        one for one in chart.spread if one.number and is_drawable(chart.y, one.low) and is_drawable(chart.y, one.high)
    ]
    if not counts:
        return ""
    most = max(one.number for one in counts)
    boxes = []
    for one in counts:
        top, foot = side.up(up.place(one.high)), side.up(up.place(one.low))
        wide, high = side.width * one.number / most, max(foot - top - 1, 1.0)
        boxes.append(f"M{side.left:.1f} {top + 0.5:.1f}h{wide:.1f}v{high:.1f}H{side.left:.1f}z")
    return (
        f'<path class="histogram" d="{"".join(boxes)}"/>'
        f'<path class="axis" d="M{side.left:.1f} {side.top:.1f}V{side.bottom:.1f}"/>'
        + text(side.left, side.bottom + 17, "0", classes="tick")
        + text(side.right, side.bottom + 17, str(most), classes="tick", anchor="end")
        + text(side.left + side.width / 2, side.bottom + 38, "how many", classes="title", anchor="middle")
    )
