"""Responses: JSON below /api, pages elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from opmark.dashboard.pages import page
from opmark.dashboard.problems import Problem, Refused, problem_of, status_of
from opmark.errors import OpmarkError

encoded = msgspec.json.Encoder().encode


def is_api(request: Request) -> bool:
    """Whether a request is for JSON, by the routed path, because headers can change the rest of the address."""
    path: str = request.scope["path"]
    return path.startswith("/api/") or path == "/api"


def json_response(answer: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encoded(answer), status, headers, "application/json")


def page_response(
    request: Request, template: str, status: int = 200, headers: Mapping[str, str] | None = None, **context: Any
) -> Response:
    return HTMLResponse(page_body(request, template, **context), status, headers)


def page_body(request: Request, template: str, **context: Any) -> bytes:
    state = request.app.state if "app" in request.scope else None
    has_token = bool(state and state.door.token)
    return page(template, has_token=has_token, path=request.scope["path"], **context).encode()


def problem_response(
    request: Request, error: OpmarkError, headers: Mapping[str, str] | None = None, status: int | None = None
) -> Response:
    wait = {"retry-after": str(error.wait)} if isinstance(error, Refused) and error.wait else {}
    return told(request, problem_of(error), status or status_of(error), {**wait, **(headers or {})})


def told(request: Request, problem: Problem, status: int, headers: Mapping[str, str] | None = None) -> Response:
    if is_api(request):
        return json_response(problem, status, headers)
    return page_response(request, "problem.html", status, headers, problem=problem, code=status)
