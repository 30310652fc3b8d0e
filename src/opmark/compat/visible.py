"""Which of several devices is used: workers take it from the environment of this process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opmark.errors import UserError

VARIABLES = {"cuda": "CUDA_VISIBLE_DEVICES", "xpu": "ZE_AFFINITY_MASK"}
"""By device, the variable that says which of them a process sees."""


def only(kind: str, number: int, named: str) -> dict[str, str]:
    """What makes a process see the device of that number alone, counted among those that this one sees.

    `named`: in the words of whoever asks for it.
    """
    if kind not in VARIABLES:
        if number == 0:
            return {}
        raise UserError(f"{named}: opmark cannot tell one {kind} from another", "leave the number out, or take 0")
    variable = VARIABLES[kind]
    seen = [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]
    if not seen:
        return {variable: str(number)}
    if number >= len(seen):
        told = f"{variable}={os.environ[variable]}"
        raise UserError(f"{named}: only {len(seen)} can be seen ({told})", f"numbers go from 0 to {len(seen) - 1}")
    return {variable: seen[number]}


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Processes that are started meanwhile have these variables; afterwards all is as it was."""
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
