from __future__ import annotations

import math

import pytest
from handmade import failed, item, looked, sound, timing
from hypothesis import given
from hypothesis import strategies as st

from opmark.report.charts import sweep as file
from opmark.report.charts.elements import ONE_PROCESS
from opmark.report.charts.sweep import chains, pick_evenly, sweep


def product(m, n, k, *timings, dtype="float32", **own):
    params = {"M": m, "N": n, "K": k, "dtype": dtype}
    own = {"bytes": 4 * (m * k + k * n + m * n), "flops": 2 * m * n * k, **own}
    return item("matmul", m, *(timings or (timing(1e-9 * m),)), params=params, **own)


def vector(op, *shape, **own):
    return item(op, shape[0], timing(1e-9 * shape[0]), params={"shape": list(shape), "dtype": "float32"}, **own)


def test_sizes_that_move_together_are_one_series_over_the_parameter():
    times, rates = sweep(looked(*(product(n, n, n) for n in (64, 16, 32))))
    sound([times, rates])
    assert (times.x.title, times.x.scale, times.x.unit) == ("M = N = K", "log2", "count")
    (series,) = times.series
    assert (series.name, series.shape) == ("torch-cpu, warm", "band")
    assert [mark.x for mark in series.marks] == [16, 32, 64], "by size"
    assert [mark.y for mark in series.marks] == pytest.approx([16e-9, 32e-9, 64e-9])
    assert (series.marks[0].low, series.marks[0].high) == pytest.approx((12.8e-9, 20e-9))
    assert series.marks[2].link == "matmul-64-torch-cpu-4"
    assert rates.y.unit == "flop/s"
    (mark, *_) = rates.series[0].marks
    assert mark.y == pytest.approx(2 * 16**3 / 16e-9)
    assert (mark.low, mark.high) == pytest.approx((2 * 16**3 / 20e-9, 2 * 16**3 / 12.8e-9))


def test_little_arithmetic_is_told_as_bandwidth():
    times, rates = sweep(looked(*(vector("add", n, bytes=12 * n, flops=n) for n in (1 << 10, 1 << 12, 1 << 14))))
    assert times.x.title == "elements"
    assert rates.y.unit == "B/s"
    assert [mark.y for mark in rates.series[0].marks] == pytest.approx([12e9] * 3)


@pytest.mark.parametrize(("flops", "unit"), [(4000, "B/s"), (4001, "flop/s")])
def test_above_four_operations_a_byte_arithmetic_counts(flops, unit):
    _, rates = sweep(looked(*(vector("add", n, bytes=1000, flops=flops) for n in (8, 16, 32))))
    assert rates.y.unit == unit


def test_work_that_nobody_knows_has_no_rate():
    (times,) = sweep(looked(*(vector("add", n, bytes=None, flops=None) for n in (8, 16, 32))))
    assert times.title == "add: time over size"


def test_shapes_are_told_by_their_elements():
    times, _ = sweep(looked(*(vector("softmax", n, 256) for n in (4, 8, 16))))
    assert [mark.x for mark in times.series[0].marks] == [1024, 2048, 4096]


def test_a_shape_beyond_all_numbers_is_no_crash():
    times, _ = sweep(looked(*(vector("add", n, 10**200, 10**200) for n in (4, 8, 16))))
    sound([times])


def test_one_size_moves_where_the_others_stay():
    (chain,) = chains([product(m, 64, 32) for m in (1, 2, 4)])
    assert (chain.moving, chain.values) == (("M",), ((1,), (2,), (4,)))
    times, _ = sweep(looked(*(product(m, 64, 32) for m in (1, 2, 4))))
    assert times.x.title == "M"


def test_a_grid_is_split_into_series_of_one_size():
    found = chains([product(m, n, 8) for m in (1, 2, 4, 8) for n in (16, 32, 64)])
    assert [(chain.moving, chain.fixed) for chain in found] == [(("M",), "N=16"), (("M",), "N=32"), (("M",), "N=64")]


def test_series_that_move_other_sizes_are_told_by_bytes():
    items = [*(product(m, 64, 32) for m in (1, 2, 4, 8)), *(product(3, n, 32) for n in (1, 2, 4))]
    times, _ = sweep(looked(*items))
    assert times.x.title == "bytes moved"
    assert {series.name for series in times.series} == {"torch-cpu, warm, N=64", "torch-cpu, warm, M=3"}
    assert times.series[0].marks[0].x == 4 * (1 * 32 + 32 * 64 + 64)


def test_two_sizes_are_no_series():
    assert sweep(looked(product(1, 1, 1), product(2, 2, 2))) == []
    assert sweep(looked(product(1, 9, 7), product(2, 5, 3), product(3, 2, 8))) == [], "nothing moves together"


@given(st.lists(st.tuples(*[st.integers(1, 5)] * 3), max_size=40, unique=True))
def test_a_case_is_in_one_chain_at_most_and_all_else_is_the_same(sizes):
    items = {made.case: made for made in (product(*size) for size in sizes)}
    found = chains(items.values())
    used = [case for chain in found for case in chain.cases]
    assert len(set(used)) == len(used)
    for chain in found:
        assert len(chain.cases) >= 3
        own = [items[case].params for case in chain.cases]
        still = [name for name in ("M", "N", "K") if name not in chain.moving]
        assert all(params[name] == own[0][name] for params in own for name in still)
        for name in chain.moving:
            assert [params[name] for params in own] == sorted({params[name] for params in own}), "each size once"


