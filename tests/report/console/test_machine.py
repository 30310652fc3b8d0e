"""Tables of measured peaks and noise."""

from __future__ import annotations

import io

from msgspec.structs import replace
from rich.console import Console, RenderableType

from opmark.report.console.machine import noise_text, peaks_text
from opmark.schema.machine import MEMORY, Floor, Level, NoiseFloor, Peaks

PEAKS = Peaks(
    "Fast [9000]",
    "measured in run 1",
    {"float32": 4e13, "bfloat16": 5e14},
    [
        Level("L2", 8e12, 50 << 20, {"copy": 8e12, "triad": 6e12}),
        Level(MEMORY, 4e12, None, {"copy": 3.5e12, "triad": 4e12}),
    ],
    launch={"latency": 5e-6, "host_time": 2.5e-6},
)
SHEET = Peaks("Fast [9000]", "datasheet", {"float32": 5e13}, [Level(MEMORY, 4.8e12)])
NOISE = NoiseFloor(
    "Fast 9000", "torch-cpu", 4, "2030", 10, 16,
    [Floor("add", "shape=[32, 32]", 1.5e-6, 0.012, 0.034, 1, 8), Floor("matmul", "M=[red]", 2e-3, 0.005, 0.002, 0, 12)],
)  # fmt: skip


def lines(shown: RenderableType, width: int = 200) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(shown)
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_levels_have_what_they_hold_and_both_bandwidths() -> None:
    shown = lines(peaks_text(PEAKS, None))
    assert "level holds copy triad" in shown
    assert "L2 50.0 MiB 8.00 TB/s 6.00 TB/s" in shown
    assert "memory 3.50 TB/s 4.00 TB/s" in shown


def test_products_have_their_rate_by_element_type() -> None:
    shown = lines(peaks_text(PEAKS, None))
    assert "matrix product at best" in shown
    assert "float32 40.0 TFLOP/s" in shown
    assert "bfloat16 500 TFLOP/s" in shown


def test_with_a_datasheet_each_peak_has_its_share_of_it() -> None:
    shown = lines(peaks_text(PEAKS, SHEET))
    assert "level holds copy triad of the datasheet" in shown
    assert "memory 3.50 TB/s 4.00 TB/s 83 %" in shown
    assert "float32 40.0 TFLOP/s 80 %" in shown


def test_what_the_datasheet_does_not_say_has_no_share() -> None:
    shown = lines(peaks_text(PEAKS, SHEET))
    assert "L2 50.0 MiB 8.00 TB/s 6.00 TB/s" in shown
    assert "bfloat16 500 TFLOP/s" in shown


def test_a_level_whose_speed_the_datasheet_does_not_tell_has_no_share() -> None:
    sheet = replace(SHEET, levels=[Level("L2", None, 50 << 20), *SHEET.levels])
    assert "L2 50.0 MiB 8.00 TB/s 6.00 TB/s" in lines(peaks_text(PEAKS, sheet))


def test_the_chip_is_named_as_it_is_and_a_processor_with_its_threads() -> None:
    assert lines(peaks_text(PEAKS, None))[0] == "Fast [9000]"
    assert lines(peaks_text(replace(PEAKS, threads=4), None))[0] == "Fast [9000], 4 threads"


def test_the_smallest_call_is_told_where_it_was_measured() -> None:
    assert lines(peaks_text(PEAKS, None))[-1] == "smallest call: latency 5.00 µs, host_time 2.50 µs"
    assert not any("smallest" in line for line in lines(peaks_text(replace(PEAKS, launch={}), None)))


def test_a_memory_that_could_not_be_measured_is_named() -> None:
    assert "memory not measured" in lines(peaks_text(replace(PEAKS, levels=PEAKS.levels[:1]), None))
    assert "memory not measured" in lines(peaks_text(replace(PEAKS, levels=[]), SHEET))


def test_a_bandwidth_that_only_one_of_both_has_stands_in_its_column() -> None:
    out = io.StringIO()
    level = Level(MEMORY, 4e12, None, {"triad": 4e12})
    Console(file=out, width=200, color_system=None).print(peaks_text(replace(PEAKS, levels=[level]), None))
    head, row = out.getvalue().splitlines()[2:4]
    assert row.index("4.00 TB/s") == head.index("triad")


def test_noise_has_a_row_a_case() -> None:
    shown = lines(noise_text(NOISE))
    assert shown[0] == "case median between processes within a process false verdicts naive test"
    assert shown[1] == "add shape=[32, 32] 1.50 µs 1.2 % 3.4 % 1 of 16 8 of 16"
    assert shown[2] == "matmul M=[red] 2.00 ms 0.50 % 0.20 % 0 of 16 12 of 16"


def test_both_tests_are_told_by_their_share_of_false_verdicts() -> None:
    *_, said, news = lines(noise_text(NOISE), width=1000)
    assert "in 10 processes of torch-cpu ×4, named A and B in 16 ways" in said
    assert "opmark's verdict calls a difference in 3.1 %" in said
    assert said.endswith("a rank test on pooled samples in 62 %")
    assert news.endswith("no news: here up to 2.4 % (add shape=[32, 32])")
