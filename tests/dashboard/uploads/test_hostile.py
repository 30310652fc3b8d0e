"""Hostile requests to the dashboard: none is accepted, and no data is lost."""

from __future__ import annotations

import gzip
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import pytest
from made_up import HOSTILE, made_run, record
from push_parts import everything, fill, packed

from opmark.schema.upload import PATH
from opmark.store.sql import open_sql

pytest.importorskip("starlette")
from opmark.dashboard.app import application
from opmark.dashboard.auth import AccessPolicy

TOKEN = "a-token-of-enough-characters"
RUN = made_run(1).id
SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><svg/onload=alert(1)>"
MARKS = re.compile(r"<script>alert|<img src=x|<svg/onload|<b>x</b>|javascript:", re.IGNORECASE)
ATTRIBUTES = re.compile(r"\son\w+\s*=|\sstyle\s*=", re.IGNORECASE)
"""Matches handlers and styles in tags, which pages never have."""
TAGS = re.compile(r"<[a-zA-Z][^<>]*>")


class Site(NamedTuple):
    client: Any
    there: Path
    body: bytes
    """An upload that is all right."""

    def send(self, body: Any, **headers: str) -> Any:
        given = {"authorization": f"Bearer {TOKEN}", "content-encoding": "gzip", **headers}
        return self.client.post(PATH, content=body, headers=given)


@pytest.fixture
def site(tmp_path: Path, connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr("opmark.dashboard.auth.WAIT", 0.0)
    here, there = tmp_path / "here.db", tmp_path / "there.db"
    fill(here)
    fill(there, made_run(2, "mine"), [record(1)])
    with connect(application(there, access=AccessPolicy(TOKEN), max_upload=1 << 20)) as client:
        yield Site(client, there, packed(here, RUN))


def test_an_upload_comes_in_and_is_shown(site: Site) -> None:
    first, again = site.send(site.body), site.send(site.body)
    assert (first.status_code, first.json()["new"]) == (201, 3)
    assert (again.status_code, again.json()["new"]) == (200, 0)
    asked = site.client.get(f"/runs/{RUN}", headers={"authorization": f"Bearer {TOKEN}"})
    assert asked.status_code == 200
    assert "opmark run x" in asked.text


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": ""}, {"authorization": "Bearer"}, {"authorization": "Bearer wrong-but-long-enough"},
     {"authorization": f"Basic {TOKEN}"}, {"authorization": f"Bearer {TOKEN}x"},
     {"authorization": f"Bearer {TOKEN[:-1]}"}, {"cookie": f"token={TOKEN}"}, {"cookie": f"opmark_session_80={TOKEN}"},
     {"x-token": TOKEN}],
)  # fmt: skip
def test_without_the_token_nothing_comes_in(site: Site, headers: dict[str, str]) -> None:
    before = everything(site.there)
    for query in ("", f"?token={TOKEN}", f"?access_token={TOKEN}"):
        answer = site.client.post(PATH + query, content=site.body, headers=headers)
        assert answer.status_code == 401
        assert TOKEN not in answer.text
    assert everything(site.there) == before


