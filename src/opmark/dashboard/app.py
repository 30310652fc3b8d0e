"""The dashboard as a Starlette application: the table of endpoints, errors, assets and uploads."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import fields
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from opmark.dashboard import auth, downloads
from opmark.dashboard.auth import AccessPolicy, Guard, Patience
from opmark.dashboard.downloads import DOWNLOADS, Download
from opmark.dashboard.endpoint import Endpoint, HttpProblem, RequestRefused, asked
from opmark.dashboard.navigation import names_in
from opmark.dashboard.pages import case, compare, coverage, figures, run, runs
from opmark.dashboard.pages import figures as roofline
from opmark.dashboard.pages import run as item
from opmark.dashboard.pages import run as progress
from opmark.dashboard.pages import runs as search
from opmark.dashboard.pages.template import KINDS, assets
from opmark.dashboard.reader import Reader
from opmark.dashboard.response import ResponseCache, answered, encoded, page_body, problem_response, told
from opmark.dashboard.uploads.store import DEFAULT_LIMIT, Arrivals, upload
from opmark.errors import OpmarkError
from opmark.report.html.templates import asset
from opmark.report.text import printable
from opmark.schema.options import PathLike
from opmark.schema.upload import MEDIA_TYPE, PATH, PushReply
from opmark.version import VERSION

log = logging.getLogger("opmark.dashboard")
FOR_GOOD = "public, max-age=31536000, immutable"


def application(
    db: PathLike | None = None,
    *,
    door: AccessPolicy | None = None,
    max_upload: int = DEFAULT_LIMIT,
    read_ahead: bool = False,
) -> Guard:
    """Make the application; `door` decides about access, by default for any request to a name of this machine."""
    reader, door, patience = Reader(db), door or AccessPolicy(), Patience()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if read_ahead:
            reader.ahead += [endpoint.ahead for endpoint in ENDPOINTS if endpoint.ahead]
            reader.read_ahead()
        yield
        reader.close()

    app = Starlette(
        routes=[*_routes(), *auth.ROUTES, *downloads.routes(), Route("/assets/{name}", _asset)],
        lifespan=lifespan,
        exception_handlers={OpmarkError: _mistake, HTTPException: _http, Exception: _defect},
    )
    app.router.redirect_slashes = False  # redirects need the whole address, and a proxy's part is unknown
    app.state.reader, app.state.door, app.state.patience = reader, door, patience
    app.state.max_upload, app.state.arrivals, app.state.rendered = max_upload, Arrivals(), ResponseCache()
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
        kept: ResponseCache = request.app.state.rendered
        return kept.get((request.scope["path"], request.scope["query_string"], state), in_turn)


def _document(request: Request) -> Response:
    return Response(document(), media_type="application/json")


def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if not any(name in assets(ending) for ending in KINDS):
        raise RequestRefused(404, "there is no such file")
    kind = KINDS[name[name.rindex(".") :]]
    return Response(asset(name), headers={"cache-control": FOR_GOOD}, media_type=kind)


def _mistake(request: Request, error: Exception) -> Response:
    assert isinstance(error, OpmarkError)
    return problem_response(request, error)


def _http(request: Request, error: Exception) -> Response:
    """Answer for Starlette's own errors: an unknown address, or a method that it does not support."""
    assert isinstance(error, HTTPException)
    what = {404: "there is no such page", 405: f"{request.method} is not what this address takes"}
    problem = HttpProblem(what.get(error.status_code, error.detail), "" if error.status_code == 405 else "begin at /")
    return told(request, problem, error.status_code, error.headers)


def _defect(request: Request, error: Exception) -> Response:
    """Answer with a number under which the log has the traceback."""
    number = secrets.token_hex(6)
    log.error("defect %s: %s %s", number, request.method, printable(request.scope["path"]))
    told_of_it = HttpProblem("something went wrong in the server", f"its log has more under {number}", number)
    return told(request, told_of_it, 500)


# The OpenAPI document, generated from the table of endpoints.

DOCUMENT = "/api/openapi.json"
_REFERENCE = "#/components/schemas/{name}"
_ERRORS = {
    "400": "A parameter is unknown, or its value is not allowed.",
    "401": "A token is needed, or it is wrong.",
    "404": "Nothing of that name.",
    "414": "The address is too long.",
    "421": "The server is not asked for by this name.",
    "429": "Too many wrong tokens.",
    "500": "A defect of the server.",
    "503": "The store cannot be read.",
}
_OF_UPLOADS = {
    "403": "The server has no token, and so takes no runs.",
    "408": "It was not here in time.",
    "413": "Larger than the server allows.",
    "409": "Something else is stored under the same name.",
    "422": "It is not what `opmark push` sends.",
    "503": "Too many are under way, or the store cannot be written just now.",
}


