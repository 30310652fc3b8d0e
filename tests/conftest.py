"""For every test: the user's own store and notes are out of reach, and live backends are at hand."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from postgres_server import Server, programs
from undisturbed import calm_worker, without_disturbance

from opmark.hardware.host import affinity
from opmark.plugin import Backend
from opmark.plugin.registry import backend as find_backend
from opmark.runner.worker_process import WorkerProcess
from opmark.schema import Record, Task
from opmark.worker.task_runner import TaskRunner

TESTS = Path(__file__).parent
pytest_plugins = ["again", "rank_fixtures", "worker_fixtures", "nvml_fixtures"]

CALM = TESTS / "helpers" / "calm"
"""On the path of every process that a test starts."""
FAKE_PROFILERS = TESTS / "runner" / "profilers" / "fakes"


GROUPS = (
    "store", "dashboard", "verdicts", "ranks", "frameworks", "judge", "models", "traces", "tuning", "fleet", "interop",
    "machine", "docs",
)  # fmt: skip
"""Markers of whole files. A file is of a group by its `pytestmark`, or else because a folder above it is called so."""
REST = "rest"

HOMES = count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--group", choices=[*GROUPS, REST], help="read files of this group only; `rest` is all files without a group"
    )


def pytest_configure() -> None:
    """Lets SIGINT through. A shell has its background jobs ignore it, and processes that a test starts inherit that.
    Takes Hypothesis' limit on the time of an example away, which a busy machine exceeds."""
    if find_spec("hypothesis"):
        from hypothesis import settings

        settings.register_profile("opmark", deadline=None)
        settings.load_profile("opmark")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out files before they are imported: those of other groups bring other frameworks and servers along."""
    if not collection_path.match("test_*.py"):
        return None
    group = config.getoption("--group")
    if group and group not in (_groups_of(collection_path) or {REST}):
        return True
    if config.getoption("-m") == "serial" and "serial" not in _file_markers(collection_path):
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for group in _groups_of(item.path):
            item.add_marker(group)


@cache
def _groups_of(file: Path) -> set[str]:
    folders = set(file.relative_to(TESTS).parts[:-1]) - {"frameworks"}  # most tests of these packages are quick
    return _file_markers(file) & set(GROUPS) or folders & set(GROUPS)


@cache
def _file_markers(file: Path) -> set[str]:
    """The markers that stand anywhere in a file of tests."""
    return set(re.findall(r"pytest\.mark\.(\w+)", file.read_text()))


@pytest.fixture(autouse=True)
def isolated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home for the data, cache and state of this test alone; the default store lies below `data`.

    The folder is not made here, because most tests write nothing. Where a test has a `tmp_path`, that is the home.
    """
    if "tmp_path" in request.fixturenames:
        home: Path = request.getfixturevalue("tmp_path")
    else:
        home = request.getfixturevalue("tmp_path_factory").getbasetemp() / f"home{next(HOMES)}"
    for kind in ("data", "cache", "state"):
        monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", str(home / kind))
    for name in ("OPMARK_DB", "ONEDNN_MAX_CPU_ISA", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal that holds every run, as if no store could be written."""
    path = Path("waiting.sqlite")
    monkeypatch.setattr("opmark.store.backlog.journals_of", lambda location, run_ids: [path])
    return path


@pytest.fixture(scope="session", autouse=True)
def calm() -> Iterator[list[bool]]:
    """Takes what the tests' own load disturbs for measured, in fixtures of every scope: tests run beside each other.
    It yields the switch of tests that are about it."""
    switch = [True]
    measured_here = TaskRunner.run

    def run_here(runner: TaskRunner, task: Task) -> Record:
        record = measured_here(runner, task)
        return without_disturbance(record) if switch[0] else record

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkerProcess, "run", calm_worker(WorkerProcess.run, lambda: switch[0]))
        patch.setattr(TaskRunner, "run", run_here)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(CALM), os.environ.get("PYTHONPATH")])))
        yield switch


@pytest.fixture(autouse=True)
def disturbed(request: pytest.FixtureRequest, calm: list[bool]) -> Iterator[None]:
    """Leaves disturbed measurements of this process as they are in tests that are marked `disturbed`."""
    calm[0] = request.node.get_closest_marker("disturbed") is None
    yield
    calm[0] = True


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    """A torch backend in this process sets threads, grad mode and TF32 for all of it; the next test wants them back."""
    before = _torch_settings()
    yield
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        grad, threads, matmul, cudnn = before or (True, len(affinity()), False, True)
        torch.set_grad_enabled(grad)
        torch.set_num_threads(threads)
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, cudnn


def _torch_settings() -> tuple[bool, int, bool, bool] | None:
    """None where torch is not imported: most tests do without."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    return (torch.is_grad_enabled(), torch.get_num_threads(), *tf32)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One for all tests."""
    folder = programs()
    if folder is None or not find_spec("psycopg"):
        pytest.skip("no PostgreSQL here: `apt-get install postgresql` and `pip install opmark[postgresql]` bring it")
    server = Server(folder)
    yield server
    server.remove()


@pytest.fixture
def postgres_url(postgres_server: Server) -> str:
    """The address of a database that nobody else uses."""
    return postgres_server.new_database()


@pytest.fixture
def null() -> Backend:
    return find_backend("null").load(threads=1)


@pytest.fixture
def numpy_cpu() -> Backend:
    return find_backend("numpy-cpu").load(threads=1)


@pytest.fixture
def torch_cpu() -> Backend:
    return find_backend("torch-cpu").load(threads=1)


@pytest.fixture
def fake(tmp_path: Path) -> Callable[[str], str]:
    """The path of a program that behaves like the profiler of that name."""

    def make(name: str) -> str:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE_PROFILERS / name}.py "$@"\n')
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def start_process() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """start_process(*command, **options): starts a program as a shell would, in a process group of its own.

    What it writes comes through pipes. The program and its pipes end with the test, also where the test fails: a pipe
    that is left open would be blamed on a later test.
    """
    with ExitStack() as stack:

        def start(*command: str | Path, **options: Any) -> subprocess.Popen[str]:
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            process = subprocess.Popen(command, text=True, start_new_session=True, **{**pipes, **options})
            stack.enter_context(process)  # closes its pipes and waits for it
            stack.callback(_kill_group, process)
            return process

        yield start


def _kill_group(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


class Repository:
    """A git repository of a test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        self.exclude.write_text("__pycache__/\n")  # as most projects do

    @property
    def exclude(self) -> Path:
        return self.path / ".git" / "info" / "exclude"

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(self.path), *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def write(self, **files: str) -> None:
        """`a__b=TEXT` is a/b.py."""
        for name, text in files.items():
            place = self.path / f"{name.replace('__', '/')}.py"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)

    def commit(self, subject: str = "a change", **files: str) -> str:
        """Its hash."""
        self.write(**files)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def state(self) -> tuple[str, ...]:
        """All that nobody may change: files, index, branches, worktrees."""
        asked = (["status", "--porcelain"], ["for-each-ref"], ["worktree", "list"], ["symbolic-ref", "HEAD"], ["diff"])
        return tuple(self.git(*arguments) for arguments in asked)


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """An empty one, with nobody's settings."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Ada Byron")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ada@example.org")
    return Repository(tmp_path / "repository")
