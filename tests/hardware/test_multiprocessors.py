"""Multiprocessors of a made-up GPU."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from opmark.hardware.multiprocessors import Multiprocessors, multiprocessors

TOTAL, MAJOR = 16, 75


def driver(major: int, total: int, init: int = 0) -> Any:
    def attribute(value: Any, number: int, _: Any) -> int:
        value._obj.value = {TOTAL: total, MAJOR: major}[number]
        return 0

    return SimpleNamespace(
        cuInit=lambda _: init, cuDeviceGet=lambda *_: 0, cuDeviceGetAttribute=attribute, cuGreenCtxStreamCreate=None
    )


@pytest.mark.parametrize(("major", "step"), [(7, 2), (8, 4), (9, 8), (10, 8), (12, 8)])
def test_the_step_follows_from_the_architecture(major: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver(major, 132))
    assert multiprocessors() == Multiprocessors(132, step)


def test_a_driver_that_is_too_old_or_refuses_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    with pytest.raises(OSError, match="too old for green contexts"):
        multiprocessors()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver(9, 132, init=100))
    with pytest.raises(OSError, match="cuInit of NVIDIA's driver fails with error 100"):
        multiprocessors()
