"""Operators with a schedule for GPUs, which run only on request: `--impl schedule`, or tuned."""

from opmark.frameworks.tvm.program import scheduled_implementations

IMPLEMENTATIONS = scheduled_implementations("cuda", lambda: "cuda")
"""Found by the registry."""
