"""The tables of guests, as the parent reads them, who may have neither their frameworks nor a use for NumPy."""

from __future__ import annotations

import subprocess
import sys

import pytest

READ = """
import importlib, pkgutil, sys
table = importlib.import_module(f"opmark.frameworks.{sys.argv[1]}.implementations")
for module in pkgutil.iter_modules(table.__path__, f"{table.__name__}."):
    importlib.import_module(module.name)
print(*{"numpy", sys.argv[1]} & sys.modules.keys())
"""


@pytest.mark.parametrize("framework", ["tensorflow", "mxnet"])
def test_reading_a_table_imports_neither_its_framework_nor_numpy(framework: str) -> None:
    done = subprocess.run([sys.executable, "-c", READ, framework], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
