"""Style and script, as they lie in `assets/`: inlined into a report, served by the dashboard."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files


@cache
def asset(name: str) -> str:
    return files("opmark.report.html").joinpath("assets").joinpath(name).read_text(encoding="utf-8")


def source_hash(text: str) -> str:
    """As a content security policy names an inline style or script: nothing else of that kind runs."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
