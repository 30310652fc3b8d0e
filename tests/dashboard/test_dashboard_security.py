"""Who comes in: tokens, sessions, names of hosts; and that a token is found nowhere."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from opmark.dashboard.app import application
from opmark.dashboard.guard import Guard
from opmark.dashboard.security import COOKIE, Door, checked_token, hosts_for, is_loopback
from opmark.dashboard.starting import How, run_server
from opmark.errors import InvalidParameter, UserError

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
    assert COOKIE not in guarded.cookies
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


def test_a_large_form_is_refused(guarded: TestClient) -> None:
    assert guarded.post("/login", content=b"token=" + b"x" * 100_000).status_code == 413


def test_the_token_is_not_in_the_log(guarded: TestClient, token: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    guarded.get(f"/api/runs?q={token}", headers={"authorization": f"Bearer {token}"})
    guarded.post("/login", data={"token": token})
    assert "GET /api/runs 200" in caplog.text
    assert all(token not in record.getMessage() for record in caplog.records if record.name.startswith("opmark"))
    assert token not in repr(How(token=token))


def test_other_names_are_refused(client: TestClient, db: Path, connect: Connect) -> None:
    for name, status in (("evil.example", 421), ("localhost.evil.example", 421), ("", 421), ("127.0.0.1:80", 200),
                         ("[::1]:8431", 200), ("LOCALHOST", 200)):  # fmt: skip
        assert client.get("/", headers={"host": name}).status_code == status, name
    with connect(application(db, door=Door(None, hosts_for("127.0.0.1", ["bench.example"])))) as other:
        assert other.get("/", headers={"host": "bench.example:80"}).status_code == 200


def test_every_answer_has_the_policy(client: TestClient) -> None:
    for path in ("/", "/nix", "/api/runs?x=1", "/assets/nix", "/login"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'"), path
        assert headers["referrer-policy"] == "same-origin"
        assert "cross-origin-opener-policy" in headers


def test_uploads_need_a_token(client: TestClient, guarded: TestClient, token: str) -> None:
    assert client.post("/api/runs", content=b"{}").status_code == 403
    assert guarded.post("/api/runs", content=b"{}").status_code == 401
    guarded.post("/login", data={"token": token})
    assert guarded.post("/api/runs", content=b"{}").status_code == 401, "a cookie is not enough"
    known = {"authorization": f"Bearer {token}"}
    assert guarded.post("/api/runs", content=b"{}", headers=known).status_code == 422


def test_an_upload_beyond_the_limit_is_refused(db: Path, connect: Connect, token: str) -> None:
    with connect(application(db, door=Door(token), max_upload=1000)) as client:
        known = {"authorization": f"Bearer {token}"}
        assert client.post("/api/runs", content=b"x" * 1001, headers=known).status_code == 413
        pieces = (b"x" * 400 for _ in range(3))
        assert client.post("/api/runs", content=pieces, headers=known).status_code == 413


def test_tokens_that_can_be_guessed_are_refused() -> None:
    for bad in ("", "short", "x" * 15, "with a space in the middle", "ü" * 20, "x" * 5000):
        with pytest.raises(InvalidParameter, match="token: expected") as told:
            checked_token(bad)
        assert not bad or bad not in told.value.message
    assert checked_token("x" * 16) == "x" * 16


def test_other_machines_need_a_token() -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("example.com")
    with pytest.raises(UserError, match="no token guards it"):
        run_server(How(host="0.0.0.0", port=0))
    with pytest.raises(InvalidParameter, match="port: expected"):
        run_server(How(port=70_000))
