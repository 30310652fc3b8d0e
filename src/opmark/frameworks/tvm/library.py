"""TVM, imported without torch: everything in opmark that needs TVM takes it from here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _without(module: str) -> Iterator[None]:
    """Hide a module, as if it were not installed. TVM imports torch, which takes seconds, for an exchange of tensors
    that is not used here, and does without it where it is missing."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]


with _without("torch"):
    import tvm
    from tvm import relax, rpc, te, tirx, topi
    from tvm.relax.frontend.onnx import from_onnx
    from tvm.relax.pipeline import legalize_passes, library_dispatch_passes
    from tvm.target import codegen

__all__ = [
    "codegen",
    "first_line",
    "from_onnx",
    "legalize_passes",
    "library_dispatch_passes",
    "relax",
    "rpc",
    "te",
    "tirx",
    "topi",
    "tvm",
]


def first_line(error: Exception) -> str:
    """Return the message of an error of TVM: its first line that is no part of a traceback, and no heading."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    messages = [line for line in lines if not line.startswith(("Traceback", "File ", "[")) and line[-1] != ":"] or lines
    return f"{type(error).__name__}: {messages[0] if messages else ''}"[:400]
