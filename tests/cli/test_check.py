"""opmark check"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from compared import QUIET, keep

from opmark.api import confirm
from opmark.api.baseline import BaselineLost

pytestmark = [pytest.mark.verdicts, pytest.mark.usefixtures("steps")]

Command = Callable[..., Any]

BASE, NOW = "20300101-000000-aaaa", "20300102-000000-bbbb"
SUM = "import numpy as np\ndef f(x):\n    for _ in range(20):\n        x = np.abs(x)\n    return x\n"
CALL = ["work:f", "--args", "[20000 float32]", "--backend", "steps-cpu", "--threads", "1", "--effort", "quick"]


def rows(**factors: float | str) -> dict[tuple[str, str], Any]:
    return {
        ("torch-cpu", op): value if isinstance(value, str) else [1e-3 * value * one for one in QUIET]
        for op, value in factors.items()
    }


@pytest.fixture
def stored(db: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is now is gone, so that nothing is measured again."""
    keep(db, BASE, "main", rows(exp=1.0, tanh=1.0, sin=1.0))
    keep(db, NOW, "pull", rows(exp=1.0, tanh="no kernel", sin=1.3))
    monkeypatch.setattr(confirm, "baseline_side", lambda *args, **how: BaselineLost("gone"))
    return db


def test_a_slower_revision_fails_and_a_faster_one_does_not(
    opmark: Command, repo: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The baseline is measured again as its revision, in turns with the files as they are."""
    repo.commit("fast", work=SUM)
    monkeypatch.chdir(repo.path)
    assert opmark("run", *CALL, "--processes", "5", "--label", "main").code == 0
    repo.commit("slow", work=SUM.replace("20", "60"))
    before = repo.state()
    summary, report = tmp_path / "summary.md", tmp_path / "new" / "junit.xml"
    slow = opmark("check", *CALL, "--processes", "5", "--baseline", "main", "--markdown", str(summary), "--junit",
                  str(report))  # fmt: skip
    assert slow.code == 1
    assert slow.out.splitlines()[-1].startswith("FAILED: 1 slower")
    assert "measured again in turns: main (" in slow.out
    assert "1 case may be slower on steps-cpu: measured again" in slow.err
    assert summary.read_text().startswith("### ❌ opmark: FAILED: 1 slower")
    assert ElementTree.parse(report).getroot().attrib["failures"] == "1"
    assert repo.state() == before
    repo.commit("faster", work=SUM.replace("20", "5"))
    fast = opmark("check", *CALL, "--processes", "5", "--baseline", "main")
    assert fast.code == 0
    assert fast.out.splitlines()[-1].startswith("passed: 1 faster")


FEW = [*CALL, "--processes", "5"]
TWICE = SUM.replace("20", "60")


def last(done: Any) -> str:
    return str(done.out.splitlines()[-1])


def test_a_module_of_elsewhere_is_not_taken_for_the_same_code(
    opmark: Command, repo: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nor is what the same files call."""
    installed = tmp_path / "installed.py"
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    repo.commit("calls it", work="import installed\ndef f(x):\n    return installed.f(x)\n")
    monkeypatch.chdir(repo.path)
    for call in (["installed:f", *FEW[1:]], FEW):
        installed.write_text(SUM)
        assert opmark("run", *call, "--label", call[0]).code == 0
        installed.write_text(TWICE)
        slow = opmark("check", *call, "--baseline", call[0])
        assert slow.code == 0
        assert last(slow).startswith("passed: 1 unconfirmed")
        assert "WARNING: 1 case was slower twice than the stored numbers of a baseline" in slow.out


def test_a_revision_that_has_to_be_made(opmark: Command, repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (repo.path / ".gitignore").write_text("made.py\n")
    (repo.path / "made.py").write_text("N = 1\n")
    repo.commit("fast", work="import made\n" + SUM)
    monkeypatch.chdir(repo.path)
    assert opmark("run", *FEW, "--label", "main").code == 0
    repo.commit("slow", work="import made\n" + TWICE)
    slow = opmark("check", *FEW, "--baseline", "main")
    assert (slow.code, last(slow)[:21]) == (0, "passed: 1 unconfirmed")
    assert "its revision does not run here: " in slow.out
    slow = opmark("check", *FEW, "--baseline", "main", "--make", "echo N = 1 > made.py")
    assert (slow.code, last(slow)[:16]) == (1, "FAILED: 1 slower")


def test_a_failure_that_does_not_come_again(
    opmark: Command, repo: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    once = tmp_path / "once"
    repo.commit("fine", work=SUM)
    monkeypatch.chdir(repo.path)
    assert opmark("run", *FEW, "--label", "main").code == 0
    fails = f"""
    import os
    if os.path.exists({str(once)!r}):
        os.unlink({str(once)!r})
        raise MemoryError
"""
    repo.commit("once", work=SUM.replace("def f(x):\n", "def f(x):\n" + fails))
    once.touch()
    flaky = opmark("check", *FEW, "--baseline", "main", "--margin", "90%")  # looking for the file takes its time
    assert not once.exists()
    assert flaky.code == 0
    assert " failed" not in last(flaky).partition("(")[0]


def test_the_code_of_a_stored_run_is_measured_again_and_not_the_files_as_they_are(
    opmark: Command, repo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.commit("fast", work=SUM)
    monkeypatch.chdir(repo.path)
    repo.write(work=SUM + "\n")  # so that the baseline is lost
    assert opmark("run", *FEW, "--label", "main").code == 0
    repo.commit("slow", work=TWICE)
    assert opmark("run", *FEW, "--label", "pull").code == 0
    repo.commit("fast again", work=SUM)
    found = opmark("check", "--run", "pull", "--baseline", "main")
    assert (found.code, last(found)[:21]) == (0, "passed: 1 unconfirmed")


def test_what_is_measured_to_check_is_no_part_of_the_history(main: Command) -> None:
    quick = ["exp", "--size", "small", "--backend", "null", "--effort", "quick", "--processes", "5"]
    main("run", *quick, "--label", "main")
    assert main("check", *quick, "--baseline", "main").code == 0
    followed = [json.loads(line) for line in main("history", "exp", "--json").out.splitlines()]
    assert [len(one["points"]) for one in followed] == [1]


def test_a_stored_run(main: Command, stored: Path) -> None:
    done = main("check", "--run", "pull", "--baseline", "main")
    assert done.code == 1
    assert done.out.splitlines()[-1].startswith("FAILED: 1 failed, 1 undecided, 1 same")
    assert "failed in pull: error: no kernel" in done.out
    assert "not measured again: pull cannot be had any more: gone" in done.out


@pytest.mark.parametrize(
    ("words", "code"), [("none", 0), ("slower", 0), ("failed", 1), ("undecided,missing", 1), ("missing", 0)]
)
def test_what_fails_can_be_chosen(main: Command, stored: Path, words: str, code: int) -> None:
    assert main("check", "--run", "pull", "--baseline", "main", "--fail-on", words).code == code


def test_margins_are_shares_or_percents(main: Command, stored: Path) -> None:
    for margin in ("0.5", "50%"):
        found = json.loads(main("check", "--run", "pull", "--baseline", "main", "--margin", margin, "--json").out)
        assert found["counts"] == {"failed": 1, "same": 2}
        assert found["compared"]["margin"] == 0.5
        assert (found["failing"], found["exit"]) == (1, 1)


def test_the_summary_may_go_to_standard_output(main: Command, stored: Path) -> None:
    done = main("check", "--run", "pull", "--baseline", "main", "--markdown", "-")
    assert done.out.startswith("### ❌ opmark: FAILED: 1 failed")
    assert done.out.endswith("</details>\n")


def test_live_code_of_the_same_versions_passes(main: Command) -> None:
    quick = ["exp", "--size", "small", "--backend", "null", "--effort", "quick", "--processes", "5"]
    main("run", *quick, "--label", "main")
    done = main("check", *quick, "--baseline", "main")
    assert done.code == 0
    assert done.out.splitlines()[-1].startswith("passed: 1 same; geometric mean 1.000x")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--run", "pull"], "no baseline is named"),
        (["--run", "pull", "--baseline", "nosuch"], "no run named `nosuch`"),
        (["--run", "nosuch", "--baseline", "main"], "no run named `nosuch`"),
        (["--baseline", "main"], "expected operators, a workload or a suite, got nothing"),
        (["exp", "--run", "pull", "--baseline", "main"],
         "--run is of a run that is stored; operators is for what is measured now"),
        (["--run", "pull", "--baseline", "main", "--backend", "null"],
         "--run is of a run that is stored; --backend is for what is measured now"),
        (["--run", "pull", "--baseline", "main", "--threads", "1"],
         "--run is of a run that is stored; --threads is for what is measured now"),
        (["--run", "pull", "--baseline", "main", "--against-backend", "nosuch"], "no backend named `nosuch`"),
        (["--run", "pull", "--baseline", "main", "--margin", "-1"],
         "--margin: expected a share from 0 to below 1, or in percent, got `-1`"),
        (["--run", "pull", "--baseline", "main", "--margin", "5"],
         "--margin: expected a share from 0 to below 1, or in percent, got `5`"),
        (["--run", "pull", "--baseline", "main", "--fail-on", "slower,slow"], "no reason to fail named `slow`"),
        (["--run", "pull", "--baseline", "main", "--budget", "0"],
         "budget: expected seconds above 0 and up to 1e+06, got 0"),
        (["--run", "pull", "--baseline", "main", "--junit", "/proc/x/y"],
         "/proc/x/y: cannot be written: No such file or directory"),
        (["--run", "pull", "--baseline", "main", "--markdown", "/proc/x/y"],
         "/proc/x/y: cannot be written: No such file or directory"),
    ],
)  # fmt: skip
def test_a_mistake_is_the_users(main: Command, stored: Path, arguments: list[str], said: str) -> None:
    done = main("check", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.line("error:") == said


def test_a_baseline_with_only_failures(main: Command, stored: Path) -> None:
    keep(stored, "20300103-000000-cccc", "broken", rows(exp="x"))
    done = main("check", "--run", "pull", "--baseline", "broken")
    assert done.code == 2
    assert "measured nothing that counts: 1 record, none of them ok or unchecked" in done.line("error:")


def test_a_label_of_several_runs_is_the_newest_baseline(main: Command, stored: Path) -> None:
    keep(stored, "20300103-000000-cccc", "main", rows(exp=1.0))
    done = main("check", "--run", "pull", "--baseline", "main", "--fail-on", "none")
    assert "20300103-000000-cccc" in done.out
    assert main("check", "--run", "pull", "--baseline", "main~1", "--fail-on", "none").code == 0


def test_no_case_in_common(main: Command, stored: Path) -> None:
    keep(stored, "20300103-000000-cccc", "else", rows(cos=1.0))
    done = main("check", "--run", "else", "--baseline", "main")
    assert done.code == 2
    assert done.line("error:").startswith("no case in common: `main` has 3 cases")
