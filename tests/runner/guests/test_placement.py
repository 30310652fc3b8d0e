"""Workers in other interpreters: a virtual environment without packages, and programs that are not Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opmark.api.result import Result
from opmark.api.run import plan as api_plan
from opmark.api.run import run as api_run
from opmark.errors import UserError
from opmark.plugin.registry import backend
from opmark.runner.guests import bootstrap, placement
from opmark.runner.guests.environments import inspect_interpreter
from opmark.runner.guests.placement import choose_interpreter, why_missing, worker_command


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="session")
def borrowing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment that sees this one's NumPy and nothing else of it."""
    import numpy

    place = tmp_path_factory.mktemp("guest") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (site,) = place.glob("lib/python*/site-packages")
    where = Path(numpy.__file__).parents[1]
    for item in where.glob("numpy*"):
        (site / item.name).symlink_to(item)
    return place / "bin" / "python"


def run(python: Path, **options: object) -> Result:
    return api_run(
        "add", params={"shape": [8, 8]}, backend="numpy-cpu", python=str(python), effort="quick", samples=3, warmup=0,
        processes=1, db=":memory:", say=lambda line: None, **options,
    )  # fmt: skip


def test_a_backend_runs_in_any_interpreter_that_has_its_framework(borrowing: Path) -> None:
    (record,) = (found := run(borrowing)).records
    assert (record.status, record.task.backend) == ("ok", f"numpy-cpu@{borrowing}")
    facts = found.environments[record.environment]
    assert facts["interpreter"] == str(borrowing)
    assert facts["scipy"] is None  # the guest has no SciPy, and this operator needs none
    assert record.verification is not None
    assert record.verification.checked == "full"


def test_a_folder_stands_for_its_interpreter(borrowing: Path) -> None:
    assert choose_interpreter(backend(f"numpy-cpu@{borrowing.parents[1]}")).python == str(borrowing)


def test_two_interpreters_are_two_columns(borrowing: Path) -> None:
    plan = api_plan("add", backend="numpy-cpu", python=[sys.executable, str(borrowing)], effort="quick")
    assert {task.backend for task in plan.tasks} == {f"numpy-cpu@{sys.executable}", f"numpy-cpu@{borrowing}"}


def test_a_missing_package_is_reported_with_the_interpreter(borrowing: Path) -> None:
    assert why_missing(backend(f"torch-cpu@{borrowing}")) == f"torch is not installed in {borrowing}"


def test_opmark_comes_from_the_parent_with_its_entry_points() -> None:
    names = {path.name for path in placement.link_opmark().iterdir()}
    assert "opmark" in names
    (info,) = placement.link_opmark().glob("opmark-*.dist-info")
    assert "[opmark.backends]" in (info / "entry_points.txt").read_text()


def test_what_a_worker_needs_is_lent_where_the_guest_lacks_it(borrowing: Path) -> None:
    guest = inspect_interpreter(str(borrowing), ("numpy", *placement.WORKER_PACKAGES))
    assert guest.has == ("numpy",)
    lent = placement.provide_packages(guest)
    assert lent is not None
    assert {path.name for path in lent.iterdir()} == set(placement.WORKER_PACKAGES)
    has_all = inspect_interpreter(sys.executable, ("numpy", *placement.WORKER_PACKAGES))
    assert placement.provide_packages(has_all) is None


def test_this_interpreter_is_started_as_it_is() -> None:
    assert worker_command(backend("numpy-cpu"), "opmark.worker.main") == [sys.executable, "-m", "opmark.worker.main"]


def test_a_path_that_is_no_interpreter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no interpreter and no environment"):
        run(tmp_path / "nowhere")
    with pytest.raises(UserError, match="is not a program"):
        run(Path(__file__))
    with pytest.raises(UserError, match="does not answer as Python does: oh no"):
        run(program(tmp_path / "python", "echo oh no >&2; exit 3"))


def test_an_interpreter_that_is_too_old_says_so() -> None:
    old = "import sys; sys.version_info = (3, 8, 1); sys.argv = list('bhsm'); "
    done = subprocess.run(
        [sys.executable, "-c", f"{old}exec(open({bootstrap.__file__!r}).read())"], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "is Python 3.8; a worker needs 3.10 or newer" in done.stderr


def test_a_guest_without_numpy_says_what_to_install(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    python = tmp_path / "bare" / "bin" / "python"
    command = worker_command(backend(f"null@{python}"), "opmark.worker.main")
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"{python} -m pip install numpy" in found.stderr


def test_a_guest_that_breaks_is_a_record_and_not_a_crash(borrowing: Path, tmp_path: Path) -> None:
    """The interpreter answers questions, and dies when a worker is started in it."""
    python = program(
        tmp_path / "python",
        f'case "$1" in *bootstrap.py) echo no more >&2; kill -ABRT $$;; *) exec {borrowing} "$@";; esac',
    )
    (record,) = run(python).records
    assert record.status == "error"
    assert "SIGABRT" in record.reason
    assert "no more" in record.reason
