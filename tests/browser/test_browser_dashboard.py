"""The dashboard, by clicking what is there: from the runs to a case, and to whatever an address can say."""

from __future__ import annotations

import re
from typing import Any

import pytest
from looks import DARK, LIGHT, LIGHTNESS, TIP, marks_of_cases, point_of
from playwright.sync_api import Page, expect


@pytest.fixture
def visit(open_page: Any, dashboard: str) -> Any:
    """visit(path, **options of a context) -> the page."""
    return lambda path="/", **options: open_page(dashboard + path, dashboard, **options)


def to_showcase(page: Page) -> None:
    """From the list of runs to the run that has all figures."""
    page.locator("main tr", has_text="showcase").first.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(r"/runs/[^/?]+$"))


def test_one_gets_from_the_runs_to_a_case_and_back(visit: Any) -> None:
    page = visit()
    expect(page.locator("h1")).to_have_text("Runs")
    to_showcase(page)
    expect(page.locator("h1")).to_contain_text("showcase")
    page.locator('main table a[href*="/items/"]').first.click()
    expect(page).to_have_url(re.compile(r"/runs/[^/]+/items/[^/?]+$"))
    expect(page.locator("figure.chart svg").first).to_be_visible()  # its samples
    page.locator('main a[href^="/cases/"]').first.click()
    expect(page).to_have_url(re.compile(r"/cases/[^/?]+"))
    page.locator('main a[href^="/runs/"]:visible').first.click()
    expect(page).to_have_url(re.compile(r"/runs/"))
    page.go_back()
    expect(page).to_have_url(re.compile(r"/cases/"))
    page.go_back()
    page.go_back()
    page.go_back()
    expect(page.locator("h1")).to_have_text("Runs")


def test_the_history_of_a_case_shows_where_it_changed(visit: Any) -> None:
    page = visit("/?q=nightly")
    page.locator('main tbody a[href^="/runs/"]').first.click()
    page.locator("main table tr", has_text="add").locator('a[href*="/items/"]').first.click()
    page.locator('main a[href^="/cases/"]').first.click()
    figure = page.locator("figure.chart").first
    expect(figure.locator("svg")).to_be_visible()
    assert figure.locator("details tbody tr").count() >= 30
    expect(page.locator("main")).to_contain_text(re.compile("change|slower|step", re.I))


def test_two_runs_are_compared_from_a_form(visit: Any) -> None:
    page = visit("/compare")
    form = page.locator("main form").first
    choose(page, form, "a", "base")
    choose(page, form, "b", "new")
    form.get_by_role("button").first.click()
    expect(page).to_have_url(re.compile(r"/compare\?.*a=.*b="))
    expect(page.locator("figure.chart svg").first).to_be_visible()
    main = page.locator("main")
    expect(main).to_contain_text("slower")
    expect(main).to_contain_text("faster")


def choose(page: Page, form: Any, name: str, label: str) -> None:
    field = form.locator(f"[name={name}]")
    if field.evaluate("e => e.tagName") == "SELECT":
        value = field.locator("option", has_text=label).first.get_attribute("value")
        field.select_option(value)
    else:
        field.fill(label)


def test_a_run_leads_to_its_roofline_and_figures(visit: Any) -> None:
    page = visit()
    to_showcase(page)
    run = page.url
    page.locator('main a[href$="/roofline"]').first.click()
    expect(page.locator("figure.chart svg").first).to_be_visible()
    page.goto(run)
    page.locator('main a[href$="/figures"]').first.click()
    assert page.locator("figure.chart svg").count() >= 5


def test_hovering_the_roofline_shows_the_case_and_a_click_opens_it(visit: Any) -> None:
    page = visit()
    to_showcase(page)
    page.locator('main a[href$="/roofline"]').first.click()
    figure = page.locator("figure.chart").first
    at = point_of(marks_of_cases(figure)[0])
    page.mouse.move(*at)
    tip = page.locator(f"{TIP}:visible")
    expect(tip).to_have_count(1)
    assert re.search(r"[a-z_]+.*\d", tip.inner_text(), re.S)
    page.mouse.click(*at)
    expect(page).to_have_url(re.compile(r"/runs/[^/]+/items/"))


def test_coverage_and_search_are_found_from_everywhere(visit: Any) -> None:
    page = visit()
    page.get_by_role("link", name="Coverage").first.click()
    expect(page).to_have_url(re.compile(r"/coverage"))
    expect(page.locator("main")).to_contain_text("matmul")
    box = page.get_by_role("searchbox", name="Search runs and cases")
    box.fill("softmax")
    box.press("Enter")
    expect(page).to_have_url(re.compile(r"/search\?q=softmax"))
    expect(page.locator("main")).to_contain_text("softmax")
    page.locator('main a[href^="/cases/"]').first.click()
    expect(page.locator("h1")).to_contain_text("softmax")


def test_filters_are_in_the_address_and_the_address_can_be_sent(visit: Any, open_page: Any, dashboard: str) -> None:
    page = visit()
    to_showcase(page)
    rows = page.locator("main table").last.locator("tbody tr")
    all_of_them = rows.count()
    form = page.locator("main form.filters:has(select[name=backend])").first
    form.locator("select[name=backend]").select_option("jax-cpu")
    form.locator("[name=op]").first.select_option("softmax")
    form.get_by_role("button").first.click()
    expect(page).to_have_url(re.compile(r"\?.*backend=jax-cpu"))
    assert "op=softmax" in page.url
    expect(form.locator("select[name=backend]")).to_have_value("jax-cpu")
    found = rows.all_inner_texts()
    assert 0 < len(found) < all_of_them
    assert all("softmax" in text for text in found)
    sent = open_page(page.url, dashboard)
    assert sent.locator("main table").last.locator("tbody tr").all_inner_texts() == found
    page.go_back()
    assert rows.count() == all_of_them


def test_a_column_sorts_by_its_address(visit: Any) -> None:
    page = visit()
    to_showcase(page)
    link = page.locator('main table th a[href*="sort="]').first
    link.click()
    expect(page).to_have_url(re.compile(r"sort="))
    expect(page.locator("main table th[aria-sort]")).to_have_count(2)  # one of each quantity's table


def test_what_is_not_there_is_a_page_that_helps(visit: Any, watches: list[Any], dashboard: str) -> None:
    page = visit()
    watches[0].forgiven.append("status of 404")
    page.goto(f"{dashboard}/runs/nobody")
    expect(page.locator("h1")).to_have_text("Not found")
    expect(page.locator("main")).to_contain_text("nobody")
    page.locator("main").get_by_role("link", name="All runs").click()
    expect(page.locator("h1")).to_have_text("Runs")


def test_it_is_dark_where_the_system_is_and_the_button_is_remembered(visit: Any, dashboard: str) -> None:
    assert visit("/", color_scheme="dark").evaluate(LIGHTNESS) < DARK
    page = visit("/", color_scheme="light")
    assert page.evaluate(LIGHTNESS) > LIGHT
    page.locator("button.theme").click()
    assert page.evaluate(LIGHTNESS) < DARK
    page.goto(f"{dashboard}/coverage")
    assert page.evaluate(LIGHTNESS) < DARK


def test_it_works_without_script(visit: Any) -> None:
    page = visit("/", java_script_enabled=False)
    to_showcase(page)
    page.locator('main a[href$="/roofline"]').first.click()
    expect(page.locator("figure.chart svg").first).to_be_visible()
    assert page.locator("button.theme:visible").count() == 0
