"""The fixture through sessions of pytest: pass, fail, warn, update, and the table."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from pytest_opmark.fixture import _described, _locate

from conftest import Session

OPERATOR = """
    def test_fast(opmark):
        opmark.check("exp", shape=[64, 64], backend="null", processes=2)
"""
FUNCTION = """
    import time

    def work(x):
        time.sleep({seconds})
        return x

    def test_own(opmark):
        opmark.check_function(work, "16 float32", backend="numpy-cpu", processes=5, samples=5, warmup=1, threads=1)
"""


def labels(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "runs.db") as store:
        return [label for (label,) in store.execute("select label from runs order by number")]


def test_without_a_baseline_it_warns_and_says_how_to_make_one(session: Session) -> None:
    done = session(test_a=OPERATOR)
    assert done.returncode == 0, done.stdout
    assert "OpmarkUndecided: exp: no baseline `pytest` has it; --opmark-update measures one" in done.stdout
    assert "no baseline" in done.stdout.partition("= opmark =")[2]


def test_a_mistake_fails_without_a_baseline_too_and_is_said_once(session: Session) -> None:
    done = session(test_a="def test_typo(opmark):\n    opmark.check('exp', shap=[64])\n")
    assert done.returncode == 1, done.stdout
    assert "did you mean `shape`?" in done.stdout
    assert "another exception occurred" not in done.stdout


def test_a_baseline_is_stored_and_then_held_against(session: Session, tmp_path: Path) -> None:
    first = session("--opmark-update", test_a=OPERATOR)
    assert first.returncode == 0, first.stdout
    assert "baseline stored" in first.stdout
    assert labels(tmp_path) == ["pytest"]
    second = session()
    assert second.returncode == 0, second.stdout
    (row,) = [line for line in second.stdout.splitlines() if line.startswith("test_a.py::test_fast ")]
    assert "exp 64x64 float32" in row
    assert row.split()[-1] in ("same", "cleared", "faster", "undecided")


def test_a_function_that_became_slower_fails_and_says_by_how_much(session: Session, tmp_path: Path) -> None:
    """Its file is no part of a repository, so that the old one cannot be measured again: `fail_on` decides."""
    strict = FUNCTION.replace("threads=1)", 'threads=1, fail_on="slower,unconfirmed")')
    assert session("--opmark-update", test_a=strict.format(seconds=0.002)).returncode == 0
    slow = session(test_a=strict.format(seconds=0.02))
    assert slow.returncode == 1, slow.stdout
    assert "opmark: test_a:work 16 float32 on numpy-cpu" in slow.stdout
    assert "of the baseline's time" in slow.stdout
    assert "Traceback" not in slow.stdout
    lenient = session(test_a=FUNCTION.format(seconds=0.02))
    assert lenient.returncode == 0, lenient.stdout
    assert "unconfirmed" in lenient.stdout, "it cannot be told from a slower machine, which is a warning"
    (warning,) = [line for line in lenient.stdout.splitlines() if "OpmarkUndecided: " in line]
    assert "is no part of a git repository" in warning
    assert 'fail_on="slower,failed,unconfirmed"' in warning


def test_other_labels_and_the_ini_file(session: Session, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nopmark_baseline = main\n")
    assert session("--opmark-update", test_a=OPERATOR).returncode == 0
    assert session("--opmark-update", "--opmark-baseline", "other").returncode == 0
    assert labels(tmp_path) == ["main", "other"]


def test_each_test_finds_its_own_case_under_one_label(session: Session, tmp_path: Path) -> None:
    two = """
        import pytest

        @pytest.mark.parametrize("op", ["exp", "sin"])
        def test_fast(opmark, op):
            opmark.check(op, shape=[64, 64], backend="null", processes=2)
    """
    assert session("--opmark-update", test_a=two).returncode == 0
    assert labels(tmp_path) == ["pytest", "pytest"]
    done = session()
    assert done.returncode == 0, done.stdout
    assert "no baseline" not in done.stdout
    assert done.stdout.count("test_a.py::test_fast[") >= 2


def test_the_table_survives_processes_side_by_side(session: Session) -> None:
    pytest.importorskip("xdist")
    done = session("-n", "2", "--opmark-update", test_a=OPERATOR, test_b=OPERATOR)
    assert done.returncode == 0, done.stdout
    table = done.stdout.partition("= opmark =")[2]
    assert {"test_a.py::test_fast", "test_b.py::test_fast"} <= {line.split(" ")[0] for line in table.splitlines()}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('opmark.check("epx", shape=[2])', "no operator named `epx`"),
        ('opmark.check("exp", shpe=[2])', "shpe"),
        ('opmark.check("exp", shape=[2], backend="nul")', "no backend named `nul`"),
        ("opmark.check_function(lambda x: x, '2 float32')", "has no name at the top of a module"),
        ("opmark.check_function(print, '2 float32', shape=[2])", "takes no `shape`"),
    ],
)
def test_bad_input_fails_with_a_message(session: Session, call: str, message: str) -> None:
    done = session("--opmark-update", test_a=f"def test_it(opmark):\n    {call}\n")
    assert done.returncode == 1
    assert message in done.stdout


def test_arrays_stand_for_their_shape_and_element_type() -> None:
    numpy = pytest.importorskip("numpy")
    assert _described(numpy.zeros((2, 3), "float32")) == "2x3 float32"
    assert _described(numpy.float32(1)) == "() float32"
    assert _described("4x4 float32") == "4x4 float32"
    assert _described(3) == 3
    name, folder = _locate(numpy.linalg.norm)
    assert name.endswith(":norm")
    assert (folder / "numpy").is_dir()
