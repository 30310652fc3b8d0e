"""PARAM's lib.pytorch.operator_impl: the operators that need no registration, and the kinds that a user registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.catalogue.families.callables import find_callable
from opmark.interop.param.calls import ParamCall, make_call, operator_name
from opmark.interop.param.lib.operator import OperatorInterface
from opmark.plugin.registry import resolve


class TorchOperator(OperatorInterface):
    """A function or class of torch by its name in PARAM, which opmark calls itself: it does not run in the worker."""

    is_opmarks_own = True

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


class CallableOp(OperatorInterface):
    """A function, called with the arguments as they are."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.func(*args, **kwargs)


class UnaryOp(OperatorInterface):
    """A method that changes its tensor in place, as `add_`; it has no backward pass."""

    works_in_place = True

    def __init__(self, func_name: str) -> None:
        self.func_name = func_name

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with resolve("torch.no_grad")():
            return getattr(args[0], self.func_name)(*args[1:], **kwargs)


class BuildableOp(OperatorInterface):
    """A class whose object is made first, on the device, and then called."""

    def __init__(self, constructor: Callable[..., Any]) -> None:
        self.constructor = constructor
        self.func: Any = None

    def build(self, *args: Any, **kwargs: Any) -> None:
        self.func = self.constructor(*args, **kwargs).to(self.device)

    def cleanup(self) -> None:
        self.func = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.func(*args, **kwargs)


class TorchScriptOp(OperatorInterface):
    """An operator of ATen, built from its schema or, in older files, from a list of types."""

    def __init__(self, func_name: str) -> None:
        self.func_name = func_name
        self._schema: Any = None

    def build(self, schema: Any) -> None:
        self._schema = schema

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        call = make_call(self.func_name, self.func_name, ParamCall([self._schema], {}), ParamCall(list(args), kwargs))
        return find_callable(call.op)(*call.args, **call.kwargs)
