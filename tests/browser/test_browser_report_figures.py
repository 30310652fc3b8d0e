"""Figures: what is drawn says what it is of, to a mouse, to a keyboard and as a table."""

from __future__ import annotations

import re
from typing import Any

import pytest
from looks import PHONE, TIP, marks_of_cases, point_of
from playwright.sync_api import Locator, Page, expect


def roofline(page: Page) -> Locator:
    return page.locator("figure.chart[id*=roofline]").first


def test_hovering_the_roofline_shows_the_case(open_page: Any, report: str) -> None:
    page = open_page(report)
    figure = roofline(page)
    marks = marks_of_cases(figure)
    assert len(marks) > 5
    for n in (0, 3, 7):
        page.mouse.move(*point_of(marks[n]))
        tip = page.locator(f"{TIP}:visible")
        expect(tip).to_have_count(1)
        said = tip.inner_text()
        assert re.search(r"matmul|add|exp|softmax|layer_norm", said), said
        assert len(re.findall(r"\d", said)) >= 3, said
    page.mouse.move(2, 2)
    expect(page.locator(f"{TIP}:visible")).to_have_count(0)


def test_a_click_on_a_mark_goes_to_its_case(open_page: Any, report: str) -> None:
    page = open_page(report)
    mark = marks_of_cases(roofline(page))[0]
    page.mouse.click(*point_of(mark))
    expect(page.locator("details.found")).to_have_count(1)
    assert "#item-" in page.url


def test_arrow_keys_walk_over_the_marks_and_enter_follows(open_page: Any, report: str) -> None:
    page = open_page(report)
    figure = roofline(page)
    focus = figure.locator(".drawing")
    focus.focus()
    said = []
    for _ in range(4):
        page.keyboard.press("ArrowRight")
        tip = page.locator(f"{TIP}:visible")
        expect(tip).to_have_count(1)
        said.append(tip.inner_text())
        spoken = page.locator(".chart-voice[role=status]")
        assert spoken.text_content() == tip.text_content()
        assert spoken.is_visible(), "what is hidden while it is filled is not read aloud"
    assert len(set(said)) == 4
    page.keyboard.press("ArrowLeft")
    assert page.locator(f"{TIP}:visible").inner_text() == said[2]
    page.keyboard.press("Enter")
    expect(page.locator("details.found")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(f"{TIP}:visible")).to_have_count(0)


@pytest.mark.parametrize("runs", [("showcase",), ("base", "new")])
def test_every_mark_has_its_numbers_in_the_table_beside_it(
    open_page: Any, make_report: Any, runs: tuple[str, ...]
) -> None:
    page = open_page(make_report(*runs))
    told = page.locator("figure.chart").evaluate_all("""figures => figures.map((figure) => ({
      id: figure.id || figure.querySelector("figcaption")?.textContent,
      rows: figure.querySelectorAll("details tbody tr").length,
      marks: [...figure.querySelectorAll("svg [data-i]")].map((mark) => Number(mark.dataset.i)),
      caption: figure.querySelector("figcaption")?.textContent.trim() ?? "",
      named: (figure.querySelector("svg")?.getAttribute("aria-labelledby") ?? "").split(" ")
        .every((id) => document.getElementById(id)?.textContent.trim()) }))""")
    assert len(told) >= 1
    for figure in told:
        assert figure["rows"] > 0, figure["id"]
        assert figure["marks"], figure["id"]
        assert set(figure["marks"]) <= set(range(figure["rows"])), figure["id"]
        assert figure["caption"], figure["id"]
        assert figure["named"], figure["id"]


def test_every_figure_of_a_run_is_there(open_page: Any, report: str) -> None:
    page = open_page(report)
    ids = " ".join(page.locator("figure.chart").evaluate_all("all => all.map((one) => one.id)"))
    for name in ("roofline", "heatmap", "frameworks", "sweep", "bus", "overhead", "threads", "fused", "memory"):
        assert name in ids, ids


def test_the_tip_stays_inside_the_window_of_a_phone(open_page: Any, report: str, check_fits: Any) -> None:
    page = open_page(report, **PHONE)
    marks = marks_of_cases(roofline(page))
    page.mouse.move(*point_of(marks[-1]))
    expect(page.locator(f"{TIP}:visible")).to_have_count(1)
    box = page.locator(f"{TIP}:visible").bounding_box()
    assert box
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    check_fits(page)
