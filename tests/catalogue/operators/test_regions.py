"""roi_pooling, roi_align."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators.regions import ROI_ALIGN, ROI_POOLING
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator

GIVEN: dict[str, Any] = {
    "batch": 3, "channels": 2, "image": [9, 11], "regions": 20, "region": [7, 5], "out": [3, 2],
}  # fmt: skip


def _rois(op: Operator, live: Any) -> Any:
    return live.tensor(op.inputs(op.complete(GIVEN))["rois"], 0)


def test_regions_lie_in_their_images(numpy_cpu: Any) -> None:
    image, left, top, right, bottom = _rois(ROI_POOLING, numpy_cpu).T
    assert set(image) == {0, 1, 2}
    assert (right - left + 1 == 5).all()
    assert (bottom - top + 1 == 7).all()
    assert left.min() == top.min() == 0
    assert (right.max(), bottom.max()) == (10, 8)


def test_a_region_is_pooled_as_an_image_of_its_own() -> None:
    """The result is an adaptive pool of the region, for regions of any size."""
    params = ROI_POOLING.complete({**GIVEN, "regions": 3, "dtype": "float64"})
    x = torch.rand(3, 2, 9, 11, dtype=torch.float64)
    rois = np.array([[0, 1, 2, 5, 8], [2, 6, 0, 10, 6], [1, 0, 1, 4, 7]])
    expected = torch.stack([
        torch.nn.functional.adaptive_max_pool2d(x[i, :, top : bottom + 1, left : right + 1], (3, 2))
        for i, left, top, right, bottom in rois
    ])  # fmt: skip
    np.testing.assert_array_equal(ROI_POOLING.reference(params, x=x.numpy(), rois=rois), expected.numpy())
    (implementation,) = ROI_POOLING.implementations_for("torch")
    found = implementation.build(params, x=x, rois=torch.from_numpy(rois))()
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_samples_of_a_slope_have_the_values_of_their_positions() -> None:
    """In an image that grows by one per column, the mean of a bin is the position of its middle."""
    params = ROI_ALIGN.complete({**GIVEN, "batch": 1, "regions": 1, "dtype": "float64"})
    x = np.broadcast_to(np.arange(11.0), (1, 2, 9, 11))
    found = ROI_ALIGN.reference(params, x=x, rois=np.array([[0, 2.3, 1.0, 7.3, 8.0]]))
    np.testing.assert_allclose(found, np.broadcast_to([2.3 + 1.25 - 0.5, 2.3 + 3.75 - 0.5], (1, 2, 3, 2)), rtol=1e-12)


def test_cost_of_pooling_by_hand() -> None:
    params = ROI_POOLING.complete(GIVEN)
    outputs, image = 20 * 2 * 6, 3 * 2 * 99
    forward, backward = ROI_POOLING.cost(params), ROI_POOLING.backward_cost(params)
    assert (forward.flops, forward.bytes_read, forward.bytes_written) == (0, 4 * image + 800, 4 * outputs)
    assert (backward.flops, backward.bytes_read, backward.bytes_written) == (outputs, 12 * outputs + 800, 4 * image)


def test_no_more_than_the_images_is_read() -> None:
    """20 regions of 7 x 5 cover three images of 9 x 11; two of them do not."""
    two = {**GIVEN, "regions": 2}
    assert ROI_POOLING.cost(ROI_POOLING.complete(two)).bytes_read == 4 * 2 * 2 * 35 + 80
    assert ROI_ALIGN.cost(ROI_ALIGN.complete(GIVEN)).bytes_read == 4 * (3 * 2 * 99 + 100)


def test_cost_of_aligning_by_hand() -> None:
    """A bin has 4 samples of 9 operations; along an axis, the neighbours of 6 samples in 7 pixels are all 8, and
    those of 4 in 5 pixels all 6."""
    given = {**GIVEN, "batch": 30}
    params = ROI_ALIGN.complete(given)
    outputs = 20 * 2 * 6
    forward, backward = ROI_ALIGN.cost(params), ROI_ALIGN.backward_cost(params)
    assert (forward.flops, forward.bytes_read) == (36 * outputs, 4 * (20 * 2 * 8 * 6 + 100))
    assert (backward.flops, backward.bytes_read) == (33 * outputs, 4 * (outputs + 100))
    one = ROI_ALIGN.complete({**given, "samples": 1})
    assert ROI_ALIGN.cost(one).bytes_read == 4 * (20 * 2 * 6 * 4 + 100)


@pytest.mark.parametrize(
    ("change", "param"),
    [({"region": [10, 5]}, "region"), ({"region": [7]}, "region"), ({"out": [3]}, "out"), ({"image": [9]}, "image")],
    ids=str,
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], param: str) -> None:
    for op in (ROI_POOLING, ROI_ALIGN):
        with pytest.raises(InvalidParameter, match=f"parameter `{param}` must"):
            op.check_rules(op.complete({**GIVEN, **change}))


def test_names_of_other_systems_are_known() -> None:
    assert operator("ROIPooling") is ROI_POOLING
    assert operator("ROIAlign") is ROI_ALIGN
