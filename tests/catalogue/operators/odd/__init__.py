"""Odd sizes and unusual options of operators, beside the small preset of each; one module per family.

`ODD` has lists of parameters by operator; the first of them is also what results are spoiled at. `IMMUNE` names ways of
spoiling that an operator cannot notice, each with its reason beside it.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

_MODULES = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]

ODD: dict[str, list[dict[str, Any]]] = {}
IMMUNE: dict[str, set[str]] = {}
for _module in _MODULES:
    for _name, _cases in getattr(_module, "ODD", {}).items():
        ODD.setdefault(_name, []).extend(_cases)
    for _name, _ways in getattr(_module, "IMMUNE", {}).items():
        IMMUNE.setdefault(_name, set()).update(_ways)
