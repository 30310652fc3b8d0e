"""Endpoints of the dashboard, the parameters and bodies of requests, and the errors that refuse them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo, fields
from starlette.requests import ClientDisconnect, Request

from opmark.dashboard.reader import Reader
from opmark.errors import InvalidParameter, OpmarkError, StoreError, UnknownName, nearest


@dataclass(frozen=True)
class Endpoint:
    """One address of the dashboard, as a page and as JSON; the table of endpoints in `app` is the whole dashboard."""

    path: str
    """Path of the page, as in `/runs/{run}`; JSON is at `/api` + path. Names in braces are fields of `query`."""
    view: Callable[[Reader, Any], Struct]
    """Makes the answer from (reader, query). It may raise `UnknownName` (404) and other `UserError`s (400)."""
    query: type[Struct]
    """Parameters of the address: those of the path first, then the query, whose fields all have defaults. Values are
    converted (`"2"` to 2) and checked by their annotations (`msgspec.Meta` for limits)."""
    answer: type[Struct]
    """The answer. The page is made from it alone, so that JSON has everything that pages show."""
    template: str
    """File in `dashboard/pages/templates`, which gets `answer`, `query` and `endpoint`. Empty if there is only
    JSON."""
    title: str
    summary: str
    """Description in the OpenAPI document."""
    ahead: Callable[[Reader], object] | None = None
    """Work that makes the first answer quick, done after the start while the server is idle."""
    of_runs: tuple[str, ...] = ()
    """Fields of `query` that name the runs of an answer, if it depends on these runs alone: such an answer is cached
    until they change, or a run is added or renamed."""
    api: str = ""
    """Path of the JSON behind `/api`, if it is not `path`."""

    @property
    def json_path(self) -> str:
        return f"/api{self.api or self.path}"


# Turns the parameters of an address into the typed query of a view, and checks names, types and limits.

LONGEST = 500
"""Longest value in characters; names of cases and searches are shorter."""
TEXT_PATTERN = r"^[^\x00-\x1f\x7f]*$"
"""Form of every value, for the OpenAPI document: no control characters."""
_WHERE = re.compile(r" - at `\$\.(?P<name>\w+)[^`]*`$")
_GOT = re.compile(r", got `\w+`$")
"""The part of msgspec's message with the type that it got, which is always text."""
_Query = TypeVar("_Query", bound=Struct)


def parse_query(kind: type[_Query], placed: Mapping[str, str], query: Iterable[tuple[str, str]]) -> _Query:
    """Convert parameters; `placed` are those of the path. Empty values of the query are ignored."""
    known = {field.name: field for field in fields(kind)}
    values: dict[str, Any] = dict(placed)
    for name, value in query:
        if name not in known or name in placed:
            raise _unknown_parameter(name, [other for other in known if other not in placed])
        if value != "":
            _put(values, known[name], value)
    for name, value in values.items():
        for text in value if isinstance(value, list) else [value]:
            check_text(name, text)
    try:
        made = msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid_value(str(error), values, known) from None
    for field in fields(made):
        number = getattr(made, field.name)
        if isinstance(number, float) and not math.isfinite(number):
            raise InvalidParameter(f"{field.name}: expected a number, got {number:g}")
    return made


def _put(values: dict[str, Any], field: FieldInfo, value: str) -> None:
    if get_origin(field.type) in (tuple, list):
        values.setdefault(field.name, []).append(value)
    elif field.name in values:
        raise InvalidParameter(f"{field.name}: expected one value, got several", "name it once")
    else:
        values[field.name] = _share(value) if _plain(field.type) is float else value


def _plain(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _share(text: str) -> str:
    """Return `1%` as 0.01, as on the command line; an invalid number is reported later."""
    try:
        return str(float(text[:-1]) / 100) if text.endswith("%") else text
    except ValueError:
        return text


def check_text(name: str, text: str) -> None:
    if len(text) > LONGEST:
        raise InvalidParameter(f"{name}: expected at most {LONGEST} characters, got {len(text)}")
    if any(ord(letter) < 32 or ord(letter) == 127 or "\ud800" <= letter <= "\udfff" for letter in text):
        raise InvalidParameter(f"{name}: expected text without control characters, got {text!a}")


def _unknown_parameter(name: str, known: list[str]) -> InvalidParameter:
    near = nearest(name, known)
    listed = f"known: {', '.join(known)}" if known else "this address takes none"
    return InvalidParameter(
        f"no parameter named `{name[:LONGEST]}`", f"did you mean `{near}`? {listed}" if near else listed
    )


def _invalid_value(message: str, values: Mapping[str, Any], known: Mapping[str, FieldInfo]) -> InvalidParameter:
    """Make a message from msgspec's, with the value that was given, and the known values if there is a list."""
    place = _WHERE.search(message)
    name = place["name"] if place else ""
    expected = _GOT.sub("", message[: place.start()] if place else message)
    got = values.get(name)
    text = ", ".join(got) if isinstance(got, list) else got
    allowed = choices(known[name].type) if name in known else ()
    if allowed:
        near = nearest(str(text), allowed)
        hint = f"did you mean `{near}`?" if near else None
        return InvalidParameter(f"{name}: expected one of {', '.join(allowed)}; got `{text}`", hint)
    return InvalidParameter(f"{name}: {expected[:1].lower()}{expected[1:]}, got `{text}`".removeprefix(": "))


def choices(kind: Any) -> tuple[str, ...]:
    """Return the values of a Literal that are not empty; nothing for another type."""
    literal = _plain(kind)
    return tuple(str(value) for value in get_args(literal) if value) if get_origin(literal) is Literal else ()


# Reads the bodies of requests in pieces, and never beyond a limit.


async def read_body(request: Request, limit: int) -> bytes:
    length = request.headers.get("content-length", "0").lstrip("0")
    # The number of digits is compared first because int() refuses thousands of them.
    if length.isdecimal() and (len(length) > len(str(limit)) or int(length) > limit):
        raise _too_much(limit)
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in request.stream():
            size += len(piece)
            if size > limit:
                raise _too_much(limit)
            pieces.append(piece)
    except ClientDisconnect:
        raise RequestRefused(400, "the body ended before it was complete", "send it again") from None
    return b"".join(pieces)


def _too_much(limit: int) -> RequestRefused:
    return RequestRefused(
        413, f"the body is larger than {limit} bytes", "`opmark serve --max-upload` says how much it takes"
    )


# Errors as HTTP status and message, for pages and JSON, without a traceback.


class HttpProblem(Struct, frozen=True, omit_defaults=True):
    error: str
    hint: str = ""
    id: str = ""
    """Number of a defect of the server, under which the log has its traceback."""


class RequestRefused(OpmarkError):
    """A refused request: not allowed, too large, or too many at once."""

    def __init__(self, status: int, message: str, hint: str | None = None, *, wait: int = 0) -> None:
        """`wait`: seconds after which the client may try again."""
        super().__init__(message, hint)
        self.status, self.wait = status, wait


def status_of(error: OpmarkError) -> int:
    if isinstance(error, RequestRefused):
        return error.status
    if isinstance(error, UnknownName):
        return 404
    return 503 if isinstance(error, StoreError) else 400


def problem_of(error: OpmarkError) -> HttpProblem:
    return HttpProblem(error.message, error.hint or "")
