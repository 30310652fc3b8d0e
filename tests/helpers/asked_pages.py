"""Pages without HTTP: what a view answers, and the page that is made of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import json

from opmark.dashboard.endpoint import Endpoint, asked
from opmark.dashboard.pages.template import page
from opmark.dashboard.reader import Reader


class Shown(NamedTuple):
    answer: Any
    html: str


def ask(reader: Reader, endpoint: Endpoint, placed: dict[str, str] | None = None, **query: str) -> Shown:
    """As the server does it; its JSON can be read as what the endpoint says that it answers."""
    what = asked(endpoint.asked, placed or {}, list(query.items()))
    answer = endpoint.view(reader, what)
    json.decode(json.encode(answer), type=endpoint.answer)
    context = {"answer": answer, "asked": what, "endpoint": endpoint, "has_token": False, "path": endpoint.path}
    return Shown(answer, page(endpoint.template, **context))
