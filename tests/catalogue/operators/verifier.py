"""A process that verifies operators, and the memory of those that have not changed since."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from opmark.hardware.host import cpu_model
from opmark.plugin import Implementation, Operator
from opmark.plugin.registry import backend
from opmark.runner.instruction_set import LIMITS, VARIABLE
from opmark.worker.verify import outputs

SCRIPT = Path(__file__).with_name("verdicts.py")
OWN_SOURCES = [Path(__file__), SCRIPT, SCRIPT.with_name("right_ones.py"), *SCRIPT.parent.glob("test_verified*.py")]
BACKENDS = ("numpy-cpu", "torch-cpu")
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

Verdict = dict[str, Any]


def is_compiled(implementation: Implementation) -> bool:
    """Whether torch.compile compiles it, for seconds, each time that it is built."""
    return implementation.name == "compiled"


class Verifier:
    """Runs verdicts.py with the mildest limit on instructions under which it survives."""

    def __init__(self) -> None:
        self._limits: list[str | None] = [None, *LIMITS]
        self._process = self._start()

    def verdicts(self, name: str, *, compiled: bool) -> list[Verdict]:
        """The verdicts on what is compiled of one operator, or on all else."""
        while True:
            try:
                return list(self._ask(name, compiled))
            except (BrokenPipeError, EOFError):
                code = self._process.wait()
                if code != -signal.SIGILL or len(self._limits) == 1:
                    raise AssertionError(f"verdicts.py ended with {code}, see standard error") from None
                self._limits.pop(0)
                self.close()
                self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        limit = self._limits[0]
        env = {**os.environ, **THREADS} | ({VARIABLE: limit} if limit else {})
        command = [sys.executable, str(SCRIPT)]
        return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _ask(self, name: str, compiled: bool) -> Iterator[Verdict]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{json.dumps([name, compiled])}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            verdict = json.loads(line)
            if verdict["kind"] == "end":
                return
            yield verdict
        raise EOFError

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Unchanged:
    """Which operators a file of tests verified as they are now: by a hash of all that a verdict depends on.

    That is the source of the operator, of verification and of the tests, each with all modules of opmark that they
    import, the versions of the frameworks, and the processor.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def skip_known(self, op: Operator) -> None:
        """Skips the test of an operator that is known, unless OPMARK_TEST_VERDICTS is `all`."""
        if os.environ.get("OPMARK_TEST_VERDICTS") != "all" and self.knows(op):
            pytest.skip("unchanged since it was verified")

    def knows(self, op: Operator) -> bool:
        note = self._note(op)
        return note is not None and note.exists() and note.read_text() == _fingerprint(op.name)

    def remember(self, op: Operator) -> None:
        if note := self._note(op):
            note.write_text(_fingerprint(op.name))

    def _note(self, op: Operator) -> Path | None:
        return self._folder / op.name if self._folder else None


@cache
def _fingerprint(operator: str) -> str:
    versions = [f"{name} {_version(name)}" for name in ("torch", "numpy", "scipy", "ml_dtypes")]
    told = [sys.version, platform.platform(), cpu_model(), *versions, *sorted(map(_digest, sources_of(operator)))]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def sources_of(operator: str) -> set[Path]:
    """The files that the verdicts on an operator depend on."""
    return _common_sources() | set(map(_origin, _with_imports(*_defining_modules()[operator])))


@cache
def _defining_modules() -> dict[str, list[str]]:
    """The modules that have an operator among their OPERATORS, by its name."""
    found: dict[str, list[str]] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("opmark."):
            for op in getattr(module, "OPERATORS", ()):
                if isinstance(op, Operator):
                    found.setdefault(op.name, []).append(name)
    return found


@cache
def _common_sources() -> set[Path]:
    """The files that the verdicts on all operators depend on."""
    modules = [outputs.__name__, *(backend(name).loads.partition(":")[0] for name in BACKENDS)]
    return {*map(_origin, _with_imports(*modules)), *OWN_SOURCES, *SCRIPT.parent.glob("odd/*.py")}


def _with_imports(*modules: str) -> set[str]:
    """These modules of opmark and all others that they import, wherever in them they do."""
    found: set[str] = set()
    left = list(modules)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _imports(name)
    return found


@cache
def _imports(module: str) -> frozenset[str]:
    named: set[str] = set()
    for node in ast.walk(ast.parse(_origin(module).read_text())):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(name for name in named if name.startswith("opmark.") and _is_module(name))


@cache
def _is_module(name: str) -> bool:
    """A name that is imported from a module need not be one."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@cache
def _origin(module: str) -> Path:
    spec = find_spec(module)
    assert spec
    assert spec.origin
    return Path(spec.origin)


@cache
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "none"
