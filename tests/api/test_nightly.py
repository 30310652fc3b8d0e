"""Nights from the first to the last step, on backends that are quick or deterministic."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from checks import pairing
from compared import keep
from gates import rows

from opmark.api import nightly, nightly_report
from opmark.api.nightly import nightly_request, preview_night
from opmark.api.requests import BisectRequest, CheckRequest, NightlyRequest, RunRequest
from opmark.api.result import open_store
from opmark.api.run import run_request
from opmark.errors import StoreError, UserError
from opmark.runner.guests.environments import find_environment
from opmark.schema.comparison import BisectResult, Candidate, CheckedCase, CheckResult
from opmark.schema.history import Histories
from opmark.schema.nightly import Night
from opmark.schema.run import Run

pytestmark = pytest.mark.verdicts

JOB = {"name": "small", "ops": ["exp", "add"], "size": "small", "backend": "null", "effort": "quick"}
Start = Callable[..., Night]


class Nights:
    """A file of nights and its store."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "nights.yaml"
        self.db = folder / "runs.db"
        self.folder = folder / "nights"
        self.said: list[str] = []

    def write(self, *jobs: dict[str, Any], **keys: Any) -> None:
        data = {"schema": 1, "db": "runs.db", "folder": "nights", "jobs": list(jobs) or [JOB], **keys}
        self.path.write_text(yaml.safe_dump(data))

    def start(self, day: str, **options: Any) -> Night:
        return nightly_request(NightlyRequest(self.path, night=day, say=self.said.append, **options))

    def runs(self) -> list[Run]:
        with closing(open_store(self.db)) as store:
            return store.runs()


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    made = Nights(tmp_path)
    made.write()
    return made


def test_the_second_night_is_compared_with_the_first(nights: Nights) -> None:
    first = nights.start("2030-01-01")
    assert (first.exit_code, first.runs[0].verdict) == (0, "")
    assert first.runs[0].notes == ["the first run with the label `nightly`: nothing is compared yet"]
    second = nights.start("2030-01-03")
    (run,) = second.runs
    assert (run.baseline, run.verdict, second.missed) == (first.runs[0].run, "passed", ["2030-01-02"])
    assert sum(run.counts.values()) == 2
    newest, oldest = nights.runs()
    assert (newest.id, newest.label, newest.description) == (run.run, "nightly", "night of 2030-01-03")
    assert oldest.id == run.baseline
    assert (nights.folder / ".gitignore").read_text() == "*\n"  # its files change no commit
    files = sorted(path.name for path in (nights.folder / "2030-01-03").iterdir())
    assert files == ["night.json", "small.html", "small.md", "small.xml", "summary.md"]
    written = json.loads((nights.folder / "2030-01-03" / "night.json").read_text())
    assert (written["verdict"], written["runs"][0]["run"]) == ("passed", run.run)


def test_a_baseline_of_its_own_label_is_an_earlier_night(nights: Nights) -> None:
    nights.write({**JOB, "baseline": "nightly@{-1}"})
    first = nights.start("2030-01-01")
    assert (first.exit_code, first.runs[0].problem) == (0, "")
    assert first.runs[0].notes == ["the first run with the label `nightly`: nothing is compared yet"]
    assert nights.start("2030-01-02").runs[0].baseline == first.runs[0].run
    nights.write({**JOB, "baseline": "nightly@{-0}"})  # tonight
    third = nights.start("2030-01-03")
    assert (third.exit_code, third.runs[0].verdict) == (1, "")
    assert "is the run that is checked itself" in third.runs[0].problem


def test_a_night_that_is_done_is_not_measured_twice(nights: Nights) -> None:
    first = nights.start("2030-01-01")
    assert nights.start("2030-01-01") == first
    assert "the night of 2030-01-01 is done since" in nights.said[-1]
    assert len(nights.runs()) == 1
    again = nights.start("2030-01-01", again=True)
    assert again.runs[0].baseline == first.runs[0].run
    assert len(nights.runs()) == 2


