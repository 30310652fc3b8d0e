"""Jinja, set up: all is escaped, what cannot be seen is written out, a name that nobody filled in is an error."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from opmark import units
from opmark.report.plain import harmless

_PLACES = ("opmark.report.html", "opmark.dashboard")
"""Packages with a folder `templates`; the dashboard's may use those of the report."""


@cache
def templates() -> Environment:
    loader = ChoiceLoader([PackageLoader(package) for package in _PLACES])
    made = Environment(
        loader=loader,
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "seconds": units.seconds,
        "count_bytes": units.count_bytes,
        "rate": units.rate,
        "percent": units.percent,
        "counted": units.counted,
    }
    return made


def _shown(value: Any) -> Any:
    """Everything that a page writes passes here: control characters, and those that turn the direction of writing, are
    written out, `\\u202e`. What is markup already was made so by `esc` or by another template."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return harmless(value)
