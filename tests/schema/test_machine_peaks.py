"""Peaks: the least time that data takes, and names of chips."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.schema.machine import MEMORY, Interconnect, Level, Peaks, chip

L1 = Level("L1", 4e12, 1000)
L2 = Level("L2", 2e12, 50_000)
BEHIND = Level(MEMORY, 1e12)
SIZES = st.integers(0, 10**7)


def peaks(*levels: Level) -> Peaks:
    return Peaks("Fast 9000", "made up", {"float32": 1e13}, list(levels))


@st.composite
def any_peaks(draw: st.DrawFn) -> Peaks:
    """Draw caches that grow and slow down, with a memory behind them."""
    sizes = sorted(draw(st.sets(st.integers(1, 10**6), max_size=4)))
    caches = [Level(f"L{i}", 1e13 / (i + 1), nbytes) for i, nbytes in enumerate(sizes, 1)]
    return peaks(*caches, Level(MEMORY, 1e12))


def test_data_moves_at_the_speed_of_the_smallest_cache_that_holds_it() -> None:
    known = peaks(L1, L2, BEHIND)
    assert known.moving_time(1000, cold=False) == (1000 / 4e12, "L1")
    assert known.moving_time(50_000, cold=False) == (49_000 / 2e12, "L2"), "1,000 bytes of it are in L1"
    assert known.moving_time(0, cold=False) == (0.0, MEMORY)


def test_of_what_does_not_fit_a_cache_only_the_rest_comes_from_behind_it() -> None:
    known = peaks(L1, L2, BEHIND)
    assert known.moving_time(60_000, cold=False) == (59_000 / 2e12, "L2"), "10,000 bytes from memory are quicker"
    assert known.moving_time(150_000, cold=False) == (100_000 / 1e12, MEMORY)


@given(any_peaks(), SIZES, SIZES)
def test_more_data_never_takes_less_and_a_byte_more_hardly_matters(known: Peaks, one: int, other: int) -> None:
    small, large = sorted((one, other))
    times = [known.moving_time(nbytes, cold=False) for nbytes in (small, large, large + 1)]
    assert times[0] is not None
    assert times[1] is not None
    assert times[2] is not None
    assert times[0].seconds <= times[1].seconds
    assert times[2].seconds - times[1].seconds <= 1.001 / 1e12, "a byte more takes what memory takes for it, at most"


@given(any_peaks(), SIZES)
def test_cold_data_is_in_memory_whatever_its_size(known: Peaks, nbytes: int) -> None:
    assert known.moving_time(nbytes, cold=True) == (nbytes / 1e12, MEMORY)


@pytest.mark.parametrize(("nbytes", "cold"), [(10**9, False), (1, True)])
def test_a_memory_that_nobody_knows_is_not_guessed_from_a_cache(nbytes: int, cold: bool) -> None:
    assert peaks(L1, L2).moving_time(nbytes, cold=cold) is None


def test_what_computes_is_the_gpu_if_there_is_one() -> None:
    assert chip({"gpu": "Fast 9000", "cpu": "Slow 1"}) == "Fast 9000"
    assert chip({"cpu": "Slow 1"}) == "Slow 1"
    assert chip({"chip": "NPU-1", "device": "npu", "cpu": "Slow 1"}) == "NPU-1", "a device that is no GPU"
    assert chip({"gpu": None, "cpu": ""}) == "unknown"


def test_what_was_stored_before_there_were_more_fields_is_read() -> None:
    stored = {"chip": "Fast 9000", "source": "run 1", "flops": {}, "levels": [{"name": "memory", "bandwidth": 1e12}]}
    assert msgspec.convert(stored, Peaks) == Peaks("Fast 9000", "run 1", {}, [BEHIND])


def test_a_cache_whose_speed_nobody_tells_still_holds_data() -> None:
    quiet = Level("L2", None, 1000)
    assert peaks(quiet, BEHIND).moving_time(3999, cold=False) is None
    assert peaks(quiet, BEHIND).moving_time(4000, cold=False) == (3000 / 1e12, MEMORY)


def test_the_memory_has_a_bandwidth_of_its_own() -> None:
    assert peaks(L1, BEHIND).memory_bandwidth == 1e12
    assert peaks(L1).memory_bandwidth is None


@given(st.integers(1, 512), st.integers(1, 512))
def test_a_part_of_the_cores_computes_its_part_and_never_more_than_all(cores: int, threads: int) -> None:
    whole = msgspec.structs.replace(peaks(L1, BEHIND), cores=cores)
    part = whole.of_threads(threads)
    assert part.flops["float32"] == pytest.approx(1e13 * min(1, threads / cores))
    assert part.levels == whole.levels


def test_what_is_no_processor_does_not_depend_on_threads() -> None:
    known = peaks(BEHIND)
    assert known.of_threads(1) is known
    assert msgspec.structs.replace(known, cores=4).of_threads(None).flops == known.flops


def test_peaks_survive_the_way_through_json() -> None:
    known = Peaks(
        "Fast 9000", "run 1", {"float16": 1 / 3}, [Level("L2", 2e12, 50, {"copy": 2e12}), BEHIND], ["9000"],
        {"latency": 1e-6}, 4, "Fast", 10**9, [Interconnect("Link", 1e9, 2)], 300.0, 64, {"power": "guessed"},
        "torch-cpu",
    )  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(known), type=Peaks) == known


@pytest.mark.parametrize("place", ["peaks", "level"])
def test_a_misspelt_field_is_an_error(place: str) -> None:
    body = msgspec.to_builtins(peaks(BEHIND))
    (body if place == "peaks" else body["levels"][0])["bandwith"] = 1.0
    with pytest.raises(msgspec.ValidationError, match="bandwith"):
        msgspec.convert(body, Peaks)
