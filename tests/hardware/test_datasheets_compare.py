"""Figures from elsewhere against the datasheet of the same chip."""

from __future__ import annotations

import pytest

from opmark.hardware.datasheets import reconcile, shipped_datasheet
from opmark.schema.machine import MEMORY, Level, Peaks


def chip(name: str, **flops: float) -> Peaks:
    return Peaks(name, "elsewhere", flops, [Level(MEMORY, 3.35e12)], notes={"flops.float16": "of the tensor units"})


def test_a_figure_with_sparsity_is_replaced_by_the_dense_one_and_both_are_told() -> None:
    found, (said,) = reconcile(chip("NVIDIA H100 SXM5", float16=1979e12, int8=3958e12, float32=67e12))
    assert found.flops == {"float16": 989.5e12, "int8": 1979e12, "float32": 67e12}
    assert said == (
        "NVIDIA H100 SXM5: float16, int8 twice the datasheet's, as with sparsity: the datasheet's is used"
    )  # fmt: skip
    assert found.notes["flops.float16"] == (
        "of the tensor units; 1.98 PFLOP/s in the file, 990 TFLOP/s in the datasheet of NVIDIA H100 80GB HBM3: "
        "the datasheet's is used"
    )
    assert "flops.float32" not in found.notes


@pytest.mark.parametrize(("factor", "times", "used"), [(16, "16 times", "datasheet"), (0.5, "0.50 times", "file")])
def test_what_is_beyond_a_chip_is_not_believed_and_what_is_below_is(factor: float, times: str, used: str) -> None:
    found, (said,) = reconcile(chip("AWS Trainium", float16=factor * 190e12))
    assert found.flops == {"float16": min(factor, 1) * 190e12}
    assert said == f"AWS Trainium: float16 {times} the datasheet's: the {used}'s is used"


def test_a_rounded_figure_is_the_same() -> None:
    told = chip("AMD Instinct MI300X", float16=1300e12, float64=1e9, int4=1e12)
    found, said = reconcile(told)
    assert found.flops == told.flops
    assert said == ["AMD Instinct MI300X: float64 0.0000061 times the datasheet's: the file's is used"]


def test_the_names_that_drivers_tell_are_added() -> None:
    found, _ = reconcile(chip("NVIDIA H100 SXM5", float32=67e12))
    sheet = shipped_datasheet("NVIDIA H100 SXM5")
    assert sheet is not None
    assert {found.chip, *found.aliases} == {sheet.chip, *sheet.aliases}


def test_a_chip_that_nobody_knows_stays_as_it_is() -> None:
    told = chip("Fast 9000", float16=1e30)
    assert reconcile(told) == (told, [])
