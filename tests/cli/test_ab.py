"""opmark ab: from the command line to the table, plug-ins of a revision, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest

pytestmark = [pytest.mark.verdicts, pytest.mark.usefixtures("steps")]

Command = Callable[..., Any]

COMMAND = [sys.executable, "-m", "opmark.cli.main"]
FAST = "import numpy as np\ndef f(x):\n    for _ in range(10):\n        x = np.abs(x)\n    return x\n"
SLOW = FAST.replace("10", "90")
QUICK = ["--backend", "steps-cpu", "--threads", "1"]
CALL = ["work:f", "--args", "[2000 float32]", *QUICK]


def test_a_revision_against_the_files_as_they_are(opmark: Command, repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.commit("fast", work=FAST)
    repo.write(work=SLOW)
    before = repo.state()
    monkeypatch.chdir(repo.path)
    done = opmark("ab", *CALL, "--rev", "HEAD", "--processes", "5")
    assert done.code == 0
    (row,) = (line for line in done.out.splitlines() if line.startswith("work:f"))
    assert "  slower  unchecked in HEAD (" in row
    assert "pair 1 of 5, A HEAD (" in done.err
    assert "pair 5 of 5" in done.err
    assert "stored as runs" in done.err
    assert repo.state() == before


def test_a_verdict_may_fail_a_build(main: Command) -> None:
    few = ["add", "-p", "shape=64", *QUICK, "--same", "--processes", "2"]
    assert main("ab", *few).code == 0
    assert main("ab", *few, "--fail-if", "undecided,slower").code == 1
    assert "no verdict named `slow`" in main("ab", *few, "--fail-if", "slow").err


def test_runs_that_wait_for_their_store_are_not_called_stored(main: Command, waiting: Path) -> None:
    done = main("ab", "add", "-p", "shape=64", "--backend", "null", "--same", "--processes", "2")
    assert done.code == 1
    assert f"kept in the journal {waiting}" in done.err


@pytest.mark.parametrize("slower", [True, False])
def test_a_check_against_a_revision_needs_no_stored_run(
    opmark: Command, repo: Any, monkeypatch: pytest.MonkeyPatch, slower: bool
) -> None:
    repo.commit("fast", work=FAST)
    repo.write(work=SLOW if slower else FAST + "# as before\n")
    monkeypatch.chdir(repo.path)
    done = opmark("check", *CALL, "--against-rev", "HEAD", "--processes", "5", "--json")
    found = json.loads(done.out)
    assert done.code == int(slower), done.err
    assert ("slower" in found["counts"]) == slower


def test_the_comparison_as_json(main: Command) -> None:
    done = main("ab", "add", "-p", "shape=64", "--backend", "numpy-cpu,null", "--threads", "1", "--processes", "2",
                "--json")  # fmt: skip
    assert done.code == 0
    found = json.loads(done.out)
    assert (found["a"], found["b"], found["paired"]) == ("numpy-cpu", "null", True)
    assert [pair["op"] for pair in found["pairs"]] == ["add"]
    assert len(found["runs"]) == 2


def test_cases_are_chosen_as_for_run(main: Command, tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(
        "schema: 1\nname: w\ncases:\n  - {op: add, params: {shape: [[4], [8]]}}\n  - {op: exp, params: {shape: [4]}}\n"
    )
    asked = ["-w", str(path), "--op", "add", *QUICK, "--same", "--processes", "2", "--json"]
    found = json.loads(main("ab", *asked).out)
    assert [pair["op"] for pair in found["pairs"]] == ["add", "add"]


def test_a_case_that_fails_makes_the_exit_code_1_and_is_a_row(main: Command) -> None:
    done = main("ab", "fault", "-p", "kind=none,error", *QUICK, "--same", "--processes", "2", "--json")
    assert done.code == 1
    found = {pair["params"].split()[0]: pair for pair in json.loads(done.out)["pairs"]}
    assert found["kind=none"]["statuses"] == ["ok", "ok"]
    assert found["kind=error"]["statuses"] == ["error", "error"]
    assert found["kind=error"]["note"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "--backend", "numpy-cpu"], "two sides differ in exactly one thing, got nothing"),
        (["add", "--backend", "numpy-cpu,null", "--threads", "1,2"], "got --backend and --threads"),
        (["add", "--backend", "numpy-cpu", "--env", "A=1", "--same"], "got --env and --same"),
        (["add", "--backend", "numpy-cpu,null", "--margin", "x"], "--margin: expected a share"),
        (["add", "--backend", "numpy-cpu,null", "--processes", "1"], "processes: expected a whole number from 2 to 20"),
        (["add", "--backend", "numpy-cpu,null", "--budget", "0"], "budget: expected seconds above 0"),
        (["--same"], "expected operators, a workload or a suite, got nothing"),
        (["nowhere", "--same"], "no operator named `nowhere`"),
        (["add", "--backend", "numpy-cpu", "--rev=--output=x"], "is no name of a revision"),
        (["add", "--backend", "numpy-cpu", "--rev", "nowhere"], "git knows no revision `nowhere`"),
        (["add", "--backend", "numpy-cpu", "--rev", "HEAD", "--repo", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_a_mistake_is_the_users_and_has_no_traceback(
    main: Command, repo: Any, db: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    repo.commit("one", work=FAST)
    monkeypatch.chdir(repo.path)
    done = main("ab", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in " ".join(done.err.split())
    assert not db.exists()


def test_no_repository_and_no_git(main: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no git repository" in main("ab", *CALL, "--rev", "HEAD").err
    monkeypatch.setenv("PATH", str(tmp_path))
    done = main("ab", *CALL, "--rev", "HEAD")
    assert done.code == 2
    assert "git is not installed" in done.err


def test_what_is_to_be_made_first_and_cannot_be(main: Command, repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.commit("one", work=FAST)
    repo.commit("two", work=SLOW)
    before = repo.state()
    monkeypatch.chdir(repo.path)
    done = main("ab", *CALL, "--rev", "HEAD~1", "--rev", "HEAD", "--make", "echo no such compiler; exit 9")
    assert done.code == 2
    assert "exit code 9" in done.err
    assert "no such compiler" in done.err
    assert repo.state() == before


def test_what_a_command_makes_is_measured(main: Command, repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`work.py` is not in the repository: it is made from what is."""
    for subject, text in (("fast", FAST), ("slow", SLOW)):
        (repo.path / "work.in").write_text(text)
        repo.commit(subject)
    monkeypatch.chdir(repo.path)
    done = main("ab", *CALL, "--rev", "HEAD~1", "--rev", "HEAD", "--make", "cp work.in work.py", "--processes", "5",
                "--json")  # fmt: skip
    assert done.code == 0
    assert [pair["verdict"] for pair in json.loads(done.out)["pairs"]] == ["slower"]


