"""The recipes of examples/nightly: well formed, and their commands run with a small file and fakes of schedulers."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from actions_shell import run_step

from opmark.api.nightly_file import read_nightly
from opmark.api.requests import RunRequest
from opmark.schema.options import options_of

pytestmark = pytest.mark.docs

FOLDER = Path(__file__).parents[1] / "examples" / "nightly"
SMALL = """
schema: 1
folder: nights
jobs:
  - {name: small, ops: [exp], size: small, backend: 'null', effort: quick}
"""
TODAY = re.compile(r"^night of \d{4}-\d\d-\d\d: passed$", re.MULTILINE)


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """A folder with a file of nights that takes a second."""
    for name in ("nightly.yaml", "ray.yaml"):
        (tmp_path / name).write_text(SMALL)
    return tmp_path


@pytest.fixture
def shell(bench: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a script of bash in that folder, with opmark on the path, and fakes before it."""
    fakes = bench / "fakes"
    fakes.mkdir()

    def run(script: str, fake: dict[str, str] | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        for name, text in (fake or {}).items():
            (fakes / name).write_text(f"#!/bin/bash\n{text}\n")
            (fakes / name).chmod(0o755)
        path = os.pathsep.join([str(fakes), str(Path(sys.executable).parent), os.environ["PATH"]])
        own = {**os.environ, "PATH": path, "OPMARK_DB": str(bench / "runs.db"), **environ}
        return subprocess.run(["bash", "-c", script], cwd=bench, env=own, text=True, capture_output=True, check=False)

    return run


def passed(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode == 0 and TODAY.search(done.stdout) is not None


def test_the_example_file_is_valid() -> None:
    (job,) = read_nightly(FOLDER / "small.yaml").jobs
    assert {case.op for case in job.cases} == {"exp", "softmax", "matmul"}


@pytest.mark.skipif("executor" not in options_of(RunRequest), reason="the executor on Ray is not a part of this opmark")
def test_the_file_for_a_cluster_is_valid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPMARK_STORE", "postgresql://bench@server/opmark")
    monkeypatch.setenv("OPMARK_NIGHTS", str(tmp_path))
    found = read_nightly(FOLDER / "ray.yaml")
    assert (found.db, found.folder) == ("postgresql://bench@server/opmark", tmp_path)


def test_cron(bench: Path, shell: Any) -> None:
    lines = [line for line in (FOLDER / "crontab").read_text().splitlines() if line and not line.startswith("#")]
    settings = [line for line in lines if re.match(r"[A-Z]+=", line)]
    entries = [line for line in lines if line not in settings]
    assert [line.split()[0] for line in entries] == ["30", "@reboot"]
    for entry in entries:
        fields = 1 if entry.startswith("@") else 5
        assert "%" not in entry, "cron would end the command there"
        command = entry.split(maxsplit=fields)[-1].replace("/opt/bench", str(bench)).replace("sleep 300", "true")
        done = shell(command)
        assert passed(done), done.stderr
    assert len(list((bench / "nights").glob("*-*-*"))) == 1, "the second start of a night measures nothing"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd(bench: Path, shell: Any) -> None:
    program = Path(sys.executable).parent / "opmark"
    for name in ("opmark-nightly.service", "opmark-nightly.timer"):
        text = (FOLDER / name).read_text().replace("/opt/bench/.venv/bin/opmark", str(program))
        (bench / name).write_text(text.replace("/opt/bench", str(bench)))
    units = [str(bench / name) for name in ("opmark-nightly.service", "opmark-nightly.timer")]
    verified = subprocess.run(["systemd-analyze", "verify", *units], text=True, capture_output=True, check=False)
    complaints = [line for line in verified.stderr.splitlines() if "opmark-nightly" in line]
    assert complaints == []
    calendar = re.findall(r"^OnCalendar=(.*)$", Path(units[1]).read_text(), re.MULTILINE)
    assert subprocess.run(["systemd-analyze", "calendar", *calendar], capture_output=True, check=False).returncode == 0
    (command,) = re.findall(r"^ExecStart=(.*)$", Path(units[0]).read_text(), re.MULTILINE)
    assert passed(shell(command))


def workflow(name: str) -> dict[str, Any]:
    text = (FOLDER / name).read_text()
    found: dict[str, Any] = yaml.safe_load(text)
    found["on"] = found.pop(True)  # YAML 1.1 takes `on` for a truth value; GitHub does not
    return found


def steps_of(name: str, job: str) -> dict[str, dict[str, Any]]:
    found = workflow(name)["jobs"][job]
    assert {"runs-on", "timeout-minutes", "steps"} <= found.keys()
    assert all(("uses" in step) != ("run" in step) for step in found["steps"])
    assert [step["run"] for step in found["steps"] if "${{" in step.get("run", "")] == []
    return {step.get("name", step.get("uses")): step for step in found["steps"]}


def test_github_at_night(bench: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fake `gh`, whose last run left no artifact, but the one before did."""
    found = workflow("github-nightly.yml")
    assert found["on"]["schedule"][0]["cron"].split()[:2] == ["30", "1"]
    steps = steps_of("github-nightly.yml", "night")
    gh = bench / "gh"
    gh.write_text('#!/bin/bash\nif [ "$2" = list ]; then echo 8 7; else test "$3" = 7 && touch nights/restored; fi\n')
    gh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bench}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("OPMARK_DB", "nights/opmark.db")
    known = {"github.token": "t", "github.workflow": "nightly"}
    for name in ("Restore the nights before", "Night", "Summary"):
        done = run_step(steps[name], known, bench)
        assert done.returncode == 0, done.stderr
    assert {path.name for path in (bench / "nights").iterdir()} >= {"restored", "opmark.db", "state.json"}
    assert "passed" in (bench / "step-summary.md").read_text()
    upload = steps["actions/upload-artifact@v4"]
    assert (upload["with"]["path"], upload["if"]) == ("nights", "always()")
    gh.write_text('#!/bin/bash\nif [ "$2" = list ]; then echo 7; else exit 1; fi\n')
    done = run_step(steps["Restore the nights before"], known, bench)
    assert (done.returncode, done.stdout) == (0, "no run has left nights: this one begins anew\n")


@pytest.mark.slow
@pytest.mark.usefixtures("steps")
def test_github_in_pull_requests(repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that counts steps, in place of NumPy on GitHub's machine: the branch does nine times the work."""
    steps = steps_of("github-pull-request.yml", "check")
    text = "import numpy as np\ndef f(x):\n    for _ in range({}):\n        x = np.abs(x)\n    return x\n"
    (repo.path / "speed.yaml").write_text("schema: 1\nname: speed\ncases:\n  - {op: 'work:f', args: [2000 float32]}\n")
    repo.exclude.write_text("__pycache__/\ndata/\n*.md\n*.txt\n*.xml\n")
    base = repo.commit("base", work=text.format(10))
    repo.commit("slower", work=text.format(90))
    step = {**steps["Check"], "run": steps["Check"]["run"].replace("numpy-cpu", "steps-cpu")}
    path = os.environ["PYTHONPATH"]
    step["env"] = {**step["env"], "PYTHONPATH": path, "OPMARK_DB": str(repo.path.parent / "runs.db")}
    done = run_step(step, {"github.event.pull_request.base.sha": base}, repo.path)
    assert done.returncode == 1, done.stderr
    assert "1 slower" in (repo.path / "summary.md").read_text()
    assert run_step(steps["Summary"], {}, repo.path).returncode == 0
    assert "1 slower" in (repo.path / "step-summary.md").read_text()


def test_gitlab(bench: Path, shell: Any) -> None:
    found = yaml.safe_load((FOLDER / "gitlab-ci.yml").read_text())
    nightly, speed = found["nightly"], found["speed"]
    assert nightly["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "schedule"'}]
    assert (nightly["cache"]["paths"], nightly["artifacts"]["paths"]) == (["nights/"], ["nights/"])
    assert {one["extends"] for one in (nightly, speed)} == {".opmark"}
    place = found["variables"]["OPMARK_DB"].replace("$CI_PROJECT_DIR", str(bench))
    done = shell("\n".join(nightly["script"]), OPMARK_DB=place)
    assert passed(done), done.stderr
    assert (bench / "nights" / "opmark.db").exists()
    (line,) = speed["script"]
    assert shlex.split(line)[:2] == ["opmark", "check"]


SRUN = """while [ "${1:0:2}" = -- ]; do shift; done
echo "srun $*" >> "$LOG"
exec "$@"
"""


@pytest.mark.parametrize("name", ["slurm-srun.sbatch", "slurm-ray.sbatch"])
def test_slurm(bench: Path, shell: Any, name: str) -> None:
    """With fakes of Slurm's programs and of ray that note how they are called."""
    script = (FOLDER / name).read_text()
    directives = re.findall(r"^#SBATCH (--[\w-]+=\S+|--exclusive)$", script, re.MULTILINE)
    assert len(directives) == script.count("#SBATCH")
    log = bench / "log"
    fakes = {
        "srun": SRUN, "sbatch": 'echo "sbatch $*" >> "$LOG"', "ray": 'echo "ray $*" >> "$LOG"',
        "scontrol": "echo node-a; echo node-b",
    }  # fmt: skip
    done = shell(script, fakes, LOG=str(log), SLURM_JOB_NODELIST="node-[a-b]", SLURM_JOB_NUM_NODES="2", RAY_WAIT="0.2")
    assert passed(done), done.stderr
    called = log.read_text()
    if name == "slurm-srun.sbatch":
        assert re.search(r"^sbatch --begin=\d{4}-\d\d-\d\dT01:30 ", called)
        assert "srun opmark nightly nightly.yaml" in called
    else:
        assert "ray start --head --port=6379 --block" in called
        assert "ray start --address=node-a:6379 --block" in called
        assert "srun opmark nightly ray.yaml" in called
        assert "ray stop --force" in called


def test_kuberay(bench: Path, shell: Any) -> None:
    parts = {part["kind"]: part for part in yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text())}
    assert parts.keys() == {"CronJob", "ServiceAccount", "Role", "RoleBinding", "ConfigMap"}
    cron = parts["CronJob"]["spec"]
    assert (cron["schedule"], cron["concurrencyPolicy"]) == ("30 1 * * *", "Forbid")
    pod = cron["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == parts["ServiceAccount"]["metadata"]["name"]
    (bench / "rayjob.yaml").write_text(parts["ConfigMap"]["data"]["rayjob.yaml"])
    command = pod["containers"][0]["command"]
    assert command[:2] == ["sh", "-c"]
    done = shell(command[2].replace("/job/", f"{bench}/"), {"kubectl": "cat"})
    job = yaml.safe_load(done.stdout)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert re.fullmatch(r"opmark-night-\d{8}", job["metadata"]["name"])
    assert job["spec"]["entrypoint"] == "opmark nightly /nights/ray.yaml"
    cluster = job["spec"]["rayClusterSpec"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for one in pods:
        spec = one["template"]["spec"]
        assert {mount["name"] for mount in spec["containers"][0]["volumeMounts"]} == {
            v["name"] for v in spec["volumes"]
        }
    assert passed(shell(job["spec"]["entrypoint"].replace("/nights/", "")))
