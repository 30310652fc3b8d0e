"""Operators of captured steps: shares, distance from the roofline, what to look at first."""

from __future__ import annotations

import io

import pytest
from msgspec.structs import replace

from opmark.analysis.hotspots import make_step_profile
from opmark.report.console.hotspots import print_hotspots
from opmark.report.console.table import PlainConsole
from opmark.schema.call_group import CallGroup, CapturedSteps
from opmark.schema.machine import Level, Peaks

PEAKS = Peaks("chip", "run 1", {"float32": 1e9}, [Level("memory", 1e9)])
CAPTURED = CapturedSteps(
    "step.json",
    2,
    0.2,
    [
        CallGroup("aten::mm", "backward", "1000x1000, 1000x10 float32", "float32", 4, 0.1, 20 * 10**6, 4_040_000, 40),
        CallGroup("aten::relu", "", "1000x1000 float32", "float32", 2, 0.06, None, 4_000_000, 4_000_000),
        CallGroup("aten::view", "", "10x10 float32", "float32", 2, 0.01),
    ],
    0.09,
    between=0.03,
    plain=0.08,
)  # fmt: skip


def screen(peaks: Peaks | None, width: int = 100, height: int = 40, captured: CapturedSteps = CAPTURED) -> list[str]:
    out = io.StringIO()
    print_hotspots(
        make_step_profile(captured, "a chip", peaks),
        PlainConsole(file=out, width=width, height=height, force_terminal=True, color_system=None),
    )
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_shares_and_gains_are_of_one_step() -> None:
    profile = make_step_profile(CAPTURED, "a chip", PEAKS)
    product, relu, view = profile.rows
    assert (profile.seconds, profile.calls) == (0.1, 4)
    assert (product.count, product.total, product.share) == (2, 0.05, 0.5)
    assert (product.least, product.bound) == (pytest.approx(0.02), "compute")
    assert product.gain == pytest.approx(0.05 - 2 * 0.02)
    assert (relu.least, relu.bound) == (pytest.approx(0.008), "memory")  # operations that nobody counts are free
    assert relu.gain == pytest.approx(0.03 - 0.008)
    assert (view.least, view.gain, view.bytes) == (None, None, None)
    assert profile.first is relu
    assert profile.between == pytest.approx(0.15)


def test_the_screen_fits_and_says_what_to_do() -> None:
    lines = screen(PEAKS)
    assert max(map(len, lines)) <= 100
    assert lines[0] == "one step on a chip: 90.0 ms, 80.0 ms without the profiler; 4 calls of torch"
    text = " ".join(line.strip() for line in lines)
    assert "Look at relu 1000x1000 float32: 30 % of the step, and 27 % of what this machine's memory allows." in text
    assert "At the roofline a step would take 22.0 ms less." in text
    assert "opmark calibrate" not in text
    assert "`opmark import step.json -o ops.yaml`" in text


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 40), (200, 60)])
def test_a_screen_shows_as_many_operators_as_it_has_lines_for(width: int, height: int) -> None:
    product = CAPTURED.groups[0]
    groups = [replace(product, name=f"aten::an_operator_{i}") for i in range(30)]
    lines = screen(PEAKS, width, height, replace(CAPTURED, groups=groups))
    assert len(lines) <= height - 3
    assert max(map(len, lines)) <= width
    shown = sum("an_operator" in line for line in lines if not line.startswith("Look at"))
    assert shown == 15 or len(lines) > height - 6, "there was room for another one"
    assert any(f"{30 - shown} others" in line for line in lines)


def test_without_peaks_the_largest_share_comes_first() -> None:
    assert make_step_profile(CAPTURED, "a chip", None).first == make_step_profile(CAPTURED, "a chip", None).rows[0]
    text = " ".join(line.strip() for line in screen(None))
    assert "Look at mm (backward) 1000x1000, 1000x10 float32: 50 % of the step." in text
    assert "The roofline of this machine is not known: `opmark calibrate` measures it." in text
