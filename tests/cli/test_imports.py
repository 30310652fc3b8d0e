"""The parent imports no framework: every command is quick, and works where none is installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

FRAMEWORKS = {"torch", "jax", "tensorflow", "onnxruntime", "triton", "openvino", "tvm", "mxnet"}

SCRIPT = """
import sys
sys.argv[0] = "opmark"
from opmark.cli.main import main
try:
    main()
finally:
    sys.stdout.flush()
    own = lambda name: "." not in name or name.startswith("opmark.")
    print("modules:", *filter(own, sys.modules), file=sys.stderr)
"""


def modules(done: Any) -> set[str]:
    assert done.code == 0, done.err
    found = set(done.line("modules:").split())
    assert "typer" in found, "the list is not that of the process"
    return found


SMALL = ["--size", "small", "--effort", "quick"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["list", "ops"],
        ["list", "suites"],
        ["list", "backends"],
        ["list", "backends", "--json"],
        ["describe", "matmul"],
        ["run", "--suite", "quick", "--dry-run", "--backend", "torch-cpu"],
        ["run", "add", *SMALL, "--backend", "null"],
        ["run", "add", *SMALL, "--backend", "null", "--json"],
    ],
    ids=" ".join,
)
def test_no_framework_is_imported(opmark: Command, arguments: list[str]) -> None:
    assert modules(opmark(*arguments, script=SCRIPT)) & FRAMEWORKS == set()


def test_showing_a_run_imports_no_framework(opmark: Command, db: Path) -> None:
    assert opmark("run", "add", *SMALL, "--backend", "null").code == 0
    assert modules(opmark("show", script=SCRIPT)) & FRAMEWORKS == set()


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_measuring_with_a_framework_imports_it_in_the_worker_only(opmark: Command) -> None:
    done = opmark("run", "add", *SMALL, "--backend", "torch-cpu", script=SCRIPT)
    assert modules(done) & FRAMEWORKS == set()
    assert "torch-cpu" in done.out


def test_help_needs_nothing_heavy(opmark: Command) -> None:
    """`opmark --help` answers at once because of what it leaves out."""
    found = modules(opmark("--help", script=SCRIPT))
    assert found & {"numpy", "scipy", "sqlalchemy", "psutil", "yaml"} == set()
    assert {name for name in found if name.startswith(("opmark.api", "opmark.cli.run", "opmark.cli.options"))} == set()


def test_listing_operators_needs_no_store_and_no_statistics(opmark: Command) -> None:
    assert modules(opmark("list", "ops", script=SCRIPT)) & {"scipy", "sqlalchemy", "psutil"} == set()


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # as if it were not installed
from opmark.cli.main import main
main()
"""


def test_where_torch_is_missing_the_default_is_numpy(opmark: Command) -> None:
    done = opmark("run", "add", *SMALL, "--json", script=WITHOUT_TORCH)
    assert done.code == 0
    assert [record["backend"] for record in done.objects] == ["numpy-cpu"]


def test_where_torch_is_missing_its_backends_say_how_to_get_it(opmark: Command) -> None:
    done = opmark("list", "backends", "--json", script=WITHOUT_TORCH)
    found = {row["backend"]: row for row in done.objects}
    assert (found["null"]["here"], found["numpy-cpu"]["here"]) == (True, True)
    torch = [row for name, row in found.items() if name.startswith("torch-")]
    assert len(torch) >= 2
    assert {row["here"] for row in torch} == {False}
    # A vendor's package, which brings its own torch, is named instead.
    reasons = {row["reason"] for row in torch if row["backend"] != "torch-hpu"}
    assert reasons == {"torch is not installed (pip install 'opmark[torch]')"}


def test_where_torch_is_missing_the_plan_says_how_to_get_it(opmark: Command) -> None:
    done = opmark("run", "add", *SMALL, "--backend", "null,torch-cpu", "--dry-run", script=WITHOUT_TORCH)
    assert "torch is not installed (pip install 'opmark[torch]')" in done.out


def test_where_torch_is_missing_asking_for_it_is_a_mistake(opmark: Command, db: Path) -> None:
    done = opmark("run", "add", *SMALL, "--backend", "torch-cpu", script=WITHOUT_TORCH)
    assert done.code == 2
    assert "pip install 'opmark[torch]'" in done.err
    assert not db.exists()


def test_where_torch_is_missing_the_doctor_looks_at_the_rest(opmark: Command) -> None:
    done = opmark("doctor", script=WITHOUT_TORCH)
    assert done.code == 0
    assert "torch is not installed (pip install 'opmark[torch]')" in done.out
    assert "instructions" not in done.out
