"""Resident pages of this process, peak included."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from opmark.worker.measure import instruments
from opmark.worker.measure.instruments import ResidentPages

pytestmark = pytest.mark.serial

MIB = 1 << 20
# The interpreter itself needs a little now and then.
SLACK = 6 * MIB


@pytest.fixture
def probe() -> ResidentPages:
    if sys.platform != "linux" or not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("this kernel does not let a process reset its own peak")
    probe = ResidentPages()
    assert probe.source == "resident pages"
    return probe


def touched(mebibytes: int) -> np.ndarray:
    return np.ones(mebibytes * MIB, np.uint8)


@pytest.mark.parametrize("size", [32, 96])
def test_what_is_allocated_and_touched_shows_in_the_peak(probe: ResidentPages, size: int) -> None:
    before = probe.start()
    kept = touched(size)
    assert probe.peak() - before == pytest.approx(kept.nbytes, abs=SLACK)


def test_what_is_freed_stays_in_the_peak(probe: ResidentPages) -> None:
    before = probe.start()
    touched(64)
    assert probe.peak() - before == pytest.approx(64 * MIB, abs=SLACK)


def test_a_peak_is_the_most_at_one_time_and_not_the_sum(probe: ResidentPages) -> None:
    before = probe.start()
    for _ in range(4):
        touched(32)
    assert probe.peak() - before == pytest.approx(32 * MIB, abs=SLACK)


def test_what_is_only_reserved_does_not_count(probe: ResidentPages) -> None:
    before = probe.start()
    kept = np.empty(64 * MIB, np.uint8)
    assert probe.peak() - before < SLACK < kept.nbytes


def test_starting_again_forgets_the_peak(probe: ResidentPages) -> None:
    before = probe.start()
    touched(64)
    again = probe.start()
    assert again - before < SLACK
    assert probe.peak() - again < SLACK


def test_what_is_in_use_at_the_start_is_no_part_of_the_need(probe: ResidentPages) -> None:
    kept = touched(64)
    before = probe.start()
    assert probe.peak() - before < SLACK < kept.nbytes


def test_the_use_is_that_of_this_process(probe: ResidentPages) -> None:
    assert probe.start() == pytest.approx(psutil.Process().memory_info().rss, abs=SLACK)


def test_it_counts_in_pages() -> None:
    assert ResidentPages.resolution == os.sysconf("SC_PAGE_SIZE")


def test_what_the_c_library_keeps_for_later_is_given_back_at_the_start(probe: ResidentPages) -> None:
    before = probe.start()
    blocks = [bytearray(64 * 1024) for _ in range(1000)]  # small enough to come from the heap
    last = blocks.pop()  # the end of the heap stays in use, so that nothing before it is given back by itself
    blocks.clear()
    if psutil.Process().memory_info().rss - before < 32 * MIB:
        pytest.skip("this C library keeps nothing")
    assert probe.start() - before < SLACK
    assert len(last) == 64 * 1024


def test_where_the_peak_cannot_be_reset_the_use_is_sampled_and_the_source_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(instruments, "_CLEAR", tmp_path / "none")
    probe = ResidentPages()
    assert probe.source == "resident pages, sampled"
    before = probe.start()
    kept = touched(64)
    assert probe.peak() - before == pytest.approx(kept.nbytes, abs=SLACK)
    del kept
    assert probe.peak() - before < SLACK
    assert not (tmp_path / "none").exists()