def test_each_part_is_compared_with_itself_and_missed_parts_are_caught_up(nights: Nights) -> None:
    nights.write({**JOB, "ops": ["exp", "add", "relu", "abs", "sin", "cos"], "spread": 2}, report={"html": False})
    found = [nights.start(f"2030-01-0{day}") for day in (1, 2, 3, 5)]
    parts = [[run.part for run in night.runs] for night in found]
    assert parts == [["2/2"], ["1/2"], ["2/2"], ["2/2", "1/2"]] or parts == [["1/2"], ["2/2"], ["1/2"], ["1/2", "2/2"]]
    assert found[1].runs[0].notes == ["no earlier run of `nightly` has these cases: nothing is compared yet"]
    assert found[2].runs[0].baseline == found[0].runs[0].run
    late = found[3].runs[1]
    assert (late.caught_up, late.baseline) == (True, found[1].runs[0].run)
    assert "the 2 newer ones measured none of these cases" in late.notes[0]


def test_a_job_that_cannot_run_costs_no_other_one(nights: Nights) -> None:
    nights.write(JOB, {**JOB, "name": "other", "ops": ["abs"]})

    def measure(request: RunRequest) -> Any:
        if request.label == "nightly/small":
            raise UserError("backend `null` cannot run here: it is gone", "bring it back")
        return run_request(request)

    night = nights.start("2030-01-01", measure=measure)
    first, second = night.runs
    assert (first.run, first.problem) == ("", "backend `null` cannot run here: it is gone; bring it back")
    assert (bool(second.run), second.problem, night.exit_code) == (True, "", 1)
    assert "problem: backend" in (nights.folder / "2030-01-01" / "summary.md").read_text()


def test_a_night_goes_on_where_it_was_stopped(nights: Nights) -> None:
    """The first job was done, the second stopped after its first record, the third not begun."""
    nights.write(JOB, {**JOB, "name": "second", "ops": ["abs", "sin"]}, {**JOB, "name": "third", "ops": ["cos"]})

    def stopped(request: RunRequest) -> Any:
        def stop(record: Any) -> None:
            raise KeyboardInterrupt

        return run_request(replace(request, on_record=stop) if request.label == "nightly/second" else request)

    with pytest.raises(KeyboardInterrupt):
        nights.start("2030-01-01", measure=stopped)
    before = {run.label: run.id for run in nights.runs()}
    assert list(before) == ["nightly/second", "nightly/small"]
    night = nights.start("2030-01-01")
    assert any("is continued" in line for line in nights.said)
    assert [run.run for run in night.runs][:2] == [before["nightly/small"], before["nightly/second"]]
    assert [run.statuses for run in night.runs] == [{"ok": 2}, {"ok": 2}, {"ok": 1}]
    with closing(open_store(nights.db)) as store:
        ids = [[record.task.id for record in store.records(run.id)] for run in store.runs()]
    assert sorted(map(len, ids)) == [1, 2, 2]
    assert all(len(some) == len(set(some)) for some in ids)


def test_a_pattern_of_backends_takes_what_is_there(nights: Nights) -> None:
    nights.write({**JOB, "ops": ["exp"], "backend": "numpy*"}, bisect={"package": "torch"}, report={"html": False})
    first, second = nights.start("2030-01-01"), nights.start("2030-01-02")
    assert [night.runs[0].problem for night in (first, second)] == ["", ""]
    assert second.runs[0].baseline == first.runs[0].run


def test_a_store_that_cannot_be_used_stops_the_night_and_loses_nothing(nights: Nights) -> None:
    def broken(request: RunRequest) -> Any:
        raise StoreError("runs.db: the disk is full")

    with pytest.raises(StoreError):
        nights.start("2030-01-01", measure=broken)
    assert nights.start("2030-01-01").runs[0].problem == ""


