"""The login of people: a token is given once, in a form, and a cookie that knows nothing of it does the rest."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from opmark.dashboard.answers import page_response
from opmark.dashboard.bodies import read_body
from opmark.dashboard.problems import Refused
from opmark.dashboard.security import COOKIE, SESSION_SECONDS, Door

LONGEST_FORM = 16 << 10


async def login(request: Request) -> Response:
    wanted = _local(request.query_params.get("next", "/"))
    door: Door = request.app.state.door
    if door.token is None or door.lets_in(request.headers, request.cookies):
        return RedirectResponse(wanted, 303)
    return page_response(request, "login.html", next=wanted, wrong=False)


async def enter(request: Request) -> Response:
    form = parse_qs((await read_body(request, LONGEST_FORM)).decode("utf-8", "replace"), max_num_fields=10)
    wanted, door = _local(form.get("next", ["/"])[0]), request.app.state.door
    if not door.is_token(form.get("token", [""])[0].strip()):
        wrong = page_response(request, "login.html", 401, next=wanted, wrong=True)
        return wrong if await request.app.state.patience.wait() else _too_many()
    answer = RedirectResponse(wanted, 303)
    secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, door.begin(), SESSION_SECONDS, httponly=True, samesite="strict", secure=secure)
    return answer


async def leave(request: Request) -> Response:
    request.app.state.door.end(request.cookies.get(COOKIE, ""))
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


def _too_many() -> Response:
    raise Refused(429, "too many wrong tokens at once", "wait a second, then try again")


def _local(path: str) -> str:
    """A page of this server, whatever was written into a link to the login."""
    ours = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if ours and len(path) < 2000 else "/"


ROUTES = [
    Route("/login", login, methods=["GET"]),
    Route("/login", enter, methods=["POST"]),
    Route("/logout", leave, methods=["POST"]),
]
