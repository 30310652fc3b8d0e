"""What is written to make a call cold really takes the caches."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch

from opmark.plugin import Backend

SMALL, LARGE = 256 << 10, 64 << 20
"""Bytes: less than any second-level cache has, and more than most have on any level."""

ONES: dict[str, Callable[[], Any]] = {
    "numpy_cpu": lambda: np.ones(SMALL // 8),
    "torch_cpu": lambda: torch.ones(SMALL // 8, dtype=torch.float64),
}

every_backend = pytest.mark.parametrize("name", ONES)


@every_backend
def test_every_byte_is_read_and_written_each_time(name: str, request: pytest.FixtureRequest) -> None:
    """Stores alone may go around the caches."""
    overwrite = request.getfixturevalue(name).overwrite(1001)
    for times in (1, 2, 3):
        scratch = overwrite()
        assert scratch.tolist() == 1001 * [times]


@every_backend
def test_many_times_over_is_no_different(name: str, request: pytest.FixtureRequest) -> None:
    """A byte holds no more than 255."""
    overwrite = request.getfixturevalue(name).overwrite(10)
    seen = {int(overwrite()[0]) for _ in range(600)}
    assert seen == set(range(256))


def _slowdown(read: Callable[[], Any], live: Backend) -> float:
    """A read after much was overwritten, over one after little was, without what other processes take away."""
    little, much = live.overwrite(64), live.overwrite(LARGE)
    times: dict[str, list[float]] = {"little": [], "much": []}
    for _ in range(15):
        for how, overwrite in (("little", little), ("much", much)):
            read()
            overwrite()
            start = time.thread_time()
            read()
            times[how].append(time.thread_time() - start)
    return median(times["much"]) / median(times["little"])


@pytest.mark.serial
@every_backend
def test_a_read_is_slower_afterwards(name: str, request: pytest.FixtureRequest) -> None:
    live, data = request.getfixturevalue(name), ONES[name]()
    assert max(_slowdown(data.sum, live) for _ in range(3)) > 1.5