def test_a_preview_measures_and_writes_nothing(nights: Nights, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPMARK_ENVS", str(tmp_path / "envs"))
    nights.write({**JOB, "spread": 2}, environments={"mxnet": {}, "edge": {"install": ["numpy"], "renew": True}})
    found = preview_night(NightlyRequest(nights.path, night="2030-01-01"))
    assert found.environments == {"mxnet": "to be made", "edge": "made anew"}
    assert (found.runs[0].backends, found.runs[0].newest, found.begun) == (["null"], "", False)
    assert not nights.folder.exists()
    assert not nights.db.exists()


def test_the_store_may_be_on_a_server(nights: Nights, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTS_STORE", postgres_url)
    nights.write(db="$NIGHTS_STORE", report={"html": False})
    first, second = nights.start("2030-01-01"), nights.start("2030-01-02")
    assert second.runs[0].baseline == first.runs[0].run
    assert postgres_url not in (nights.folder / "state.json").read_text()


# What became slower: the gate, commits, versions, levels.


def work(rounds: int) -> str:
    return f"import numpy as np\ndef f(x):\n    for _ in range({rounds}):\n        x = np.abs(x)\n    return x\n"


@pytest.mark.slow
@pytest.mark.usefixtures("steps")
def test_a_commit_that_made_it_slower_is_confirmed_and_found(
    repo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that counts steps: the third of five commits does nine times the work."""
    monkeypatch.chdir(repo.path)
    (tmp_path / "night").mkdir()
    nights = Nights(tmp_path / "night")
    job = {"name": "work", "ops": ["work:f"], "args": ["2000 float32"], "backend": "steps-cpu", "threads": 1}
    nights.write({**job, "effort": "quick", "processes": 5}, bisect={"most": 1}, report={"html": False},
                 hook={"command": "cat > told.json"})  # fmt: skip
    repo.commit("commit 1", work=work(10))
    assert nights.start("2030-01-01").exit_code == 0
    commits = [repo.commit(f"commit {at}", work=f"{work(10 if at < 3 else 90)}# {at}\n") for at in range(2, 6)]
    night = nights.start("2030-01-02")
    (run,) = night.runs
    assert (night.exit_code, run.verdict, run.counts) == (1, "failed", {"slower": 1}), nights.said
    (slower,) = run.news
    assert (slower.op, slower.outcome) == ("work:f", "slower")
    assert slower.ratio is not None
    assert slower.ratio > 2
    (found,) = run.bisected
    assert found.first == [f"{commits[1][:12]} commit 3"]
    told = json.loads((tmp_path / "night" / "told.json").read_text())
    assert "slower: work:f 2000 float32 on steps-cpu" in told["text"]
    assert f"bisect: work:f 2000 float32: slower since {commits[1][:12]} commit 3" in told["text"]


def checked_slower(request: CheckRequest, op: str, case: str) -> CheckResult:
    pair = pairing(op, 1.5, case=case, verdict="slower", where=("torch-cpu ×2", "torch-cpu ×2"))
    compared = SimpleNamespace(only=((), ()))
    return CheckResult(compared, (CheckedCase(pair, "slower", pair, "in turns"),), (), ("slower",))  # type: ignore[arg-type]


def test_a_new_release_is_held_against_the_old_one_and_bisected(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs are made up, and so are the second look and the bisection: this is about what they are asked."""
    nights.write({**JOB, "ops": ["exp"], "backend": "torch-cpu"}, report={"html": False},
                 bisect={"package": "torch", "versions": ["2.11.0", "2.12.0", "2.13.0"]})  # fmt: skip
    keep(nights.db, "20300101-000000-aaaa", "nightly", rows(exp=1.0), facts={"torch": "2.11.0+cpu"})
    asked: dict[str, Any] = {}

    def measure(request: RunRequest) -> Any:
        made = keep(nights.db, "20300102-000000-bbbb", "nightly", rows(exp=1.5), facts={"torch": "2.13.0+cpu"})
        return SimpleNamespace(run=made, records=[], journals=(), storage="", stored=True)

    def check(request: CheckRequest) -> CheckResult:
        asked["check"] = request
        with closing(open_store(nights.db)) as store:
            case = store.figures(runs=["20300102-000000-bbbb"])[0].case
        return checked_slower(request, "exp", case)

    def bisect(request: BisectRequest, cases: Any) -> BisectResult:
        asked["bisect"], asked["cases"] = request, cases
        first = Candidate("2.12.0", "", "", "torch 2.12.0", "bad", 1.5, 1.4, 1.6)
        return BisectResult("2.11.0", "2.13.0", SimpleNamespace(), first=(first,), package="torch")  # type: ignore[arg-type]

    monkeypatch.setattr(nightly, "check_request", check)
    monkeypatch.setattr(nightly, "bisect_cases", bisect)
    monkeypatch.setattr(
        nightly, "guest_of_version", lambda package, version, say: SimpleNamespace(name=f"{package}-{version}")
    )
    monkeypatch.setattr(nightly, "write_check", lambda *given: None)
    night = nights.start("2030-01-02", measure=measure)
    assert night.runs[0].problem == ""
    assert (asked["check"].baseline, asked["check"].against_python) == ("20300101-000000-aaaa", "torch-2.11.0")
    found = asked["bisect"]
    assert (found.package, found.good, found.bad, found.backend) == ("torch", "2.11.0", "2.13.0", "torch-cpu")
    assert (found.versions, found.threads) == (["2.11.0", "2.12.0", "2.13.0"], 2)
    assert [case.op for case in asked["cases"]] == ["exp"]
    assert night.runs[0].bisected[0].first == ["2.12.0"]
    summary = (nights.folder / "2030-01-02" / "summary.md").read_text()
    assert "slower since torch 2.12.0" in summary


def test_a_change_of_level_is_told_once(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def history(request: Any) -> tuple[Histories, bool]:
        asked.append(request)
        change = SimpleNamespace(
            sure=True, ratio=1.4, after=SimpleNamespace(id="20300101-000000-aaaa"), differing={"torch": ("1", "2")}
        )
        series = SimpleNamespace(
            newest_change=change, case="c", backend="null", implementation="null", where="×2", quantity="latency",
            cache="warm", op="exp", params="8", points=[SimpleNamespace(run=SimpleNamespace(id=nights.runs()[0].id))],
        )  # fmt: skip
        return Histories([series], 1), False  # type: ignore[list-item]

    monkeypatch.setattr(nightly, "history_request", history)
    first, second = nights.start("2030-01-01"), nights.start("2030-01-02")
    (news,) = first.runs[0].history
    assert (news.op, news.ratio, news.changed, first.changed) == ("exp", 1.4, {"torch": ("1", "2")}, True)
    assert second.runs[0].history == []
    assert asked[0].label == "nightly"
    assert "exp 8 on null ×2 is slower" in (nights.folder / "2030-01-01" / "summary.md").read_text()


def test_an_environment_is_made_when_it_is_missing_and_anew_when_it_has_to_be(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: dict[str, Any] = {"old": SimpleNamespace(created="2020-01-01T00:00:00+00:00")}
    made: list[tuple[str, Any]] = []

    def create(name: str, **how: Any) -> None:
        made.append((name, how["install"]))
        if name == "broken":
            raise UserError("pip could not install it")

    monkeypatch.setattr(nightly, "find_environment", known.get)
    monkeypatch.setattr(nightly, "remove_env", lambda name: made.append(("remove", name)))
    monkeypatch.setattr(nightly, "create_env", create)
    environments = {
        "fresh": {"install": ["numpy"]}, "old": {"install": ["numpy"], "renew": True}, "broken": {"install": ["x"]},
    }  # fmt: skip
    jobs = [{**JOB, "name": "lost", "backend": "numpy-cpu@broken"}, JOB]
    nights.write(*jobs, environments=environments)
    night = nights.start("2030-01-01")
    assert made == [("broken", ["x"]), ("fresh", ["numpy"]), ("remove", "old"), ("old", ["numpy"])]
    assert night.problems == ["environment broken: pip could not install it"]
    assert night.runs[0].problem == "numpy-cpu@broken: its environment could not be made: pip could not install it"
    assert (night.runs[1].problem, night.exit_code) == ("", 1)
    assert find_environment("fresh") is None, "the fakes stayed fakes"


def test_folders_of_old_nights_go_and_what_is_not_theirs_stays(nights: Nights) -> None:
    nights.write(report={"html": False, "keep": 2})
    (nights.folder / "mine").mkdir(parents=True)
    for day in (1, 2, 3):
        nights.start(f"2030-01-0{day}")
    left = sorted(path.name for path in nights.folder.iterdir() if path.is_dir())
    assert left == ["2030-01-02", "2030-01-03", "mine"]


# Hooks.


class Listener:
    def __init__(self, *answers: int) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        left = list(answers)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.bodies.append(json.loads(body))
                outer.headers.append(self.headers)
                self.send_response(left.pop(0) if left else 200)
                self.end_headers()

            def log_message(self, *given: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/secret-path"
        self.thread = Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Listener]]:
    made: list[Listener] = []
    monkeypatch.setattr(nightly_report, "_PAUSES", (0.0, 0.0))

    def start(*answers: int) -> Listener:
        made.append(Listener(*answers))
        return made[-1]

    yield start
    for one in made:
        one.server.shutdown()
        one.server.server_close()
        one.thread.join()


def test_a_night_is_posted_and_a_busy_server_is_asked_again(nights: Nights, listen: Any) -> None:
    heard = listen(503, 200)
    nights.write(hook={"url": heard.url, "when": "always", "headers": {"X-Mine": "1"}})
    night = nights.start("2030-01-01")
    assert (night.problems, len(heard.bodies)) == ([], 2)
    assert (heard.headers[0]["X-Mine"], heard.headers[0]["Content-Type"]) == ("1", "application/json")
    assert heard.bodies[0]["runs"][0]["run"] == night.runs[0].run
    assert heard.bodies[0]["text"].startswith("night of 2030-01-01: passed")


def test_a_server_that_refuses_is_a_problem_that_does_not_quote_its_address(nights: Nights, listen: Any) -> None:
    heard = listen(403)
    nights.write(hook={"url": heard.url, "when": "always"})
    night = nights.start("2030-01-01")
    assert (len(heard.bodies), night.exit_code) == (1, 1)
    assert night.problems == ["hook: the address could not be posted to: it answered 403 Forbidden"]
    assert "secret-path" not in (nights.folder / "state.json").read_text()


def test_a_command_that_fails_is_a_problem(nights: Nights) -> None:
    nights.write(hook={"command": "cat > /dev/null; echo no such channel; exit 3", "when": "always"})
    night = nights.start("2030-01-01")
    assert night.problems == ["hook: the command failed with exit code 3: no such channel"]


def test_a_second_start_tells_only_what_could_not_be_delivered(nights: Nights, listen: Any, tmp_path: Path) -> None:
    heard = listen(403)
    nights.write(hook={"url": heard.url, "command": "echo x >> told", "when": "always"})
    assert nights.start("2030-01-01").exit_code == 1
    night = nights.start("2030-01-01")
    assert (night.exit_code, night.problems, night.undelivered) == (0, [], {})
    assert heard.bodies[1]["verdict"] == "passed"
    assert (tmp_path / "told").read_text().split() == ["x"], "the command had worked"
    assert json.loads((nights.folder / "2030-01-01" / "night.json").read_text())["verdict"] == "passed"
    nights.start("2030-01-01")
    assert len(heard.bodies) == 2


def test_a_hook_is_told_what_it_wants_to_know(nights: Nights, tmp_path: Path) -> None:
    nights.write(hook={"command": 'echo "$OPMARK_NIGHT" >> told', "when": "changed"})
    nights.start("2030-01-01")
    assert not (tmp_path / "told").exists(), "nothing has changed"
    nights.write(hook={"command": 'echo "$OPMARK_NIGHT" >> told', "when": "always"})
    nights.start("2030-01-02")
    assert (tmp_path / "told").read_text().split() == [str(nights.folder / "2030-01-02" / "night.json")]
