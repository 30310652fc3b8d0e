"""Series of sizes and the lines through their times."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from opmark.analysis.fits import fit_view, fits
from opmark.schema import Record

MakeRecord = Callable[..., Record]
Printed = Callable[..., str]

LINE = [(1000, 11e-6), (10_000, 20e-6), (100_000, 110e-6)]
"""10 µs and 1 GB/s."""


@pytest.fixture
def series(make_sent: MakeRecord) -> Callable[..., list[Record]]:
    def make(points: list[tuple[int, float]] = LINE, **fields: Any) -> list[Record]:
        return [make_sent(size, seconds, **fields) for size, seconds in points]

    return make


def test_sizes_of_the_same_are_one_series_with_its_fit(series: Callable[..., list[Record]]) -> None:
    (found,) = fits(series()[::-1])
    assert found.fit is not None
    assert found.fit.alpha == pytest.approx(1e-5)
    assert found.fit.beta == pytest.approx(1e9)
    assert found.bus_bandwidth == pytest.approx(1.5e9)
    assert [point.size for point in found.points] == [1000, 10_000, 100_000]
    assert found.name == "all_reduce float32 ranks=4 on torch-cpu ×2"
    assert "size" not in found.params


@pytest.mark.parametrize(
    "other",
    [
        {"params": {"dtype": "float16"}},
        {"params": {"ranks": 2}},
        {"params": {"group": 2}},
        {"params": {"in_place": False}},
        {"backend": "torch-cuda"},
        {"implementation": "mine"},
        {"threads": 1},
        {"op": "all_gather_like"},
    ],
    ids=lambda other: " ".join(other),
)
def test_what_differs_in_more_than_its_size_is_another_series(
    series: Callable[..., list[Record]], other: dict[str, Any]
) -> None:
    found = fits([*series(), *series([(size, 3 * t) for size, t in LINE], **other)])
    assert [one.fit and one.fit.beta for one in found] == [pytest.approx(1e9), pytest.approx(1e9 / 3)]


def test_tokens_are_a_size_too(series: Callable[..., list[Record]], make_sent: MakeRecord) -> None:
    records = [make_sent(n * 64, t, op="moe_like", params={"size": 0, "num_tokens": n}) for n, t in LINE]
    stripped = [
        msgspec.structs.replace(
            one,
            task=msgspec.structs.replace(
                one.task,
                case=msgspec.structs.replace(
                    one.task.case, params={k: v for k, v in one.task.case.params.items() if k != "size"}
                ),
            ),
        )
        for one in records
    ]
    (found,) = fits(stripped)
    assert found.fit is not None
    assert found.fit.beta == pytest.approx(64e9)


def test_a_copy_to_itself_has_a_bandwidth_but_none_of_a_link(series: Callable[..., list[Record]]) -> None:
    (found,) = fits(series(params={"ranks": 1}))
    assert found.fit is not None
    assert found.fit.beta == pytest.approx(1e9)
    assert found.bus_bandwidth is None


def test_what_failed_or_computes_is_in_no_series(
    series: Callable[..., list[Record]], make_sent: MakeRecord, make_record: MakeRecord
) -> None:
    broken = make_sent(10**6, status="error", reason="gone", measurements=())
    (found,) = fits([*series(), broken, make_record()])
    assert len(found.points) == 3


def test_too_few_sizes_have_a_reason_and_nothing_beneath_a_table(
    series: Callable[..., list[Record]], printed: Printed
) -> None:
    (found,) = fits(series(LINE[:2]))
    assert (found.fit, found.reason, found.bus_bandwidth) == (None, "2 of at least 3 sizes", None)
    assert "alpha" not in printed(series(LINE[:2]))


def test_the_fit_stands_beneath_the_table(series: Callable[..., list[Record]], printed: Printed) -> None:
    lines = [" ".join(line.split()) for line in printed(series()).splitlines()]
    at = lines.index("fit parameters backend sizes alpha algbw GB/s busbw GB/s half at off by")
    row, legend = lines[at + 1 : at + 3]
    assert row.startswith("all_reduce float32 ranks=4 torch-cpu ×2 3: 1000..100000 10.0 µs 1.00 1.50 9.77 KiB ")
    assert "! not one line" not in row
    assert legend.startswith("fit: time = alpha + size / algbw")


def test_where_the_model_is_off_the_line_says_so(series: Callable[..., list[Record]], printed: Printed) -> None:
    steps = [(8, 1e-5), (1 << 10, 1e-5), (1 << 16, 1e-3), (1 << 17, 1e-3)]
    text = printed(series(steps))
    assert "! not one line: worst at " in text
    assert "?;" not in text
    (found,) = fits(series(steps))
    assert found.fit is not None
    assert found.fit.off


def noisy(make_sent: MakeRecord, size: int, samples: list[float]) -> Record:
    return make_sent(size, by_rank=(samples, [0.0] * len(samples)))


STEP = [(8, 1e-5), (1 << 10, 1e-5), (1 << 12, 1e-5), (1 << 14, 1e-5), (1 << 18, 1e-5)]


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([5e-6, 1e-5, 2e-5, 4e-5, 6e-5, 8e-5, 1e-4], "! worst at 64K: noise of 111 % there"),
        (
            [1.1e-5, 1.6e-5, 3.9e-5, 4e-5, 4.1e-5, 4.2e-5, 4.3e-5],
            "noise of 7.4 % there, its median lies anywhere from 11.0 µs to 43.0 µs",
        ),
        ([1.6e-5, 3.2e-5, 3.8e-5, 4e-5, 4.2e-5, 5e-5, 7e-5], "there, its median lies anywhere from 16.0 µs to 70.0 µs"),
        ([3.5e-5, 3.6e-5, 3.8e-5, 4e-5, 4.1e-5, 4.2e-5, 4.3e-5], "! not one line: worst at 64K; another protocol"),
        ([4e-5] * 7, "! not one line: worst at 64K; another protocol"),
    ],
    ids=["noise", "interval", "most of it", "a little of it", "nothing of it"],
)
def test_what_noise_explains_is_called_noise(
    series: Callable[..., list[Record]], make_sent: MakeRecord, printed: Printed, samples: list[float], said: str
) -> None:
    """The median at 64K is 40 µs, four times that of its neighbours."""
    text = printed([*series(STEP), noisy(make_sent, 1 << 16, samples)])
    assert said in text
    assert ("another protocol" in text) == ("another protocol" in said)


def test_noise_at_one_size_does_not_excuse_another(
    series: Callable[..., list[Record]], make_sent: MakeRecord, printed: Printed
) -> None:
    wild = noisy(make_sent, 1 << 16, [5e-6, 1e-5, 2e-5, 6e-5, 8e-5, 1e-4, 2e-4])
    assert "! not one line: worst at 32K;" in printed([*series([*STEP, (1 << 15, 5e-5)]), wild])


def test_where_the_sizes_are_too_small_there_is_no_bandwidth_but_a_reason(
    series: Callable[..., list[Record]], printed: Printed
) -> None:
    points = [(1 << k, 0.215e-3 + (1 << k) / 22.1e9) for k in range(10, 20)]
    (found,) = fits(series(points))
    view = fit_view(found)
    assert (view["beta"], view["bus_bandwidth"], view["half_size"]) == (None, None, None)
    assert view["remarks"] == [
        "the time hardly grows with the size up to 512K: larger sizes tell the bandwidth"
    ]  # fmt: skip
    row = next(" ".join(line.split()) for line in printed(series(points)).splitlines() if "10: 1K..512K" in line)
    assert "10: 1K..512K 215 µs " in row
    assert "22.1" not in row
    assert row.endswith("larger sizes tell the bandwidth")


def test_a_bandwidth_that_no_size_comes_near_to_is_not_told(series: Callable[..., list[Record]]) -> None:
    medians = [3.81e-3, 3.85e-3, 3.47e-3, 4.27e-3, 3.25e-3, 2.11e-3, 9.60e-3]
    (found,) = fits(series([(1024 << 2 * k, t) for k, t in enumerate(medians)]))
    view = fit_view(found)
    assert (view["beta"], view["bus_bandwidth"], view["half_size"]) == (None, None, None)
    assert view["remarks"][-1] == (
        "1.12 GB/s fitted, but only 497 MB/s reached up to 4M: larger sizes tell the bandwidth"
    )


def test_where_the_sizes_are_too_large_there_is_no_latency_but_a_reason(
    series: Callable[..., list[Record]], printed: Printed
) -> None:
    text = printed(series([(1 << k, (1 << k) / 1e9) for k in (24, 25, 26)]))
    assert "from 16M on, the time is all bandwidth: smaller sizes tell the latency" in text


def test_sizes_are_those_that_were_asked_for(make_sent: MakeRecord, printed: Printed) -> None:
    """Three ranks share 1032 bytes better than 1024."""
    records = [make_sent(size + 8, t, params={"size": size}) for size, t in ((1024, 1e-5), (4096, 2e-5), (16384, 5e-5))]
    assert "3: 1K..16K" in " ".join(printed(records).split())
    (found,) = fits(records)
    assert [point.size for point in found.points] == [1032, 4104, 16392]


def test_a_time_that_does_not_grow_says_so(series: Callable[..., list[Record]], printed: Printed) -> None:
    text = printed(series([(8, 3e-5), (16, 2e-5), (32, 1.5e-5)]))
    assert "the time does not grow with the size" in text


def test_as_data_nothing_is_rounded_and_every_key_is_there(series: Callable[..., list[Record]]) -> None:
    good, few = (json.loads(msgspec.json.encode(fit_view(fits(series(points))[0]))) for points in (LINE, LINE[:1]))
    assert good.keys() == few.keys()
    assert good["alpha"] == pytest.approx(1e-5, rel=1e-12)
    assert good["half_size"] == pytest.approx(1e4)
    assert good["off"] is False
    assert good["remarks"] == []
    assert few["remarks"] == ["no fit: 1 of at least 3 sizes"]
    assert good["points"][0] == {
        "size": 1000, "bus": 1500.0, "seconds": 11e-6, "asked": 1000, "low": 11e-6, "high": 11e-6, "noise": 0.0,
    }  # fmt: skip
    assert (few["alpha"], few["beta"], few["off"], few["reason"]) == (None, None, None, "1 of at least 3 sizes")


def test_series_of_different_quantities_say_which_they_are(series: Callable[..., list[Record]]) -> None:
    other = [
        replace(one, measurements=(replace(one.measurements[0], quantity="device_time", cache="cold"),))
        for one in series(backend="torch-cuda")
    ]
    assert [one.where for one in fits([*series(), *other])] == [
        "torch-cpu ×2, latency warm",
        "torch-cuda ×2, device_time cold",
    ]
    assert [one.where for one in fits(series())] == ["torch-cpu ×2"]
