"""Access by tokens, sessions and names of hosts; tokens appear in no output."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("starlette")
from starlette.datastructures import URL
from starlette.requests import Request
from starlette.testclient import TestClient

from opmark.api.push import is_loopback
from opmark.dashboard.app import application
from opmark.dashboard.auth import HEADERS, MOST_FORMS, AccessPolicy, Guard, check_token, cookie_name, hosts_for
from opmark.dashboard.reader import Reader
from opmark.dashboard.serve import ServeOptions, run_server
from opmark.errors import InvalidParameter, UserError
from opmark.schema import Run

Connect = Callable[[Guard], TestClient]


def test_without_the_token_nothing_is_seen(guarded: TestClient, token: str) -> None:
    assert guarded.get("/api/runs").status_code == 401
    assert guarded.get("/api/openapi.json").status_code == 401
    there = guarded.get("/runs/one?page=1")
    assert there.status_code == 303
    assert there.headers["location"] == "/login?next=%2Fruns%2Fone%3Fpage%3D1"
    assert guarded.get("/api/runs", headers={"authorization": f"Bearer {token}x"}).status_code == 401
    assert guarded.get("/api/runs", headers={"authorization": f"Basic {token}"}).status_code == 401
    known = guarded.get("/api/runs", headers={"authorization": f"Bearer {token}"})
    assert known.status_code == 200
    assert known.headers["cache-control"] == "no-store"
    assert guarded.get("/login").status_code == 200


def test_people_log_in_and_out(guarded: TestClient, token: str) -> None:
    wrong = guarded.post("/login", data={"token": "no" * 10, "next": "/runs/one"})
    assert wrong.status_code == 401
    assert not guarded.cookies
    right = guarded.post("/login", data={"token": token, "next": "/runs/one"})
    assert (right.status_code, right.headers["location"]) == (303, "/runs/one")
    cookie = right.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert token not in cookie
    page = guarded.get("/")
    assert page.status_code == 200
    assert token not in page.text
    kept = dict(guarded.cookies)
    assert guarded.post("/logout").status_code == 303
    guarded.cookies.update(kept)
    assert guarded.get("/").status_code == 303, "a session that was ended stays so"


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_the_login_leads_nowhere_else(guarded: TestClient, token: str, to: str) -> None:
    assert guarded.post("/login", data={"token": token, "next": to}).headers["location"] == "/"


def test_forms_of_other_pages_are_refused(guarded: TestClient, token: str) -> None:
    answer = guarded.post("/login", data={"token": token}, headers={"origin": "http://evil.example"})
    assert answer.status_code == 403
    assert guarded.post("/login", data={"token": token}, headers={"origin": "http://localhost"}).status_code == 303


@pytest.mark.parametrize("host", ["localhost/login?", "localhost/login#", "localhost?", "localhost:80/login",
                                  "a@localhost", "localhost:", "[::1", "local host"])  # fmt: skip
def test_a_host_is_a_name_and_no_path(guarded: TestClient, host: str) -> None:
    """A header can change the whole address, so that the path must not be taken from it."""
    for path in ("/api/runs", "/", "/login"):
        assert guarded.get(path, headers={"host": host}).status_code == 421, path


def test_the_path_that_is_routed_is_the_one_that_is_guarded(
    guarded: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(Request, "url", URL("http://localhost/login"))
    refused = guarded.get("/api/runs")
    assert (refused.status_code, refused.headers["content-type"]) == (401, "application/json")
    assert "GET /api/runs 401" in caplog.text
    assert guarded.get("/runs/one").headers["location"] == "/login?next=%2Fruns%2Fone"


@pytest.mark.parametrize("path", ["/loginx", "/login/", "/login/../runs/one", "/assets", "/assetsx"])
def test_what_only_begins_like_the_login_is_not_open(guarded: TestClient, path: str) -> None:
    answer = guarded.get(path)
    assert (answer.status_code, answer.headers["location"][:12]) == (303, "/login?next=")


def test_a_form_with_many_fields_is_refused(guarded: TestClient) -> None:
    answer = guarded.post("/login", content=b"&".join(b"a%d=1" % n for n in range(11)))
    assert answer.status_code == 400
    assert "more than 10 fields" in answer.text


def test_only_so_many_forms_are_read_at_once(guarded: TestClient, token: str) -> None:
    login_limits = guarded.app.login_limits  # type: ignore[attr-defined]
    with ExitStack() as others:
        for _ in range(MOST_FORMS):
            others.enter_context(login_limits.form())
        full = guarded.post("/login", data={"token": token})
        assert (full.status_code, full.headers["retry-after"]) == (503, "5")
        assert guarded.get("/login").status_code == 200
    assert guarded.post("/login", data={"token": token}).status_code == 303


@pytest.mark.parametrize(("origin", "secure"), [("https://localhost", True), ("http://localhost", False), ("", False)])
def test_the_cookie_of_a_page_over_tls_stays_there(guarded: TestClient, token: str, origin: str, secure: bool) -> None:
    answer = guarded.post("/login", data={"token": token}, headers={"origin": origin} if origin else {})
    assert answer.status_code == 303
    assert ("secure" in answer.headers["set-cookie"].lower()) == secure


def test_a_cookie_is_of_one_port(db: Path, token: str) -> None:
    app = application(db, access=AccessPolicy(token))
    with TestClient(app, base_url="http://localhost:8431", follow_redirects=False) as client:
        made = client.post("/login", data={"token": token}).headers["set-cookie"]
        assert made.startswith(f"{cookie_name(8431)}=")
        assert client.get("/").status_code == 200
        session = client.cookies[cookie_name(8431)]
        client.cookies.clear()
        client.cookies[cookie_name(8432)] = session
        assert client.get("/").status_code == 303


def test_a_large_form_is_refused(guarded: TestClient) -> None:
    assert guarded.post("/login", content=b"token=" + b"x" * 100_000).status_code == 413


def test_the_token_is_not_in_the_log(guarded: TestClient, token: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    guarded.get(f"/api/runs?q={token}", headers={"authorization": f"Bearer {token}"})
    guarded.post("/login", data={"token": token})
    assert "GET /api/runs 200" in caplog.text
    ours = [
        one for one in caplog.records if one.name.split(".")[0] not in ("httpx", "httpx2", "httpcore", "httpcore2")
    ]  # of this client
    assert len(ours) >= 2
    assert all(token not in str(vars(one)) for one in ours)
    assert token not in repr(ServeOptions(token=token))


def test_other_names_are_refused(client: TestClient, db: Path, connect: Connect) -> None:
    for name, status in (("evil.example", 421), ("localhost.evil.example", 421), ("", 421), ("127.0.0.1:80", 200),
                         ("[::1]:8431", 200), ("LOCALHOST", 200)):  # fmt: skip
        assert client.get("/", headers={"host": name}).status_code == status, name
    with connect(application(db, access=AccessPolicy(None, hosts_for("127.0.0.1", ["bench.example"])))) as other:
        assert other.get("/", headers={"host": "bench.example:80"}).status_code == 200


def test_a_slash_too_many_leads_nowhere(client: TestClient) -> None:
    """A redirect would name a scheme and a host, and behind a proxy not those that were asked for."""
    answer = client.get("/coverage/", headers={"host": "localhost:1"})
    assert answer.status_code == 404
    assert "location" not in answer.headers


def test_control_characters_of_a_path_are_not_in_the_log(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client.get("/runs/%1b[31m%0aFORGED%c2%9b")
    assert r"GET /runs/\x1b[31m\nFORGED\x9b 400" in caplog.text


def test_every_answer_has_the_policy(
    client: TestClient, guarded: TestClient, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = client.get("/runs/one")
    known = {"authorization": f"Bearer {token}"}
    answers = [
        *((client.get(path), status) for path, status in
          (("/", 200), ("/nix", 404), ("/api/runs?x=1", 400), ("/assets/nix", 404), ("/login", 303),
           ("/runs/one/export/csv", 200), ("/assets/theme.js", 200))),
        (client.get("/runs/one", headers={"if-none-match": page.headers["etag"]}), 304),
        (client.get("/", headers={"host": "evil.example"}), 421),
        (client.get(f"/?q={'x' * 5000}"), 414),
        (client.put("/"), 405),
        (guarded.get("/api/runs"), 401),
        (guarded.post("/login", content=b"x" * 100_000), 413),
        (guarded.post("/api/runs", content=b"{}", headers=known), 422),
    ]  # fmt: skip

    def broken(self: Reader) -> list[Run]:
        raise ZeroDivisionError

    monkeypatch.setattr(Reader, "runs", broken)
    answers += [(client.get("/"), 500), (client.get("/api/runs"), 500)]
    for answer, status in answers:
        assert answer.status_code == status, answer.url
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS, answer.url
        assert answer.headers["cache-control"], answer.url


def test_uploads_need_a_token(client: TestClient, guarded: TestClient, token: str) -> None:
    assert client.post("/api/runs", content=b"{}").status_code == 401
    with_token = {"authorization": "Bearer a-token-of-enough-characters"}
    assert client.post("/api/runs", content=b"{}", headers=with_token).status_code == 403, (
        "there is none to compare it with"
    )
    assert guarded.post("/api/runs", content=b"{}").status_code == 401
    guarded.post("/login", data={"token": token})
    assert guarded.post("/api/runs", content=b"{}").status_code == 401, "a cookie is not enough"
    known = {"authorization": f"Bearer {token}"}
    assert guarded.post("/api/runs", content=b"{}", headers=known).status_code == 422


def test_an_upload_beyond_the_limit_is_refused(db: Path, connect: Connect, token: str) -> None:
    with connect(application(db, access=AccessPolicy(token), max_upload=1000)) as client:
        known = {"authorization": f"Bearer {token}"}
        assert client.post("/api/runs", content=b"x" * 1001, headers=known).status_code == 413
        pieces = (b"x" * 400 for _ in range(3))
        assert client.post("/api/runs", content=pieces, headers=known).status_code == 413


def test_tokens_that_can_be_guessed_are_refused() -> None:
    for bad in ("", "short", "x" * 15, "with a space in the middle", "ü" * 20, "x" * 5000):
        with pytest.raises(InvalidParameter, match="token: expected") as told:
            check_token(bad)
        assert not bad or bad not in told.value.message
    assert check_token("x" * 16) == "x" * 16


def test_other_machines_need_a_token() -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("example.com")
    with pytest.raises(UserError, match="no token guards it"):
        run_server(ServeOptions(host="0.0.0.0", port=0))
    with pytest.raises(InvalidParameter, match="port: expected"):
        run_server(ServeOptions(port=70_000))
