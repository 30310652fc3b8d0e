"""The datasheets that ship."""

from __future__ import annotations

from importlib.resources import files

import pytest
import yaml

from opmark.hardware.datasheets import VERSION, datasheet, datasheets
from opmark.schema.dtype import DTYPES
from opmark.schema.peaks import MEMORY, Peaks

every_chip = pytest.mark.parametrize("peaks", datasheets(), ids=lambda peaks: peaks.chip)
FILES = [file for file in (files("opmark.hardware") / "zoo").iterdir() if file.name.endswith(".yaml")]


def test_every_chip_of_every_file_is_there_once() -> None:
    written = [chip["chip"] for file in FILES for chip in yaml.safe_load(file.read_text(encoding="utf-8"))["chips"]]
    assert written
    assert sorted(peaks.chip for peaks in datasheets()) == sorted(written)
    assert len(set(written)) == len(written)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_says_which_schema_it_follows(file: object) -> None:
    assert yaml.safe_load(file.read_text(encoding="utf-8"))["schema"] == VERSION  # type: ignore[attr-defined]


@every_chip
def test_a_datasheet_says_where_its_numbers_are_from(peaks: Peaks) -> None:
    assert "datasheet" in peaks.source
    assert peaks.launch == {}
    assert peaks.threads is None


@every_chip
def test_memory_is_the_last_level_and_has_no_size(peaks: Peaks) -> None:
    assert [level.name for level in peaks.levels].index(MEMORY) == len(peaks.levels) - 1
    assert peaks.levels[-1].nbytes is None
    assert all(level.nbytes for level in peaks.levels[:-1])


@every_chip
def test_bandwidths_are_in_bytes_a_second_and_fall_from_level_to_level(peaks: Peaks) -> None:
    """Between a slow processor's memory and a fast accelerator's: a slip of a unit would be a thousandfold."""
    bandwidths = [level.bandwidth for level in peaks.levels]
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert 1e10 < bandwidths[-1] < 2e13


@every_chip
def test_peaks_are_of_known_element_types_in_operations_a_second(peaks: Peaks) -> None:
    assert {"float32", "float16", "bfloat16"} <= peaks.flops.keys() <= DTYPES.keys()
    assert all(1e11 < flops < 1e17 for flops in peaks.flops.values())


@every_chip
def test_half_the_bits_are_never_slower(peaks: Peaks) -> None:
    """float32 without TF32, and everything dense: twice the rate of 16 bits at 8, not four times."""
    for narrow in ("float16", "bfloat16"):
        assert peaks.flops[narrow] > peaks.flops["float32"]
    assert peaks.flops["float32"] >= peaks.flops.get("float64", 0)
    for narrow in peaks.flops.keys() & {"int8", "float8_e4m3fn", "float8_e5m2"}:
        assert peaks.flops[narrow] == pytest.approx(2 * peaks.flops["float16"], rel=0.01)


@every_chip
def test_a_chip_is_found_by_its_exact_name_and_by_its_others(peaks: Peaks) -> None:
    for name in (peaks.chip, *peaks.aliases):
        assert datasheet(name) is peaks


def test_some_chip_has_another_name() -> None:
    assert any(peaks.aliases for peaks in datasheets())


def test_a_name_means_one_chip() -> None:
    names = [name for peaks in datasheets() for name in (peaks.chip, *peaks.aliases)]
    assert len(set(names)) == len(names)


@every_chip
def test_a_name_that_is_only_nearly_the_same_is_another_chip(peaks: Peaks) -> None:
    """Variants of a chip differ in memory and power; the wrong one's peak is worse than none."""
    for other in (peaks.chip.lower(), peaks.chip + " NVL", peaks.chip.removeprefix("NVIDIA "), peaks.chip[:-1]):
        assert datasheet(other) is None


@pytest.mark.parametrize("name", ["", "unknown", "NVIDIA", "AMD EPYC 9654 96-Core Processor"])
def test_an_unknown_chip_has_no_datasheet(name: str) -> None:
    assert datasheet(name) is None


def test_variants_of_a_chip_differ_in_their_memory() -> None:
    large, small = datasheet("NVIDIA A100-SXM4-80GB"), datasheet("NVIDIA A100-SXM4-40GB")
    assert large is not None
    assert small is not None
    assert large.flops == small.flops
    assert large.levels[-1].bandwidth > small.levels[-1].bandwidth


def test_the_h200_by_hand() -> None:
    peaks = datasheet("NVIDIA H200")
    assert peaks is not None
    assert peaks.levels[-1].bandwidth == 4.8e12
    assert (peaks.flops["float32"], peaks.flops["bfloat16"]) == (67e12, 989.5e12)
