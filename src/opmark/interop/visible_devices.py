"""Selects one of several devices: workers take it from the environment of this process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opmark.errors import UserError

VARIABLES = {"cuda": "CUDA_VISIBLE_DEVICES", "xpu": "ZE_AFFINITY_MASK"}
"""The variable that lists the devices a process sees, by kind of device."""


def select_device(kind: str, number: int, option: str) -> dict[str, str]:
    """Return variables that let a process see one device only; `number` counts the devices that this process sees.

    `option` is what the user typed, for error messages.
    """
    if kind not in VARIABLES:
        if number == 0:
            return {}
        raise UserError(f"{option}: opmark cannot tell one {kind} from another", "leave the number out, or use 0")
    variable = VARIABLES[kind]
    seen = [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]
    if not seen:
        return {variable: str(number)}
    if number >= len(seen):
        setting = f"{variable}={os.environ[variable]}"
        raise UserError(f"{option}: only {len(seen)} can be seen ({setting})", f"numbers go from 0 to {len(seen) - 1}")
    return {variable: seen[number]}


@contextmanager
def set_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the processes that are started meanwhile, and restore them afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
