"""Hardware names of ByteMLPerf."""

from __future__ import annotations

import pytest

from opmark.errors import UnknownName, UserError
from opmark.interop.general_perf.hardware import HARDWARE, NamedHardware, find_hardware
from opmark.plugin.registry import backends


def test_the_names_are_those_of_bytemlperf() -> None:
    assert set(HARDWARE) == {"CPU", "GPU", "GOYA", "HPU", "IPU", "SPU", "STC"}


@pytest.mark.parametrize("hardware", HARDWARE.values(), ids=lambda one: one.name)
def test_every_backend_that_is_named_ships_and_computes_in_that_framework(hardware: NamedHardware) -> None:
    for framework, backend in hardware.backends.items():
        assert backends()[backend].framework == framework


@pytest.mark.parametrize("name", ["GOYA", "IPU", "SPU", "STC"])
def test_a_chip_without_a_backend_says_what_it_is_and_needs(name: str) -> None:
    hardware = find_hardware(name.lower())
    with pytest.raises(UserError) as caught:
        hardware.backend("torch")
    assert hardware.chip in str(caught.value)
    assert hardware.package in str(caught.value)


def test_hardware_with_one_framework_refuses_the_others() -> None:
    with pytest.raises(UserError, match="HPU has no backend for models of tensorflow; it has torch"):
        find_hardware("HPU").backend("tensorflow")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no hardware type named `GOIA`") as caught:
        find_hardware("GOIA")
    assert "GOYA" in (caught.value.hint or "")
