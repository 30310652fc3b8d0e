"""The table of the report: sorted and filtered by whoever reads it, and complete for who has no script."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

COLUMN = """(table, place) => [...table.tBodies[0].rows].filter((row) => !row.hidden)
  .map((row) => row.cells[place]).map((cell) => ({ v: cell.dataset.v ?? null, text: cell.textContent.trim() }))"""
TEXTS_IN_ORDER = """(texts) => { const order = new Intl.Collator("en", { numeric: true }).compare;
  return texts.every((text, i) => i === 0 || order(texts[i - 1], text) <= 0); }"""


LATENCIES = '[aria-label="All cases of latency warm"]'


def the_table(page: Page) -> Locator:
    """The table of latencies, which stands beside the one of device times."""
    assert page.locator("table[data-sortable]").count() == 2
    return page.locator(f"{LATENCIES} table[data-sortable]")


def shown(table: Locator) -> Locator:
    return table.locator("tbody tr:visible")


def buttons(table: Locator) -> list[tuple[int, Locator]]:
    """Heads that sort, with their places."""
    heads = table.locator("thead tr").first.locator("th, td").all()
    return [(place, head.locator("button")) for place, head in enumerate(heads) if head.locator("button").count()]


def in_order(page: Page, cells: list[dict[str, Any]], *, down: bool) -> bool:
    """What has no value is last either way."""
    numbers = [float(cell["v"]) for cell in cells if cell["v"] is not None]
    if numbers:
        behind = [cell["v"] for cell in cells[len(numbers) :]]
        return behind == [None] * len(behind) and all(a >= b if down else a <= b for a, b in pairwise(numbers))
    texts = [cell["text"] for cell in cells if cell["text"]]
    if texts != [cell["text"] for cell in cells][: len(texts)]:
        return False
    return bool(page.evaluate(TEXTS_IN_ORDER, texts[::-1] if down else texts))


def test_it_is_sorted_by_every_column_both_ways(open_page: Any, report: str) -> None:
    page = open_page(report)
    table = the_table(page)
    rows = shown(table).count()
    assert rows > 50
    as_numbers = 0
    for place, button in buttons(table):
        for down in (False, True):
            button.click()
            cells = table.evaluate(COLUMN, place)
            assert in_order(page, cells, down=down), (button.inner_text(), down, cells[:10])
            head = table.locator("thead th").nth(place)
            expect(head).to_have_attribute("aria-sort", "descending" if down else "ascending")
            assert table.locator("[aria-sort]").count() == 1
            assert shown(table).count() == rows
        as_numbers += any(cell["v"] is not None for cell in cells)
    assert as_numbers >= 2


def test_times_are_sorted_as_times_and_not_as_texts(open_page: Any, report: str) -> None:
    """`9 µs` comes before `1 ms`, though not as a text."""
    table = the_table(open_page(report))
    for place, button in buttons(table):
        button.click()
        texts = [cell["text"] for cell in table.evaluate(COLUMN, place) if cell["v"] is not None]
        if any("µs" in text for text in texts) and any("ms" in text for text in texts):
            assert texts != sorted(texts)
            assert min(n for n, text in enumerate(texts) if "ms" in text) > 0
            return
    pytest.fail("no column has times of several units")


def test_a_head_is_worked_by_the_keyboard(open_page: Any, report: str) -> None:
    page = open_page(report)
    table = the_table(page)
    place, button = buttons(table)[1]
    button.focus()
    page.keyboard.press("Enter")
    expect(table.locator("thead th").nth(place)).to_have_attribute("aria-sort", "ascending")
    page.keyboard.press("Space")
    expect(table.locator("thead th").nth(place)).to_have_attribute("aria-sort", "descending")
    assert page.evaluate("document.activeElement.tagName") == "BUTTON"


def filters(page: Page, table: Locator) -> tuple[Locator, Locator]:
    """The form of a table, and the line that says how many rows are left."""
    own = f'[data-for="{table.get_attribute("id")}"]'
    return page.locator(f"form.filters{own}"), page.locator(f".shown{own}")


def test_words_are_found_and_counted(open_page: Any, report: str) -> None:
    page = open_page(report)
    table = the_table(page)
    form, line = filters(page, table)
    rows = shown(table).count()
    form.locator("input[type=search]").fill("softmax jax")
    left = shown(table).count()
    assert 0 < left < rows
    assert all("softmax" in text and "jax" in text for text in shown(table).all_inner_texts())
    expect(line).to_have_text(f"{left} of {rows} rows shown")
    form.locator("input[type=search]").fill("nothing-is-called-so")
    expect(line).to_have_text(f"0 of {rows} rows shown")
    assert shown(table).count() == 0
    form.locator("input[type=search]").fill("")
    expect(line).to_have_text(f"{rows} of {rows} rows shown")


def test_every_choice_leaves_the_rows_that_have_it(open_page: Any, report: str) -> None:
    page = open_page(report)
    table = the_table(page)
    form, _ = filters(page, table)
    rows = shown(table).count()
    selects = form.locator("select").all()
    assert len(selects) >= 2
    for select in selects:
        name = select.get_attribute("name")
        values = select.locator("option").evaluate_all("all => all.map((one) => one.value)")
        counts = 0
        for value in filter(None, values):
            select.select_option(value)
            found = shown(table).evaluate_all(f"all => all.map((row) => row.dataset.{name})")
            assert found, (name, value)
            assert set(found) == {value}
            counts += len(found)
        assert counts <= rows
        select.select_option("")
        assert shown(table).count() == rows


def test_filters_and_sorting_work_together(open_page: Any, report: str) -> None:
    page = open_page(report)
    table = the_table(page)
    form, _ = filters(page, table)
    form.locator("input[type=search]").fill("matmul")
    left = shown(table).count()
    place, button = buttons(table)[0]
    button.click()
    assert shown(table).count() == left
    assert in_order(page, table.evaluate(COLUMN, place), down=False)


FIRST = 200
"""Rows of a long table that are laid out at once."""
LINK = "document.activeElement.closest('tbody tr') && document.activeElement.tagName"
PLACE = "[...document.activeElement.closest('tbody').rows].indexOf(document.activeElement.closest('tr'))"


def test_of_a_long_table_the_first_rows_are_shown_until_all_are_wanted(open_page: Any, many_report: str) -> None:
    page = open_page(many_report)
    table = the_table(page)
    all_of_them = table.locator("tbody tr").count()
    assert all_of_them > 1_000
    assert shown(table).count() == FIRST
    _, said = filters(page, table)
    expect(said).to_have_text(f"the first {FIRST} of {all_of_them:,} rows shown")
    button = page.get_by_role("button", name=f"Show all {all_of_them:,} rows")
    button.focus()
    page.keyboard.press("Enter")
    assert shown(table).count() == all_of_them
    expect(button).to_have_count(0)
    expect(said).to_have_text(f"{all_of_them:,} of {all_of_them:,} rows shown")
    assert page.evaluate(LINK) == "A"  # on to the first of those that it showed
    assert page.evaluate(PLACE) == FIRST


def numbers(table: Locator, place: int) -> list[float]:
    return [float(cell["v"]) for cell in table.evaluate(COLUMN, place) if cell["v"] is not None]


def test_a_long_table_is_sorted_and_filtered_as_a_whole(open_page: Any, many_report: str) -> None:
    page = open_page(many_report)
    table = the_table(page)
    place, button = next((place, button) for place, button in buttons(table) if numbers(table, place))
    every = numbers(table, place)
    for first in (min, max):
        button.click()
        assert numbers(table, place)[0] == first(every)
        assert shown(table).count() == FIRST
    form, _ = filters(page, table)
    form.locator("input[type=search]").fill("jax-cpu")
    assert 0 < shown(table).count() < FIRST
    expect(page.locator(f"{LATENCIES} + .more")).to_be_hidden()


def test_on_paper_a_long_table_is_whole(open_page: Any, many_report: str) -> None:
    page = open_page(many_report)
    table = the_table(page)
    assert shown(table).count() == FIRST
    page.emulate_media(media="print")
    assert shown(table).count() == table.locator("tbody tr").count()
    assert page.get_by_role("button", name="Show all").count() == 0


def test_without_script_a_long_table_is_whole(open_page: Any, many_report: str) -> None:
    page = open_page(many_report, java_script_enabled=False)
    assert shown(the_table(page)).count() == the_table(page).locator("tbody tr").count() > 1_000
