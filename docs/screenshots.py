"""The pictures of docs/images: pages of a run that was measured for real, as chromium shows them.

    make screenshots                    measures a small suite on this CPU first: some minutes
    make screenshots DB=store.db        of the largest run of a store that is there, and two that share most cases

Every picture is of a size that a README can show, and under 200 kB.
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
"""Bytes."""
MOST_RUNS = 40
"""Of a store, the newest: one of them is shown."""
_SWEEP = ("run", "--suite", "sweep", "--op", "matmul,add,softmax,layer_norm", "--backend", "torch-cpu,jax-cpu")
_MEASURED = (
    ("calibrate",),
    (*_SWEEP, "--effort", "quick", "--processes", "3", "--label", "before"),
    (*_SWEEP, "--effort", "quick", "--processes", "3", "--label", "after"),
    ("run", "--suite", "quick", "--effort", "quick", "--label", "quick"),
)


class Picture(NamedTuple):
    name: str
    """Of its file; `-dark` is appended to that in dark colours."""
    address: str
    """Of a page of the dashboard; of the report what stands behind its own."""
    part: str = ""
    """What of the page is scrolled to and shown alone, as CSS names it; empty: the window from its top."""
    width: int = 1280
    height: int = 800


def pictures(looked: RunView, compared: tuple[str, str]) -> tuple[list[Picture], list[Picture]]:
    """Of the report, and of the dashboard."""
    run = looked.run.id
    of_report = [Picture("report", ""), Picture("report-roofline", "", "figure.chart:has(svg)")]
    of_dashboard = [
        Picture("runs", "/"),
        Picture("run", f"/runs/{run}"),
        Picture("compare", f"/compare?a={compared[0]}&b={compared[1]}"),
        Picture("phone", f"/runs/{run}", width=390, height=800),
    ]
    return of_report, of_dashboard


def main() -> None:
    parser = argparse.ArgumentParser(prog="make screenshots", description=__doc__)
    parser.add_argument("--db", help="an existing store, instead of measuring")
    parser.add_argument("--run", help="the run that is shown, by id or label. [default: the one with most items]")
    parser.add_argument("--out", type=Path, default=IMAGES)
    told = parser.parse_args()
    told.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        environ = _environ(Path(folder))
        db = told.db or _measured(Path(folder) / "store.db", environ)
        looked, compared = _chosen(db, told.run)
        of_report, of_dashboard = pictures(looked, compared)
        with browsing() as browser, _report(db, looked, Path(folder), environ) as report:
            take(browser, report, of_report, told.out)
            with Served(db, environ=environ) as served:
                take(browser, served.address, of_dashboard, told.out)


def _environ(folder: Path) -> dict[str, str]:
    """Away from the user's own store; what is compiled on the way goes with the folder."""
    own = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("DATA", "CACHE", "STATE")}
    return {name: value for name, value in os.environ.items() if name != "OPMARK_DB"} | own


def _measured(db: Path, environ: dict[str, str]) -> str:
    for command in _MEASURED:
        print("opmark", *command, file=sys.stderr)
        done = subprocess.run([OPMARK, *command, "--db", str(db)], env=environ, stdout=subprocess.DEVNULL)
        if done.returncode not in (0, 1):  # 1: a case failed, which pages show too
            raise SystemExit(f"opmark {' '.join(command)}: exit code {done.returncode}")
    return str(db)


def _chosen(db: str, name: str | None) -> tuple[RunView, tuple[str, str]]:
    """The run that is shown, and the two that are compared."""
    with closing(open_sql(db)) as store:
        newest = [view_stored_run(store, run) for run in store.runs(MOST_RUNS)]
    known = [looked for looked in newest if name in (None, looked.run.id, looked.run.label)]
    if not known:
        raise SystemExit(f"{db}: there is no run" + (f" `{name}`" if name else ""))
    return max(known, key=lambda looked: len(looked.rows)), _pair(newest)


def _pair(newest: list[RunView]) -> tuple[str, str]:
    """The older one first: of all runs the two that measured most of the same."""
    measured = {looked.run.id: {(i.case, i.backend) for i in looked.rows if i.seconds} for looked in newest}
    pairs = [(before, after) for n, after in enumerate(measured) for before in list(measured)[n + 1 :]]
    alone = (newest[0].run.id, newest[0].run.id)
    return max(pairs, key=lambda pair: len(measured[pair[0]] & measured[pair[1]]), default=alone)


@contextmanager
def _report(db: str, looked: RunView, folder: Path, environ: dict[str, str]) -> Iterator[str]:
    file = folder / "report.html"
    subprocess.run([OPMARK, "report", looked.run.id, "--db", db, "-o", str(file)], env=environ, check=True)
    yield file.as_uri()


def take(browser: Browser, home: str, wanted: list[Picture], folder: Path) -> None:
    for picture in wanted:
        for scheme, ending in (("light", ""), ("dark", "-dark")):
            size = {"width": picture.width, "height": picture.height}
            with browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce") as context:
                page = context.new_page()
                page.goto(home + picture.address)
                shown = page.locator(picture.part).first if picture.part else page
                _save(shown.screenshot(scale="css"), folder / f"{picture.name}{ending}.png")


def _save(image: bytes, file: Path) -> None:
    if len(image) > LARGEST:
        raise SystemExit(f"{file}: {len(image):,} bytes, expected at most {LARGEST:,}: make its window smaller")
    file.write_bytes(image)
    print(f"{file}  {len(image) / 1000:.0f} kB", file=sys.stderr)


if __name__ == "__main__":
    main()
