"""PARAM's lib.pytorch.operator_impl: the operators that need no registration, which are all functions of torch."""

from __future__ import annotations

from typing import Any

from opmark.interop.param.calls import ParamCall, operator_name
from opmark.interop.param.lib.operator import OperatorInterface
from opmark.plugin.registry import resolve


class TorchOperator(OperatorInterface):
    """A function or class of torch by its name in PARAM. `build` keeps the arguments for the worker."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.built: ParamCall | None = None

    def build(self, *args: Any, **kwargs: Any) -> None:
        self.built = ParamCall(list(args), kwargs)

    def cleanup(self) -> None:
        self.built = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function in this process, with tensors of torch."""
        function = resolve(operator_name(self.name).replace(":", "."))
        return (
            function(*self.built.args, **self.built.kwargs)(*args, **kwargs)
            if self.built
            else function(*args, **kwargs)
        )
