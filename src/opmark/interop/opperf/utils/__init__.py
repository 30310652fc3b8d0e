"""benchmark.opperf.utils: the functions that measure single operators, and what scripts for opperf use beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from opmark.errors import UserError


def refuse_import(module: str, name: str, reasons: Mapping[str, str]) -> NoReturn:
    """Raise an error for a name of opperf that has no counterpart, with the reason; any other name is not an attribute.

    It is no AttributeError, whose text Python drops from `from ... import`.
    """
    why = next((reason for start, reason in reasons.items() if name.startswith(start)), None)
    if why is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    message = f"{module}: `{name}` exists in opperf, but not in opmark: {why}"
    raise UserError(message, "`run_performance_test` measures operators")
