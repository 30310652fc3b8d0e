"""The dashboard as a Starlette application: routes, errors, assets, the OpenAPI document and the table of endpoints."""

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
from starlette.routing import Match, Route

from opmark.dashboard import auth, downloads
from opmark.dashboard.auth import AccessPolicy, Guard, LoginLimits
from opmark.dashboard.downloads import DOWNLOADS, Download
from opmark.dashboard.endpoint import LONGEST, TEXT_PATTERN, Endpoint, HttpProblem, RequestRefused, parse_query
from opmark.dashboard.navigation import names_in
from opmark.dashboard.pages import case, compare, coverage, factors, figures, run, runs
from opmark.dashboard.pages.template import KINDS, assets
from opmark.dashboard.reader import Reader
from opmark.dashboard.response import (
    ResponseCache,
    encode_json,
    error_response,
    page_body,
    problem_response,
    tagged_response,
)
from opmark.dashboard.uploads.store import DEFAULT_LIMIT, UploadSlots, upload
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
    access: AccessPolicy | None = None,
    max_upload: int = DEFAULT_LIMIT,
    read_ahead: bool = False,
) -> Guard:
    """Make the application; by default `access` allows every request that is addressed to a name of this machine."""
    reader, access, login_limits = Reader(db), access or AccessPolicy(), LoginLimits()

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
    app.state.reader, app.state.access, app.state.login_limits = reader, access, login_limits
    app.state.max_upload, app.state.upload_slots, app.state.rendered = max_upload, UploadSlots(), ResponseCache()
    return Guard(app, access, login_limits, reader.name)


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
        query = _read_query(endpoint, request)

        def make() -> bytes:
            return encode_json(endpoint.view(request.app.state.reader, query))

        return tagged_response(request, _cached_body(request, endpoint, query, make), "application/json")

    return answer


def _as_page(endpoint: Endpoint) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        query = _read_query(endpoint, request)

        def make() -> bytes:
            found = endpoint.view(request.app.state.reader, query)
            return page_body(request, endpoint.template, answer=found, query=query, endpoint=endpoint)

        return tagged_response(request, _cached_body(request, endpoint, query, make), "text/html")

    return answer


def _read_query(endpoint: Endpoint, request: Request) -> Struct:
    return parse_query(endpoint.query, request.path_params, request.query_params.multi_items())


def _cached_body(request: Request, endpoint: Endpoint, query: Struct, make: Callable[[], bytes]) -> bytes:
    """Return the body of an answer, from the cache if the same address was answered since its runs changed last."""
    reader: Reader = request.app.state.reader
    with reader.answering():
        names = [getattr(query, name) for name in endpoint.of_runs]
        state = reader.answer_state(names) if names and all(names) else None

        def in_turn() -> bytes:
            with reader.turn():
                return make()

        if state is None:
            return in_turn()
        rendered: ResponseCache = request.app.state.rendered
        return rendered.get((request.scope["path"], request.scope["query_string"], state), in_turn)


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
    if error.status_code == 405:
        return _wrong_method(request)
    what = "there is no such page" if error.status_code == 404 else error.detail
    return error_response(request, HttpProblem(what, "begin at /"), error.status_code, error.headers)


