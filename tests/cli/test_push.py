"""opmark push"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from made_up import HOSTILE, made_run, record, store
from push_server import TOKEN, Answer, Taking, taking

import opmark
from opmark.api import push as push_module
from opmark.api.push import push
from opmark.api.runs import runs as api_runs
from opmark.cli.push import push as cli_push
from opmark.schema.upload import PushReply

pytestmark = pytest.mark.dashboard

Command = Callable[..., Any]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Taking]:
    monkeypatch.setenv("OPMARK_TOKEN", TOKEN)
    monkeypatch.setattr(push_module, "PAUSES", (0.0, 0.0, 0.0))
    with taking(tmp_path / "there.db") as server:
        yield server


@pytest.fixture(autouse=True)
def runs(db: Path) -> None:
    store(db, made_run(1, "nightly", tasks=2), [record(1), record(2)])
    store(db, made_run(2, "nightly"), [record(1)])
    store(db, made_run(3, "last"), [record(1)])


def busy(_: Any) -> Answer:
    return 503, {"retry-after": "0"}, b'{"error": "busy"}'


def reset(handler: Any) -> None:
    """As a server that dies: the connection is gone at once."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def dripping(first: bytes) -> Callable[[Any], None]:
    """Sends a beginning and then a byte now and then, and never ends."""

    def drip(handler: Any) -> None:
        handler.rfile.read(int(handler.headers["content-length"]))
        with suppress(OSError):
            handler.wfile.write(first)
            while True:
                handler.wfile.write(b"x")
                time.sleep(0.05)

    return drip


def answering(status: int, body: bytes = b"{}", **headers: str) -> Callable[[Any], Answer]:
    def answer(handler: Any) -> Answer:
        handler.rfile.read(int(handler.headers["content-length"]))
        return status, headers, body

    return answer


def there(server: Taking) -> list[str]:
    return [one.label for one in api_runs(db=server.db)]


def test_the_last_run_is_sent_and_twice_is_once(main: Command, server: Taking) -> None:
    done = main("push", server.url)
    assert (done.code, done.out) == (0, "")
    assert f"{made_run(3).id} (last): 1 new record\n" in done.err
    assert there(server) == ["last"]
    again = main("push", server.url)
    assert again.code == 0
    assert "0 new records, 1 there already" in again.err
    assert [one.records for one in api_runs(db=server.db)] == [1]


@pytest.mark.parametrize(
    ("asked", "labels"),
    [
        (["--all"], ["last", "nightly", "nightly"]),
        (["--label", "night*"], ["nightly", "nightly"]),
        ([made_run(1).id, "last", made_run(1).id], ["last", "nightly"]),
        (["nightly~1"], ["nightly"]),
    ],
)
def test_runs_are_chosen(main: Command, server: Taking, asked: list[str], labels: list[str]) -> None:
    assert main("push", server.url, *asked).code == 0
    assert there(server) == labels
    assert len(server.asked) == len(labels)


def test_nothing_changes_here(main: Command, server: Taking, db: Path) -> None:
    before = db.read_bytes()
    main("push", server.url, "--all")
    assert db.read_bytes() == before


def test_a_large_run_is_sent_in_parts(main: Command, server: Taking, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_module, "MAX_RECORDS", 2)
    store(db, made_run(4, "large", tasks=5), [record(n) for n in range(1, 6)])
    server.first = [lambda handler: server.answer(handler), busy]  # the second part has to wait
    done = main("push", server.url)
    assert done.code == 0
    assert "large): 5 new records\n" in done.err
    assert len(server.asked) == 5
    assert opmark.show("large", db=server.db).records == opmark.show("large", db=db).records


def test_a_server_that_is_busy_or_dies_is_tried_again(main: Command, server: Taking) -> None:
    server.first = [busy, reset, answering(502, b"<html>")]
    done = main("push", server.url)
    assert done.code == 0
    assert done.err.count("trying again") == 3
    assert there(server) == ["last"]


