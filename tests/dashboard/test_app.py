"""Pages, JSON and errors of the dashboard, over a store with everything."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest
from showcase import CPU, Maker, fill, run, showcase

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from opmark.dashboard import run_cache
from opmark.dashboard.app import ENDPOINTS, application
from opmark.dashboard.auth import Guard
from opmark.dashboard.endpoint import parse_query
from opmark.dashboard.navigation import address, address_with
from opmark.dashboard.pages.run import RunQuery
from opmark.dashboard.reader import Reader
from opmark.errors import InvalidParameter
from opmark.schema import Run

Connect = Callable[[Guard], TestClient]


@pytest.mark.parametrize("path", ["/", "/?q=nightly", "/runs/showcase", "/runs/failures", "/runs/one", "/search?q=add",
                                  "/runs/showcase?sort=-time&op=add&page=2", "/runs/showcase/figures",
                                  "/runs/failures/figures"])  # fmt: skip
def test_every_page_answers_also_as_json(client: TestClient, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    told = client.get(f"/api/runs{path[1:]}" if path[1:2] in ("", "?") else f"/api{path}")
    assert told.status_code == 200
    assert told.headers["content-type"] == "application/json"


def test_each_address_has_its_answer_once() -> None:
    assert len({endpoint.json_path for endpoint in ENDPOINTS}) == len(ENDPOINTS)


def test_a_run_is_sorted_filtered_and_paged_by_its_address(client: TestClient) -> None:
    told = client.get("/api/runs/showcase?op=add&backend=torch-cuda&sort=-time").json()
    assert {(item["op"], item["backend"]) for item in told["items"]} == {("add", "torch-cuda")}
    medians = [item["timings"][0]["median"] for item in told["items"]]
    assert len(medians) == 6
    assert medians == sorted(medians, reverse=True)
    failed = client.get("/api/runs/showcase?status=failed").json()["items"]
    assert {item["status"] for item in failed} == {"error", "timeout", "wrong", "oom"}
    assert client.get("/api/runs/showcase?page=2").json()["items"] == []


def test_times_of_different_quantities_are_sorted_apart_and_have_tables_of_their_own(client: TestClient) -> None:
    told = client.get("/api/runs/showcase?sort=time&status=ok").json()
    leads = [item["timings"][0] for item in told["items"]]
    groups = [(name, [one["median"] for one in own]) for name, own in groupby(leads, lambda one: one["quantity"])]
    assert [name for name, _ in groups] == ["device_time", "latency"]
    assert all(medians == sorted(medians) for _, medians in groups)
    page = client.get("/runs/showcase?sort=time&status=ok").text
    first, second = re.findall(r'<div class="scroll"[^>]*aria-label="Items: (?:\w+ \w+)">.*?</table>', page, re.DOTALL)
    assert ("device_time" in first, "latency" in first) == (True, False)
    assert ("device_time" in second, "latency" in second) == (False, True)


def test_what_failed_comes_first_and_is_escaped(client: TestClient) -> None:
    page = client.get("/runs/showcase").text
    assert page.index("<h2>Failed") < page.index("<h2>Items")
    assert "&lt;b&gt;broken" in page
    assert "<b>broken" not in page


def test_an_item_shows_its_samples(client: TestClient) -> None:
    item = client.get("/api/runs/base").json()["items"][0]
    found = client.get(f"/api/runs/base/items/{item['key']}").json()
    assert found["item"] == item
    assert item["processes"] == 8
    marks = [mark for series in found["charts"][0]["series"] for mark in series["marks"]]
    assert len(marks) == 320
    assert client.get(f"/runs/base/items/{item['key']}").status_code == 200


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/runs?pge=2", 400, "no parameter named `pge`"),
        ("/api/runs?page=0", 400, "page: expected `int` >= 1, got `0`"),
        ("/api/runs?page=two", 400, '"page: expected `int`, got `two`"'),
        (
            "/api/runs?status=eror",
            400,
            "status: expected one of ok, unchecked, disturbed, wrong, skipped, error, timeout, oom, killed; got `eror`",
        ),
        ("/api/runs?status=eror", 400, "did you mean `error`?"),
        ("/api/runs/showcase?status=nosuch", 400, "status: expected one of ok, unchecked, disturbed, failed, wrong, "),
        ("/api/compare?margin=x%25", 400, "margin: expected `float`, got `x%`"),
        ("/api/compare?margin=100%25", 400, "margin: expected `float` < 1.0, got `1.0`"),
        ("/api/runs?page=1&page=2", 400, "page: expected one value"),
        ("/api/runs/showcase?sort=up", 400, "sort: expected one of name, -name, time, "),
        ("/api/runs?q=%00", 400, "control characters"),
        (f"/api/runs?q={'x' * 600}", 400, "at most 500"),
        (f"/api/runs?q={'x' * 5000}", 414, "longer than"),
        ("/api/runs/showcas", 404, "no run named `showcas`"),
        ("/api/runs/nightly~30", 400, "`nightly~30`: the label `nightly` is of 30 runs"),
        ("/api/runs/one/items/nix", 404, "no item"),
        ("/api/nix", 404, "no such page"),
        ("/assets/..%2f..%2fassets.py", 404, ""),
        ("/assets/%2e%2e/assets.py", 404, ""),
    ],
)
def test_what_cannot_be_asked_is_told(client: TestClient, path: str, status: int, said: str) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    assert said in answer.text
    if path.startswith("/api"):
        assert set(answer.json()) <= {"error", "hint"}
        page = client.get(path.replace("/api/runs?", "/?").removeprefix("/api"))
        assert page.status_code == status
        assert "<h1>" in page.text


def test_other_methods_are_refused(client: TestClient) -> None:
    assert [client.request(method, "/").status_code for method in ("PUT", "DELETE", "PATCH", "POST")] == [405] * 4
    assert client.head("/").status_code == 200


def test_a_defect_shows_a_number_and_no_traceback(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Reader) -> list[Run]:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(Reader, "runs", broken)
    answer = client.get("/api/runs")
    assert answer.status_code == 500
    assert answer.json()["id"] in answer.json()["hint"]
    assert "secret" not in answer.text
    assert "Traceback" not in client.get("/").text
    assert "content-security-policy" in answer.headers


def test_assets_are_kept_for_good_and_change_their_address(client: TestClient) -> None:
    links = re.findall(r'(?:href|src)="(/assets/[^"]+)"', client.get("/").text)
    assert links
    for link in links:
        found = client.get(link)
        assert found.status_code == 200
        assert "immutable" in found.headers["cache-control"]
        assert "?v=" in link
        assert found.headers["x-content-type-options"] == "nosniff"


def test_pages_have_nothing_inline(client: TestClient) -> None:
    for path in ("/", "/runs/showcase", "/runs/showcase/figures", "/search?q=add"):
        page = client.get(path).text
        assert not re.search(r"<[^>]*\s(style|on\w+)=", page), path
        assert "<style" not in page, path
        assert not re.search(r"<script(?![^>]*src=)", page), path


def test_other_pages_of_a_run_keep_its_filters(client: TestClient) -> None:
    page = client.get("/runs/showcase?op=add&dtype=float32&status=ok&sort=time&page=1").text
    links = {link.replace("&amp;", "&") for link in re.findall(r'href="(/runs/[^"]+)"', page)}
    for name in ("figures", "roofline"):
        (link,) = [link for link in links if f"/{name}" in link]
        assert link.endswith(f"/{name}?op=add&dtype=float32&status=ok")
        there = client.get(link)
        assert there.status_code == 200
        assert "?op=add&amp;dtype=float32&amp;status=ok" in there.text[there.text.index("<h1>") :].partition("</h1>")[0]
    assert "Figures of what the filters leave" in page
    assert "The whole run: <a" in page
    assert "of what the filters leave" not in client.get("/runs/showcase").text


def test_rates_are_written_as_in_the_report(client: TestClient) -> None:
    items = client.get("/api/runs/showcase?op=matmul&backend=torch-cuda").json()["items"]
    pages = [client.get(path).text for path in ("/runs/showcase?op=matmul", f"/runs/showcase/items/{items[0]['key']}")]
    for page in pages:
        assert re.search(r"\d [GTM]FLOP/s<", page)
        assert "flop/s<" not in page
    assert "<dt>Arithmetic</dt>" in pages[1]
    assert "<dt>Throughput</dt>" not in pages[1]


def test_a_share_may_be_a_percentage(client: TestClient) -> None:
    said = [client.get(f"/api/compare?a=base&b=new&margin={margin}").json() for margin in ("0.05", "5%25")]
    assert said[0] == said[1]
    assert said[0]["verdicts"]["margin"] == 0.05


def test_long_reasons_are_cut_where_many_stand_together(tmp_path: Path, connect: Connect) -> None:
    maker, whole = Maker(1), "x" * 50_000 + " the end"
    records = [maker.failed("add", {"shape": [n]}, "torch-cpu", "error", f"{n} {whole}") for n in range(8, 28)]
    fill(tmp_path / "a.db", [run(1, "one", records)])
    with connect(application(tmp_path / "a.db")) as client:
        for _ in range(2):  # read in part, then from memory
            for path in ("/runs/one", "/api/runs/one"):
                page = client.get(path)
                assert len(page.content) < 20 * 3 * 2_500 + 100_000
                assert "more characters" in page.text
                assert "the end" not in page.text
            assert client.get("/runs/one?q=add").status_code == 200
        assert "the end" not in client.get("/api/coverage").text
        key = client.get("/api/runs/one").json()["items"][0]["key"]
        assert "the end" in client.get(f"/runs/one/items/{key}").text


def test_files_are_taken_away(client: TestClient) -> None:
    table = client.get("/runs/one/export/csv")
    assert table.headers["content-disposition"].startswith("attachment")
    assert table.text.startswith("run,")
    report = client.get("/runs/one/report.html")
    assert report.status_code == 200
    assert "sha256-" in report.text
    assert client.get("/runs/one/export/exe").status_code == 400


def test_the_store_may_come_later(tmp_path: Path, connect: Connect) -> None:
    db = tmp_path / "later.db"
    with connect(application(db)) as client:
        assert "opmark run --suite quick" in client.get("/").text
        assert client.get("/runs/one").status_code == 404
        assert not db.exists()
        showcase(db)
        assert client.get("/api/runs").json()["page"]["rows"] == 35
        for leftover in tmp_path.glob("later.db*"):
            leftover.unlink()
        fill(db, [run(1, "other", [Maker(1).record("add", {"shape": [8]}, "torch-cpu", CPU)])])
        assert [one["run"]["label"] for one in client.get("/api/runs").json()["runs"]] == ["other"]


def test_what_is_no_store_is_told(tmp_path: Path, connect: Connect) -> None:
    db = tmp_path / "text.db"
    db.write_text("no database at all, but long enough to be looked at as one" * 20)
    with connect(application(db)) as client:
        answer = client.get("/api/runs")
        assert answer.status_code == 503
        assert "something else" in answer.json()["hint"]


def test_pages_cannot_write(db: Path) -> None:
    from opmark.errors import StoreError

    reader = Reader(db)
    with pytest.raises(StoreError, match="readonly"):
        reader.store.note(reader.run("one").id, "label", "two")
    reader.close()


def test_many_readers_read_once_and_see_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db, maker = tmp_path / "a.db", Maker(1)
    records = [maker.record("add", {"shape": [n]}, "torch-cpu", CPU) for n in (8, 16, 32)]
    (one,) = fill(db, [run(1, "one", records[:2])])
    looks: list[str] = []
    look_at = run_cache.view_stored_run
    monkeypatch.setattr(
        run_cache, "view_stored_run", lambda store, run, *rest: (looks.append(run.id), look_at(store, run, *rest))[1]
    )
    reader = Reader(db)
    threads = [threading.Thread(target=lambda: reader.run_view(one)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(looks) == 1
    assert len(reader.run_view(one).rows) == 2
    from opmark.store.sql import open_sql

    store = open_sql(db, create=True)
    store.append(one.id, records[2])
    store.note(one.id, "label", "renamed")
    again_ = reader.run_view(reader.run("renamed"))
    assert len(looks) == 1  # no more than what is new was read
    assert len(again_.rows) == 3
    assert again_ == look_at(reader.store, reader.run("renamed"))
    assert again_.run.label == "renamed"
    store.close()
    reader.close()


def test_addresses() -> None:
    assert address("/runs/{run}", run="a/b c", q="", page=2) == "/runs/a%2Fb%20c?page=2"
    what = RunQuery(run="r", op="add", page=3)
    assert address_with("/runs/{run}", what, page=1) == "/runs/r?op=add"
    assert parse_query(RunQuery, {"run": "r"}, [("op", "add"), ("page", "3"), ("q", "")]) == what
    with pytest.raises(InvalidParameter, match="no parameter named `run`"):
        parse_query(RunQuery, {"run": "r"}, [("run", "x")])
