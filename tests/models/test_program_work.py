"""What a call of a program computes and moves."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from opmark.models.program_work import WorkRecorder  # noqa: E402 - needs torch


@pytest.mark.parametrize(
    ("function", "weight", "channels"),
    [("conv2d", (6, 4, 3, 3), 4), ("conv_transpose2d", (8, 3, 3, 3), 4)],
)
def test_a_convolution_reads_the_channels_of_a_group(function: str, weight: tuple[int, ...], channels: int) -> None:
    call = getattr(torch.nn.functional, function)
    image, filters = torch.ones(2, 8, 5, 5), torch.ones(weight)
    with torch.no_grad(), WorkRecorder() as recorder:
        made = call(image, filters, stride=2, groups=2)
    ((_, sizes, dtype),) = recorder.work
    assert sizes.stride == (2 if function == "conv2d" else 0.5)
    assert (sizes.operator, sizes.batch, sizes.n, sizes.image) == ("conv2d", 2, 6, made.shape[2])
    assert (sizes.channels, sizes.k, dtype) == (channels, channels * 9, "float32")
    assert sizes.written == 4 * made.numel()


@pytest.mark.parametrize(
    "call",
    [
        lambda table, picks: torch.nn.functional.embedding_bag(picks[None], table),
        lambda table, picks: torch.nn.functional.embedding(picks, table),
        lambda table, picks: table[picks],
        lambda table, picks: table.index_select(0, picks),
    ],
)
def test_what_picks_rows_of_a_table_reads_those_alone(call: Any) -> None:
    table, picks = torch.ones(10_000, 16), torch.tensor([1, 5, 7])
    with torch.no_grad(), WorkRecorder() as recorder:
        call(table, picks)
    sizes = max((sizes for _, sizes, _ in recorder.work), key=lambda one: one.nbytes)
    picked = 3 * 16 * 4
    assert picked < sizes.nbytes < 3 * picked
