"""What two launches have in common that may share compiled code: everything but the data of their tensors."""

from __future__ import annotations

from functools import partial
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

import torch


def kind(value: Any) -> tuple[Any, ...]:
    """Equal for launches of the same function on tensors of the same shapes, types and places, with the same numbers
    beside them. What it cannot look into counts by its type: whoever shares code has to notice a difference."""
    if isinstance(value, torch.Tensor):
        return (value.dtype, tuple(value.shape), _strides(value), value.device, value.requires_grad)
    if isinstance(value, partial):
        return ("partial", kind(value.func), kind(value.args), kind(value.keywords))
    if isinstance(value, MethodType):
        return ("method", value.__func__, kind(value.__self__))
    if isinstance(value, BuiltinMethodType):
        bound = value.__self__
        return ("builtin", value.__qualname__, kind(bound) if isinstance(bound, torch.Tensor) else ())
    if isinstance(value, FunctionType):
        return ("function", value.__code__, kind(_captured(value)), kind(value.__defaults__ or ()))
    if isinstance(value, list | tuple):
        return (type(value), *map(kind, value))
    if isinstance(value, dict):
        return ("dict", *((repr(key), kind(item)) for key, item in value.items()))
    if isinstance(value, torch.nn.Module):
        return (type(value), repr(value), *(kind(tensor) for tensor in value.state_dict().values()))
    plain = isinstance(value, bool | int | float | complex | str | torch.dtype | torch.device | None)
    return (type(value), repr(value) if plain else "")


def _strides(tensor: Any) -> tuple[int, ...]:
    return tuple(tensor.stride()) if tensor.layout == torch.strided else ()


def _captured(function: FunctionType) -> list[Any]:
    """What a closure holds; a function that holds itself would never end."""
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    return [type(item) if item is function else item for item in held]
