"""Fusion: which calls a compiler joins, what they move then, and how launches hide behind work."""

from __future__ import annotations

import pytest

from opmark.prediction.fusion import fuse, queue_seconds
from opmark.schema import Entry
from opmark.schema.call_sizes import CalledOperator, CallSizes
from opmark.schema.schedule import DescribedProgram, OperatorGraph

SIZE = 4 * 1024


def call(name: str, reads: int = 1, flops: float = 1024.0) -> CalledOperator:
    sizes = CallSizes(name, 1, 1, 1024, 1, flops, SIZE * (reads + 1), written=SIZE)
    return CalledOperator(Entry(name, {}), sizes, "float32")


def program(needs: list[list[int]], calls: list[list[CalledOperator]]) -> DescribedProgram:
    names = [one[0].sizes.operator if one else "view" for one in calls]
    return DescribedProgram(OperatorGraph(names, needs, "digest", [SIZE] * len(calls)), calls)


def test_rows_after_a_product_are_one_call_that_moves_what_crosses_its_border() -> None:
    found = fuse(
        program([[], [0], [1], [2]], [[call("matmul", 2)], [call("relu")], [call("gelu")], [call("matmul", 2)]])
    )
    assert found.graph.operators == ["matmul", "relu+gelu", "matmul"]
    assert found.graph.needs == [[], [0], [1]]
    (fused,) = found.calls[1]
    assert (fused.sizes.nbytes, fused.sizes.written, fused.sizes.flops) == (2 * SIZE, SIZE, 2048.0)


def test_weights_and_a_second_producer_are_read_once() -> None:
    chain = [[call("matmul", 2)], [call("matmul", 2)], [call("mul", 2)], [call("add", 2)]]
    found = fuse(program([[], [], [0], [1, 2]], chain))  # mul reads a weight, add the second product
    (fused,) = found.calls[found.graph.operators.index("mul+add")]
    assert fused.sizes.nbytes == 4 * SIZE


def test_nothing_joins_a_group_that_it_reaches_through_a_library() -> None:
    found = fuse(program([[], [0], [0, 1]], [[call("relu")], [call("matmul", 2)], [call("add", 2)]]))
    assert found.graph.operators == ["relu", "matmul", "add"]


def test_groups_do_not_wait_for_each_other() -> None:
    names = ["relu", "relu", "add", "gelu", "add"]
    found = fuse(program([[], [], [0, 1], [0], [1, 3]], [[call(name)] for name in names]))
    assert found.graph.operators == ["relu+gelu", "relu+add+add"]
    assert found.graph.needs == [[], [0]]


def test_views_cost_a_compiler_nothing_and_stay_with_what_they_show() -> None:
    found = fuse(program([[], [0], [1]], [[call("matmul", 2)], [], [call("relu")]]))
    assert sum(map(len, found.calls)) == 2
    assert all(found.calls)


def test_what_is_used_through_a_view_is_written() -> None:
    chain = [[call("matmul", 2)], [call("relu")], [call("gelu")], [], [call("matmul", 2)]]
    found = fuse(program([[], [0], [1], [2], [3]], chain))
    (fused,) = found.calls[1]
    assert (fused.sizes.nbytes, fused.sizes.written) == (2 * SIZE, SIZE)


def test_what_is_read_through_a_view_of_an_input_is_read() -> None:
    found = fuse(program([[], [0], [1]], [[], [call("relu")], [call("gelu")]]))
    ((fused,),) = found.calls
    assert (fused.sizes.nbytes, fused.sizes.written) == (2 * SIZE, SIZE)


@pytest.mark.parametrize(
    ("works", "seconds"),
    [([5.0, 5.0, 5.0], 16.0), ([0.1, 0.1, 0.1], 3.1), ([5.0, 0.0, 0.0, 0.1], 6.1), ([0.0, 0.0], 2.0), ([], 0.0)],
)
def test_launches_are_hidden_where_there_is_enough_work(works: list[float], seconds: float) -> None:
    assert queue_seconds(works, 1.0) == pytest.approx(seconds)
