"""Operators with a schedule for the target of a board, which run only on request: `--impl schedule`, or tuned."""

from opmark.frameworks.onnx import TVM_BOARD
from opmark.frameworks.tvm.operators import kind_of
from opmark.frameworks.tvm.program import scheduled_implementations

IMPLEMENTATIONS = scheduled_implementations("board", lambda: kind_of(TVM_BOARD.device_facts()["target"]))
"""Found by the registry."""
