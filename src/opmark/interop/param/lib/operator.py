"""PARAM's lib.operator: the interface of operators that a user writes, and their registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import wraps
from typing import Any


class OperatorInterface(ABC):
    """An operator of a user: `build` once, then `forward` for each input.

    It runs in a worker, which makes the data and times `forward` alone. The backward pass is that of autograd from the
    result of `forward`; a method `backward` is not called.
    """

    device: str | None = None
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
"""Operators of users by the names that configs use."""


def register_operator(name: str, operator: OperatorInterface) -> None:
    if name in op_map:
        raise ValueError(f"Duplicate operator registration name: {name}")
    op_map[name] = operator


def register_operators(op_dict: Mapping[str, OperatorInterface]) -> None:
    for name, operator in op_dict.items():
        register_operator(name, operator)
