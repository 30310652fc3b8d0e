"""The spaces of TVM schedules, which need no TVM."""

from __future__ import annotations

import subprocess
import sys
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spaces import SMALL, small_cases

from opmark.errors import Unsupported
from opmark.frameworks.tvm.knobs import gpu_splits, tilings
from opmark.frameworks.tvm.operators import SCHEDULED, Kind
from opmark.plugin.registry import backend, implementations, operator

KINDS = get_args(Kind)


def test_every_operator_with_a_schedule_has_small_cases_here() -> None:
    assert SMALL.keys() == SCHEDULED.keys()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "params"), [*small_cases()])
def test_the_default_is_allowed_and_numbers_are_configurations(name: str, params: dict[str, Any], kind: Kind) -> None:
    space = SCHEDULED[name].space(kind, params)
    assert space.why_not(space.default) is None
    drawn = space.draw(Random(0), 50)
    assert len(drawn) == len(set(drawn)) >= min(50, space.size) / 4
    assert all(space.index(space.at(i)) == i and space.why_not(space.at(i)) is None for i in drawn)


@pytest.mark.parametrize("size", ["small", "typical", "large"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_preset_has_a_space(kind: Kind, size: str) -> None:
    for name, row in SCHEDULED.items():
        known = operator(name)
        space = row.space(kind, known.complete(known.preset(size)))
        assert space.why_not(space.default) is None, name


@given(st.integers(1, 5000), st.integers(1, 256))
def test_tiles_cover_a_loop_with_less_than_one_tile_to_spare(extent: int, most: int) -> None:
    found = tilings(extent, most)
    assert found
    for outer, inner in found:
        assert 1 <= inner <= most
        assert extent <= outer * inner < extent + inner


def test_a_prime_can_be_tiled() -> None:
    assert (127, 8) in tilings(1009, 16)
    assert (32, 32) in [(threads, each * 4) for _, threads, each in gpu_splits(1024) if threads == 32 and each == 8]


def test_a_softmax_along_another_axis_says_that_it_has_no_schedule() -> None:
    params = operator("softmax").complete({"shape": [4, 8], "axis": 0})
    with pytest.raises(Unsupported, match="last axis"):
        SCHEDULED["softmax"].space("cpu", params)


@pytest.mark.parametrize("kind", KINDS)
def test_a_schedule_is_an_implementation_on_request(kind: Kind) -> None:
    info, known = backend(f"tvm-{kind}"), operator("matmul")
    assert [one.label for one in implementations(known, info)] == ["onnx"]
    assert [one.label for one in implementations(known, info, every=True)] == ["onnx", "schedule"]


def test_spaces_are_read_without_tvm() -> None:
    code = (
        "import sys; from opmark.frameworks.tvm.operators import SCHEDULED;"
        "from opmark.plugin.registry import operator;"
        "p = operator('matmul').complete({'M': 64, 'N': 64, 'K': 64}); SCHEDULED['matmul'].space('cpu', p);"
        "sys.exit('tvm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
