"""Directions of imports and rules for names, checked by reading the sources without importing them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "opmark"
FILES = sorted(SOURCE.rglob("*.py"))

FRAMEWORKS = frozenset(
    {
        "torch",
        "jax",
        "jaxlib",
        "tensorflow",
        "keras",
        "onnx",
        "onnxruntime",
        "openvino",
        "triton",
        "tvm",
        "mxnet",
        "paddle",
    }
)
"""Only the file of its own backend imports one of these when it is loaded."""

GROUND = frozenset({"schema", "errors", "files", "scratch", "units", "stats", "version", "_moved"})
CORE = GROUND | {"plugin"}
BELOW_API = CORE | {"catalogue", "hardware", "store", "runner", "analysis", "report"}

ALLOWED: dict[str, frozenset[str]] = {
    **dict.fromkeys(GROUND, GROUND),
    "plugin": GROUND,
    "catalogue": CORE,
    "frameworks": CORE,
    "hardware": CORE,
    "store": GROUND,
    "worker": CORE | {"hardware"},
    "runner": CORE | {"catalogue", "hardware", "worker", "store"},
    "analysis": CORE | {"store"},
    "report": CORE | {"store", "analysis", "prediction"},
    "models": CORE,
    "traces": CORE | {"models"},
    "tuning": CORE | {"hardware", "store", "runner"},
    "prediction": CORE | {"hardware"},
    "api": BELOW_API | {"models", "traces", "tuning", "prediction"},
    "dashboard": CORE | {"store", "analysis", "report", "api"},
    "interop": BELOW_API | {"models", "traces", "tuning", "api"},
    "cli": GROUND | {"plugin", "report", "api", "dashboard"},
    "__init__": frozenset({"_moved", "errors", "version", "schema", "api", "dashboard"}),
    "__main__": frozenset({"cli"}),
}
"""Packages that each package may import. A package may always import from itself."""


class Import(NamedTuple):
    module: str
    """`opmark.schema.case`, or what stands behind `from`, with the name appended."""
    line: int
    top: bool
    """Whether it is executed when the file is loaded."""
    typing: bool
    """Whether only a type checker sees it."""


WORKER_ONLY = {
    SOURCE / "catalogue" / "families" / "opinfo_samples.py",
    *(SOURCE / "models" / "networks").glob("*.py"),
    *(SOURCE / "models" / "keras_networks").glob("*.py"),
    *(
        path
        for path in (*(SOURCE / "models").glob("*.py"), *(SOURCE / "traces").glob("*.py"))
        if any(
            found.startswith(("import torch", "from torch", "import onnx", "from onnx", "import jax", "from jax"))
            for found in path.read_text().splitlines()
        )
    ),
} - {SOURCE / "models" / folder / "__init__.py" for folder in ("networks", "keras_networks")}
"""Files that import torch, Keras, onnx or jax when they are loaded, so that only workers and child processes import
them: the samples of torch's database, and what runs of a model."""

NSYS = (SOURCE / "runner" / "profilers" / "nsys.py", SOURCE / "traces" / "nvtx.py")
"""Read the SQLite file that nsys exports, which has nothing to do with the store."""

KERNELS = "_kernels.py"
"""Triton reads a kernel's source when its module is loaded, so the module imports Triton; only a worker imports it."""


class Contents(NamedTuple):
    """What the tests look at in a file. All trees together would take a quarter of a gigabyte, in each process."""

    imports: tuple[Import, ...]
    classes: tuple[str, ...]
    docstrings: tuple[tuple[int, str], ...]
    """(line, text), those of attributes too."""


@cache
def contents(path: Path) -> Contents:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    classes, docstrings = [], []
    for node in statements(tree):
        if isinstance(node, ast.ClassDef):
            classes.append(node.name)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings.append((node.lineno, str(node.value.value).strip()))
    return Contents(tuple(imports(tree)), tuple(classes), tuple(docstrings))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield every statement below a node. No expression has one inside, and nearly all nodes are of expressions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


def imports_of(path: Path) -> tuple[Import, ...]:
    return contents(path).imports


def imports(node: ast.AST, *, top: bool = True, typing: bool = False) -> Iterator[Import]:
    """Yield every import below a node, with what decides when it is executed."""
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
        elif not isinstance(child, ast.expr):
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from imports(child, top=top and not inside, typing=typing)


