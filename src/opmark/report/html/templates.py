"""Jinja templates with escaping, visible control characters and strict names; assets; and compact markup."""

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
        finalize=_make_visible,
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


def _make_visible(value: Any) -> Any:
    """Write control characters, and those that change the direction of writing, as escapes such as `\\u202e`. Every
    value of a page passes here, except markup made by `esc` or by another template."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return harmless(value)


@cache
def asset(name: str) -> str:
    """Return a file of `assets/`, which a report contains and the dashboard serves."""
    return files("opmark.report.html").joinpath("assets").joinpath(name).read_text(encoding="utf-8")


def source_hash(text: str) -> str:
    """Return the hash by which a content security policy allows an inline style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# Compact markup, without the quotes and closing tags that HTML does not need: a fifth of a large table.

_CLOSING = re.compile(r"</t[dhr]>")
_QUOTED = re.compile(r' (class|scope|data-i|cx|cy|r|href)="([\w.#-]+)"(?=[ >]|(/>))')
"""Matches attributes whose value needs no quotes."""


def compact(markup: str) -> str:
    """Return markup without optional parts. Its texts are escaped, so that everything that looks like a tag is one. A
    space keeps a slash from becoming part of a value without quotes."""
    plain = _CLOSING.sub("", markup)
    return _QUOTED.sub(lambda found: f" {found[1]}={found[2]}" + (" " if found[3] else ""), plain)
