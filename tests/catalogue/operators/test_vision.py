"""grid_sample, affine_grid, warp_grid, spatial_transformer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.vision import AFFINE_GRID, GRID_SAMPLE, SPATIAL_TRANSFORMER, WARP_GRID
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator

GIVEN: dict[str, Any] = {"batch": 4, "channels": 3, "image": [7, 9], "out": [5, 6]}
every_convention = pytest.mark.parametrize("corners", [False, True])


def _arrays(op: Operator, params: dict[str, Any], live: Any, seed: int = 0) -> dict[str, Any]:
    return {name: live.tensor(spec, seed + i) for i, (name, spec) in enumerate(op.inputs(params).items())}


def _pixels(grid: Any, corners: bool) -> tuple[Any, Any]:
    """Column and row of each point, as torch's documentation defines them."""
    across, down = grid[..., 0], grid[..., 1]
    if corners:
        return (across + 1) / 2 * (9 - 1), (down + 1) / 2 * (7 - 1)
    return ((across + 1) * 9 - 1) / 2, ((down + 1) * 7 - 1) / 2


@every_convention
def test_no_point_lies_next_to_a_pixel(corners: bool, numpy_cpu: Any) -> None:
    """Where the derivative changes, a finite difference of the reference cannot give the gradient."""
    sample = GRID_SAMPLE.complete({**GIVEN, "align_corners": corners})
    moved = SPATIAL_TRANSFORMER.complete({**GIVEN, "align_corners": corners})
    for seed in range(5):
        grid = _arrays(GRID_SAMPLE, sample, numpy_cpu, seed)["grid"]
        theta = _arrays(SPATIAL_TRANSFORMER, moved, numpy_cpu, seed)["theta"]
        for points, apart in ((grid, 0.09), (AFFINE_GRID.reference(moved, theta=theta), 0.24)):
            for at in _pixels(points, corners):
                assert np.abs(at - np.round(at)).min() > apart


def test_some_points_lie_outside_of_the_image(numpy_cpu: Any) -> None:
    grid = _arrays(GRID_SAMPLE, GRID_SAMPLE.complete(GIVEN), numpy_cpu)["grid"]
    columns, rows = _pixels(grid, False)
    assert columns.min() < 0
    assert rows.max() > 6


@every_convention
def test_an_identity_gives_the_image_back(corners: bool) -> None:
    params = SPATIAL_TRANSFORMER.complete({**GIVEN, "out": [7, 9], "align_corners": corners})
    x = np.random.default_rng(0).uniform(-1, 1, (4, 3, 7, 9))
    theta = np.broadcast_to(np.eye(2, 3), (4, 2, 3))
    np.testing.assert_allclose(SPATIAL_TRANSFORMER.reference(params, x=x, theta=theta), x, rtol=1e-12, atol=1e-12)


def test_a_flow_of_nothing_is_the_grid_of_an_identity() -> None:
    found = WARP_GRID.reference(WARP_GRID.complete({"batch": 1, "image": [7, 9]}), flow=np.zeros((1, 2, 7, 9)))
    params = AFFINE_GRID.complete({"batch": 1, "out": [7, 9], "align_corners": True})
    expected = AFFINE_GRID.reference(params, theta=np.eye(2, 3)[None])
    np.testing.assert_allclose(np.moveaxis(found, 1, -1), expected, rtol=1e-12, atol=1e-12)


def test_cost_of_a_grid_by_hand() -> None:
    """30 points for each of 4 maps of 6 numbers."""
    params = AFFINE_GRID.complete({"batch": 4, "out": [5, 6]})
    forward, backward = AFFINE_GRID.cost(params), AFFINE_GRID.backward_cost(params)
    assert (forward.flops, forward.bytes_read, forward.bytes_written) == (120 * 8, 4 * 24, 4 * 240)
    assert (backward.flops, backward.bytes_read, backward.bytes_written) == (120 * 10, 4 * 240, 4 * 24)


def test_cost_by_hand() -> None:
    """4 images, each with 30 points of 3 channels; 12 + 3 x 8 operations per point."""
    params = GRID_SAMPLE.complete(GIVEN)
    image, points = 4 * 3 * 63, 4 * 30
    forward, backward = GRID_SAMPLE.cost(params), GRID_SAMPLE.backward_cost(params)
    assert (forward.flops, forward.bytes_written) == (points * 36, 4 * points * 3)
    assert forward.bytes_read == 4 * (image + 2 * points)
    assert (backward.flops, backward.bytes_written) == (points * (12 + 72), 4 * (image + 2 * points))
    assert backward.bytes_read == forward.bytes_read + forward.bytes_written


def test_few_points_do_not_read_the_whole_image() -> None:
    params = GRID_SAMPLE.complete({**GIVEN, "image": [100, 100], "out": [2, 1]})
    assert GRID_SAMPLE.cost(params).bytes_read == 4 * 8 * (4 * 3 + 2)


def test_a_transformer_costs_both_parts_but_moves_no_grid() -> None:
    params = SPATIAL_TRANSFORMER.complete(GIVEN)
    grid, sample = AFFINE_GRID.cost(params), GRID_SAMPLE.cost(params)
    both = SPATIAL_TRANSFORMER.cost(params)
    assert both.flops == grid.flops + sample.flops
    assert both.bytes_read == sample.bytes_read - grid.bytes_written + grid.bytes_read
    assert both.bytes_written == sample.bytes_written


@pytest.mark.parametrize(
    ("op", "given", "param"),
    [
        (GRID_SAMPLE, {**GIVEN, "image": [7]}, "image"),
        (GRID_SAMPLE, {**GIVEN, "image": [1, 7]}, "image"),
        (GRID_SAMPLE, {**GIVEN, "out": [7, 7, 7]}, "out"),
        (SPATIAL_TRANSFORMER, {**GIVEN, "out": [7, 1]}, "out"),
        (AFFINE_GRID, {"batch": 2, "out": [1, 5]}, "out"),
        (WARP_GRID, {"batch": 2, "image": [1, 5]}, "image"),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_what_cannot_be_sampled_is_refused(op: Operator, given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must"):
        op.check_rules(op.complete(given))


def test_names_of_other_systems_are_known() -> None:
    assert operator("BilinearSampler") is GRID_SAMPLE
    assert operator("GridGenerator") is AFFINE_GRID
    assert operator("SpatialTransformer") is SPATIAL_TRANSFORMER
