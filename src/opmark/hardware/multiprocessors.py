"""How many multiprocessors an NVIDIA GPU has, and in which steps a green context can take some of them."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from opmark.hardware.host import DRIVER_LIBRARY

_COUNT, _CAPABILITY = 16, 75
"""Numbers of attributes in the driver's interface: multiprocessors, and the major number of the compute capability."""
_STEPS = {9: 8, 8: 4, 0: 2}
"""Multiples that the driver gives, by the first major number of the compute capability that has them."""
_NEEDED = "cuGreenCtxStreamCreate"


class Multiprocessors(NamedTuple):
    total: int
    step: int


def multiprocessors() -> Multiprocessors:
    """Return those of the first visible GPU, without a context on it. Raise OSError if the driver does not tell, or has
    no green contexts."""
    driver = ctypes.CDLL(DRIVER_LIBRARY)
    if not hasattr(driver, _NEEDED):
        raise OSError(f"NVIDIA's driver is too old for green contexts: it has no {_NEEDED}")

    def ask(function: str, *arguments: object) -> None:
        if code := getattr(driver, function)(*arguments):
            raise OSError(f"{function} of NVIDIA's driver fails with error {code}")

    device, total, major = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    ask("cuInit", 0)
    ask("cuDeviceGet", ctypes.byref(device), 0)
    ask("cuDeviceGetAttribute", ctypes.byref(total), _COUNT, device)
    ask("cuDeviceGetAttribute", ctypes.byref(major), _CAPABILITY, device)
    return Multiprocessors(total.value, next(step for first, step in _STEPS.items() if major.value >= first))