def test_a_server_that_stays_busy_is_given_up_and_nothing_is_lost(main: Command, server: Taking, db: Path) -> None:
    server.first = [busy] * 4
    done = main("push", server.url)
    assert done.code == 1
    assert "answers 503" in done.err
    assert "push again later" in done.err
    assert not server.db.exists()
    assert len(api_runs(db=db)) == 3
    assert main("push", server.url).code == 0


def test_one_that_cannot_be_delivered_does_not_keep_the_others(main: Command, server: Taking) -> None:
    store(server.db, made_run(2, "nightly", command="another"), [record(7)])
    done = main("push", server.url, "--all")
    assert done.code == 1
    assert "another run of this id is there already: it differs in command" in done.err
    assert there(server) == ["last", "nightly", "nightly"]
    assert [one.run.command for one in api_runs(db=server.db)][1] == "another"


def test_a_wrong_token_is_the_users_mistake_and_not_printed(main: Command, server: Taking) -> None:
    wrong = "wrong-secret-0123456789"
    done = main("push", server.url, "--all", "--token", wrong)
    assert done.code == 2
    assert "refuses the token (401): the token is wrong" in done.err
    assert "hint: see `opmark serve --help`" in done.err
    assert wrong not in done.err + done.out
    assert len(server.asked) == 1


def test_the_token_of_a_file(main: Command, server: Taking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPMARK_TOKEN", "another-one")
    (tmp_path / "token").write_text(TOKEN + "\n")
    assert main("push", server.url, "--token-file", str(tmp_path / "token")).code == 0
    assert main("push", server.url, "--token-file", str(tmp_path / "none")).code == 2
    assert main("push", server.url, "--token-file", str(tmp_path / "token"), "--token", TOKEN).code == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_told_and_not_followed(main: Command, server: Taking, tmp_path: Path, status: int) -> None:
    with taking(tmp_path / "elsewhere.db") as elsewhere:
        server.first = [answering(status, location=f"{elsewhere.url}/api/runs?x=1")]
        done = main("push", server.url)
        assert done.code == 2
        assert "sends on to http://127.0.0.1/api/runs" in done.err
        assert elsewhere.asked == []


@pytest.mark.parametrize(
    ("location", "said"),
    [("http://[", "what is no address"), ("/login?next=secret", "/login"), ("", "nowhere"),
     ("https://ada:secret@bench.example.org/x?secret#secret", "https://bench.example.org/x")],
)  # fmt: skip
def test_wherever_a_redirect_leads_it_is_told(main: Command, server: Taking, location: str, said: str) -> None:
    server.first = [answering(302, location=location)]
    done = main("push", server.url)
    assert done.code == 2
    assert f"sends on to {said}\n" in done.err
    assert "secret" not in done.err


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [(404, b"<html>", "takes no runs (404)"), (200, b"<html>hello", "answers something else than a dashboard does"),
     (200, b'{"run": 7}', "answers something else"), (200, b'{"run": "\xff"}', "answers something else"),
     (201, b"\xff\xfe", "answers something else"), (200, b"[" * 100_000, "answers something else")],
)  # fmt: skip
def test_what_is_no_dashboard(main: Command, server: Taking, status: int, body: bytes, said: str) -> None:
    server.first = [answering(status, body)]
    done = main("push", server.url)
    assert done.code == 2
    assert said in done.err
    assert "hint:" in done.err


def test_what_the_server_says_is_printed_harmlessly(main: Command, server: Taking) -> None:
    server.first = [answering(422, b'{"error": "line 3: \\u001b[31mno", "hint": "\\u009b31m"}')]
    done = main("push", server.url)
    assert done.code == 1
    assert "line 3: " in done.err
    assert "\x1b" not in done.err
    assert "\x9b" not in done.err


@pytest.mark.parametrize("new", [99, -1])
def test_more_new_ones_than_were_sent_are_not_believed(main: Command, server: Taking, new: int) -> None:
    run = made_run(3).id
    said = f'{{"run": "{run}", "begun": true, "records": 1, "new": {new}, "findings": 0, "stored": 1}}'
    server.first = [answering(201, said.encode())]
    done = main("push", server.url)
    assert done.code == 1
    assert f"{new} of them new" in done.err


