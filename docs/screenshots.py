"""Takes the pictures of docs/images: pages of a measured run, as chromium shows them.

    make screenshots                    measures a small suite on this CPU first, which takes some minutes
    make screenshots DB=store.db        shows the largest run of a store, and the two that share most cases

Every picture has a size that a README can show, and is smaller than 200 kB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.browser import browsing
from benchmarks.common import OPMARK
from benchmarks.served import Served

from opmark.analysis.rows import RunView
from opmark.api.items import view_stored_run
from opmark.store.sql import open_sql

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IMAGES = Path(__file__).with_name("images")
LARGEST = 200_000
"""Largest picture in bytes."""
MOST_RUNS = 40
"""Number of newest runs from which the shown one is chosen."""
_SWEEP = ("run", "--suite", "sweep", "--op", "matmul,add,softmax,layer_norm", "--backend", "torch-cpu,jax-cpu")
_COMMANDS = (
    ("calibrate",),
    (*_SWEEP, "--effort", "quick", "--processes", "3", "--label", "before"),
    (*_SWEEP, "--effort", "quick", "--processes", "3", "--label", "after"),
    ("run", "--suite", "quick", "--effort", "quick", "--label", "quick"),
)


class Picture(NamedTuple):
    name: str
    """Name of its file; `-dark` is appended for dark colours."""
    address: str
    """Path of a page of the dashboard; for the report, the part behind its address."""
    part: str = ""
    """CSS selector of the element that is shown; empty for the top of the page."""
    width: int = 1280
    height: int = 800


def pictures(view: RunView, compared: tuple[str, str]) -> tuple[list[Picture], list[Picture]]:
    """Return the pictures of the report, and those of the dashboard."""
    run = view.run.id
    report_pictures = [Picture("report", ""), Picture("report-roofline", "", "figure.chart:has(svg)")]
    dashboard_pictures = [
        Picture("runs", "/"),
        Picture("run", f"/runs/{run}"),
        Picture("compare", f"/compare?a={compared[0]}&b={compared[1]}"),
        Picture("phone", f"/runs/{run}", width=390, height=800),
    ]
    return report_pictures, dashboard_pictures


def main() -> None:
    parser = argparse.ArgumentParser(prog="make screenshots", description=__doc__)
    parser.add_argument("--db", help="an existing store, instead of measuring")
    parser.add_argument("--run", help="the run that is shown, by id or label. [default: the one with most items]")
    parser.add_argument("--out", type=Path, default=IMAGES)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        environ = _environ(Path(folder))
        db = arguments.db or _measure(Path(folder) / "store.db", environ)
        view, compared = _choose_runs(db, arguments.run)
        report_pictures, dashboard_pictures = pictures(view, compared)
        with browsing() as browser, _report(db, view, Path(folder), environ) as report:
            take(browser, report, report_pictures, arguments.out)
            with Served(db, environ=environ) as served:
                take(browser, served.address, dashboard_pictures, arguments.out)


def _environ(folder: Path) -> dict[str, str]:
    """Return an environment with its own store and caches, which are removed together with the folder."""
    own = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("DATA", "CACHE", "STATE")}
    return {name: value for name, value in os.environ.items() if name != "OPMARK_DB"} | own


def _measure(db: Path, environ: dict[str, str]) -> str:
    for command in _COMMANDS:
        print("opmark", *command, file=sys.stderr)
        done = subprocess.run([OPMARK, *command, "--db", str(db)], env=environ, stdout=subprocess.DEVNULL)
        if done.returncode not in (0, 1):  # 1 means that a case failed, which pages show as well
            raise SystemExit(f"opmark {' '.join(command)}: exit code {done.returncode}")
    return str(db)


def _choose_runs(db: str, name: str | None) -> tuple[RunView, tuple[str, str]]:
    """Return the run that is shown, and the two that are compared."""
    with closing(open_sql(db)) as store:
        newest = [view_stored_run(store, run) for run in store.runs(MOST_RUNS)]
    matching = [view for view in newest if name in (None, view.run.id, view.run.label)]
    if not matching:
        raise SystemExit(f"{db}: there is no run" + (f" `{name}`" if name else ""))
    return max(matching, key=lambda view: len(view.rows)), _choose_pair(newest)


def _choose_pair(newest: list[RunView]) -> tuple[str, str]:
    """Return the two runs that share most cases, the older one first."""
    measured = {view.run.id: {(row.case, row.backend) for row in view.rows if row.seconds} for view in newest}
    pairs = [(before, after) for n, after in enumerate(measured) for before in list(measured)[n + 1 :]]
    alone = (newest[0].run.id, newest[0].run.id)
    return max(pairs, key=lambda pair: len(measured[pair[0]] & measured[pair[1]]), default=alone)


@contextmanager
def _report(db: str, view: RunView, folder: Path, environ: dict[str, str]) -> Iterator[str]:
    file = folder / "report.html"
    subprocess.run([OPMARK, "report", view.run.id, "--db", db, "-o", str(file)], env=environ, check=True)
    yield file.as_uri()


def take(browser: Browser, home: str, listed: list[Picture], folder: Path) -> None:
    for picture in listed:
        for scheme, ending in (("light", ""), ("dark", "-dark")):
            size = {"width": picture.width, "height": picture.height}
            with browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce") as context:
                page = context.new_page()
                page.goto(home + picture.address)
                target = page.locator(picture.part).first if picture.part else page
                _save(target.screenshot(scale="css"), folder / f"{picture.name}{ending}.png")


def _save(image: bytes, file: Path) -> None:
    if len(image) > LARGEST:
        raise SystemExit(f"{file}: {len(image):,} bytes, expected at most {LARGEST:,}: make its window smaller")
    file.write_bytes(image)
    print(f"{file}  {len(image) / 1000:.0f} kB", file=sys.stderr)


if __name__ == "__main__":
    main()