@cache
def document() -> bytes:
    kinds = [endpoint.asked for endpoint in ENDPOINTS] + [download.asked for download in DOWNLOADS]
    answers = [endpoint.answer for endpoint in ENDPOINTS] + [HttpProblem, PushReply]
    found, schemas = msgspec.json.schema_components([*kinds, *answers], ref_template=_REFERENCE)
    of = dict(zip([*kinds, *answers], found, strict=True))
    told: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        get = _operation(endpoint.json_path, endpoint.summary, _parameters(endpoint.asked, endpoint.path, of, schemas))
        get["responses"] = {"200": _answer("What is asked for.", of[endpoint.answer]), **_errors(_ERRORS, of)}
        told.setdefault(endpoint.json_path, {})["get"] = get
    for download in DOWNLOADS:
        told[download.path] = {"get": _download(download, of, schemas)}
    told.setdefault(PATH, {})["post"] = _upload(of)
    told[DOCUMENT] = {"get": _of_itself(of)}
    used = {name: schema for name, schema in schemas.items() if name not in {_name(of[kind]) for kind in kinds}}
    return msgspec.json.encode(_whole(told, used))


def _whole(paths: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    token = {"type": "http", "scheme": "bearer", "description": "The token that the server was started with, if any."}
    about = "What the pages of the dashboard show. Times are seconds, sizes bytes, rates a second."
    return {
        "openapi": "3.1.0",
        "info": {"title": "opmark", "version": VERSION, "description": about},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": token}},
        "security": [{}, {"token": []}],
    }


def _operation(path: str, summary: str, parameters: list[Any], method: str = "get") -> dict[str, Any]:
    words = re.findall(r"\w+", path.replace("{", "by_").replace(".", "_"))
    return {"operationId": "_".join([method, *words]), "summary": summary, "parameters": parameters}


def _parameters(kind: type, path: str, of: dict[Any, Any], schemas: dict[str, Any]) -> list[dict[str, Any]]:
    placed, known = names_in(path), schemas[_name(of[kind])]["properties"]
    made = []
    for field in fields(kind):
        schema = dict(known[field.encode_name])
        about = schema.pop("description", "")
        one: dict[str, Any] = {
            "name": field.encode_name,
            "in": "path" if field.name in placed else "query",
            "schema": schema,
        }
        if field.name in placed:
            one["required"] = True
            if schema.get("type") == "string":
                one["schema"] = schema | {"minLength": 1}
        made.append(one | ({"description": about} if about else {}))
    return made


def _download(download: Download, of: dict[Any, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    get = _operation(download.path, download.summary, _parameters(download.asked, download.path, of, schemas))
    content: dict[str, Any] = {kind: {"schema": {}} for kind in download.kinds}
    pages = {code: {"description": text, "content": {"text/html": {}}} for code, text in _ERRORS.items()}
    elsewhere = {"303": {"description": "To the login, where a token is needed."}}
    return get | {"responses": {"200": {"description": "The file.", "content": content}, **elsewhere, **pages}}


def _upload(of: dict[Any, Any]) -> dict[str, Any]:
    post = _operation(PATH, "Store a run of another machine, as `opmark push` sends it.", [], "post")
    post["requestBody"] = {"required": True, "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}
    stored = {"201": _answer("Stored.", of[PushReply]), "200": _answer("It was there already.", of[PushReply])}
    post["responses"] = {**stored, **_errors({**_ERRORS, **_OF_UPLOADS}, of)}
    return post | {"security": [{"token": []}]}


def _of_itself(of: dict[Any, Any]) -> dict[str, Any]:
    get = _operation(DOCUMENT, "This document.", [])
    return get | {"responses": {"200": _answer("This document.", {"type": "object"}), **_errors(_ERRORS, of)}}


def _errors(told: dict[str, str], of: dict[Any, Any]) -> dict[str, Any]:
    return {code: _answer(text, of[HttpProblem]) for code, text in sorted(told.items())}


def _answer(text: str, schema: Any) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _name(reference: dict[str, Any]) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


# The table of endpoints. A row is a page, an address of the JSON API and a part of the OpenAPI document.

ENDPOINTS: tuple[Endpoint, ...] = (
    runs.RUNS_ENDPOINT,
    run.RUN_ENDPOINT,
    progress.PROGRESS_ENDPOINT,
    item.ITEM_ENDPOINT,
    figures.FIGURES_ENDPOINT,
    search.SEARCH_ENDPOINT,
    roofline.ROOFLINE_ENDPOINT,
    case.CASE_ENDPOINT,
    compare.COMPARE_ENDPOINT,
    coverage.COVERAGE_ENDPOINT,
)
