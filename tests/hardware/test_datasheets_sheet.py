"""A hardware file, read strictly and written so that it is read again as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opmark.errors import InvalidFile
from opmark.hardware.datasheets import brief, is_sheet, json_text, read_sheet, sheet_of, yaml_text
from opmark.schema.machine import MEMORY, RATED, Interconnect, Level, Peaks

TEXT = """
schema: 1
chips:
  - chip: Fast 9000
    source: the sheet
    flops: {float32: 8e12, bfloat16: 1.6e+14}
    levels: [{name: L2, nbytes: 1000}, {name: memory, bandwidth: 1e12}]
"""
RATES = st.floats(1e-300, 1e300)
NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1)


@st.composite
def any_peaks(draw: st.DrawFn) -> Peaks:
    sizes = sorted(draw(st.lists(st.integers(1, 10**9), max_size=3)))
    caches = [Level(f"L{i}", draw(st.none() | RATES), nbytes) for i, nbytes in enumerate(sizes, 1)]
    return Peaks(
        draw(NAMES), draw(NAMES), draw(st.dictionaries(st.sampled_from(RATED), RATES)),
        [*caches, Level(MEMORY, draw(RATES))], vendor=draw(st.text("AMD: #'\"")),
        memory=draw(st.none() | st.integers(1, 10**12)), power=draw(st.none() | RATES),
        interconnect=draw(st.lists(st.builds(Interconnect, NAMES, st.none() | RATES, st.none() | st.integers(1, 99)))),
        cores=draw(st.none() | st.integers(1, 512)), notes=draw(st.dictionaries(NAMES, NAMES, max_size=3)),
    )  # fmt: skip


def test_a_file_is_read_with_numbers_as_people_write_them() -> None:
    (chip,) = read_sheet(TEXT, "fast.yaml").chips
    assert chip.flops == {"float32": 8e12, "bfloat16": 1.6e14}
    assert chip.levels == [Level("L2", None, 1000), Level(MEMORY, 1e12)]


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first draw makes a table of all characters
@given(any_peaks())
def test_what_is_written_is_read_again_as_it_was(peaks: Peaks) -> None:
    assert read_sheet(yaml_text([peaks]), "written").chips == [peaks]
    assert sheet_of(json.loads(json_text([peaks])), "written").chips == [peaks]


def test_what_a_chip_does_not_say_is_left_out() -> None:
    (chip,) = read_sheet(TEXT, "fast.yaml").chips
    assert brief(chip).keys() == {"chip", "source", "flops", "levels"}
    assert brief(chip)["levels"] == [{"name": "L2", "nbytes": 1000}, {"name": "memory", "bandwidth": 1e12}]
    assert "null" not in yaml_text([chip])


@pytest.mark.parametrize(
    ("data", "yes"),
    [({"chips": []}, True), ({"schema": 1, "chips": 3}, True), ({"chips": [], "cases": []}, False), (None, False)],
)  # fmt: skip
def test_a_hardware_file_is_told_by_its_chips(data: Any, yes: bool) -> None:
    assert is_sheet(data) is yes


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema: 1", "schema: 9", "schema 9; this opmark reads 1"),
        ("float32: 8e12", "fp32: 8e12", r"unknown element type `fp32`, at `\$\.chips\[0\]\.flops`"),
        ("8e12", "-8e12", r"expected a number above 0, got -8000000000000.0, at `\$\.chips\[0\]\.flops\.float32`"),
        ("8e12", ".inf", "expected a number above 0, got inf"),
        ("8e12", "fast", "expected a number, got text"),
        ("source: the sheet", "sauce: the sheet", "unknown key `sauce`"),
        ("source: the sheet", "power: 0", "missing required field `source`"),
        ("nbytes: 1000", "nbytes: 0", r"above 0, got 0, at `\$\.chips\[0\]\.levels\[0\]\.nbytes`"),
        ("bandwidth: 1e12", "bandwidth: 1e12, nbytes: 80", "the memory has its size in `memory`"),
        ("{name: L2, nbytes: 1000}", "{name: L2, nbytes: 9}, {name: L1, nbytes: 8}", "the smallest cache first"),
        ("chip: Fast 9000", "chip: Fast 9000\n    aliases: [Fast 9000]", "`Fast 9000` stands for two chips"),
        ("chip: Fast 9000", "chip: Fast 9000\n    chip: Fast 8000", r"fast\.yaml:5:5: key `chip` appears twice"),
        ("flops: {", "flops: [", r"fast\.yaml:\d+:\d+: "),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(InvalidFile, match=message) as caught:
        read_sheet(TEXT.replace(old, new, 1), "fast.yaml")
    assert caught.value.message.startswith("fast.yaml")


def test_the_nearest_element_type_is_a_hint() -> None:
    with pytest.raises(InvalidFile) as caught:
        read_sheet(TEXT.replace("float32", "flaot32"), "fast.yaml")
    assert (caught.value.hint or "").startswith("did you mean `float32`?")