def test_an_answer_about_something_else_is_not_believed(main: Command, server: Taking) -> None:
    said = b'{"run": "other", "begun": true, "records": 1, "new": 1, "findings": 0, "stored": 1}'
    server.first = [answering(201, said)]
    done = main("push", server.url)
    assert done.code == 1
    assert "`other`" in done.err


WRONG = {
    "ftp://host/": "begins with https://",
    "host:8000": "begins with https://",
    "http://": "begins with https://",
    "http://ada:secret@127.0.0.1:1/": "a user or a password",
    "https://secret@host/": "a user or a password",
    "http://127.0.0.1:1/?token=secret": "behind a ?",
    "http://127.0.0.1:1/#secret": "behind a ?",
    "http://127.0.0.1:99999/": "not an address",
    "http://127.0.0.1:0/": "not an address",
    "http://[::1/": "not an address",
    "http://127.0.0.1:1/a b": "not an address",
    "http://127.0.0.1:1/\r\nx: secret": "not an address",
    "http://bench.example.org/": "could read the token",
    "http://192.0.2.1:8000": "could read the token",
}


@pytest.mark.parametrize("url", WRONG)
def test_a_wrong_address_is_the_users_mistake(main: Command, server: Taking, url: str) -> None:
    done = main("push", url)
    assert done.code == 2
    assert WRONG[url] in done.err
    assert "hint:" in done.err
    assert "secret" not in done.err
    assert TOKEN not in done.err


@pytest.mark.parametrize("token", ["", "ä" * 20, "a b", "a\nb: c"])
def test_a_token_that_is_none_is_refused_unseen(main: Command, server: Taking, token: str) -> None:
    done = main("push", server.url, "--token", token)
    assert done.code == 2
    assert server.asked == []
    assert not token or token not in done.err


@pytest.mark.parametrize("asked", [["none"], ["--label", "none"], ["last", "--all"], ["--all", "--label", "x"]])
def test_runs_that_are_not_there_are_the_users_mistake(main: Command, server: Taking, asked: list[str]) -> None:
    done = main("push", server.url, *asked)
    assert done.code == 2
    assert server.asked == []


def test_nobody_there(main: Command, server: Taking) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        done = main("push", f"http://127.0.0.1:{free.getsockname()[1]}")
    assert done.code == 1
    assert "cannot be reached" in done.err
    assert "Traceback" not in done.err


def test_an_answer_before_all_is_read_is_heard(main: Command, server: Taking, db: Path) -> None:
    """A server that refuses a large upload need not read it."""
    store(db, made_run(5, "large"), [record(1, samples=[n * 1.1e-7 for n in range(900_000)])])

    def early(handler: Any) -> Answer:
        return 413, {"connection": "close"}, b'{"error": "too large"}'

    server.first = [early] * 4
    done = main("push", server.url)
    assert done.code == 1
    assert "not delivered" in done.err


def test_hostile_labels_are_sent_and_printed_harmlessly(main: Command, server: Taking, db: Path) -> None:
    store(db, made_run(6, HOSTILE), [record(1, op=HOSTILE)])
    done = main("push", server.url)
    assert done.code == 0
    assert there(server) == [HOSTILE]
    assert "\x1b" not in done.err


def test_the_library_tells_what_came(server: Taking, db: Path) -> None:
    said: list[str] = []
    one, two = push(server.url, label="nightly", token=TOKEN, db=db, say=said.append)
    assert (one.run.id, one.records, one.new, one.problem) == (made_run(1).id, 2, 2, "")
    assert (two.run.id, two.new) == (made_run(2).id, 1)
    assert not any(TOKEN in line for line in said)