def package(path: Path) -> str:
    """Return the package directly below opmark that a file belongs to, or the name of a file of opmark itself."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def target(module: str) -> str | None:
    """Return the part of opmark that is imported; None for a module of another project."""
    parts = module.split(".")
    if parts[0] != "opmark":
        return None
    known = (SOURCE / parts[1]).is_dir() or (SOURCE / f"{parts[1]}.py").is_file()
    return parts[1] if known else "__init__"


def where(path: Path, found: Import) -> str:
    return f"{path.relative_to(SOURCE.parent)}:{found.line}: {found.module}"


def test_every_package_has_its_directions() -> None:
    assert {package(path) for path in FILES} == ALLOWED.keys()


def test_imports_go_in_the_directions_of_the_design() -> None:
    wrong = []
    for path in FILES:
        here = package(path)
        for found in imports_of(path):
            there = target(found.module)
            if there is not None and there != here and there not in ALLOWED[here]:
                wrong.append(where(path, found))
    assert wrong == []


def test_the_directions_have_no_cycle() -> None:
    order: list[str] = []
    left = {name: set(allowed) - {name} - GROUND for name, allowed in ALLOWED.items() if name not in GROUND}
    while left:
        free = [name for name, needs in left.items() if not needs & left.keys()]
        assert free, f"these packages may import each other: {sorted(left)}"
        order += free
        left = {name: needs for name, needs in left.items() if name not in free}
    assert set(order) == ALLOWED.keys() - GROUND


def test_a_framework_is_loaded_only_by_its_own_package() -> None:
    """At the top of a file a framework is imported only by its backend, which only workers load."""
    wrong = []
    for path in FILES:
        described = path.name == "__init__.py" or "implementations" in path.parts
        own = package(path) == "frameworks" and (not described or path.name == KERNELS)
        for found in imports_of(path):
            framework = found.module.split(".")[0]
            if framework in FRAMEWORKS and found.top and not found.typing and not own and path not in WORKER_ONLY:
                wrong.append(where(path, found))
    assert wrong == []


def test_files_that_run_in_a_worker_only_are_imported_inside_functions() -> None:
    """A module of `WORKER_ONLY` is imported at the top of a file only by another one."""
    names = [".".join(("opmark", *path.relative_to(SOURCE).with_suffix("").parts)) for path in WORKER_ONLY]
    wrong = [
        where(path, found)
        for path in FILES
        if path not in WORKER_ONLY
        for found in imports_of(path)
        if any(f"{found.module}.".startswith(f"{name}.") for name in names) and found.top and not found.typing
    ]
    assert len(WORKER_ONLY) > 10
    assert wrong == []


def test_a_framework_stays_where_it_is_launched_from() -> None:
    wrong = [
        where(path, found)
        for path in FILES
        if package(path) not in {"catalogue", "frameworks", "models", "traces"}
        for found in imports_of(path)
        if found.module.split(".")[0] in FRAMEWORKS
    ]
    assert wrong == []


def test_imports_are_absolute() -> None:
    wrong = [where(path, found) for path in FILES for found in imports_of(path) if found.module.startswith(".")]
    assert wrong == []


def test_sql_stays_inside_the_store() -> None:
    wrong = [
        where(path, found)
        for path in FILES
        if package(path) != "store" and path not in NSYS
        for found in imports_of(path)
        if found.module.split(".")[0] in {"sqlalchemy", "sqlite3", "psycopg"}
    ]
    assert wrong == []


def test_what_a_plug_in_builds_on_needs_no_framework() -> None:
    """When they are loaded, `schema`, `plugin` and `stats` import msgspec alone beyond the standard library: a figure
    of `stats` extends a struct of `schema`. Inside functions, statistics import SciPy and NumPy, the defaults of a
    backend are made with NumPy, and psutil tells how much memory is free."""
    strangers = {
        (package(path), found.module.split(".")[0], found.top)
        for path in FILES
        if package(path) in CORE
        for found in imports_of(path)
        if not found.typing and found.module.split(".")[0] not in {"opmark", *sys.stdlib_module_names}
    }
    allowed = {(part, "msgspec", True) for part in ("schema", "plugin", "stats")}
    allowed |= {(part, "numpy", False) for part in ("stats", "plugin")}
    assert strangers <= allowed | {("stats", "scipy", False), ("plugin", "psutil", False)}


def test_class_names_are_unique() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        for name in contents(path).classes:
            places.setdefault(name, []).append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}: {text[:60]}"
        for path in FILES
        for line, text in contents(path).docstrings
        if text.split(" ")[0] in {"Of", "Those", "That"}
    ]
    assert wrong == []


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
