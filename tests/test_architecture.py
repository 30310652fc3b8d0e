"""The directions of the imports, kept by reading the sources: nothing is imported here."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "opmark"
FILES = sorted(SOURCE.rglob("*.py"))

FRAMEWORKS = frozenset(
    {"torch", "jax", "jaxlib", "tensorflow", "onnx", "onnxruntime", "openvino", "triton", "tvm", "mxnet", "paddle"}
)
"""What only the file of its own backend may import when it is loaded."""

GROUND = frozenset({"schema", "errors", "units", "stats"})
SOCKETS = frozenset({"interfaces", "registry"})
PARTS = frozenset(
    {
        "operators",
        "frameworks",
        "workloads",
        "importers",
        "backends",
        "hardware",
        "measure",
        "verify",
        "metrics",
        "store",
        "profilers",
        "guests",
        "implementations",
    }
)
READERS = frozenset({"analysis", "report"})
PAGES = frozenset({"charts", "dashboard"})
MEETING = frozenset({"runner", "api", "result"})
TOP = frozenset({"cli", "compat"})
EVERYTHING = GROUND | SOCKETS | PARTS | READERS | PAGES | MEETING | {"version", "exporters", "tabular"}

ALLOWED: dict[str, frozenset[str]] = {
    **dict.fromkeys(GROUND, GROUND),
    "version": frozenset(),
    "interfaces": GROUND,
    "registry": GROUND | {"interfaces"},
    **dict.fromkeys(PARTS, GROUND | SOCKETS | {"version"}),
    "analysis": GROUND | {"registry", "interfaces", "metrics", "store", "version"},
    "report": GROUND
    | {"registry", "interfaces", "metrics", "store", "analysis", "charts", "guests", "tabular", "version"},
    "charts": GROUND | {"metrics", "registry", "analysis"},
    "dashboard": GROUND | SOCKETS | {"api", "analysis", "charts", "report", "store", "version"},
    "exporters": GROUND | SOCKETS | READERS | {"metrics", "importers", "version"},
    "runner": GROUND | SOCKETS | PARTS | {"version"},
    "tabular": GROUND,
    "result": GROUND | SOCKETS | {"analysis", "report", "tabular"},
    "api": GROUND
    | SOCKETS
    | {"result", "runner", "frameworks", "workloads", "store", "hardware", "guests", "version", "report", "analysis"}
    | {"tabular", "charts"},
    "__init__": GROUND | {"api", "dashboard", "guests", "result", "runner", "tabular", "version"},
    "__main__": {"cli"},
    "cli": EVERYTHING | {"compat"},
    "compat": EVERYTHING,
}


class Import(NamedTuple):
    module: str
    """`opmark.schema.case`, or what stands behind `from`, with the name appended."""
    line: int
    top: bool
    """Whether it is executed when the file is loaded."""
    typing: bool
    """Whether only a type checker sees it."""


SAMPLES = SOURCE / "frameworks" / "opinfo_samples.py"
"""Like the file of a backend, it is imported in a worker only."""


KERNELS = "_kernels_"
"""Triton reads a kernel's source when its module is loaded, so it has to be there; a worker alone imports these."""


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(node: ast.AST, *, top: bool = True, typing: bool = False) -> Iterator[Import]:
    """Every import below a node, with what decides when it is executed."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, top, typing) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            dots = "." * child.level
            names = [f"{dots}{child.module or ''}.{alias.name}" for alias in child.names]
            yield from (Import(name, child.lineno, top, typing) for name in names)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            for statement in child.body:
                yield from imports(ast.Module([statement], []), top=top, typing=True)
            for statement in child.orelse:
                yield from imports(ast.Module([statement], []), top=top, typing=typing)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from imports(child, top=top and not inside, typing=typing)


def package(path: Path) -> str:
    """The package directly below opmark that a file belongs to, or its own name."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def target(module: str) -> str | None:
    """The part of opmark that an import is of; None for somebody else's module."""
    parts = module.split(".")
    if parts[0] != "opmark":
        return None
    known = (SOURCE / parts[1]).is_dir() or (SOURCE / f"{parts[1]}.py").is_file()
    return parts[1] if known else "__init__"


def where(path: Path, found: Import) -> str:
    return f"{path.relative_to(SOURCE.parent)}:{found.line}: {found.module}"


