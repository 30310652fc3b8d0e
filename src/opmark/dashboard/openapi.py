"""The OpenAPI document, generated from the table of endpoints."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import fields

from opmark.dashboard.addresses import names_in
from opmark.dashboard.files import DOWNLOADS, Download
from opmark.dashboard.problems import Problem
from opmark.dashboard.table import ENDPOINTS
from opmark.schema.pushed import MEDIA_TYPE, PATH, Received
from opmark.version import VERSION

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
    answers = [endpoint.answer for endpoint in ENDPOINTS] + [Problem, Received]
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
    stored = {"201": _answer("Stored.", of[Received]), "200": _answer("It was there already.", of[Received])}
    post["responses"] = {**stored, **_errors({**_ERRORS, **_OF_UPLOADS}, of)}
    return post | {"security": [{"token": []}]}


def _of_itself(of: dict[Any, Any]) -> dict[str, Any]:
    get = _operation(DOCUMENT, "This document.", [])
    return get | {"responses": {"200": _answer("This document.", {"type": "object"}), **_errors(_ERRORS, of)}}


def _errors(told: dict[str, str], of: dict[Any, Any]) -> dict[str, Any]:
    return {code: _answer(text, of[Problem]) for code, text in sorted(told.items())}


def _answer(text: str, schema: Any) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _name(reference: dict[str, Any]) -> str:
    return str(reference["$ref"]).rpartition("/")[2]
