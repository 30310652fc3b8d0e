"""What tests of pages share: widths, colours, how a mark is found."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Locator

PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": PHONE,
}
LIGHTNESS = """(() => {
  const of = (one) => getComputedStyle(one).backgroundColor.match(/[\\d.]+/g).map(Number);
  const [r, g, b] = [document.body, document.documentElement].map(of).find(([, , , a = 1]) => a === 1);
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255; })()"""
"""Of the background, from 0 to 1."""
DARK, LIGHT = 0.15, 0.9
TIP = ".chart-tip"
_LINKED = """rows => rows.map((row, place) => [row, place]).filter(([row]) => row.querySelector("a[href]"))
  .map(([, place]) => place)"""


def marks_of_cases(figure: Locator) -> list[Locator]:
    """The first that stand for a case: their rows in the table of numbers have a link."""
    places = figure.locator("details tbody tr").evaluate_all(_LINKED)
    return [figure.locator(f"svg [data-i='{place}']").first for place in places[:20]]


def point_of(mark: Locator) -> tuple[float, float]:
    """Its middle, brought into the window."""
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    assert box
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
