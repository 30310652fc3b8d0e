"""Jinja, set up: all is escaped, what cannot be seen is written out, a name that nobody filled in is an error."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from opmark import units
from opmark.report.text import harmless

_PLACES = ("opmark.report.html", "opmark.dashboard.pages")
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
        "counted": units.count_noun,
    }
    return made


def _shown(value: Any) -> Any:
    """Everything that a page writes passes here: control characters, and those that turn the direction of writing, are
    written out, `\\u202e`. What is markup already was made so by `esc` or by another template."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return harmless(value)


# Style and script, as they lie in `assets/`: inlined into a report, served by the dashboard.


@cache
def asset(name: str) -> str:
    return files("opmark.report.html").joinpath("assets").joinpath(name).read_text(encoding="utf-8")


def source_hash(text: str) -> str:
    """As a content security policy names an inline style or script: nothing else of that kind runs."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# Markup without what HTML allows to be left out: a fifth of a large table.

_CLOSING = re.compile(r"</t[dhr]>")
_QUOTED = re.compile(r' (class|scope|data-i|cx|cy|r|href)="([\w.#-]+)"(?=[ >]|(/>))')
"""Attributes of a table or of dots whose value holds nothing that would end it."""


def compact(markup: str) -> str:
    """Text is escaped in it, so that what looks like a tag is one."""
    return _QUOTED.sub(_plain, _CLOSING.sub("", markup))


def _plain(found: re.Match[str]) -> str:
    """A slash right behind it would belong to the value."""
    return f" {found[1]}={found[2]}" + (" " if found[3] else "")
