"""What happens while somebody looks: a run that goes on, names that are script, a server with a token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from benchmarks.many_runs import records
from benchmarks.served import Served
from playwright.sync_api import expect
from showcase import CPU, Maker, fill

from opmark.schema import Record, Run
from opmark.store.sql import open_sql

TOKEN = "a-token-that-only-this-test-knows"
HOSTILE = "<script>window.__pwned = 1</script><img src=x onerror='window.__pwned = 2'>\"'><svg onload=alert(1)>"


@pytest.fixture
def own_store(tmp_path: Path) -> Path:
    fill(tmp_path / "own.db", [])
    return tmp_path / "own.db"


def test_the_progress_of_a_run_moves_without_a_reload(open_page: Any, own_store: Path, environ: dict[str, str]) -> None:
    made = list(records(40))[:40]
    run = Run(
        "20300301-000000-0000live",
        datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "live",
        len(made),
        "live",
    )
    looked, all_done = Event(), Event()

    def write() -> None:
        with closing(open_sql(own_store, create=True)) as store:
            for start in range(10, 40, 10):
                looked.wait(60)
                looked.clear()
                store.extend(run.id, made[start : start + 10])
        all_done.set()

    with closing(open_sql(own_store, create=True)) as store:
        store.begin(run)
        store.extend(run.id, made[:10])
    with Served(own_store, environ=environ) as served:
        page = open_page(f"{served.address}/runs/{run.id}", served.address)
        page.evaluate("window.__same = true")
        writer = Thread(target=write)
        writer.start()
        told = page.locator("[data-of=records]").first
        for expected in ("10", "20", "30", "40"):
            expect(told).to_have_text(expected)
            looked.set()
        assert page.evaluate("window.__same") is True
        bar = page.locator("[data-progress] progress").first
        assert bar.evaluate("one => one.value") == 40
        writer.join()
    assert all_done.is_set()


def test_a_run_that_begins_is_told_to_who_looks_at_the_runs(
    open_page: Any, own_store: Path, environ: dict[str, str]
) -> None:
    with Served(own_store, environ=environ) as served:
        page = open_page(served.address, served.address)
        with page.expect_response("**/api/runs"):  # what it begins with
            page.reload()
        told = page.get_by_text("A run has begun since")
        for label in ("the first", "the second"):  # into an empty store, and beside others
            expect(told).to_be_hidden()
            begun = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            with closing(open_sql(own_store, create=True)) as store:
                store.begin(Run(f"20300301-000000-{label[4:]:0>8}", begun, "live", 0, label))
            expect(told).to_be_visible(timeout=15_000)
            expect(page.locator("main")).not_to_contain_text(label)
            with page.expect_response("**/api/runs"):
                page.get_by_role("link", name="Show it").click()
            expect(page.locator("main tbody")).to_contain_text(label)


def test_names_that_are_script_are_only_names(open_page: Any, own_store: Path, environ: dict[str, str]) -> None:
    maker = Maker(1)
    shape = {"shape": [64, 64]}
    broken = maker.failed("add", shape, f"torch-{HOSTILE}", "error", HOSTILE)
    fine = maker.record("exp", shape, "torch-cpu", CPU)
    run = Run("20300301-000000-000000ed", "2030-03-01T00:00:00.000+00:00", "x", 2, HOSTILE, command=HOSTILE,
              description=HOSTILE, revision=HOSTILE)  # fmt: skip
    with closing(open_sql(own_store, create=True)) as store:
        store.begin(run)
        store.extend(run.id, [broken, fine])
    with Served(own_store, environ=environ) as served:
        page = open_page(served.address, served.address)
        for address in _everywhere(run, broken, fine):
            page.goto(served.address + address)
            assert page.evaluate("window.__pwned") is None, address
            assert page.locator("main svg[onload], main img").count() == 0, address
        page.goto(f"{served.address}/runs/{run.id}")
        assert "<script>window.__pwned = 1</script>" in page.locator("main").inner_text()


def _everywhere(run: Run, broken: Record, fine: Record) -> Iterator[str]:
    yield from (f"/runs/{run.id}{rest}" for rest in ("", "/figures", "/roofline", f"/items/{broken.task.id}"))
    yield from ("/", "/coverage", "/search?q=script", "/search?q=%3Cscript%3Ewindow.__pwned=1%3C/script%3E")
    yield from (f"/cases/{broken.task.case.id}", f"/cases/{fine.task.case.id}", f"/compare?a={run.id}&b={run.id}")


@pytest.fixture
def guarded(own_store: Path, environ: dict[str, str]) -> Iterator[Served]:
    with closing(open_sql(own_store, create=True)) as store:
        store.begin(Run("20300301-000000-0000000a", "2030-03-01T00:00:00.000+00:00", "x", 0, "secret things"))
    with Served(own_store, environ={**environ, "OPMARK_TOKEN": TOKEN}) as served:
        yield served


def test_a_token_lets_in_and_a_wrong_one_does_not(open_page: Any, guarded: Served, watches: list[Any]) -> None:
    page = open_page(f"{guarded.address}/?q=secret", guarded.address)
    watches[0].forgiven.append("status of 401")
    assert "/login" in page.url
    assert "secret things" not in page.content()
    field = page.locator("input[type=password]")
    field.fill("not-the-token-that-is-right")
    field.press("Enter")
    expect(page.locator("main")).to_contain_text("That is not the token")
    assert page.context.cookies() == []
    page.locator("input[type=password]").fill(TOKEN)
    page.locator("input[type=password]").press("Enter")
    expect(page.locator("main")).to_contain_text("secret things")
    assert "q=secret" in page.url  # where one wanted to go
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] in ("Strict", "Lax")
    assert TOKEN not in cookie["value"]
    assert page.evaluate("document.cookie") == ""
    page.locator("main a:visible").first.click()
    assert TOKEN not in page.content()
    assert not [address for address in watches[0].asked if TOKEN in address]
    assert TOKEN not in "".join(guarded.said)


def test_who_logs_out_is_out(open_page: Any, guarded: Served) -> None:
    page = open_page(f"{guarded.address}/", guarded.address)
    page.locator("input[type=password]").fill(TOKEN)
    page.locator("input[type=password]").press("Enter")
    page.get_by_role("button", name="Log out").click()
    page.goto(f"{guarded.address}/")
    assert "/login" in page.url
    assert "secret things" not in page.content()
