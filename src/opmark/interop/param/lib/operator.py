"""PARAM's lib.operator: the interface of operators that a user writes, and their registry."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import wraps
from typing import Any, ClassVar


class OperatorInterface(ABC):
    """An operator of a user: `build` once, then `forward` for each input.

    It runs in a worker, which makes the data and times `forward` alone. The backward pass is that of autograd from the
    result of `forward`; a method `backward` is not called.
    """

    device: str | None = None
    is_opmarks_own: ClassVar[bool] = False
    """Whether opmark knows the operator by its name, so that no worker needs this object."""
    works_in_place: ClassVar[bool] = False
    """Whether `forward` changes its first argument, so that there is no backward pass."""
    built: dict[str, Any] | None = None
    """Arguments of the last build, which a worker repeats."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = cls.__dict__.get("build")
        if own is not None:

            @wraps(own)
            def build(self: OperatorInterface, *args: Any, **kwargs: Any) -> Any:
                self.built = {"args": list(args), "kwargs": kwargs}
                return own(self, *args, **kwargs)

            cls.build = build  # type: ignore[method-assign]

    def build(self, *args: Any, **kwargs: Any) -> None:
        """Construct what `forward` needs, on `self.device`."""
        self.built = {"args": list(args), "kwargs": kwargs}

    def cleanup(self) -> None:  # noqa: B027 - an operator may have nothing to release
        """Release what `build` made."""

    @abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result, and return it if there is to be a backward pass."""

    def create_grad(self) -> None:
        raise NotImplementedError

    def backward(self) -> None:
        raise NotImplementedError


op_map: dict[str, OperatorInterface] = {}
"""Operators by the names that configs use: those of PARAM, once its workloads are loaded, and those of users."""


def user_operator(name: str) -> OperatorInterface | None:
    """Return the operator that a user registered; None for an operator of PARAM, or an unknown name."""
    found = op_map.get(name)
    return None if getattr(found, "is_opmarks_own", False) else found


registering_modules: dict[str, str] = {}
"""The module that registered an operator, by its name: a worker has to load it."""


def register_operator(name: str, operator: OperatorInterface) -> None:
    _register({name: operator}, sys._getframe(1).f_globals["__name__"])


def register_operators(op_dict: Mapping[str, OperatorInterface]) -> None:
    _register(op_dict, sys._getframe(1).f_globals["__name__"])


def _register(operators: Mapping[str, OperatorInterface], module: str) -> None:
    for name, operator in operators.items():
        if name in op_map:
            raise ValueError(f"Duplicate operator registration name: {name}")
        op_map[name], registering_modules[name] = operator, module
