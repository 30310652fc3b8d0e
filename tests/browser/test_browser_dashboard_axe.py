"""Every page of the dashboard and every kind of report: read by axe-core in both colours, and on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from benchmarks.served import Served
from looks import LOOKS, PHONE
from msgspec.structs import replace
from showcase import GPU, Maker, fill, run

from opmark.api.items import view_stored_run
from opmark.schema import Case
from opmark.store.runs import find_run
from opmark.store.sql import open_sql

PAGES: dict[str, Callable[[Any], str]] = {
    "runs": lambda named: "/",
    "no run": lambda named: "/?q=nothing-is-called-so",
    "run": lambda named: f"/runs/{named.showcase}",
    "failures": lambda named: f"/runs/{named.failures}",
    "item": lambda named: f"/runs/{named.showcase}/items/{named.item}",
    "figures": lambda named: f"/runs/{named.showcase}/figures",
    "roofline": lambda named: f"/runs/{named.showcase}/roofline",
    "case": lambda named: f"/cases/{named.case}",
    "compare": lambda named: f"/compare?a={named.base}&b={named.new}",
    "comparing": lambda named: "/compare",
    "coverage": lambda named: "/coverage",
    "search": lambda named: "/search?q=softmax",
}


class Named:
    def __init__(self, db: Path) -> None:
        with closing(open_sql(db)) as store:
            self.showcase, self.failures, self.base, self.new = (
                find_run(store, label).id for label in ("showcase", "failures", "base", "new")
            )
            items = view_stored_run(store, find_run(store, "showcase")).rows
            nights = view_stored_run(store, find_run(store, "nightly~0")).rows
        self.item = items[0].key
        self.case = nights[0].case


@pytest.fixture(scope="session")
def named(store: Path) -> Named:
    return Named(store)


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_for_everybody(
    open_page: Any, dashboard: str, named: Named, check_accessible: Any, check_fits: Any, page: str, look: str
) -> None:
    opened = open_page(dashboard + PAGES[page](named), dashboard, **LOOKS[look])
    check_accessible(opened)
    check_fits(opened)
    assert opened.locator("h1").count() == 1


LONG = "scaled_dot_product_attention_with_a_bias_and_dropout_backward"


@pytest.fixture(scope="session")
def long_names(place: Path, environ: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """A dashboard where nothing has a space to be broken at, and the addresses of its pages."""
    maker, db = Maker(1), place / "long.db"
    made = [maker.record("matmul", {"M": n, "N": n, "K": n}, "torch-cuda", GPU) for n in (256, 512)]
    case = [Case.of(LONG, one.task.case.params, "forward") for one in made]
    fine = [replace(one, task=replace(one.task, case=own)) for one, own in zip(made, case, strict=True)]
    broken = maker.failed("add", {"shape": [8]}, f"torch-cpu@{LONG}", "error", f"{LONG}:{LONG}(0x{'0' * 80})")
    runs = fill(db, [run(n, f"{LONG}-{n}", [*fine, broken], command=LONG * 2, description=LONG) for n in (1, 2)])
    one = f"/runs/{runs[0].id}"
    with Served(db, environ=environ) as served:
        yield served.address, [
            "/", one, f"{one}/figures", f"{one}/roofline", f"{one}/items/{fine[0].task.id}",
            f"{one}/items/{broken.task.id}", f"/cases/{case[0].id}", f"/compare?a={runs[0].id}&b={runs[1].id}",
            "/coverage", f"/search?q={LONG}", "/runs/nobody", f"{one}?op={LONG}",
        ]  # fmt: skip


def test_long_names_are_no_wider_than_a_phone(
    open_page: Any, long_names: tuple[str, list[str]], check_fits: Any, watches: list[Any]
) -> None:
    address, pages = long_names
    opened = open_page(address, address, **PHONE)
    watches[0].forgiven.append("status of 404")
    for path in pages:
        opened.goto(address + path)
        check_fits(opened)


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("runs", [("showcase",), ("base", "new"), ("failures",)], ids=" ".join)
def test_a_report_is_for_everybody(
    open_page: Any, make_report: Any, check_accessible: Any, runs: tuple[str, ...], look: str
) -> None:
    opened = open_page(make_report(*runs), **LOOKS[look])
    check_accessible(opened)
    assert opened.locator("h1").count() == 1


@pytest.mark.parametrize("look", ["light", "dark"])
def test_what_opens_is_for_everybody_too(open_page: Any, report: str, check_accessible: Any, look: str) -> None:
    """A case with its samples, and a table of numbers."""
    page = open_page(report, **LOOKS[look])
    page.evaluate("for (const one of document.querySelectorAll('figure.chart details')) one.open = true")
    page.evaluate("for (const one of [...document.querySelectorAll('details[id^=item-]')].slice(0, 3)) one.open = true")
    check_accessible(page)
