"""Renders pages without HTTP: the answer of a view, and the HTML made from it."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import json

from opmark.dashboard.endpoint import Endpoint, parse_query
from opmark.dashboard.pages.template import page
from opmark.dashboard.reader import Reader


class RenderedPage(NamedTuple):
    answer: Any
    html: str


def ask(reader: Reader, endpoint: Endpoint, placed: dict[str, str] | None = None, **query: str) -> RenderedPage:
    """Answer as the server does, and check that the JSON decodes as the answer type of the endpoint."""
    parsed = parse_query(endpoint.query, placed or {}, list(query.items()))
    answer = endpoint.view(reader, parsed)
    json.decode(json.encode(answer), type=endpoint.answer)
    context = {"answer": answer, "query": parsed, "endpoint": endpoint, "has_token": False, "path": endpoint.path}
    return RenderedPage(answer, page(endpoint.template, **context))