def test_the_sources_are_found() -> None:
    assert {"schema", "operators", "backends", "runner", "cli", "store", "report"} <= {package(path) for path in FILES}


def test_every_package_has_its_directions() -> None:
    assert {package(path) for path in FILES} <= ALLOWED.keys()


def test_imports_go_in_the_directions_of_the_design() -> None:
    wrong = []
    for path in FILES:
        here = package(path)
        for found in imports(tree(path)):
            there = target(found.module)
            if there is not None and there != here and there not in ALLOWED[here]:
                wrong.append(where(path, found))
    assert wrong == []


def test_only_the_store_knows_tables_and_columns() -> None:
    knowing = {
        package(path)
        for path in FILES
        for found in imports(tree(path))
        if found.module.split(".")[0] == "sqlalchemy" or found.module.startswith("opmark.store.tables")
    }
    assert knowing == {"store"}


def test_only_the_runner_knows_operators_and_backends() -> None:
    knowing = set()
    for path in FILES:
        targets = {target(found.module) for found in imports(tree(path))}
        if {"operators", "backends"} & targets - {package(path)}:
            knowing.add(package(path))
    assert knowing == {"runner"}


def test_nothing_imports_the_command_line() -> None:
    wrong = [
        where(path, found)
        for path in FILES
        if package(path) not in {"cli", "__main__"}
        for found in imports(tree(path))
        if target(found.module) in TOP - {package(path)}
    ]
    assert wrong == []


def test_a_framework_is_loaded_only_by_the_file_of_its_backend() -> None:
    wrong = []
    for path in FILES:
        for found in imports(tree(path)):
            framework = found.module.split(".")[0]
            own_file = package(path) == "backends" and path.stem.startswith(framework)
            own_file |= path == SAMPLES and framework == "torch"
            own_file |= path.stem.startswith(KERNELS) and framework in ("torch", "triton")
            if framework in FRAMEWORKS and found.top and not found.typing and not own_file:
                wrong.append(where(path, found))
    assert wrong == []


def test_the_file_that_runs_in_a_worker_only_is_imported_inside_functions() -> None:
    """It imports torch at its top, so whoever imports it at the top does too."""
    wrong = [
        where(path, found)
        for path in FILES
        for found in imports(tree(path))
        if f"{found.module}.".startswith("opmark.frameworks.opinfo_samples.") and found.top and not found.typing
    ]
    assert wrong == []


def test_a_framework_stays_where_it_is_launched_from() -> None:
    wrong = [
        where(path, found)
        for path in FILES
        if package(path) not in {"backends", "operators", "frameworks", "implementations"}
        for found in imports(tree(path))
        if found.module.split(".")[0] in FRAMEWORKS
    ]
    assert wrong == []


def test_imports_are_absolute() -> None:
    wrong = [where(path, found) for path in FILES for found in imports(tree(path)) if found.module.startswith(".")]
    assert wrong == []


def test_the_parts_a_plug_in_builds_on_need_no_framework() -> None:
    """Beyond the standard library, the sockets and the nouns stand on msgspec alone; a statistic may ask SciPy and
    NumPy when it is called, and what makes its own values makes them with NumPy."""
    strangers = {
        (package(path), found.module.split(".")[0], found.top)
        for path in FILES
        if package(path) in GROUND | {"interfaces"}
        for found in imports(tree(path))
        if not found.typing and found.module.split(".")[0] not in {"opmark", *sys.stdlib_module_names}
    }
    allowed = {(part, "msgspec", True) for part in ("schema", "interfaces")}
    assert strangers <= allowed | {("stats", "scipy", False), ("stats", "numpy", False), ("interfaces", "numpy", False)}


def test_the_reader_of_imports_sees_all_kinds() -> None:
    """The tests above are worth as much as this one."""
    source = """
import torch
from opmark.schema import Case
from . import near
if TYPE_CHECKING:
    import jax
else:
    import numpy
try:
    import triton
except ImportError:
    pass
def build():
    import onnxruntime
class Backend:
    import tensorflow
"""
    found = {entry.module: (entry.top, entry.typing) for entry in imports(ast.parse(source))}
    assert found == {
        "torch": (True, False),
        "opmark.schema.Case": (True, False),
        "..near": (True, False),
        "jax": (True, True),
        "numpy": (True, False),
        "triton": (True, False),
        "onnxruntime": (False, False),
        "tensorflow": (True, False),
    }
