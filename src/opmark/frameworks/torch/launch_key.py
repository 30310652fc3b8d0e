"""Which launches may share compiled code. The Triton backend asks too, and must not load torch's compiler for it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

import torch

_DEEPEST = 12
"""Levels to look into: a value that contains itself would never end."""


def launch_key(value: Any, deep: int = _DEEPEST) -> Any:
    """A key for launches that may share compiled code: equal for the same function on tensors of the same shapes, types
    and places, with the same other values. A value that cannot be looked into is only equal to itself."""
    if isinstance(value, torch.Tensor):
        return (value.dtype, tuple(value.shape), _strides(value), value.device, value.requires_grad)
    if isinstance(value, bool | int | float | complex | str | torch.dtype | torch.device | None):
        return (type(value), repr(value))
    parts = _parts(value) if deep else None
    if parts is None:
        return _Itself(value)
    return (type(value), *(part if isinstance(part, _Itself) else launch_key(part, deep - 1) for part in parts))


def _parts(value: Any) -> Iterable[Any] | None:
    """The parts of a value; None where it cannot be taken apart."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, dict):
        return [part for key, item in value.items() for part in (repr(key), item)]
    if isinstance(value, partial):
        return (value.func, value.args, value.keywords)
    if isinstance(value, MethodType):
        return (_Itself(value.__func__), value.__self__)
    if isinstance(value, BuiltinMethodType):
        return (value.__qualname__, value.__self__) if isinstance(value.__self__, torch.Tensor) else None
    if isinstance(value, FunctionType):
        held = [cell.cell_contents for cell in value.__closure__ or ()]
        return (_Itself(value.__code__), held, value.__defaults__, value.__kwdefaults__)
    if isinstance(value, torch.nn.Module):
        return (repr(value), *value.state_dict().values())
    own = type(value).__module__.partition(".")[0] not in ("torch", "builtins", "numpy") and hasattr(value, "__dict__")
    return (vars(value),) if own and not isinstance(value, type) else None


class _Itself:
    """Is equal to the same object only, also where that object has an equality of its own, or no hash."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)


def _strides(tensor: Any) -> tuple[int, ...]:
    return tuple(tensor.stride()) if tensor.layout == torch.strided else ()
