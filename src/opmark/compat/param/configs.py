"""PARAM's helpers to write a config in code, with their own names (lib/pytorch/config_util)."""

from __future__ import annotations

from typing import Any

from opmark.errors import UnknownName

_GENERATOR = "PyTorch:DefaultDataGenerator"
_NUMBERS = ("int", "long", "float", "double")
_TYPES: dict[str, dict[str, Any]] = {
    **{name: {"type": name, "value": None} for name in (*_NUMBERS, "bool", "device", "str", "genericlist", "tuple")},
    **{f"{name}_range": {"type": name, "value_range": None} for name in _NUMBERS},
    "tensor": {"type": "tensor", "dtype": "float", "shape": None},
}


def create_bench_config(name: str) -> dict[str, Any]:
    """Return a config of one operator, to be filled in."""
    return {name: create_op_info()}


def create_op_info() -> dict[str, Any]:
    """Return an operator without iterators; put results of `create_op_args` into `config[0]["input"]`."""
    return {
        "build_data_generator": _GENERATOR,
        "input_data_generator": _GENERATOR,
        "config": [{"build": [], "input": []}],
    }


def create_op_args(args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"args": args, "kwargs": kwargs}


def create_type(type: str) -> dict[str, Any]:
    """Return an argument of a type, also of `int_range` and the like, whose value is to be set."""
    if type not in _TYPES:
        raise UnknownName("type of PARAM", type, _TYPES)
    return dict(_TYPES[type])