def test_a_server_without_a_token_takes_nothing(site: Site, tmp_path: Path, connect: Callable[..., Any]) -> None:
    with connect(application(site.there)) as client:
        answer = client.post(PATH, content=site.body, headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 403
    assert "hint" in answer.json()


def test_a_page_of_another_origin_cannot_send(site: Site) -> None:
    assert site.send(site.body, origin="https://evil.example").status_code == 403
    assert len(everything(site.there)) == 2


def test_a_session_of_a_browser_is_not_enough_to_send(site: Site) -> None:
    entered = site.client.post("/login", data={"token": TOKEN})
    assert entered.status_code == 303
    assert site.client.post(PATH, content=site.body).status_code == 401


@pytest.mark.parametrize("made", ["plain", "packed", "bomb", "pieces"])
def test_what_is_too_much_is_refused(site: Site, made: str) -> None:
    before = everything(site.there)
    body = {
        "plain": lambda: b"x" * ((1 << 20) + 1),
        "packed": lambda: gzip.compress(os.urandom(2 << 20)),
        "bomb": lambda: gzip.compress(b" " * (300 << 20), 1)[: 1 << 20],
        "pieces": lambda: (b"y" * 65536 for _ in range(10_000)),
    }[made]()
    answer = site.send(body)
    assert answer.status_code == 413, answer.text
    assert answer.json()["error"]
    assert everything(site.there) == before
    assert site.send(site.body).status_code == 201


def test_a_length_beyond_the_limit_is_refused_before_anything_is_read(site: Site) -> None:
    assert site.send(site.body, **{"content-length": "99999999999"}).status_code == 413
    assert len(everything(site.there)) == 2


def test_what_is_cut_off_is_refused(site: Site) -> None:
    before = everything(site.there)
    for end in (0, 1, 10, len(site.body) // 2, len(site.body) - 1):
        answer = site.send(site.body[:end])
        assert answer.status_code == 422
        assert answer.json()["error"]
    assert everything(site.there) == before


def test_another_method_is_not_an_upload(site: Site) -> None:
    for method in ("PUT", "PATCH", "DELETE"):
        answer = site.client.request(method, PATH, content=site.body, headers={"authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 405
    assert len(everything(site.there)) == 2


@pytest.fixture
def haunted(tmp_path: Path, connect: Callable[..., Any]) -> Iterator[tuple[Any, str, str]]:
    """(client, key of an item, case): a run whose every text is hostile, brought in by an upload."""
    here, there = tmp_path / "here.db", tmp_path / "there.db"
    bad = SCRIPT + HOSTILE
    run = made_run(1, bad, command=bad, description=bad, revision=SCRIPT, version=SCRIPT, session=SCRIPT)
    told = [
        record(1, op=bad, backend=bad, implementation=bad, params={SCRIPT: SCRIPT, "dtype": SCRIPT}, notes=(bad,)),
        record(2, op=bad, backend=bad, status="error", reason=bad),
    ]
    fill(here, run, told)
    with connect(application(there, access=AccessPolicy(TOKEN))) as client:
        client.headers["authorization"] = f"Bearer {TOKEN}"
        assert client.post(PATH, content=packed(here, RUN)).status_code == 201
        (item, *_) = client.get(f"/api/runs/{RUN}").json()["items"]
        yield client, item["key"], told[0].task.case.id


def addresses(key: str, case: str) -> list[str]:
    found = [
        "/",
        f"/?q={quote(SCRIPT)}",
        f"/runs/{RUN}",
        f"/runs/{RUN}?q={quote(SCRIPT)}",
        f"/runs/{RUN}?op={quote(SCRIPT)}",
    ]
    found += [f"/runs/{RUN}/items/{key}", f"/runs/{RUN}/roofline", f"/runs/{RUN}/figures", f"/cases/{case}"]
    found += [f"/compare?a={RUN}&b={RUN}", f"/search?q={quote(SCRIPT)}", "/search?q=alert", "/coverage"]
    found += [f"/runs/{quote(SCRIPT, safe='')}", f"/cases/{quote(SCRIPT, safe='')}", f"/{quote(SCRIPT, safe='')}"]
    return [*found, f"/runs/{RUN}/items/{quote(SCRIPT, safe='')}", f"/compare?a={quote(SCRIPT)}&b={RUN}"]


def test_script_in_names_stays_text(haunted: tuple[Any, str, str]) -> None:
    client, key, case = haunted
    for address in addresses(key, case):
        answer = client.get(address)
        found = 404 if "alert" in urlsplit(address).path or address.startswith("/compare?a=%3C") else 200
        assert answer.status_code == found, address
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert not MARKS.search(answer.text), (address, MARKS.search(answer.text))
        wrong = [tag for tag in TAGS.findall(answer.text) if ATTRIBUTES.search(_outside_quotes(tag))]
        assert wrong == [], address


def _outside_quotes(tag: str) -> str:
    return re.sub(r'"[^"]*"|\'[^\']*\'', '""', tag)


def test_the_json_says_it_as_it_is_and_as_json(haunted: tuple[Any, str, str]) -> None:
    client, key, case = haunted
    for address in addresses(key, case):
        answer = client.get(
            "/api" + ("/runs" + address[1:] if address.startswith(("/?", "/ ")) or address == "/" else address)
        )
        assert answer.status_code < 500, address
        assert answer.headers["content-type"].startswith("application/json"), address
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get(f"/api/runs/{RUN}").json()["run"]["label"] == SCRIPT + HOSTILE


OUT = ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
       "..%5c..%5cetc%5cpasswd", "....//....//etc/passwd", "%2fetc%2fpasswd", "/etc/passwd", "style.css%00.html",
       "..%252f..%252fetc%252fpasswd", "..%c0%afetc%c0%afpasswd", "__init__.py", "../assets.py", "%2e", "..",
       "~root"]  # fmt: skip


@pytest.mark.parametrize("name", OUT)
def test_no_path_leads_out(site: Site, name: str) -> None:
    given = {"authorization": f"Bearer {TOKEN}"}
    for before in ("/assets/", "/runs/", "/api/runs/", "/cases/", "/", f"/runs/{made_run(2).id}/items/"):
        answer = site.client.get(before + name, headers=given)
        assert answer.status_code < 500, before
        assert "root:" not in answer.text
        assert "from __future__" not in answer.text
        if answer.url.path.startswith("/assets/"):  # the client itself takes some of these for `/`
            assert answer.status_code == 404


class Served(NamedTuple):
    port: int
    there: Path
    url: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The real server, as a process: what is wrong with a request is found by it as well."""
    pytest.importorskip("uvicorn")
    there = tmp_path_factory.mktemp("served") / "there.db"
    fill(there, made_run(2, "mine"), [record(1)])
    command = [sys.executable, "-m", "opmark", "serve", "--db", str(there), "--port", "0", "--max-upload", "1M"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OPMARK_TOKEN": TOKEN})
    assert process.stderr
    try:
        first = process.stderr.readline()
        found = re.search(r"http://\S+?:\d+", first)
        assert found, first
        yield Served(urlsplit(found[0]).port or 0, there, found[0])
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert "Traceback" not in said
    assert TOKEN not in said


def asked(served: Served, head: str, body: bytes, *, more: bytes = b"", hang_up: bool = False) -> int:
    """The status of the answer to raw bytes; 0 where there is none. `more` is sent as long as somebody takes it."""
    lines = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {TOKEN}\r\n{head}\r\n\r\n"
    with closing(socket.create_connection(("127.0.0.1", served.port), timeout=30)) as connection:
        try:
            connection.sendall(lines.encode() + body)
            for _ in range(200 if more else 0):
                connection.sendall(more)
        except OSError:
            pass  # it has heard enough, and may have answered
        if hang_up:
            return 0
        try:
            answer = connection.recv(4096)
        except OSError:
            return 0
    found = re.match(rb"HTTP/1\.1 (\d{3})", answer)
    return int(found[1]) if found else 0


@pytest.mark.timeout(120)
def test_lies_about_lengths_get_nothing_in(served: Served, tmp_path: Path) -> None:
    fill(tmp_path / "here.db")
    body = packed(tmp_path / "here.db", RUN)
    before = everything(served.there)
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    assert asked(served, "Content-Length: 99999999", body) == 413
    assert asked(served, f"Content-Length: {'9' * 5000}", body) in (400, 413)
    assert asked(served, "Content-Length: -1", body) == 400
    assert asked(served, f"Content-Length: {len(body)}\r\nContent-Length: 7", body) == 400
    assert asked(served, f"Content-Length: {len(body) - 5}", body) == 422  # shorter than what comes
    assert asked(served, "Transfer-Encoding: chunked", b"", more=chunk) in (0, 413)  # without end
    assert asked(served, "Transfer-Encoding: chunked", b"zz\r\n") == 400
    assert asked(served, f"Content-Length: {len(body) + 5}", body, hang_up=True) == 0  # longer, and then gone
    assert asked(served, f"Content-Length: {len(body)}", body[:-9], hang_up=True) == 0
    assert everything(served.there) == before


@pytest.mark.timeout(120)
def test_opmark_push_to_the_real_server(served: Served, tmp_path: Path) -> None:
    here = tmp_path / "here.db"
    run = fill(here, made_run(7, "pushed"))
    command = [sys.executable, "-m", "opmark", "push", served.url, "--db", str(here)]

    def push(token: str) -> tuple[int, str]:
        done = subprocess.run(
            command, env={**os.environ, "OPMARK_TOKEN": token}, capture_output=True, text=True, timeout=60
        )
        return done.returncode, done.stderr

    code, said = push("wrong-but-of-enough-characters")
    assert (code, "refuses the token (401)" in said) == (2, True)
    code, said = push(TOKEN)
    assert (code, "3 new records" in said) == (0, True), said
    code, said = push(TOKEN)
    assert (code, "0 new records, 3 there already" in said) == (0, True)
    with closing(open_sql(here)) as ours, closing(open_sql(served.there)) as theirs:
        assert repr(theirs.records(run.id)) == repr(ours.records(run.id))
    assert TOKEN not in said