@pytest.mark.parametrize(
    "first",
    [b"HTTP/1.1 200 OK\r\nx-", b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n", b"HTT"],
    ids=["headers", "body", "body without length", "status"],
)
def test_a_server_that_drips_is_given_up(
    main: Command, server: Taking, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr(push_module, "ANSWER_TIMEOUT", 0.4)
    monkeypatch.setattr(push_module, "PAUSES", (0.0,))
    server.first = [dripping(first)] * 2
    done = main("push", server.url)
    assert done.code == 1
    assert "not a whole answer within 0.4 s; trying again in 0 s" in done.err
    assert "nothing is lost here: push again later" in done.err
    assert len(server.asked) == 2


def test_one_limit_holds_for_all_tries_and_runs(main: Command, server: Taking) -> None:
    server.first = [dripping(b"HTT")] * 9
    done = main("push", server.url, "--label", "nightly", "--timeout", "0.5")
    assert done.code == 1
    assert done.err.count("given up: no delivery within 0.5 s") == 1
    assert done.err.count("is not tried again") == 1
    assert done.err.count("or with a longer --timeout") == 2
    assert done.err.count("sending") == 1
    assert len(server.asked) == 1, "when the time is over, the other run is not tried"


@pytest.mark.parametrize("asked", ["100", "1000"])
def test_a_server_that_asks_for_more_time_than_there_is_is_given_up_at_once(
    main: Command, server: Taking, asked: str
) -> None:
    server.first = [answering(503, **{"retry-after": asked})] * 9
    done = main("push", server.url, "--label", "nightly", "--timeout", "50")
    assert done.code == 1
    assert f"answers 503; asks to wait {asked} s, longer than --timeout 50 leaves" in done.err
    assert done.err.count("is not tried again") == done.err.count("sending") == 1
    assert "trying again" not in done.err
    assert "no delivery within" not in done.err
    assert len(server.asked) == 1


def test_a_pause_that_is_longer_than_what_is_left_is_not_begun(
    main: Command, server: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_module, "PAUSES", (90.0,))
    server.first = [busy]
    done = main("push", server.url, "--timeout", "50")
    assert "answers 503; the next try would be in 90 s, longer than --timeout 50 leaves" in done.err


def test_a_delivery_begins_the_limit_anew(server: Taking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run costs more than half of the limit, and all of them are delivered."""
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: sum(now), sleep=now.append)
    monkeypatch.setattr(push_module, "time", clock)
    taken = msgspec.json.encode(PushReply("a", begun=True, records=1, new=1, findings=0, stored=1))
    server.first = [answering(503, **{"retry-after": "60"}), answering(201, taken)] * 3
    client = push_module.DashboardClient(server.url, TOKEN, timeout=100.0)
    assert [client.deliver(b"").new for _ in range(3)] == [1, 1, 1]
    assert sum(now) == 180.0


def test_a_server_that_reads_slowly_is_given_up(server: Taking, monkeypatch: pytest.MonkeyPatch) -> None:
    """As over https, where the time-out of the socket begins again with every record."""

    class RecordConnection(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)

        def send(self, data: Any) -> None:
            for start in range(0, len(data), 1 << 14):
                super().send(data[start : start + (1 << 14)])

    read: list[bytes] = []

    def read_slowly(handler: Any) -> None:
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        with suppress(OSError):
            while sum(map(len, read)) < len(body) and (some := handler.rfile.read1(1 << 16)):
                read.append(some)
                time.sleep(0.05)

    body = bytes(8 << 20)
    monkeypatch.setattr(push_module, "HTTPConnection", RecordConnection)
    server.first = [read_slowly]
    client = push_module.DashboardClient(server.url, TOKEN, timeout=0.5)
    with pytest.raises(push_module.DeliveryError, match="given up: no delivery within"):
        client.deliver(body)
    assert sum(map(len, read)) < len(body)


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "inf"])
def test_a_limit_is_a_number_of_seconds(main: Command, server: Taking, timeout: str) -> None:
    done = main("push", server.url, "--timeout", timeout)
    assert (done.code, server.asked) == (2, [])
    assert "timeout" in done.line("error:")


def test_the_limit_is_the_same_on_the_command_line_and_in_python() -> None:
    assert signature(push).parameters["timeout"].default == signature(cli_push).parameters["timeout"].default
