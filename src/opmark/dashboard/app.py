"""The dashboard as a Starlette application: the table of endpoints, errors, assets and uploads."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from opmark.dashboard import entrance, files
from opmark.dashboard.answers import encoded, page_body, problem_response, told
from opmark.dashboard.asking import asked
from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.guard import Guard, Patience
from opmark.dashboard.openapi import DOCUMENT, document
from opmark.dashboard.pages import KINDS, assets
from opmark.dashboard.problems import Problem, Refused
from opmark.dashboard.reading import Reader
from opmark.dashboard.receiving import DEFAULT_LIMIT, PATH, Arrivals, upload
from opmark.dashboard.rendered import Rendered, answered
from opmark.dashboard.security import Door
from opmark.dashboard.table import ENDPOINTS
from opmark.errors import OpmarkError
from opmark.report.html.assets import asset
from opmark.report.plain import printable
from opmark.schema.options import PathLike

log = logging.getLogger("opmark.dashboard")
FOR_GOOD = "public, max-age=31536000, immutable"


def application(
    db: PathLike | None = None,
    *,
    door: Door | None = None,
    max_upload: int = DEFAULT_LIMIT,
    read_ahead: bool = False,
) -> Guard:
    """Make the application; `door` decides about access, by default for any request to a name of this machine."""
    reader, door, patience = Reader(db), door or Door(), Patience()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if read_ahead:
            reader.ahead += [endpoint.ahead for endpoint in ENDPOINTS if endpoint.ahead]
            reader.read_ahead()
        yield
        reader.close()

    app = Starlette(
        routes=[*_routes(), *entrance.ROUTES, *files.routes(), Route("/assets/{name}", _asset)],
        lifespan=lifespan,
        exception_handlers={OpmarkError: _mistake, HTTPException: _http, Exception: _defect},
    )
    app.router.redirect_slashes = False  # redirects need the whole address, and a proxy's part is unknown
    app.state.reader, app.state.door, app.state.patience = reader, door, patience
    app.state.max_upload, app.state.arrivals, app.state.rendered = max_upload, Arrivals(), Rendered()
    return Guard(app, door, patience, reader.name)


def _routes() -> list[Route]:
    made = [Route(DOCUMENT, _document), Route(PATH, upload, methods=["POST"])]
    for endpoint in ENDPOINTS:
        made.append(Route(endpoint.json_path, _as_json(endpoint)))
        if endpoint.template:
            made.append(Route(endpoint.path, _as_page(endpoint)))
    return made


def _as_json(endpoint: Endpoint) -> Callable[[Request], Response]:
    """Return a plain function, which Starlette calls in a thread, so that a slow answer does not block others."""

    def answer(request: Request) -> Response:
        what = _asked(endpoint, request)
        body = _made(request, endpoint, what, lambda: encoded(endpoint.view(request.app.state.reader, what)))
        return answered(request, body, "application/json")

    return answer


def _as_page(endpoint: Endpoint) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        what = _asked(endpoint, request)

        def make() -> bytes:
            found = endpoint.view(request.app.state.reader, what)
            return page_body(request, endpoint.template, answer=found, asked=what, endpoint=endpoint)

        return answered(request, _made(request, endpoint, what, make), "text/html")

    return answer


def _asked(endpoint: Endpoint, request: Request) -> Struct:
    return asked(endpoint.asked, request.path_params, request.query_params.multi_items())


def _made(request: Request, endpoint: Endpoint, what: Struct, make: Callable[[], bytes]) -> bytes:
    """Return a body, from the cache if the same address was answered since its runs changed."""
    reader: Reader = request.app.state.reader
    with reader.answering():
        names = [getattr(what, name) for name in endpoint.of_runs]
        state = reader.settled(names) if names and all(names) else None

        def in_turn() -> bytes:
            with reader.turn():
                return make()

        if state is None:
            return in_turn()
        kept: Rendered = request.app.state.rendered
        return kept.get((request.scope["path"], request.scope["query_string"], state), in_turn)


def _document(request: Request) -> Response:
    return Response(document(), media_type="application/json")


def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if not any(name in assets(ending) for ending in KINDS):
        raise Refused(404, "there is no such file")
    kind = KINDS[name[name.rindex(".") :]]
    return Response(asset(name), headers={"cache-control": FOR_GOOD}, media_type=kind)


def _mistake(request: Request, error: Exception) -> Response:
    assert isinstance(error, OpmarkError)
    return problem_response(request, error)


def _http(request: Request, error: Exception) -> Response:
    """Answer for Starlette's own errors: an unknown address, or a method that it does not support."""
    assert isinstance(error, HTTPException)
    what = {404: "there is no such page", 405: f"{request.method} is not what this address takes"}
    problem = Problem(what.get(error.status_code, error.detail), "" if error.status_code == 405 else "begin at /")
    return told(request, problem, error.status_code, error.headers)


def _defect(request: Request, error: Exception) -> Response:
    """Answer with a number under which the log has the traceback."""
    number = secrets.token_hex(6)
    log.error("defect %s: %s %s", number, request.method, printable(request.scope["path"]))
    told_of_it = Problem("something went wrong in the server", f"its log has more under {number}", number)
    return told(request, told_of_it, 500)
