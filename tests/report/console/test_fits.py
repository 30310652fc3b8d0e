"""Fits drawn: in characters and as SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.analysis.fits import Fit, FitPoint, Fitted, fit
from opmark.report.charts.communication import LINE, fit_charts
from opmark.report.console.fits import axis, plot_text, time_label
from opmark.report.html.figure import standalone, style

SVG = "{http://www.w3.org/2000/svg}"


def series(op: str, points: list[tuple[int, float]], factor: float = 1.5) -> Fitted:
    found = fit([size for size, _ in points], [t for _, t in points])
    drawn = tuple(FitPoint(size, size * factor, t) for size, t in points)
    line = found if isinstance(found, Fit) else None
    return Fitted(op, {}, "ranks=4", "torch-cpu", "torch-cpu ×1", drawn, line, "" if line else "few")


FLAT = series("flat", [(1 << k, 1e-5) for k in range(3, 11)])
STEEP = series("steep", [(1 << k, (1 << k) / 1e6) for k in range(3, 11)])


def body(text: str) -> list[str]:
    return [line.partition("|")[2] for line in text.splitlines() if "|" in line]


def test_both_axes_begin_and_end_at_whole_powers() -> None:
    found = axis([20.0, 3000.0], 10)
    assert (found.low, found.high) == (1, 4)
    assert found.place(10.0) == pytest.approx(0)
    assert found.place(100.0) == pytest.approx(1 / 3)
    assert found.value(1 / 3) == pytest.approx(100)
    assert (axis([8, 8], 2).low, axis([8, 8], 2).high) == (3, 4)
    assert axis([1000.0], 10) == (10, 3, 4)


@given(st.lists(st.floats(1e-12, 1e12), min_size=1), st.sampled_from([2, 10]))
def test_every_value_has_a_place_on_its_axis(values: list[float], base: int) -> None:
    found = axis(values, base)
    assert all(-1e-6 <= found.place(value) <= 1 + 1e-6 for value in values)
    assert found.low < found.high


def test_labels_fit_and_are_as_people_write_them() -> None:
    assert axis([8, 1 << 26], 2).ticks(6) == [5, 10, 15, 20, 25]
    assert axis([8, 1 << 10], 2).ticks(10) == [3, 4, 5, 6, 7, 8, 9, 10]
    assert [time_label(k) for k in range(-7, 2)] == [
        "100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s",
    ]  # fmt: skip


def test_a_flat_series_is_a_row_and_a_steep_one_climbs() -> None:
    flat, steep = body(plot_text([FLAT], 80)), body(plot_text([STEEP], 80))
    assert [line.count("o") for line in flat if "o" in line] == [8]
    columns = [line.index("o") for line in steep if "o" in line]
    assert columns == sorted(columns, reverse=True)
    assert columns[-1] == 0
    assert "." in "".join(steep)


def test_every_series_has_its_own_symbol_and_name() -> None:
    text = plot_text([FLAT, STEEP], 80)
    assert "o flat ranks=4 on torch-cpu ×1\nx steep ranks=4 on torch-cpu ×1\n. alpha + size / algbw\n" in text
    drawn = "".join(body(text))
    assert (drawn.count("o"), drawn.count("x")) == (8, 7), "where both begin, the first one is seen"


@pytest.mark.parametrize("width", [1, 30, 40, 60, 80, 100, 120, 300])
def test_the_plot_is_as_wide_as_the_terminal(width: int) -> None:
    lines = plot_text([FLAT, STEEP], width).splitlines()
    plotted = lines[: lines.index("")]
    assert max(map(len, plotted)) == min(max(width, 30), 120)
    assert plotted[-2].split()[-1] in ("1K", "512", "256")


def test_without_a_fit_there_are_points_and_no_line() -> None:
    text = plot_text([series("few", [(8, 1e-5), (16, 1e-5)])], 80)
    assert "." not in "".join(body(text))
    assert "".join(body(text)).count("o") == 2


def test_more_series_than_symbols_are_drawn_all_the_same() -> None:
    many = [series(f"op{i}", [(1 << k, 1e-5 * (i + 1)) for k in range(3, 7)]) for i in range(80)]
    assert plot_text(many, 80).count("ranks=4") == 80
    assert len(marks(drawn(*many))) == 2 * 80 * 4


def drawn(*fitted: Fitted) -> ElementTree.Element:
    return ElementTree.fromstring(standalone(fit_charts(fitted)))


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def marks(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [element for element in root.iter() if element.get("data-i")]


def lines(root: ElementTree.Element) -> list[ElementTree.Element]:
    """Fitted ones, not those of the legend, which have no place of their own."""
    found = root.iterfind(f".//{SVG}g[@class='series guide']/{SVG}path[@class='line']")
    return [one for one in found if "h22" not in (one.get("d") or "")]


def test_the_picture_has_both_plots_with_axes_labels_and_a_legend() -> None:
    root = drawn(FLAT, STEEP)
    said = texts(root)
    assert {"time over size", "bus bandwidth over size", "10 µs", "1 ms", "8 B", "1 KiB"} <= set(said)
    assert said.count("bytes of the whole buffer") == 2
    assert said.count(LINE) == 2
    whole = " ".join(said)
    assert "flat ranks=4 on torch-cpu ×1: 10.0 µs, off by up to" in whole
    assert "larger sizes tell the bandwidth" in whole
    assert "size / 1.00 MB/s" in whole.partition("steep ranks=4 on torch-cpu ×1: ")[2]
    assert "smaller sizes tell the latency" in whole
    assert len(marks(root)) == 2 * 2 * 8
    assert len(lines(root)) == 4
    background = root.find(f"{SVG}rect")
    assert background is not None
    assert background.get("fill") == "#fff"


def test_without_a_fit_the_picture_has_points_and_no_line() -> None:
    root = drawn(series("few", [(8, 1e-5), (16, 1e-5)]))
    assert len(marks(root)) == 2 * 2
    assert lines(root) == []
    assert LINE not in texts(root)


def test_everything_is_inside_the_picture() -> None:
    root = drawn(FLAT, STEEP)
    pictures = root.findall(f".//{SVG}svg")
    assert len(pictures) == 2
    for picture in pictures:
        *_, width, height = map(float, (picture.get("viewBox") or "").split())
        assert float(picture.get("y", 0)) + float(picture.get("height", 0)) <= float(root.get("height", 0))
        for mark in marks(picture):
            place = mark.get("cx"), mark.get("cy")
            x, y = map(float, place if mark.get("cx") else (mark.get("d") or "")[1:].split("h")[0].split())  # type: ignore[arg-type]
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_names_that_mean_something_in_xml_are_only_names() -> None:
    root = drawn(series("<b>&\"'", [(8, 1e-5), (16, 2e-5), (32, 3e-5)]), STEEP)
    assert any(line.startswith("<b>&\"' ranks=4") for line in texts(root))
    assert not any(one.tag.endswith("}b") for one in root.iter())


def test_the_picture_needs_nothing_from_elsewhere() -> None:
    text = standalone(fit_charts([FLAT]))
    assert "href" not in text
    assert "<script" not in text
    assert text.count("http") == text.count("<svg ") == 3  # the name of the format, of the whole and of its pictures
    assert "url(" not in text


def test_colours_are_written_in_full() -> None:
    """Many programs that show pictures know no variables of a style sheet."""
    rules = style()
    assert "var(" not in rules
    assert "@media" not in rules
    assert ".series.s0 .dots{fill: #0072b2;" in rules
    assert ".series.guide .line{fill: none; stroke: #6b757f;" in rules
    for used in ("grid", "axis", "ticks", "title", "line"):
        assert f".{used}" in rules


def test_where_nothing_crosses_a_link_there_is_only_time() -> None:
    said = texts(drawn(series("alone", [(8, 1e-5), (16, 2e-5), (32, 3e-5)], 0.0)))
    assert "time over size" in said
    assert "bus bandwidth over size" not in said


POINTS = st.tuples(st.integers(1, 1 << 40), st.floats(1e-9, 1e4))


@given(st.lists(st.lists(POINTS, min_size=1, max_size=8, unique_by=lambda p: p[0]), min_size=1, max_size=4))
def test_whatever_was_measured_can_be_drawn(points: list[list[tuple[int, float]]]) -> None:
    fitted = [series(f"op{i}", sorted(one)) for i, one in enumerate(points)]
    assert plot_text(fitted, 80)
    assert len(marks(drawn(*fitted))) == 2 * sum(len(one) for one in points)
