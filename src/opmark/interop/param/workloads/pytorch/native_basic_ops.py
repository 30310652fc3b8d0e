"""PARAM's workloads.pytorch.native_basic_ops: the functions and classes of torch that PARAM knows by name.

opmark calls every function of torch, also one that is not registered.
"""

from __future__ import annotations

from opmark.interop.param.lib.operator import OperatorInterface, register_operators
from opmark.interop.param.lib.pytorch.operator_impl import TorchOperator


def _operators(prefix: str, names: str) -> dict[str, OperatorInterface]:
    return {f"{prefix}{name}": TorchOperator(f"{prefix}{name}") for name in names.split()}


unary_ops = _operators("torch.", "add_ clamp_")
callable_ops = _operators("torch.", "add baddbmm bmm cat matmul mean mm mul nn.functional.relu reshape")
buildable_ops = _operators("torch.nn.", "AdaptiveAvgPool2d Conv2d Dropout MaxPool2d ReLU Linear")
for _some in (unary_ops, callable_ops, buildable_ops):
    register_operators(_some)
