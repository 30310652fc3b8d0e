"""Renders the templates of pages, with the functions and filters that they share."""

from __future__ import annotations

import hashlib
import math
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from opmark.analysis.rows import headline_name, split_by_headline
from opmark.dashboard.navigation import address, address_with, names_in, when
from opmark.report.comparison import split_by_quantity
from opmark.report.html.templates import asset, templates
from opmark.report.text import memory
from opmark.schema.chart import Chart
from opmark.schema.record import FAILED, STATUSES
from opmark.schema.run import short_revision
from opmark.units import change, cycles, significant, small_unit
from opmark.version import VERSION

KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


@cache
def assets(ending: str) -> tuple[str, ...]:
    """Return the names of the assets of one kind; the style sheet that others build on comes first."""
    folder = files("opmark.report.html").joinpath("assets")
    found = sorted(file.name for file in folder.iterdir() if file.name.endswith(ending))
    return tuple(sorted(found, key=lambda name: name != "style.css"))


@cache
def asset_address(name: str) -> str:
    """Return the address of an asset, which contains a hash of its content, so that browsers may cache it for ever."""
    return f"/assets/{name}?v={hashlib.sha256(asset(name).encode()).hexdigest()[:16]}"


@cache
def environment() -> Environment:
    """Return the report's templates, with the functions that pages of the dashboard need."""
    made = templates().overlay()
    made.globals = {
        **made.globals,
        "address": address,
        "address_with": address_with,
        "asset_address": asset_address,
        "FAILED": FAILED,
        "STATUSES": STATUSES,
        "figure": _figure,
        "figure_of": _figure_of,
        "scripts": assets(".js"),
        "styles": assets(".css"),
        "version": VERSION,
    }
    made.filters = {
        **made.filters,
        "change": change,
        "cycles": cycles,
        "headline_name": headline_name,
        "memory": memory,
        "revision": short_revision,
        "small": small,
        "split_by_headline": split_by_headline,
        "split_pairs": lambda rows: split_by_quantity(rows, lambda row: row.pair),
        "split_rows": lambda rows: split_by_quantity(rows, lambda row: row),
        "times": times,
        "when": when,
    }
    return made


def _figure(chart: Chart, run: str) -> Markup:
    """Return a chart of a run, whose marks link to the pages of its rows."""
    from opmark.report.html.figure import figure  # pages without figures do not wait for it

    return figure(chart, lambda key: address("/runs/{run}/items/{key}", run=run, key=key))


def _figure_of(chart: Chart, path: str) -> Markup:
    """Return a chart whose marks link to pages of another kind: `/cases/{case}`, `/runs/{run}`."""
    from opmark.report.html.figure import figure

    (name,) = names_in(path)
    return figure(chart, lambda key: address(path, **{name: key}))


def times(ratio: float) -> str:
    """Return a factor as text, also an infinite one."""
    return f"{significant(ratio, 4)}×" if math.isfinite(ratio) else "∞"


def small(value: float, unit: str) -> str:
    """Return a time or an energy in the unit in which it reads best."""
    scale, name = small_unit(value, unit)
    return f"{significant(value / scale)} {name}"


def page(template: str, **context: Any) -> str:
    return environment().get_template(template).render(**context)


def prepare() -> None:
    """Load templates and assets, so that the first page of each kind is as fast as the others."""
    import opmark.report.html.figure  # noqa: F401

    made = environment()
    for file in files("opmark.dashboard.pages").joinpath("templates").iterdir():
        if file.name.endswith(".html"):
            made.get_template(file.name)
    for ending in KINDS:
        for name in assets(ending):
            asset_address(name)
