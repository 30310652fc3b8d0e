"""Draws the kinds of charts: bars and forest plots, heatmaps, plots of two numeric axes, and sample charts.

Bar charts have names from top to bottom and values to the right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from opmark.report.charts.svg import axes, labels, marks, scale
from opmark.report.charts.svg.axes import Legend, legend
from opmark.report.charts.svg.labels import LINE, LabelGrid
from opmark.report.charts.svg.marks import STEPS, WIDTH, Drawn, Heat, Panel, PlacedMark, draw_mark, heat, looks, sample
from opmark.report.charts.svg.scale import (
    DrawableSeries,
    Linear,
    Places,
    Scaled,
    Ticks,
    drawable,
    exact,
    fitting,
    single,
    titled,
)
from opmark.report.charts.svg.text import clean, shorten_apart, text, width
from opmark.schema.chart import Axis, Chart, Mark, ReferenceLine

_ROW, _GAP = 15.0, 9.0
"""Height of a bar, and gap between the groups of two names."""
_TOP = 14.0
_NAME = 16.0
"""Height of the name of a rule."""
_TOLD = 120
"""With more marks, values are in the table alone."""
_WIDEST = 270.0
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
    found, rules = scale.kept(chart), list(scale.rules(chart))
    marks = [mark for kept in found for _, mark in kept.marks]
    rows = _rows(len(chart.y.names), found)
    barred = any(series.shape == "bars" for series in chart.series)
    ends = [end for mark in marks for end in scale.interval(chart, mark) or ()]
    across = fitting(chart.x, [*(mark.x for mark in marks), *ends, *of_rules(rules, "x")], zero=barred)
    told = {i: _told(chart, mark) for kept in found for i, mark in kept.marks} if len(marks) <= _TOLD else {}
    left = max((width(name, axes.SMALL) for name in _names(chart)), default=0) + 14
    signed = sum(series.shape == "bars" and bool(series.marks) for series in chart.series) > 1
    right = max((width(words, axes.SMALL) for words in told.values()), default=10) + 14 + (_SIGN if signed else 0)
    panel = Panel(left, _TOP + _NAME * len(_upright(rules)), WIDTH - left - right, rows.height)
    drawn = _drawn(chart, found, panel, across, rows)
    beneath = axes.beneath(across, chart.x, panel.width)
    names = legend(list(zip(chart.series, looks(chart.series), strict=True)), WIDTH - 8)
    foot = panel.bottom + beneath.height + 28
    parts = [*_around(chart, panel, across, beneath, rows), *map(draw_mark, drawn),
             *_signs(panel, drawn if signed else []), *_values(panel, drawn, told),
             *names.draw(4, foot)]  # fmt: skip
    return Picture(WIDTH, foot + names.height + (6 if names.height else 0), parts)


def _rows(names: int, found: Sequence[DrawableSeries]) -> BarRows:
    of_name: list[list[int]] = [[] for _ in range(names)]
    for kept in found:
        for i, mark in kept.marks:
            of_name[round(mark.y)].append(i)
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


def _drawn(chart: Chart, found: Sequence[DrawableSeries], panel: Panel, across: Scaled, rows: BarRows) -> list[Drawn]:
    foot = panel.across(across.place(0.0)) if isinstance(across, Linear) else panel.left
    made = []
    for kept, look in zip(found, looks(chart.series), strict=True):
        spots = []
        for i, mark in kept.marks:
            ends = scale.interval(chart, mark)
            reach = (panel.across(across.place(ends[0])), panel.across(across.place(ends[1]))) if ends else None
            spots.append(PlacedMark(i, panel.across(across.place(mark.x)), panel.top + rows.at[i], reach, mark))
        made.append(Drawn(kept.series, look, spots, 4.5, foot, _ROW - 3, sideways=True))
    return made


def _around(chart: Chart, panel: Panel, across: Scaled, beneath: axes.Beneath, rows: BarRows) -> Iterator[str]:
    rules = list(scale.rules(chart))
    up = Places(chart.y.names)
    yield from (labels.rule(one, panel, across, up) for one in rules if one.to is not None)
    borders = "".join(f"M{panel.left:.1f} {panel.top + y:.1f}H{panel.right:.1f}" for y in rows.borders)
    yield f'<path class="grid minor" d="{borders}"/>' if borders else ""
    yield from axes.grid(panel, beneath.ticks, None)
    yield axes.frame(panel)
    yield from axes.labels_beneath(panel, beneath, chart.x)
    yield '<g class="ticks" text-anchor="end">'
    for name, middle in zip(_names(chart), rows.middles, strict=True):
        yield text(panel.left - 7, panel.top + middle + 4, name)
    yield "</g>"
    yield from (labels.rule(one, panel, across, up) for one in rules if one.to is None)
    yield from _rule_names(chart, panel, across)


def _names(chart: Chart) -> list[str]:
    return shorten_apart(chart.y.names, _WIDEST, axes.SMALL)


def _rule_names(chart: Chart, panel: Panel, across: Scaled) -> Iterator[str]:
    """Above the picture, a line each: inside there are bars everywhere."""
    for k, one in enumerate(_upright(scale.rules(chart))):
        above = panel._replace(top=panel.top - _NAME * (k + 1), height=_NAME)
        yield from labels.rule_name(one, above, across, Places(chart.y.names), LabelGrid(above))


def _upright(rules: Iterable[ReferenceLine]) -> list[ReferenceLine]:
    """Return the upright rules that have a name, which is written above the picture."""
    return [one for one in rules if one.across == "x" and one.name]


def _signs(panel: Panel, drawn: Sequence[Drawn]) -> Iterator[str]:
    """A marker beside each bar, as in the legend, for who does not tell colours apart."""
    for one in drawn:
        if one.series.shape == "bars":
            made = "".join(sample(one.look.marker, panel.right + _SIGN / 2 + 3, spot.y, 3.8) for spot in one.spots)
            yield f'<g class="series {one.look.classes}"><g class="dots">{made}</g></g>'


def _values(panel: Panel, drawn: Sequence[Drawn], told: dict[int, str]) -> Iterator[str]:
    """In a column at the right: behind their bars they would meet whiskers and rules."""
    if told:
        yield '<g class="told" text-anchor="end">'
        for one in drawn:
            yield from (text(WIDTH - 4, spot.y + 4, told[spot.i]) for spot in one.spots)
        yield "</g>"


def _told(chart: Chart, mark: Mark) -> str:
    return exact(mark.x, chart.x, 3)


# Heatmaps: two lists of names, with a colour and a number for each pair.

_NARROWEST, _WIDEST_HEATMAP, _HIGH = 26.0, 96.0, 26.0
_LEGEND = 44.0
_SWATCH = 26.0
_PERCENT = 0.01
_NOTHING = "no number"


def draw_heatmap(chart: Chart) -> Picture:
    columns, rows = max(1, len(chart.x.names)), max(1, len(chart.y.names))
    across, down = fitting(chart.x, ()), fitting(chart.y, ())
    beside, left = axes.beside(down, chart.y, _HIGH * rows)
    left = max(left, axes.beneath(across, chart.x, WIDTH - left).reach)
    wide = min(_WIDEST_HEATMAP, max(_NARROWEST, (WIDTH - left - 16) / columns))
    panel = Panel(left, axes.TITLE + 4, wide * columns, _HIGH * rows)
    beneath = axes.beneath(across, chart.x, panel.width)
    values = chart.values or Axis("", "", "linear")
    spots = [
        PlacedMark(i, panel.across(across.place(mark.x)), panel.down(down.place(mark.y)), None, mark)
        for kept in scale.kept(chart)
        for i, mark in kept.marks
    ]
    colours = heat(values, [spot.mark.value for spot in spots if spot.mark.value is not None])
    foot = panel.bottom + beneath.height + 34
    parts = [
        _behind(chart, panel),
        *marks.draw_cells(spots, colours, (wide, _HIGH), lambda value: _written(value, values)),
        *axes.labels_beneath(panel, beneath, chart.x),
        *axes.labels_beside(panel, beside, downwards=True),
        axes.title_above(chart.y, panel),
        *_legend(chart, values, colours, foot, hollow=len(spots) < columns * rows or _some_empty(spots)),
    ]
    return Picture(max(WIDTH, panel.right + 16), foot + _LEGEND, parts)


def _some_empty(spots: list[PlacedMark]) -> bool:
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


# The size and the content of a picture.


class Picture(NamedTuple):
    width: float
    height: float
    parts: list[str]


# Plots of two numeric axes: points, lines, bands and steps.

HEIGHT = 340.0
_TALL = 420.0
"""With ceilings whose names stand in the right margin: these make the picture wider, and so many of them higher."""
_RIGHT = 22.0
_RADII = ((60, 5.0), (300, 4.4), (1_500, 3.6), (5_000, 2.4))
"""Up to so many points, so large is each."""
_SMALLEST = 1.8
_ORDER = {"guide": 0, "ceiling": 1, "data": 2, "alarm": 3}
"""Later ones lie above."""


class Plotted(NamedTuple):
    """A plot that has its places, without what stands around it."""

    chart: Chart
    panel: Panel
    across: Scaled
    up: Scaled
    drawn: list[Drawn]
    beneath: axes.Beneath
    beside: Ticks
    legend: Legend
    width: float = WIDTH


def draw_plot(chart: Chart, right: float = _RIGHT) -> Picture:
    made = plotted(chart, right)
    return Picture(made.width, height(made), list(parts(made)))


def height(made: Plotted) -> float:
    return made.panel.bottom + made.beneath.height + 28 + made.legend.height + (6 if made.legend.height else 0)


def plotted(chart: Chart, right: float) -> Plotted:
    found = scale.kept(chart)
    rules = list(scale.rules(chart))
    marks = [mark for kept in found for _, mark in kept.marks]
    across = fitting(chart.x, [*(mark.x for mark in marks), *of_rules(rules, "x")])
    counted = [end for one in chart.spread for end in (one.low, one.high) if drawable(chart.y, end)]
    up = fitting(chart.y, [*(mark.y for mark in marks), *_of_intervals(chart, found), *of_rules(rules, "y"), *counted])
    names_wide = labels.margin([(kept.series, [mark for _, mark in kept.marks]) for kept in found])
    high = _TALL if names_wide else HEIGHT
    beside, left = axes.beside(up, chart.y, high)
    left = max(left, axes.beneath(across, chart.x, WIDTH - left - right).reach)
    panel = Panel(left, axes.TITLE + 4, WIDTH - left - right, high)
    wide = panel.right + max(right, names_wide)
    names = legend(list(zip(chart.series, looks(chart.series), strict=True)), wide - 8)
    beneath = axes.beneath(across, chart.x, panel.width)
    drawn = _draw_plot_series(chart, found, panel, across, up)
    return Plotted(chart, panel, across, up, drawn, beneath, beside, names, wide)


def parts(made: Plotted) -> Iterator[str]:
    chart, panel, rules = made.chart, made.panel, list(scale.rules(made.chart))
    yield from (labels.rule(one, panel, made.across, made.up) for one in rules if one.to is not None)
    yield from axes.grid(panel, made.beneath.ticks, None if isinstance(made.up, Places) else made.beside)
    yield axes.frame(panel)
    yield from axes.labels_beneath(panel, made.beneath, chart.x)
    yield from axes.labels_beside(panel, made.beside, downwards=isinstance(made.up, Places))
    yield axes.title_above(chart.y, panel)
    yield from (labels.rule(one, panel, made.across, made.up) for one in rules if one.to is None)
    yield from map(draw_mark, sorted(made.drawn, key=lambda one: _ORDER[one.series.role]))
    yield from _plot_names(made)
    yield from made.legend.draw(4, panel.bottom + made.beneath.height + 28)


def _plot_names(made: Plotted) -> Iterator[str]:
    """After the marks, over which they have a rim."""
    room = LabelGrid(made.panel)
    for one in made.drawn:
        if one.series.shape in ("points", "band"):
            sides = (-one.radius, one.radius)
            room.take((spot.x + dx, spot.y + dy) for spot in one.spots for dx in sides for dy in sides)
        if one.series.shape != "points":
            room.take(labels.along_lines(one), LINE)
    yield from labels.names(made.drawn, made.panel, room)
    for rule in scale.rules(made.chart):
        yield from labels.rule_name(rule, made.panel, made.across, made.up, room)


def _draw_plot_series(
    chart: Chart, found: Sequence[DrawableSeries], panel: Panel, across: Scaled, up: Scaled
) -> list[Drawn]:
    radius = radius_of(sum(len(kept.marks) for kept in found if kept.series.shape in ("points", "band")))
    rise = panel.down if isinstance(up, Places) else panel.up
    made = []
    for kept, look in zip(found, looks(chart.series), strict=True):
        spots = []
        for i, mark in kept.marks:
            ends = scale.interval(chart, mark)
            reach = (rise(up.place(ends[0])), rise(up.place(ends[1]))) if ends else None
            spots.append(PlacedMark(i, panel.across(across.place(mark.x)), rise(up.place(mark.y)), reach, mark))
        made.append(Drawn(kept.series, look, spots, radius))
    return made


def radius_of(points: int) -> float:
    return next((radius for most, radius in _RADII if points <= most), _SMALLEST)


def _of_intervals(chart: Chart, found: Sequence[DrawableSeries]) -> Iterator[float]:
    for kept in found:
        for _, mark in kept.marks:
            yield from scale.interval(chart, mark) or ()


def of_rules(rules: Sequence[ReferenceLine], across: str) -> list[float]:
    """Values on that axis."""
    both = [(rule.at, rule.to) for rule in rules if rule.across == across]
    return [value for pair in both for value in pair if value is not None]


# Sample charts: values in the order in which they were measured, with a histogram on the same axis at the right edge.

_WIDE = 96.0
_SAMPLES_GAP = 10.0


def draw_samples(chart: Chart) -> Picture:
    made = plotted(chart, _WIDE + _SAMPLES_GAP + 16)
    panel = made.panel
    side = Panel(panel.right + _SAMPLES_GAP, panel.top, _WIDE, panel.height)
    return Picture(WIDTH, height(made), [*_histogram(side, made), *parts(made)])


def _histogram(side: Panel, made: Plotted) -> Iterator[str]:
    """As the chart has counted: not every value has a mark."""
    axis = made.chart.y
    counts = [one for one in made.chart.spread if one.number and drawable(axis, one.low) and drawable(axis, one.high)]
    if not counts:
        return
    most = max(one.number for one in counts)
    boxes = []
    for one in counts:
        top, foot = side.up(made.up.place(one.high)), side.up(made.up.place(one.low))
        wide, high = side.width * one.number / most, max(foot - top - 1, 1.0)
        boxes.append(f"M{side.left:.1f} {top + 0.5:.1f}h{wide:.1f}v{high:.1f}H{side.left:.1f}z")
    yield f'<path class="histogram" d="{"".join(boxes)}"/>'
    yield f'<path class="axis" d="M{side.left:.1f} {side.top:.1f}V{side.bottom:.1f}"/>'
    yield text(side.left, side.bottom + 17, "0", classes="tick")
    yield text(side.right, side.bottom + 17, str(most), classes="tick", anchor="end")
    yield text(side.left + side.width / 2, side.bottom + 38, "how many", classes="title", anchor="middle")
