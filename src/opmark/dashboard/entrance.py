"""The login form: a user enters the token once, and gets a cookie with a random session id."""

from __future__ import annotations

from urllib.parse import parse_qs

import anyio
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from opmark.dashboard.answers import page_response
from opmark.dashboard.bodies import read_body
from opmark.dashboard.guard import cookie_of, session_of, too_many_wrong
from opmark.dashboard.problems import Refused
from opmark.dashboard.security import SESSION_SECONDS, Door

LONGEST_FORM, MOST_FIELDS = 16 << 10, 10
FORM_WITHIN = 10.0
"""Seconds for receiving a login form, whose sender has no token yet."""


async def login(request: Request) -> Response:
    wanted = _local(request.query_params.get("next", "/"))
    door: Door = request.app.state.door
    if door.token is None or door.lets_in(request.headers, session_of(request)):
        return RedirectResponse(wanted, 303)
    return page_response(request, "login.html", next=wanted, wrong=False)


async def enter(request: Request) -> Response:
    form = await _form(request)
    wanted, door = _local(form.get("next", ["/"])[0]), request.app.state.door
    if not door.is_token(form.get("token", [""])[0].strip()):
        wrong = page_response(request, "login.html", 401, next=wanted, wrong=True)
        if await request.app.state.patience.wait():
            return wrong
        raise too_many_wrong()
    answer = RedirectResponse(wanted, 303)
    # What a proxy does about TLS is not seen here; a browser says what its page was fetched by.
    secure = request.headers.get("origin", "").startswith("https://")
    name = cookie_of(request)
    answer.set_cookie(name, door.begin(), SESSION_SECONDS, httponly=True, samesite="strict", secure=secure)
    return answer


async def _form(request: Request) -> dict[str, list[str]]:
    try:
        with request.app.state.patience.form(), anyio.fail_after(FORM_WITHIN):
            body = await read_body(request, LONGEST_FORM)
        return parse_qs(body.decode("utf-8", "replace"), max_num_fields=MOST_FIELDS)
    except TimeoutError:
        raise Refused(408, f"the form was not here within {FORM_WITHIN:g} seconds", "send it again") from None
    except ValueError:
        raise Refused(400, f"the form has more than {MOST_FIELDS} fields") from None


async def leave(request: Request) -> Response:
    request.app.state.door.end(session_of(request))
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(cookie_of(request), httponly=True, samesite="strict")
    return answer


def _local(path: str) -> str:
    """Return a path of this server, or `/` for a link to somewhere else."""
    ours = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if ours and len(path) < 2000 else "/"


ROUTES = [
    Route("/login", login, methods=["GET"]),
    Route("/login", enter, methods=["POST"]),
    Route("/logout", leave, methods=["POST"]),
]