def test_ctrl_c_keeps_what_is_stored_and_prints_what_is_known(
    repo: Any, db: Path, monkeypatch: pytest.MonkeyPatch, start_process: Callable[..., Any]
) -> None:
    repo.commit("fast", work=FAST)
    repo.write(work=SLOW)
    before = repo.state()
    monkeypatch.chdir(repo.path)
    process = start_process(*COMMAND, "ab", *CALL, "--rev", "HEAD", "--min-time", "1", "--max-time", "1")
    until = time.monotonic() + 100
    while not db.exists() or _count(db) < 5:
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.02)
    children = psutil.Process(process.pid).children()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert any(line.startswith("work:f") for line in out.splitlines())
    assert "interrupted\nstored as runs" in err
    assert psutil.wait_procs(children, timeout=30)[1] == []
    assert repo.state() == before


def _count(db: Path) -> int:
    with closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as raw:
        try:
            return int(raw.execute("SELECT count(*) FROM record").fetchone()[0])
        except sqlite3.OperationalError:
            return 0  # its tables are just being made


OPERATORS = """
import numpy as np
from opmark.schema import Cost, Implementation, Operator, TensorSpec
from opmark.plugin.param import dtype, shape

def _rounds(p, x):
    def launch():
        out = x
        for _ in range(ROUNDS):
            out = np.abs(out)
        return out
    return launch

ROUNDS = 10
OPERATORS = (
    Operator(
        name="stranger_abs", summary="the absolute value", category="elementwise",
        params=(shape("shape", "of x"), dtype("float32")),
        inputs=lambda p: {"x": TensorSpec(tuple(p["shape"]), p["dtype"])},
        cost=lambda p: Cost(0, 0, 0),
        reference=lambda p, x: np.abs(x),
        presets={},
        implementations=(Implementation("numpy", _rounds),),
    ),
)
"""


@pytest.mark.parametrize("installed", ["by its path", "by an import hook"])
def test_a_plug_in_is_taken_from_the_revision(repo: Any, tmp_path: Path, db: Path, installed: str) -> None:
    """Installed as editable, as pip does it: a file in site-packages leads to the repository."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "shared.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    info = packages / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[opmark.operators]\nstranger = stranger_ops\n")
    code = repo.path / "python"
    if installed == "by its path":
        (packages / "stranger.pth").write_text(f"{code}\n")
    else:
        (packages / "stranger_finder.py").write_text(
            dedent(f"""
            import sys
            from importlib.machinery import PathFinder

            class Finder:
                @classmethod
                def find_spec(cls, name, path=None, target=None):
                    return PathFinder.find_spec(name, [{str(code)!r}]) if name == "stranger_ops" else None

            sys.meta_path.append(Finder)
            """)
        )
        (packages / "stranger.pth").write_text("import stranger_finder\n")
    first = repo.commit("fast", python__stranger_ops=OPERATORS)
    repo.commit("slow", python__stranger_ops=OPERATORS.replace("ROUNDS = 10", "ROUNDS = 90"))
    before = repo.state()
    done = subprocess.run(
        [str(tmp_path / "venv" / "bin" / "python"), "-m", "opmark", "ab", "stranger_abs", "-p", "shape=2000", *QUICK,
         "--rev", first, "--processes", "5", "--json", "--repo", str(repo.path)],
        capture_output=True, text=True, timeout=200, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    (pair,) = json.loads(done.stdout)["pairs"]
    assert (pair["verdict"], pair["statuses"]) == ("slower", ["ok", "ok"])
    assert pair["ratio"] > 2
    assert repo.state() == before
