"""The report as a page: alone, in any colours, on any width, on paper, without script."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
from looks import DARK, LIGHT, LIGHTNESS, PHONE
from playwright.sync_api import expect


def test_it_opens_and_asks_nobody_for_anything(open_page: Any, report: str, watches: list[Any]) -> None:
    page = open_page(report, offline=True)
    assert "showcase" in page.title()
    expect(page.locator("h1")).to_be_visible()
    assert page.locator("figure.chart svg").count() >= 5
    assert set(watches[0].asked) == {report}


def test_what_failed_comes_before_the_table(open_page: Any, report: str) -> None:
    page = open_page(report)
    reason = page.get_by_text("not done after 60 s; its process was killed").first
    table = page.locator("table[data-sortable]").first
    assert reason.bounding_box()["y"] < table.bounding_box()["y"]
    assert page.get_by_text("RuntimeError: <b>broken</b> & gone").count() > 0  # as it was said, and not as markup
    assert page.locator("b", has_text="broken").count() == 0


@pytest.mark.parametrize("runs", [("showcase",), ("base", "new"), ("failures",), ("one",)])
def test_every_kind_of_report_opens(open_page: Any, make_report: Any, runs: tuple[str, ...]) -> None:
    page = open_page(make_report(*runs))
    expect(page.locator("h1")).to_be_visible()
    for run in runs:
        assert run in page.locator("body").inner_text()


def test_links_lead_to_places_that_are_there(open_page: Any, report: str) -> None:
    page = open_page(report)
    missing = page.evaluate("""[...document.querySelectorAll('a[href]')].map((a) => a.getAttribute("href"))
      .filter((href) => !href.startsWith("#") || !document.getElementById(decodeURIComponent(href.slice(1))))""")
    assert missing == []


def test_a_link_of_the_table_opens_the_details_of_its_case(open_page: Any, report: str) -> None:
    page = open_page(report)
    link = page.locator('table[data-sortable] a[href^="#item-"]').first
    name = link.get_attribute("href")
    details = page.locator(name)
    assert details.get_attribute("open") is None
    link.click()
    assert page.url == report + name
    expect(details).to_have_attribute("open", "")
    expect(details).to_be_in_viewport()


def test_an_address_with_a_case_opens_it(open_page: Any, report: str) -> None:
    first = open_page(report)
    name = first.locator('table[data-sortable] a[href^="#item-"]').nth(3).get_attribute("href")
    page = open_page(report + name)
    expect(page.locator(name)).to_have_attribute("open", "")
    expect(page.locator(name)).to_be_in_viewport()


def test_it_is_dark_where_the_system_is(open_page: Any, report: str) -> None:
    light, dark = (open_page(report, color_scheme=scheme).evaluate(LIGHTNESS) for scheme in ("light", "dark"))
    assert light > LIGHT
    assert dark < DARK


def test_the_button_turns_it_dark_and_light_again(open_page: Any, report: str) -> None:
    page = open_page(report, color_scheme="light")
    button = page.locator("button.theme").first
    button.click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate(LIGHTNESS) < DARK
    page.reload()
    assert page.evaluate(LIGHTNESS) < DARK  # it is remembered
    page.locator("button.theme").first.click()
    assert page.evaluate(LIGHTNESS) > LIGHT


@pytest.mark.parametrize("runs", [("showcase",), ("base", "new")])
def test_it_fits_a_phone(open_page: Any, make_report: Any, check_fits: Any, runs: tuple[str, ...]) -> None:
    page = open_page(make_report(*runs), **PHONE)
    check_fits(page)
    expect(page.locator("h1")).to_be_in_viewport()


def test_it_can_be_printed(open_page: Any, report: str, check_fits: Any) -> None:
    page = open_page(report, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate(LIGHTNESS) > LIGHT  # paper is light
    assert page.locator("button.theme:visible").count() == 0
    assert page.locator("form.filters:visible").count() == 0
    paper = page.pdf(format="A4")
    assert paper.startswith(b"%PDF-")
    assert paper.count(b"/Type /Page\n") > 1
    assert b"/Font" in paper  # its words are words


def test_paper_cuts_no_table_of_numbers(open_page: Any, report: str) -> None:
    page = open_page(report)
    page.emulate_media(media="print")
    styles = page.evaluate("""[...document.querySelectorAll("figure.chart .numbers .scroll")].map((one) => {
      const style = getComputedStyle(one);
      return [style.overflowY, style.maxHeight];
    })""")
    assert styles
    assert all(style == ["visible", "none"] for style in styles)


def test_nothing_moves_where_motion_is_not_wanted(open_page: Any, report: str) -> None:
    page = open_page(report, reduced_motion="reduce")
    moving = page.evaluate("""[...document.querySelectorAll("*")].filter((one) => {
      const style = getComputedStyle(one);
      return parseFloat(style.transitionDuration) > 0.001 || parseFloat(style.animationDuration) > 0.001
        || style.scrollBehavior === "smooth"; }).length""")
    assert moving == 0


def test_it_can_be_read_without_script(open_page: Any, report: str) -> None:
    page = open_page(report, java_script_enabled=False)
    assert page.locator("table[data-sortable] tbody tr:visible").count() > 50
    assert page.locator("figure.chart svg:visible").count() >= 5
    assert page.locator("form.filters:visible").count() == 0  # what would do nothing is not shown
    assert page.locator("button.theme:visible").count() == 0
    details = page.locator("figure.chart details").first
    details.locator("summary").click()
    assert details.locator("tbody tr:visible").count() > 0


def test_the_report_of_2000_cases_is_under_6_mb(many_report: str) -> None:
    assert Path(url2pathname(urlsplit(many_report).path)).stat().st_size < 6_000_000
