"""Figures of a page: caption, picture, table; and a style sheet that can be read."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import combinations
from math import dist
from operator import mul

import pytest
from made_up import HOSTILE

from opmark.report.charts.svg.marks import COLOURS, DASHES, STEPS
from opmark.report.html.figure import figure
from opmark.report.html.templates import asset
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark

VOID = {"circle", "path", "rect", "br"}


class Page(HTMLParser):
    """Every element must be closed; what is in it, by its name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.found if name == tag]


def made(*marks: Mark, notes: tuple[str, ...] = (), title: str = "Time over size") -> Chart:
    return Chart("sweep-1", title, "How to read it", "plot", Axis("size", "B", "log2"), Axis("time", "s", "log"),
                 (ChartSeries("one", marks),), notes=notes)  # fmt: skip


def page(of: Chart) -> Page:
    return Page(figure(of, lambda key: f"/items/{key}?a=1&b=2"))


def test_a_figure_has_caption_picture_and_numbers() -> None:
    found = page(made(Mark(1024, 1e-3, "add", link="abc"), Mark(2048, 2e-3), notes=("left out: 1",)))
    assert found.of("figure")[0]["id"] == "sweep-1"
    names = (found.of("svg")[0]["aria-labelledby"] or "").split()
    assert names == [found.of("h3")[0]["id"], found.of("p")[0]["id"]]
    assert {"Time over size", "How to read it", "left out: 1", "Numbers (2 rows)"} <= set(found.words)
    assert [one["href"] for one in found.of("a")] == ["/items/abc?a=1&b=2"]
    assert len(found.of("tr")) == 3
    assert len([one for one in found.of("div") if one.get("tabindex") == "0" and one.get("aria-label")]) == 2


def test_what_is_not_drawn_is_said_in_the_caption() -> None:
    found = page(made(Mark(1024, float("nan")), Mark(2048, 2e-3), Mark(4096, 0.0)))
    assert "2 marks not drawn: no place on such an axis" in found.words
    assert [one["data-i"] for one in found.of("circle") if "data-i" in one] == ["1"]
    assert len(found.of("tr")) == 4


def test_nothing_hostile_gets_through() -> None:
    of = made(Mark(1, 1, HOSTILE, link=HOSTILE, note=HOSTILE), notes=(HOSTILE,), title=HOSTILE)
    text = figure(of, lambda key: key)
    assert "<b>" not in text
    assert text.isprintable()
    found = Page(text)
    allowed = {"figure", "figcaption", "h3", "p", "ul", "li", "div", "svg", "g", "path", "circle", "rect", "text",
               "details", "summary", "table", "thead", "tbody", "tr", "th", "td", "a"}  # fmt: skip
    assert {tag for tag, _ in found.found} <= allowed
    assert not [name for _, attrs in found.found for name in attrs if name.startswith("on") or name == "style"]


def blocks() -> dict[str, dict[str, str]]:
    """Colours by theme, from the style sheet."""
    css = asset("chart.css")
    found = re.findall(r"(:root[^{]*)\{([^}]*)\}", css)
    named = {"light": found[0], "system": found[1], "dark": found[2], "print": found[3]}
    return {name: dict(re.findall(r"--([\w-]+):\s*([^;]+);", body)) for name, (_, body) in named.items()}


def linear_light(colour: str) -> list[float]:
    digits = colour.removeprefix("#")
    digits = "".join(one * 2 for one in digits) if len(digits) == 3 else digits
    parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def luminance(colour: str) -> float:
    linear = linear_light(colour)
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_colours_can_be_told_from_the_paper(theme: str) -> None:
    colours = blocks()[theme]
    for name in ("ink", "axis", "ceiling", "alarm"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name
    for k in range(COLOURS):
        assert contrast(colours[f"s{k}"], colours["paper"]) >= 3, f"s{k}"


# How linear light reaches eyes without one kind of cone, after Machado, Oliveira and Fernandes (2009).
EYES = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
}


def seen(colour: str, eyes: str) -> tuple[float, float, float]:
    """Return a colour in CIE L*a*b*, where distances are about as large as they look."""
    light = linear_light(colour)
    red, green, blue = (min(1.0, max(0.0, sum(map(mul, row, light)))) for row in EYES[eyes])
    x = (0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047
    y = 0.2126729 * red + 0.7151522 * green + 0.072175 * blue
    z = (0.0193339 * red + 0.119192 * green + 0.9503041 * blue) / 1.08883
    fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_colours_can_be_told_from_each_other(theme: str, eyes: str) -> None:
    colours = [blocks()[theme][f"s{k}"] for k in range(COLOURS)]
    for i, j in combinations(range(COLOURS), 2):
        apart = dist(seen(colours[i], eyes), seen(colours[j], eyes))
        assert apart > (18 if max(i, j) < 6 else 13), (i, j, apart)


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_what_is_written_on_a_cell_can_be_read_and_steps_go_one_way(theme: str) -> None:
    colours = blocks()[theme]
    for k in range(STEPS):
        assert contrast(colours[f"t{k}"], colours[f"h{k}"]) >= 4.5, f"h{k}"
    light = [luminance(colours[f"h{k}"]) for k in range(STEPS)]
    assert light == sorted(light, reverse=theme != "dark")


def test_the_system_s_dark_is_the_button_s_dark() -> None:
    assert blocks()["system"] == blocks()["dark"]
    assert blocks()["light"].keys() == blocks()["dark"].keys() == blocks()["print"].keys()


def test_the_style_sheet_has_every_class() -> None:
    css = asset("chart.css")
    assert all(f".s{k} " in css for k in range(COLOURS))
    assert all(f".d{k} " in css for k in range(1, DASHES))
    assert all(f".h{k} " in css and f".t{k} " in css for k in range(STEPS))


def test_the_script_makes_no_markup() -> None:
    script = asset("chart.js")
    assert script.startswith('"use strict";')
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|setAttribute\(\"style", script)


def test_what_is_left_out_is_told_in_one_line() -> None:
    text = str(figure(made(Mark(1, 1), notes=("left out: 2 cases a", "careful", "left out: 1 case b")), str))
    assert re.findall("<li>(.*?)</li>", text) == ["careful", "left out: 2 cases a; 1 case b"]
