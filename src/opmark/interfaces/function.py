"""Function: what an implementation builds for a framework that compiles or differentiates it before it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Function:
    call: Callable[..., Any]
    """A function of tensors by position; everything else is bound. It has no hidden state and changes nothing."""
    arguments: tuple[Any, ...]
    """The tensors that it is applied to, as the backend makes them."""
    state: tuple[Held, ...] = ()
    """Values that it carries from call to call, such as the key of random numbers in a framework that has no hidden
    one: it takes these values behind its arguments, and then returns (its result, the next values)."""

    @classmethod
    def at(cls, path: str, *arguments: Any, **settings: Any) -> Function:
        """The function `module:name` on these tensors, with settings bound by name. It is imported only now, so that
        a table of implementations is read where its library is not installed."""
        module, _, name = path.partition(":")
        call = getattr(import_module(module), name)
        return cls(partial(call, **settings) if settings else call, arguments)


class Held:
    """A place that holds a tensor of a framework whose tensors cannot be changed: other data goes into the same place.

    A backend that makes these takes them apart at every call, so that a launch never holds on to old data.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value