def test_element_types_backends_caches_phases_and_threads_are_apart():
    both = (timing(1e-6, "device_time", "cold"), timing(1e-7, "device_time"), timing(5e-6))
    items = [*(product(n, n, n, *both, backend="torch-cuda") for n in (1, 2, 4)),
             *(product(n, n, n, backend="torch-cpu", dtype="float16") for n in (1, 2, 4)),
             *(product(n, n, n, backend="torch-cpu", threads=8) for n in (1, 2, 4)),
             *(product(n, n, n, phase="backward", case=f"b{n}") for n in (1, 2, 4))]  # fmt: skip
    charts = sweep(looked(*items))
    sound(charts)
    assert [chart.title for chart in charts if chart.y.unit == "s"] == ["matmul: time over size",
                                                                        "matmul backward: time over size"]  # fmt: skip
    assert {series.name for series in charts[0].series} == {
        "torch-cuda, cold, float32, device_time, 4 threads", "torch-cuda, warm, float32, device_time, 4 threads",
        "torch-cpu, warm, float16, latency, 4 threads", "torch-cpu, warm, float32, latency, 8 threads",
    }  # fmt: skip


def test_a_case_measured_twice_is_a_second_series():
    once = [product(n, n, n) for n in (1, 2, 4)]
    times, _ = sweep(looked(*once, *once))
    assert [series.name for series in times.series] == ["torch-cpu, warm", "torch-cpu, warm (2)"]


@pytest.mark.parametrize("bad", [math.nan, None, 0.0, math.inf])
def test_a_size_without_a_number_is_left_out_and_told(bad):
    items = [*(product(n, n, n) for n in (1, 2, 4)), product(8, 8, 8, timing(bad, low=None, high=None))]
    times, _ = sweep(looked(*items))
    sound([times])
    assert [mark.x for mark in times.series[0].marks] == [1, 2, 4]
    assert "left out: 1 case without a median above 0" in times.notes


def test_communication_is_left_to_its_own_figure():
    assert sweep(looked(*(product(n, n, n, traffic=8) for n in (1, 2, 4)))) == []


def test_what_is_too_much_is_told(monkeypatch):
    monkeypatch.setattr(file, "MOST_OPERATORS", 1)
    monkeypatch.setattr(file, "MOST_SERIES", 2)
    items = [*(product(m, n, 8) for m in (1, 2, 4, 8) for n in (16, 32, 64)), *(vector("add", n) for n in (1, 2, 4))]
    times, rates = sweep(looked(*items))
    assert (times.id, rates.id) == ("sweep-matmul-forward", "sweep-matmul-forward-rate")
    assert len(times.series) == 2
    assert "left out: 1 more series: torch-cpu, warm, N=64" in times.notes
    assert "left out: 1 more series: torch-cpu, warm, N=64" in rates.notes
    assert any("1 operator with fewer sizes left out: add forward" in note for note in times.notes)


def test_no_element_type_is_left_out_for_a_second_series_of_another(monkeypatch):
    monkeypatch.setattr(file, "MOST_SERIES", 4)
    both = (timing(2e-6, "device_time", "cold"), timing(1e-6, "device_time"))
    items = [product(n, n, n, *both, dtype=dtype, backend=backend) for dtype in ("float16", "float32")
             for n in (1, 2, 4) for backend in ("torch-cuda", "triton-cuda")]  # fmt: skip
    times, _ = sweep(looked(*items))
    assert {series.name for series in times.series} == {
        f"{backend}, cold, {dtype}" for dtype in ("float16", "float32") for backend in ("torch-cuda", "triton-cuda")
    }


def test_gradients_of_other_inputs_are_other_series():
    items = [product(n, n, n, phase="backward", wrt=(wrt,), case=f"{wrt}{n}") for n in (1, 2, 4) for wrt in "ab"]
    charts = sweep(looked(*items))
    sound(charts)
    titles = [chart.title for chart in charts if chart.y.unit == "s"]
    assert titles == ["matmul backward da: time over size", "matmul backward db: time over size"]
    assert all(len(series.marks) == 3 for chart in charts for series in chart.series)


def test_cases_without_a_series_are_counted():
    items = [*(product(n, n, n) for n in (2, 4, 8)), product(3, 5, 7), product(5, 3, 7)]
    times, rates = sweep(looked(*items))
    said = "left out: 2 cases with fewer than 3 sizes that differ in one thing only"
    assert said in times.notes
    assert said in rates.notes
    assert ONE_PROCESS in times.notes


@given(st.integers(1, 300))
def test_long_series_keep_their_ends(length):
    kept = pick_evenly(list(range(length)))
    assert len(kept) == min(length, file.MOST_SIZES)
    assert kept[0] == 0
    assert kept[-1] == length - 1
    assert kept == sorted(set(kept))


def test_an_operator_that_is_not_installed_has_sizes_too():
    items = [item("gone", n, timing(1e-6), params={"n": n, "flag": True, "text": "a b"}) for n in (1, 2, 4)]
    times, _ = sweep(looked(*items))
    assert times.x.title == "n"


def test_nothing_to_show():
    assert sweep(looked()) == []
    assert sweep(looked(item())) == []
    assert sweep(looked(*(failed("add", n, "torch-cpu") for n in range(5)))) == []


def test_hostile_names_pass_as_data():
    items = [item(op, n, params={"n": n}) for op in ("<script>", "<script>!") for n in (1, 2, 4)]
    charts = sweep(looked(*items))
    sound(charts)
    assert [chart.title.partition(":")[0] for chart in charts[::2]] == ["<script>", "<script>!"]
