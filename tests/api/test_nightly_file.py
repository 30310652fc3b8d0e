"""The file of nights: what it means, and that every mistake is named before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from opmark.api.nightly_file import environment_names, read_nightly, request_of, shipped_file
from opmark.errors import InvalidFile, UserError

JOB = {"name": "small", "ops": ["exp"], "size": "small", "backend": "null"}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def make(text: str | None = None, **keys: Any) -> Path:
        path = tmp_path / "nights.yaml"
        path.write_text(text if text is not None else yaml.safe_dump({"schema": 1, "jobs": [JOB], **keys}))
        return path

    return make


def test_paths_lead_from_everywhere_and_options_are_those_of_the_commands(write: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("schema: 1\nname: mine\ncases:\n  - {op: exp, sizes: [small]}\n")
    jobs = [{"name": "mine", "workload": "mine.yaml", "backend": "null", "effort": "quick", "spread": 3}, JOB]
    found = read_nightly(write(db="runs.db", jobs=jobs, gate={"margin": 0.1}, bisect={"package": "torch", "most": 2}))
    assert (found.db, found.folder) == (str(tmp_path / "runs.db"), tmp_path / "nights-nights")
    assert [job.label for job in found.jobs] == ["nightly/mine", "nightly/small"]
    mine = found.jobs[0]
    assert (mine.spread, mine.request.effort, mine.request.db, len(mine.cases)) == (3, "quick", found.db, 1)
    assert request_of(mine, "2/3").part == "2/3"
    assert (found.gate, found.bisect, found.bisect_most) == ({"margin": 0.1}, {"package": "torch"}, 2)


def test_a_single_job_has_the_label_of_the_file(write: Any) -> None:
    assert read_nightly(write(label="weekly")).jobs[0].label == "weekly"
    assert read_nightly(write(jobs=[{**JOB, "label": "own"}])).jobs[0].label == "own"


def test_variables_keep_secrets_out_of_the_file(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(hook={"url": "$HOOK", "headers": {"Authorization": "Bearer ${TOKEN}"}})
    with pytest.raises(InvalidFile, match=r"hook.url: the variable \$HOOK is not set"):
        read_nightly(path)
    monkeypatch.setenv("HOOK", "https://example.org/a")
    monkeypatch.setenv("TOKEN", "secret")
    found = read_nightly(path)
    assert (found.url, found.headers) == ("https://example.org/a", {"Authorization": "Bearer secret"})


@pytest.mark.parametrize(
    ("keys", "message", "hint"),
    [
        ({"jbos": []}, "unknown key `jbos`", "did you mean `jobs`?"),
        ({"schema": 2}, "expected `schema: 1`, got 2", "--template"),
        ({"jobs": []}, "no jobs", "--template"),
        ({"jobs": [{**JOB, "bakend": "x"}]}, "jobs[0]: unknown key `bakend`", "did you mean `backend`?"),
        ({"jobs": [{**JOB, "resume": True}]}, "jobs[0]: unknown key `resume`", "known keys"),
        ({"jobs": [{**JOB, "effort": "quik"}]}, "no effort named `quik`", "quick"),
        ({"jobs": [{**JOB, "threads": "two"}]}, "threads: expected a whole number", ""),
        ({"jobs": [{**JOB, "ops": ["epx"]}]}, "no operator named `epx`", "exp"),
        ({"jobs": [{**JOB, "backend": "nul"}]}, "no backend named `nul`", "null"),
        ({"jobs": [{**JOB, "backend": "tensorflow-cpu"}]}, "backend `tensorflow-cpu` cannot run here", "environments"),
        ({"jobs": [{**JOB, "backend": "numpy-cpu@nowhere"}]}, "no environment `nowhere`", "environments"),
        ({"jobs": [{**JOB, "spread": 0}]}, "spread: expected a whole number from 1 to 366, got 0", ""),
        ({"jobs": [{**JOB, "name": "a b"}]}, "name: expected letters, digits", ""),
        ({"jobs": [JOB, JOB]}, "two jobs with the name `small`", "own"),
        ({"jobs": "all"}, "expected a list, got text, at `$.jobs`", ""),
        ({"gate": {"margn": 0.1}}, "gate: unknown key `margn`", "did you mean `margin`?"),
        ({"gate": {"margin": 2}}, "gate: margin: expected a share", ""),
        ({"gate": {"fail_on": ["slow"]}}, "gate: no reason to fail named `slow`", "slower"),
        ({"history": {"sinse": "1d"}}, "history: unknown key `sinse`", "since"),
        (
            {"history": {"since": "yesterdayy"}},
            "history: since: expected a date or how long ago, got `yesterdayy`",
            "30d",
        ),
        ({"jobs": [{**JOB, "baseline": "rel@{abc}"}]}, "expected a number or a date in braces, got `abc`", "rel@{-1}"),
        (
            {"jobs": [{**JOB, "baseline": "rel@{2026-13-01}"}]},
            "expected a date or a time, or -1, got `2026-13-01`",
            "rel@{",
        ),
        ({"jobs": [{**JOB, "executor": "ray", "address": "ray://x"}]}, "expected auto or HOST:PORT", "head:6379"),
        ({"jobs": [{**JOB, "address": "head:6379"}]}, "--address is about the nodes of a cluster", "--executor ray"),
        ({"jobs": [{**JOB, "label": "a@b"}]}, "label: `a@b` reads as one of several runs", "without @"),
        ({"label": "a~1"}, "label: `a~1` reads as one of several runs", "without @"),
        ({"jobs": [{**JOB, "processes": "five"}]}, "processes: expected a whole number from 1 to 1000, got 'five'", ""),
        ({"bisect": {"most": 0}}, "bisect: most: expected a whole number from 1", ""),
        ({"environments": {"mxnt": {}}}, "environments: no recipe named `mxnt`", "mxnet"),
        ({"environments": {"mxnet": {"instal": []}}}, "unknown key `instal`", "did you mean `install`?"),
        ({"hook": {"when": "sometimes"}}, "hook.when: no time for a hook named `sometimes`", "changed"),
        ({"hook": {"url": "ftp://example.org"}}, "hook.url: expected an address", ""),
        ({"report": {"keep": 0}}, "report.keep: expected a whole number of at least 1", ""),
        ({"catch_up": -1}, "catch_up: expected a whole number of at least 0", ""),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_was_meant(
    write: Any, keys: dict[str, Any], message: str, hint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPMARK_ENVS", str(tmp_path / "envs"))
    with pytest.raises(UserError) as caught:
        read_nightly(write(**keys))
    assert message in caught.value.message
    assert "nights.yaml" in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(("text", "message"), [("", "got nothing"), ("- 1", "got a list"), ("a: [", "nights.yaml:")])
def test_what_is_no_such_file_is_refused(write: Any, text: str, message: str) -> None:
    with pytest.raises(InvalidFile, match=message):
        read_nightly(write(text))


def test_a_backend_that_the_file_installs_is_no_mistake(
    write: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPMARK_ENVS", str(tmp_path / "envs"))
    jobs = [{**JOB, "backend": ["mxnet-cpu", "torch-cpu@torch-2.12.0", "numpy-cpu@mine"]}]
    environments = {"mxnet": {}, "torch==2.12.0": {}, "mine": {"install": ["numpy"]}}
    found = read_nightly(write(jobs=jobs, environments=environments))
    assert environment_names(found.file) == {"mxnet": "mxnet", "torch==2.12.0": "torch-2.12.0", "mine": "mine"}


def test_the_file_that_ships_covers_both_catalogues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPMARK_ENVS", str(tmp_path / "envs"))
    path = tmp_path / "nightly.yaml"
    path.write_text(shipped_file())
    jobs = {job.name: job for job in read_nightly(path).jobs}
    assert {name: job.request.suite for name, job in jobs.items()} == {"torch": "torch-all", "mxnet": "opperf"}
    assert {job.spread for job in jobs.values()} == {7}
    assert len({case.op for case in jobs["torch"].cases}) > 500
