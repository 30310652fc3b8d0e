"""PARAM's lib.pytorch.operator_impl: the operators that need no registration, which are all functions of torch."""

from __future__ import annotations

from typing import Any

from opmark.interop.param.calls import operator_name
from opmark.interop.param.lib.operator import OperatorInterface
from opmark.plugin.registry import resolve


class TorchOperator(OperatorInterface):
    """A function or class of torch by its name in PARAM."""

    def __init__(self, name: str) -> None:
        self.name = name

    def cleanup(self) -> None:
        self.built = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function in this process, with tensors of torch."""
        function = resolve(operator_name(self.name).replace(":", "."))
        if self.built is not None:
            function = function(*self.built["args"], **self.built["kwargs"])
        return function(*args, **kwargs)
