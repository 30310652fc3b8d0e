"""Operators with a schedule for CPUs, which run only on request: `--impl schedule`, or tuned."""

from opmark.frameworks.tvm.program import scheduled_implementations

IMPLEMENTATIONS = scheduled_implementations("cpu", lambda: "cpu")
"""Found by the registry."""