def _wrong_method(request: Request) -> Response:
    """Answer with the methods of all routes of the address; Starlette names those of the first one."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = sorted({method for route in routes for method in route.methods})
    problem = HttpProblem(f"{request.method} is not what this address takes", f"it takes {', '.join(methods)}")
    return error_response(request, problem, 405, {"allow": ", ".join(methods)})


def _defect(request: Request, error: Exception) -> Response:
    """Answer with a number under which the log has the traceback."""
    number = secrets.token_hex(6)
    log.error("defect %s: %s %s", number, request.method, printable(request.scope["path"]))
    problem = HttpProblem("something went wrong in the server", f"its log has more under {number}", number)
    return error_response(request, problem, 500)


# The OpenAPI document, generated from the table of endpoints.

DOCUMENT = "/api/openapi.json"
_REFERENCE = "#/components/schemas/{name}"
_ERRORS = {
    "400": "A parameter is unknown, or its value is not allowed.",
    "401": "A token is needed, or it is wrong.",
    "404": "There is nothing of that name.",
    "405": "The address takes other methods; `Allow` lists them.",
    "414": "The address is too long.",
    "421": "The server does not answer to this name.",
    "429": "Too many wrong tokens.",
    "500": "A defect of the server.",
    "503": "The store cannot be read.",
}
_UPLOAD_ERRORS = {
    "403": "The server has no token, and so takes no runs.",
    "408": "The upload took too long.",
    "413": "The upload is larger than the server allows.",
    "409": "Something else is stored under the same name.",
    "422": "The upload is not what `opmark push` sends.",
    "503": "Too many uploads are under way, or the store cannot be written just now.",
}


@cache
def document() -> bytes:
    kinds = [endpoint.query for endpoint in ENDPOINTS] + [download.query for download in DOWNLOADS]
    answers = [endpoint.answer for endpoint in ENDPOINTS] + [HttpProblem, PushReply]
    references, schemas = msgspec.json.schema_components([*kinds, *answers], ref_template=_REFERENCE)
    refs = dict(zip([*kinds, *answers], references, strict=True))
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        get = _operation(
            endpoint.json_path, endpoint.summary, _parameters(endpoint.query, endpoint.path, refs, schemas)
        )
        get["responses"] = {"200": _answer("The answer.", refs[endpoint.answer]), **_errors(_ERRORS, refs)}
        paths.setdefault(endpoint.json_path, {})["get"] = get
    for download in DOWNLOADS:
        paths[download.path] = {"get": _download_operation(download, refs, schemas)}
    paths.setdefault(PATH, {})["post"] = _upload_operation(refs)
    itself = {"200": _answer("This document.", {"type": "object"}), **_errors(_ERRORS, refs)}
    paths[DOCUMENT] = {"get": _operation(DOCUMENT, "This document.", []) | {"responses": itself}}
    query_names = {_name(refs[kind]) for kind in kinds}
    used = {name: schema for name, schema in schemas.items() if name not in query_names}
    token = {"type": "http", "scheme": "bearer", "description": "The token that the server was started with, if any."}
    about = "The data that the pages of the dashboard show. Times are in seconds, sizes in bytes, rates per second."
    whole = {
        "openapi": "3.1.0",
        "info": {"title": "opmark", "version": VERSION, "description": about},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": used, "securitySchemes": {"token": token}},
        "security": [{}, {"token": []}],
    }
    return msgspec.json.encode(whole)


def _operation(path: str, summary: str, parameters: list[Any], method: str = "get") -> dict[str, Any]:
    words = re.findall(r"\w+", path.replace("{", "by_").replace(".", "_"))
    return {"operationId": "_".join([method, *words]), "summary": summary, "parameters": parameters}


def _parameters(kind: type, path: str, refs: dict[Any, Any], schemas: dict[str, Any]) -> list[dict[str, Any]]:
    placed, known = names_in(path), schemas[_name(refs[kind])]["properties"]
    made = []
    for field in fields(kind):
        schema = dict(known[field.encode_name])
        about = schema.pop("description", "")
        one: dict[str, Any] = {
            "name": field.encode_name,
            "in": "path" if field.name in placed else "query",
            "schema": schema,
        }
        _limit_text(schema)
        if field.name in placed:
            one["required"] = True
            if schema.get("type") == "string":
                schema["minLength"] = 1
        made.append(one | ({"description": about} if about else {}))
    return made


def _limit_text(schema: dict[str, Any]) -> None:
    """Add what every text of an address has to be (`check_text`) to the schema of a parameter."""
    if schema.get("type") == "array":
        schema["items"] = dict(schema["items"])
        _limit_text(schema["items"])
    elif schema.get("type") == "string":
        schema |= {"maxLength": LONGEST, "pattern": schema.get("pattern", TEXT_PATTERN)}


def _download_operation(download: Download, refs: dict[Any, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    get = _operation(download.path, download.summary, _parameters(download.query, download.path, refs, schemas))
    content: dict[str, Any] = {kind: {"schema": {}} for kind in download.kinds}
    pages = {code: {"description": text, "content": {"text/html": {}}} for code, text in _ERRORS.items()}
    elsewhere = {"303": {"description": "Redirects to the login if a token is needed."}}
    return get | {"responses": {"200": {"description": "The file.", "content": content}, **elsewhere, **pages}}


def _upload_operation(refs: dict[Any, Any]) -> dict[str, Any]:
    post = _operation(PATH, "Store a run of another machine, as `opmark push` sends it.", [], "post")
    post["requestBody"] = {"required": True, "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}
    stored = {"201": _answer("Stored.", refs[PushReply]), "200": _answer("It was there already.", refs[PushReply])}
    post["responses"] = {**stored, **_errors({**_ERRORS, **_UPLOAD_ERRORS}, refs)}
    return post | {"security": [{"token": []}]}


def _errors(texts: dict[str, str], refs: dict[Any, Any]) -> dict[str, Any]:
    return {code: _answer(text, refs[HttpProblem]) for code, text in sorted(texts.items())}


def _answer(text: str, schema: Any) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _name(reference: dict[str, Any]) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


# The table of endpoints. An entry is a page, an address of the JSON API and a part of the OpenAPI document.

ENDPOINTS: tuple[Endpoint, ...] = (
    runs.RUNS_ENDPOINT,
    run.RUN_ENDPOINT,
    run.PROGRESS_ENDPOINT,
    run.ITEM_ENDPOINT,
    figures.FIGURES_ENDPOINT,
    factors.FACTORS_ENDPOINT,
    runs.SEARCH_ENDPOINT,
    figures.ROOFLINE_ENDPOINT,
    case.CASE_ENDPOINT,
    compare.COMPARE_ENDPOINT,
    coverage.COVERAGE_ENDPOINT,
)
