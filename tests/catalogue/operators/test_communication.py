"""Operators of several ranks: costs, refused parameters, outputs of each rank; then with real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds import OPTIONS, cases, operators

from opmark.catalogue.operators._communication import divide, finite_calls, spans
from opmark.catalogue.operators.moe_routing import got_rows, order, sent_rows
from opmark.errors import InvalidParameter, WrongResult
from opmark.plugin import Peers
from opmark.plugin.operator import SIZES
from opmark.plugin.registry import operator
from opmark.schema import EFFORTS, Case, Settings, Task
from opmark.worker.verify.accuracy import compare_arrays

pytestmark = pytest.mark.ranks

WORLDS = (1, 2, 3, 4)


def params(name: str, **given: Any) -> dict[str, Any]:
    """Return the small preset with these parameters, after checking the rules."""
    found = operator(name).complete({**operator(name).preset("small"), **given})
    operator(name).check_rules(found)
    return found


# Costs: nccl-tests' sizes and factors, and transfers


@pytest.mark.parametrize(
    ("name", "given", "size", "factor"),
    [
        ("all_reduce", {}, 4096, 1.5),
        ("all_reduce_h2d", {}, 4096, 1.5),
        ("fault_ranks", {}, 4096, 1.5),
        ("reduce_scatter", {}, 4096, 0.75),
        ("all_gather", {}, 4096, 0.75),
        ("all_to_all", {}, 4096, 0.75),
        ("gather_ranks", {}, 4096, 0.75),
        ("scatter_ranks", {}, 4096, 0.75),
        ("all_gather_object", {}, 4096, 0.75),
        ("broadcast", {}, 4096, 1),
        ("broadcast_object", {}, 4096, 1),
        ("reduce", {}, 4096, 1),
        ("multicast", {}, 4096, 1),
        ("incast", {}, 4104, 1),  # 342 elements from each of three
        ("p2p", {}, 4096, 1),
        ("p2p", {"window": 3}, 12288, 1),
        ("p2p", {"pattern": "both_ways"}, 4096, 1),
        ("p2p", {"pattern": "ping_pong"}, 8192, 1),
    ],
)
def test_traffic_is_counted_as_nccl_tests_counts_it(name: str, given: dict[str, Any], size: int, factor: float) -> None:
    cost = operator(name).cost(params(name, size=4096, ranks=4, **given))
    assert cost.traffic is not None
    assert (cost.traffic.size, cost.traffic.link) == (size, "peers")
    assert cost.traffic.bus == pytest.approx(factor * size)
    assert cost.traffic.ranks == (2 if name == "p2p" else 4)
    assert cost.flops is None


@pytest.mark.parametrize(("ranks", "factor"), [(1, 0), (2, 1), (3, 4 / 3), (4, 1.5), (8, 1.75)])
def test_the_factor_of_all_reduce_grows_towards_two(ranks: int, factor: float) -> None:
    traffic = operator("all_reduce").cost(params("all_reduce", ranks=ranks)).traffic
    assert traffic.bus == pytest.approx(factor * traffic.size)


def test_a_group_counts_its_own_ranks() -> None:
    traffic = operator("all_gather").cost(params("all_gather", size=4096, ranks=8, group=2)).traffic
    assert (traffic.size, traffic.bus, traffic.ranks) == (4096, 2048, 2)


@pytest.mark.parametrize(
    ("name", "read", "written"),
    [
        ("all_reduce", 1200, 1200),
        ("reduce_scatter", 1200, 400),
        ("all_gather", 400, 1200),
        ("all_to_all", 1200, 1200),
        ("gather_ranks", 400, 1200),
        ("scatter_ranks", 1200, 400),
        ("broadcast", 1200, 1200),
    ],
)
def test_what_a_rank_takes_in_and_gets_out(name: str, read: int, written: int) -> None:
    cost = operator(name).cost(params(name, size=1200, ranks=3))
    assert (cost.bytes_read, cost.bytes_written) == (read, written)


def test_a_buffer_that_does_not_divide_is_rounded_up_to_whole_elements_for_each() -> None:
    """13 bytes are 4 elements of float32, and 6 where 3 ranks share them."""
    assert operator("broadcast").cost(params("broadcast", size=13, ranks=3)).traffic.size == 16
    assert operator("all_gather").cost(params("all_gather", size=13, ranks=3)).traffic.size == 24


@pytest.mark.parametrize("name", ["host2device", "device2host"])
@pytest.mark.parametrize("ranks", [1, 4])
def test_a_transfer_goes_over_the_link_of_the_host(name: str, ranks: int) -> None:
    op = operator(name)
    traffic = op.cost(params(name, size=4096, ranks=ranks)).traffic
    assert (traffic.size, traffic.bus, traffic.ranks, traffic.link) == (4096, 4096, ranks, "host")
    assert op.device_only
    assert not op.ranks


def test_pinned_memory_is_asked_for() -> None:
    place = {pinned: operator("host2device").inputs(params("host2device", pinned=pinned)) for pinned in (False, True)}
    assert (place[True]["x"].place, place[False]["x"].place) == ("pinned", "host")
    assert operator("device2host").inputs(params("device2host"))["x"].place == "device"


@pytest.mark.parametrize("name", ["host2device", "device2host"])
def test_a_transfer_arrives(name: str, torch_cpu: Any) -> None:
    from opmark.worker.verify.outputs import verify

    op, given = operator(name), params(name, pinned=False)
    task = Task(Case.of(name, given, "forward"), "torch-cpu", "torch", Settings(1, "quick", EFFORTS["quick"]))
    assert verify(task, op, op.implementations[0], torch_cpu).max_abs_error == 0


def test_a_barrier_moves_nothing() -> None:
    cost = operator("barrier").cost(params("barrier"))
    assert (cost.bytes_moved, cost.traffic) == (0, None)


# Refused parameters


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("all_reduce", {"ranks": 0}, "`ranks` must be at least 1"),
        ("all_reduce", {"ranks": 4, "group": 3}, r"`group` must divide .* \(got 3 of 4\)"),
        ("all_reduce", {"op": "avg", "dtype": "int32"}, "`op` must not be avg of whole numbers"),
        ("broadcast", {"ranks": 4, "root": 4}, "`root` must be a rank of the group"),
        ("broadcast", {"ranks": 4, "group": 2, "root": 2}, "`root` must be a rank of the group"),
        ("all_gather", {"lists": True, "in_place": True}, "`lists` must be false"),
        ("all_to_all", {"imbalance": 1.5}, "`imbalance` must be at most 1"),
        ("p2p", {"src": 2}, r"`src` must be below the number of ranks \(got 2 of 2\)"),
        ("p2p", {"dst": 2}, r"`dst` must be below the number of ranks \(got 2 of 2\)"),
        ("p2p", {"dst": 0, "pattern": "both_ways"}, "`pattern` must be one_way"),
        ("p2p", {"pattern": "ping_pong", "asynchronous": True}, "`asynchronous` must be false"),
        ("incast", {"ranks": 1}, "`ranks` must be at least 2 in a group"),
        ("multicast", {"ranks": 4, "group": 1}, "`ranks` must be at least 2 in a group"),
        ("moe_dispatch", {"ranks": 3}, "`num_experts` must be a multiple of the ranks"),
        ("moe_all_combine", {"topk": 9}, "`topk` must be at most num_experts=8"),
        ("fault_ranks", {"rank": 2}, "`rank` must be below the number of ranks"),
        ("host2device", {"ranks": 0}, "`ranks` must be at least 1"),
    ],
)
def test_what_cannot_be_is_refused(name: str, given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidParameter, match=says):
        params(name, **given)


# How a buffer is divided


def test_balanced_parts_are_the_same_and_others_differ_by_as_much_as_was_asked_for() -> None:
    assert divide(1200, 4, 0.0) == (300, 300, 300, 300)
    for row in range(5):
        found = divide(1200, 4, 0.5, row)
        assert sum(found) == 1200
        assert max(abs(part - 300) for part in found) == 150
        assert found == divide.__wrapped__(1200, 4, 0.5, row), "every rank finds the same"
    assert divide(1200, 4, 0.5, 0) != divide(1200, 4, 0.5, 1)


@pytest.mark.parametrize("imbalance", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(
    ("total", "among", "least", "most"), [(7, 7, 1, 7), (10, 3, 1, 10), (12, 4, 0, 3), (9, 4, 0, 3)]
)
def test_parts_keep_their_bounds(total: int, among: int, least: int, most: int, imbalance: float) -> None:
    found = divide(total, among, imbalance, 0, least, most)
    assert sum(found) == total
    assert len(found) == among
    assert least <= min(found) <= max(found) <= most


def test_a_single_rank_has_all_of_it() -> None:
    assert divide(10, 1, 0.8) == (10,)


def test_numbers_that_double_with_every_call_have_an_end() -> None:
    """2^15 is the last power of two that a float16 holds, and 2 the first: 14 calls of 2 ranks, 6 of 4."""
    assert finite_calls(params("all_reduce", dtype="float16", ranks=2)) == 14
    assert finite_calls(params("all_reduce", dtype="float16", ranks=4)) == 6
    assert finite_calls(params("all_reduce", dtype="float32", ranks=2)) == 125
    assert finite_calls(params("all_reduce", dtype="float16", op="max")) is None
    assert finite_calls(params("all_reduce", dtype="float16", in_place=False)) is None
    assert finite_calls(params("all_reduce", dtype="int8")) is None


@pytest.mark.parametrize("ranks", [2, 8, 64, 128])
@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32"])
def test_a_rank_that_is_missing_is_found_whatever_their_number(dtype: str, op: str, ranks: int) -> None:
    """The rounding of a sum of many 16-bit numbers exceeds one of them: only integers show a missing rank."""
    given = params("all_reduce", size=4096, dtype=dtype, op=op, ranks=ranks)
    spec = operator("all_reduce").inputs(given)["x"]
    drawn = [np.random.default_rng(seed) for seed in range(ranks)]
    arrays = [spec.make(one) if spec.make else one.integers(0, 4, spec.shape) for one in drawn]
    right, wrong = (
        operator("all_reduce").reference(given, 0, [{"x": array} for array in part])[0] for part in (arrays, arrays[1:])
    )
    relative, typical = operator("all_reduce").tolerance.bounds(dtype, given)
    compare_arrays([right], [right], relative, typical=typical)
    if not np.array_equal(right, wrong):  # the largest of many may be another rank's
        with pytest.raises(WrongResult):
            compare_arrays([wrong], [right], relative, typical=typical)
    assert op != "sum" or not np.array_equal(right, wrong)


def test_a_copy_to_oneself_is_begun_and_waited_for_like_any_other() -> None:
    """Otherwise idle ranks would make more steps than the one that copies."""
    torch = pytest.importorskip("torch")
    given = params("p2p", src=0, dst=0, asynchronous=True, ranks=2)
    build = operator("p2p").implementations[0].build
    forms = [build(given, Peers(rank, 2), x=torch.zeros(8)) for rank in range(2)]
    assert all(form.finish is not None for form in forms)


# Outputs by hand


def due(name: str, rank: int, arrays: list[Any], **given: Any) -> list[Any]:
    inputs = [{"x": np.asarray(array)} for array in arrays]
    return [found.tolist() for found in operator(name).reference(params(name, **given), rank, inputs)]


A, B, C = [1.0, 2.0, 3.0], [10.0, 20.0, 30.0], [100.0, 200.0, 300.0]


@pytest.mark.parametrize(
    ("name", "given", "by_rank"),
    [
        ("all_reduce", {}, [[[111, 222, 333]]] * 3),
        ("all_reduce", {"op": "max"}, [[C]] * 3),
        ("all_reduce", {"op": "avg"}, [[[37, 74, 111]]] * 3),
        ("all_reduce", {"op": "prod"}, [[[1000, 8000, 27000]]] * 3),
        ("reduce_scatter", {}, [[[111]], [[222]], [[333]]]),
        ("all_to_all", {}, [[[1, 10, 100]], [[2, 20, 200]], [[3, 30, 300]]]),
        ("all_to_all", {"lists": True}, [[[1], [10], [100]], [[2], [20], [200]], [[3], [30], [300]]]),
        ("broadcast", {"root": 1}, [[B]] * 3),
        ("reduce", {"root": 2}, [[], [], [[111, 222, 333]]]),
        ("scatter_ranks", {"root": 1}, [[[10]], [[20]], [[30]]]),
        ("p2p", {"src": 2, "dst": 0}, [[C], [], []]),
        ("p2p", {"src": 2, "dst": 0, "pattern": "both_ways"}, [[C], [], [A]]),
        ("p2p", {"src": 2, "dst": 0, "pattern": "ping_pong"}, [[C], [], [C]]),
        ("incast", {"root": 1, "size": 24}, [[], [A + C], []]),
        ("multicast", {"root": 1}, [[B], [], [B]]),
    ],
)
def test_what_is_due_on_each_rank(name: str, given: dict[str, Any], by_rank: list[Any]) -> None:
    assert [due(name, rank, [A, B, C], **{"size": 12, "ranks": 3, **given}) for rank in range(3)] == by_rank


def test_what_is_gathered_stands_in_the_order_of_ranks() -> None:
    parts = [[1.0], [2.0], [3.0]]
    assert due("all_gather", 1, parts, size=12, ranks=3) == [[1, 2, 3]]
    assert due("all_gather", 1, parts, size=12, ranks=3, lists=True) == parts
    assert due("gather_ranks", 2, parts, size=12, ranks=3, root=2) == [[1, 2, 3]]
    assert due("gather_ranks", 1, parts, size=12, ranks=3, root=2) == []
    assert due("all_gather_object", 0, parts, size=3, ranks=3) == [[1, 2, 3]]


def test_whole_numbers_wrap_around_as_they_do_in_their_type() -> None:
    arrays = [np.full(1, 100, np.int8)] * 2
    (found,) = operator("all_reduce").reference(params("all_reduce", dtype="int8"), 0, [{"x": x} for x in arrays])
    assert (found.dtype, found.tolist()) == (np.int8, [-56])


# Experts


def moe(**given: Any) -> dict[str, Any]:
    return params("moe_dispatch", num_tokens=6, hidden_size=2, num_experts=4, topk=2, **given)


def test_balanced_tokens_are_as_many_for_every_rank() -> None:
    assert sent_rows(moe()) == ((6, 6), (6, 6))
    traffic = operator("moe_dispatch").cost(moe()).traffic
    assert (traffic.size, traffic.bus, traffic.ranks) == (12 * 2 * 4, 12 * 2 * 4 / 2, 2), "12 rows of 2 float32"


def test_skewed_tokens_are_counted_where_most_arrive() -> None:
    p = moe(imbalance=1.0)
    assert [sum(row) for row in sent_rows(p)] == [12, 12]
    got = [sum(got_rows(p, rank)) for rank in range(2)]
    assert sum(got) == 24
    assert max(got) > 12
    assert operator("moe_dispatch").cost(p).traffic.size == max(got) * 8


@pytest.mark.parametrize("imbalance", [0.0, 0.7])
def test_a_token_goes_to_different_experts_each_place_once(imbalance: float) -> None:
    p = params("moe_dispatch", imbalance=imbalance, ranks=4)
    for rank in range(4):
        places = order(p, rank)
        assert sorted(places) == list(range(p["num_tokens"] * p["topk"]))
        for part in spans(sent_rows(p)[rank]):
            assert all(np.bincount(places[part] // p["topk"], minlength=p["num_tokens"]) <= p["num_experts"] // 4)


def test_what_was_dispatched_comes_back_as_the_sum_of_its_weights() -> None:
    """With experts that change nothing, each token gets itself times the sum of its weights."""
    p = {**moe(imbalance=0.5), "dtype": "float32"}
    tokens = [np.arange(12.0).reshape(6, 2) + 100 * rank for rank in range(2)]
    weights = [np.linspace(0.1, 1.0, 12).reshape(6, 2) * (rank + 1) for rank in range(2)]
    sent = [operator("moe_dispatch").reference(p, rank, [{"x": x} for x in tokens])[0] for rank in range(2)]
    back = [{"x": x, "weights": w} for x, w in zip(sent, weights, strict=True)]
    for rank in range(2):
        (found,) = operator("moe_all_combine").reference(p, rank, back)
        np.testing.assert_allclose(found, tokens[rank] * weights[rank].sum(1, keepdims=True))


# Every operator describes itself


@pytest.mark.parametrize("op", [*operators(), operator("host2device"), operator("device2host")], ids=lambda op: op.name)
def test_an_operator_of_several_ranks_says_what_it_is(op: Any) -> None:
    assert op.category in ("communication", "diagnostics")
    assert op.by_name["ranks"].kind == "rank"
    assert "group" not in op.by_name or op.by_name["group"].kind == "rank"
    assert not op.gradients
    (implementation,) = op.implementations
    assert implementation.framework == "torch"
    costs = [op.cost(op.complete(op.preset(size))) for size in SIZES]
    assert op.name == "barrier" or costs[0].traffic.size < costs[1].traffic.size < costs[2].traffic.size
    for size in SIZES:
        assert all(
            isinstance(n, int) and n > 0 for s in op.inputs(op.complete(op.preset(size))).values() for n in s.shape
        )


# With real processes


@pytest.fixture(scope="module")
def worlds() -> dict[int, list[dict[str, Any]]]:
    """Return every rank's verdicts by the number of ranks; the processes of each size start once."""
    script = Path(__file__).with_name("worlds.py")
    found = {}
    for ranks in WORLDS:
        command = [sys.executable, str(script), str(ranks)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        ends = sum(line["kind"] == "end" for line in lines)
        assert (done.returncode, ends) == (0, ranks), done.stderr[-4000:]
        found[ranks] = [line for line in lines if line["kind"] != "end"]
    return found


def test_every_operator_and_every_option_is_tried() -> None:
    assert set(OPTIONS) == {op.name for op in operators()}
    tried = {(case.op, name, value) for case in cases(4) for name, value in case.params.items()}
    for op, axes in OPTIONS.items():
        assert all((op, name, value) in tried for name, values in axes.items() for value in values)
        dtypes = operator(op).param("dtype").choices if "dtype" in operator(op).by_name else ()
        assert all((op, "dtype", dtype) in tried for dtype in dtypes)


@pytest.mark.parametrize("ranks", WORLDS)
@pytest.mark.parametrize("kind", ["right", "repeated", "wrong", "waited"])
@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_in_a_world(name: str, kind: str, ranks: int, worlds: dict[int, list[dict[str, Any]]]) -> None:
    """right: outputs are right on every rank. repeated: also after many calls, and finite meanwhile. wrong: spoiled
    outputs are found. waited: no rank leaves before all have arrived."""
    about = [verdict for verdict in worlds[ranks] if verdict["kind"] == kind and verdict["op"] == name]
    if not about:
        alone = ranks == 1 and name in ("incast", "multicast", "p2p")
        assert alone or (kind, name) in NEVER or (kind == "waited" and name != "barrier")
        return
    assert {verdict["rank"] for verdict in about} == set(range(ranks))
    bad = [f"{v['params']} on rank {v['rank']}: {v['outcome']}" for v in about if v["outcome"] != "ok"]
    assert not bad, "\n".join(bad)


NEVER = {("repeated", "barrier"), ("repeated", "all_gather_object"), ("repeated", "broadcast_object")}
"""Operators without an element type that could overflow."""


@pytest.mark.parametrize("ranks", [n for n in WORLDS if n > 1])
def test_one_rank_with_a_wrong_result_is_found_on_that_rank(ranks: int, worlds: Any) -> None:
    outcome = {v["rank"]: v["outcome"] for v in worlds[ranks] if v["kind"] == "fault"}
    assert outcome.pop(1).startswith("WrongResult")
    assert outcome == {rank: "ok" for rank in range(ranks) if rank != 1}
