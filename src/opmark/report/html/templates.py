"""Jinja, set up: everything is escaped, a name that nobody filled in is an error, numbers are written as in tables."""

from __future__ import annotations

from functools import cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from opmark import units

_PLACES = ("opmark.report.html", "opmark.serve")
"""Packages with a folder `templates`; the dashboard's may use those of the report."""


@cache
def templates() -> Environment:
    loader = ChoiceLoader([PackageLoader(package) for package in _PLACES])
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {
        "seconds": units.seconds,
        "count_bytes": units.count_bytes,
        "rate": units.rate,
        "percent": units.percent,
        "counted": units.counted,
    }
    return made
