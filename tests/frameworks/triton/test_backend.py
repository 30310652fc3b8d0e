"""The Triton backend and its kernels, as far as they can be looked at without a GPU."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from opmark.frameworks.triton import implementations as package
from opmark.plugin.registry import backend, catalogue, implementations
from opmark.runner.guests.placement import why_missing

INFO = backend("triton-cuda")
FOLDER = Path(package.__file__).parent
NAMES = {"add", "softmax", "layer_norm", "rms_norm", "matmul"}


def test_the_operators_with_a_kernel_are_neighbours_of_those_of_torch() -> None:
    found = {name for name, op in catalogue().items() if implementations(op, INFO)}
    assert found == NAMES
    assert all(catalogue()[name].implementations_for("torch") for name in NAMES)


def test_reading_the_table_needs_no_triton() -> None:
    code = (
        "import sys, opmark.frameworks.triton.implementations; sys.exit(bool({'torch', 'triton'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(find_spec("triton") is not None, reason="triton is installed here")
def test_without_triton_it_says_so() -> None:
    assert "triton" in (why_missing(INFO) or "")


def test_every_kernel_is_a_function_of_its_module() -> None:
    """Triton reads it from its source, with the names of the module."""
    for path in FOLDER.glob("_kernels_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        marked = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _is_kernel(node)]
        assert marked
        assert all(node in tree.body for node in marked)


def _is_kernel(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator) == "triton.jit" for decorator in node.decorator_list)


INTERPRETED = """
import torch
from opmark.plugin.registry import candidates, operator

def launch(name, p, **inputs):
    (found,) = (one for one in candidates(operator(name)) if one.framework == "triton" and not one.on_request)
    return found.build(p, **inputs)()

def same(found, expected):
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)

F = torch.nn.functional
for shape in ((3, 7), (2, 3, 1000), (2, 40000)):
    x, weight, bias = torch.randn(shape), torch.rand(shape[-1]), torch.rand(shape[-1])
    wide, of = (x.double(), weight.double(), bias.double()), (shape[-1],)
    same(launch("softmax", {"axis": -1}, x=x), torch.softmax(wide[0], -1))
    same(launch("layer_norm", {"eps": 1e-5}, x=x, weight=weight, bias=bias), F.layer_norm(wide[0], of, *wide[1:]))
    same(launch("rms_norm", {"eps": 1e-5}, x=x, weight=weight), F.rms_norm(wide[0], of, wide[1], 1e-5))
x = torch.randn(3, 130, 70)
for axis in (0, 1, -1):
    same(launch("softmax", {"axis": axis}, x=x), torch.softmax(x.double(), axis))
for y, shape in {"same": (3, 130, 70), "row": (70,), "column": (3, 130, 1), "scalar": (1,)}.items():
    other = torch.randn(shape)
    same(launch("add", {"y": y}, x=x, y=other), x.double() + other.double())
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_kernels_compute_in_the_interpreter() -> None:
    """Triton's own, on the CPU; it does not tune, so that the product is tested on a device only."""
    environ = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", INTERPRETED], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
