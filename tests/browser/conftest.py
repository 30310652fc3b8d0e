"""A real browser over a made-up store: the report as a file, the dashboard as a process.

A page that says an error, breaks its content security policy, opens a dialog or asks anybody else for anything fails
its test, whatever that is about.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="no playwright here: `pip install opmark[browser]` brings it")

from axe_playwright_python.sync_playwright import Axe
from benchmarks.browser import browsing, chromium
from benchmarks.common import OPMARK
from benchmarks.many_runs import fill_many
from benchmarks.served import Served
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request
from showcase import showcase

HEARD = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""
GRAVE = ("serious", "critical")

Opener = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip("no chromium here: `apt-get install chromium` brings it")
    with browsing() as found:
        yield found


@dataclass
class Watch:
    """What pages did that they should not have done."""

    allowed: str
    """The beginning of every address that may be asked for."""
    wrong: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Every address, in its order."""
    forgiven: list[str] = field(default_factory=list)
    """Patterns of what is wrong and meant."""

    def over(self, context: BrowserContext) -> None:
        context.on("request", self._request)
        context.on("console", self._console)
        context.on("weberror", lambda error: self.wrong.append(f"uncaught: {error.error}"))
        context.on("dialog", self._dialog)

    def found(self) -> list[str]:
        return [said for said in self.wrong if not any(re.search(pattern, said) for pattern in self.forgiven)]

    def _request(self, request: Request) -> None:
        self.asked.append(request.url)
        if not request.url.startswith((self.allowed, "data:", "about:")):
            self.wrong.append(f"request to {request.url}")

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.wrong.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _dialog(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@pytest.fixture
def watches() -> list[Watch]:
    """Those of the pages that this test opened, in their order."""
    return []


@pytest.fixture
def open_page(browser: Browser, watches: list[Watch]) -> Iterator[Opener]:
    """open_page(address, allowed=beginning of addresses, **options of a context) -> the page, loaded."""
    contexts: list[BrowserContext] = []

    def opened(address: str, allowed: str = "", **options: Any) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(15_000)
        watch = Watch(allowed or address.partition("#")[0])
        watches.append(watch)
        watch.over(context)
        context.add_init_script(HEARD)
        page = context.new_page()
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [said for watch in watches for said in watch.found()] == []


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="session")
def environ(place: Path) -> dict[str, str]:
    """For processes that live as long as the session: away from the user's own store and notes."""
    own = {f"XDG_{kind}_HOME": str(place / kind.lower()) for kind in ("DATA", "CACHE", "STATE")}
    return {name: value for name, value in os.environ.items() if not name.startswith("OPMARK_")} | own


@pytest.fixture(scope="session")
def store(place: Path) -> Path:
    showcase(place / "showcase.db")
    return place / "showcase.db"


Reporter = Callable[..., str]


@pytest.fixture(scope="session")
def make_report(store: Path, place: Path, environ: dict[str, str]) -> Reporter:
    """make_report(*runs) -> the address of the file, made by the command; each once."""
    made: dict[tuple[str, ...], str] = {}

    def report(*runs: str) -> str:
        if runs not in made:
            file = place / f"{'-'.join(runs) or 'last'}.html"
            command = [OPMARK, "report", *runs, "--db", str(store), "-o", str(file)]
            done = subprocess.run(command, env=environ, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            made[runs] = file.as_uri()
        return made[runs]

    return report


@pytest.fixture(scope="session")
def report(make_report: Reporter) -> str:
    """The report of the run that has all figures."""
    return make_report("showcase")


@pytest.fixture(scope="session")
def many_report(place: Path, environ: dict[str, str]) -> str:
    """The report of a run of 2,000 cases."""
    (run,) = fill_many(place / "many.db", 1, 2_000)
    file = place / "many.html"
    subprocess.run([OPMARK, "report", run.id, "--db", str(place / "many.db"), "-o", str(file)], env=environ, check=True)
    return file.as_uri()


@pytest.fixture(scope="session")
def dashboard(store: Path, environ: dict[str, str]) -> Iterator[str]:
    """The address of a dashboard over the made-up store."""
    with Served(store, environ=environ) as served:
        yield served.address


@pytest.fixture
def check_accessible() -> Callable[[Page], None]:
    """Fails with everything grave that axe-core finds."""

    def check(page: Page) -> None:
        found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        grave = [
            f"{each['id']} ({each['impact']}): {each['help']}: "
            + "; ".join(f"{node['target']} {node.get('failureSummary', '')}" for node in each["nodes"][:3])
            for each in found
            if each["impact"] in GRAVE
        ]
        assert grave == [], f"{page.url}: " + "\n".join(grave)

    return check


@pytest.fixture
def check_fits() -> Callable[[Page], None]:
    """Fails where a page is wider than its window."""

    def check(page: Page) -> None:
        assert page.viewport_size
        window = page.viewport_size["width"]  # a phone makes its own wider for a page that is
        wide = page.evaluate("document.documentElement.scrollWidth")
        widest = """(window) => [...document.querySelectorAll("body *")]
                    .filter((e) => e.getBoundingClientRect().right > window).slice(0, 5)
                    .map((e) => e.outerHTML.slice(0, 120))"""
        assert wide <= window, f"{page.url}: {wide} > {window}: {page.evaluate(widest, window)}"

    return check
