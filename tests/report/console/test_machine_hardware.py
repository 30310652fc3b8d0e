"""Datasheets as a row and in full."""

from __future__ import annotations

import io

from rich.console import Console

from opmark.report.console.machine import hardware_row, hardware_text
from opmark.schema.machine import MEMORY, Interconnect, Level, Peaks

CHIP = Peaks(
    "Fast [9000]", "the [sheet]", {"float32": 8e13, "bfloat16": 1.28e15},
    [Level("L2", None, 50 << 20), Level(MEMORY, 4e12)], ["Fast 9k"], vendor="Fast", memory=96 * 10**9,
    interconnect=[Interconnect("FastLink", 3e11, 6), Interconnect("PCIe")], power=600, cores=4,
    notes={"power": "guessed"},
)  # fmt: skip
BARE = Peaks("Slow 1", "nobody", {}, [])


def lines(chip: Peaks) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(hardware_text(chip))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_a_row_has_the_peaks_that_most_ask_for() -> None:
    assert hardware_row(CHIP) == {
        "chip": "Fast [9000]", "vendor": "Fast", "memory": "4.00 TB/s", "float32": "80.0 TFLOP/s",
        "16 bits": "1.28 PFLOP/s", "source": "the [sheet]",
    }  # fmt: skip


def test_what_nobody_tells_is_empty() -> None:
    row = hardware_row(BARE)
    assert [row[key] for key in ("vendor", "memory", "float32", "16 bits")] == ["", "", "", ""]
    assert lines(BARE)[:2] == ["Slow 1", "source: nobody"]


def test_a_page_has_all_of_it() -> None:
    shown = lines(CHIP)
    assert shown[:6] == [
        "Fast [9000] (Fast)",
        "source: the [sheet]",
        "also known as: Fast 9k",
        "cores: 4",
        "designed for: 600 W",
        "reaches others by: FastLink (300 GB/s each way, 6 links), PCIe",
    ]
    for line in ("bfloat16 1.28 PFLOP/s", "L2 50.0 MiB", "memory 96.0 GB 4.00 TB/s", "power: guessed"):
        assert line in shown
