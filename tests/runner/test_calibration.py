"""A machine's peaks, from a virtual clock that has some, and from NumPy on sizes that take no time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opmark.api.calibrate import calibrate
from opmark.api.result import open_store
from opmark.api.run import run
from opmark.api.show import show
from opmark.errors import StoreError, UnknownName, UserError
from opmark.hardware.sensors import CacheLevel
from opmark.plugin import BackendInfo
from opmark.runner import calibration as module
from opmark.runner.calibration import Calibration, calibration
from opmark.schema import Record
from opmark.schema.machine import MEMORY, Level, Peaks, chip
from opmark.stats.measurement import summarize

pytestmark = pytest.mark.machine

Plugin = Callable[..., BackendInfo]

FACTS = """
    def environment(self):
        return {**super().environment(), "gpu": "Fast 9000", "gpu_l2": %d}
"""


def silent(message: str) -> None:
    assert message.startswith("stored as run"), message


def measured(backend: str, threads: int = 1, timeout: float = 60.0) -> tuple[Peaks, Calibration]:
    work = calibration(backend, threads, timeout, silent)
    return work.run("a test"), work


def measured_aloud(backend: str, threads: int = 1) -> tuple[Peaks, Calibration]:
    """Where something may be said."""
    work = calibration(backend, threads, 60.0, lambda message: None)
    return work.run("a test"), work


def fastest(record: Record) -> float:
    return min(record.measurements[0].samples)


def of(records: list[Record], op: str, **params: Any) -> list[Record]:
    return [r for r in records if r.task.case.op == op and params.items() <= r.task.case.params.items()]


def seconds(record: Record) -> float:
    measurement = record.measurement()
    assert measurement is not None
    return summarize([measurement]).median


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PRODUCTS", {"cpu": (16, 32), "device": (16, 32)})
    monkeypatch.setattr(module, "_LEAST_MEMORY", 1 << 20)


# A device of which only the clock is made up.


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> tuple[Peaks, Calibration]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return measured("null-device")


def test_bandwidth_is_the_better_of_copy_and_triad(device: tuple[Peaks, Calibration]) -> None:
    """The virtual clock counts what is read: 1 of the 2 vectors of a copy, 2 of the 3 of a triad."""
    (memory,) = device[0].levels
    assert (memory.name, memory.nbytes) == (MEMORY, None)
    assert memory.by.keys() == {"copy", "triad"}
    assert memory.bandwidth == memory.by["copy"] > memory.by["triad"]
    assert memory.by["copy"] / memory.by["triad"] == pytest.approx(4 / 3, rel=0.02)


def test_bandwidth_is_bytes_over_the_time_that_the_device_worked(device: tuple[Peaks, Calibration]) -> None:
    peaks, work = device
    for op, bandwidth in peaks.levels[-1].by.items():
        large = max(of(work.records, op), key=lambda record: record.task.case.params["n"])
        assert large.measurements[0].quantity == "device_time"
        assert large.cost is not None
        assert bandwidth == large.cost.bytes_moved / fastest(large)


def test_flops_are_the_best_of_all_sizes_by_element_type(device: tuple[Peaks, Calibration]) -> None:
    peaks, work = device
    assert list(peaks.flops) == [dtype for dtype in module.DTYPES if dtype in work.info.dtypes]
    for dtype, flops in peaks.flops.items():
        found = of(work.records, "matmul", dtype=dtype)
        assert [record.task.case.params["M"] for record in found] == list(module._PRODUCTS["device"])
        assert flops == max(record.cost.flops / fastest(record) for record in found if record.cost)


def test_the_smallest_call_has_what_a_caller_sees_of_it(device: tuple[Peaks, Calibration]) -> None:
    peaks, work = device
    assert peaks.launch.keys() == {"latency", "host_time"}
    assert peaks.backend == work.info.name
    (add,) = of(work.records, "add", shape=[1])
    assert {m.quantity: summarize([m]).median for m in add.measurements} == peaks.launch


def test_everything_is_measured_warm_and_marked(device: tuple[Peaks, Calibration]) -> None:
    records = device[1].records
    assert {record.status for record in records} == {"ok"}
    assert {record.task.case.tags for record in records} == {("calibrate",)}
    assert {m.cache for record in records for m in record.measurements} == {"warm"}
    assert len({record.task.id for record in records}) == len(records)


def test_peaks_say_of_what_and_from_where(device: tuple[Peaks, Calibration]) -> None:
    peaks, work = device
    (environment,) = work.environments.values()
    assert peaks.chip == chip(environment.facts) != "unknown"
    assert peaks.source == "a test"
    assert peaks.threads is None


def test_a_profiler_that_cannot_start_leaves_the_other_timers(monkeypatch: pytest.MonkeyPatch, small: None) -> None:
    monkeypatch.setenv("OPMARK_NULL_DEVICE", "no-profiler")
    monkeypatch.setattr(module, "_PRODUCTS", {"device": (16,)})
    peaks, work = measured_aloud("null-device")
    assert [level.name for level in peaks.levels] == [MEMORY]
    assert "cupti" not in {m.timer for record in work.records for m in record.measurements}


def test_a_larger_product_is_tried_only_where_it_promises_to_end_soon(
    monkeypatch: pytest.MonkeyPatch, small: None
) -> None:
    """The first takes a microsecond by the virtual clock; the second is expected to take eight times as long."""
    monkeypatch.setattr(module, "_LONGEST_PRODUCT", 4e-6)
    peaks, work = measured("null")
    assert {record.task.case.params["M"] for record in of(work.records, "matmul")} == {16}
    assert peaks.flops.keys() == set(module.DTYPES) & work.info.dtypes


def test_only_element_types_that_the_backend_has_are_tried(plugin: Plugin, small: None) -> None:
    plugin("strange")
    peaks, work = measured("strange")
    assert list(peaks.flops) == ["float32"]
    assert {record.status for record in work.records} == {"ok"}


@pytest.mark.parametrize(
    ("lacking", "what"),
    [
        (("copy", "triad"), "the bandwidth of the memory"),
        (("matmul",), "the rate of matrix products"),
        (("add",), "the time of the smallest call"),
    ],
)
def test_why_a_peak_of_a_plug_in_was_not_measured_is_said(
    plugin: Plugin, small: None, lacking: tuple[str, ...], what: str
) -> None:
    plugin("partial", lacks=dict.fromkeys(lacking, "its library has none"))
    said: list[str] = []
    peaks = calibration("partial", 1, 60.0, said.append).run("a test")
    assert [bool(peaks.levels), bool(peaks.flops), bool(peaks.launch)] == [
        name not in lacking for name in ("copy", "matmul", "add")
    ]
    (line,) = [line for line in said if "was not measured" in line]
    assert line.startswith(f"{what} was not measured: {lacking[0]}: ")
    assert line.count("its library has none") == len(lacking)


def test_the_cache_of_a_device_is_as_large_as_it_says(plugin: Plugin, small: None) -> None:
    plugin("gpu", "class Backend(NullBackend):" + FACTS % (50 << 20), device="gpu")
    peaks, work = measured("gpu")
    assert peaks.chip == "Fast 9000"
    # This device has no faster cache: the calls themselves make the smaller vectors slower, and that is no level.
    assert [(level.name, level.nbytes) for level in peaks.levels] == [(MEMORY, None)]
    inside, beyond = sorted(3 * 4 * r.task.case.params["n"] for r in of(work.records, "triad"))
    assert inside <= 50 << 20 < beyond / 8


def test_data_that_does_not_fit_the_cache_of_a_device_says_nothing_about_it(plugin: Plugin, small: None) -> None:
    """An older GPU with 4 MiB: either smaller vectors are taken, or its cache is not told."""
    plugin("gpu", "class Backend(NullBackend):" + FACTS % (4 << 20), device="gpu")
    peaks, work = measured("gpu")
    if any(level.name == "L2" for level in peaks.levels):
        assert min(3 * 4 * record.task.case.params["n"] for record in of(work.records, "triad")) <= 4 << 20


# A processor.

L1, L2 = CacheLevel(1, 1 << 15, 1), CacheLevel(2, 1 << 18, 2)
PER_CALL = 1 << 20


def made_up_seconds(record: Record) -> float | None:
    """Let whatever fits into less be faster: on a busy machine a small cache may seem slower than the memory."""
    assert record.cost is not None
    if record.task.case.op in ("copy", "triad"):
        return record.cost.bytes_moved * vectors(record) / 1e18
    return (record.cost.flops or 1) / 1e9


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> tuple[Peaks, Calibration]:
    """NumPy on this processor, with two small caches; how long it took is made up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(module, "caches", lambda: [L1, L2])
        patch.setattr(module, "last_level_bytes", lambda: L2.nbytes)
        patch.setattr(module, "_PRODUCTS", {"cpu": (16, 32)})
        patch.setattr(module, "_LEAST_MEMORY", 1 << 20)
        patch.setattr(module, "_PER_CALL", PER_CALL)
        patch.setattr(module, "_fastest_seconds", made_up_seconds)
        return measured_aloud("numpy-cpu", threads=2)


def vectors(record: Record) -> int:
    """Bytes that they take together."""
    return int({"copy": 2, "triad": 3}[record.task.case.op] * 4 * record.task.case.params["n"])


def test_a_processor_has_its_caches_and_its_memory_the_smallest_first(processor: tuple[Peaks, Calibration]) -> None:
    peaks = processor[0]
    assert [level.name for level in peaks.levels] == ["L1", "L2", MEMORY]
    assert all(level.bandwidth == max(level.by.values()) > 0 for level in peaks.levels)
    assert all(level.by.keys() == {"copy", "triad"} for level in peaks.levels)
    assert peaks.threads == 2


def test_what_each_core_has_of_its_own_counts_as_often(processor: tuple[Peaks, Calibration]) -> None:
    """Two threads: two first caches, one second that they share, which all of them together may fill better."""
    peaks, work = processor
    assert [level.nbytes for level in peaks.levels] == [2 * L1.nbytes, L2.nbytes, None]
    alone = [record for record in work.records if record.task.settings.threads == 1]
    for level, cache, instances in zip(peaks.levels, (L1, L2), (2, 1), strict=False):
        for op, bandwidth in level.by.items():
            (record,) = (r for r in of(alone, op) if cache.nbytes / 4 < vectors(r) <= cache.nbytes / 2)
            assert record.cost is not None
            by_one = instances * record.cost.bytes_moved / (made_up_seconds(record) or 0.0)
            assert bandwidth == pytest.approx(by_one) if cache is L1 else bandwidth >= by_one


def test_a_cache_is_measured_with_data_that_fits_and_enough_of_it_a_call(processor: tuple[Peaks, Calibration]) -> None:
    inside = [r for r in processor[1].records if r.task.case.op in ("copy", "triad") and r.task.settings.threads == 1]
    assert len(inside) == 4
    for record in inside:
        assert vectors(record) <= L2.nbytes / 2
        assert record.cost is not None
        assert record.cost.bytes_moved > 0.9 * PER_CALL


def test_memory_is_measured_far_beyond_the_last_cache_by_all_threads(processor: tuple[Peaks, Calibration]) -> None:
    together = [r for r in processor[1].records if r.task.case.op in ("copy", "triad") and r.task.settings.threads == 2]
    assert [record.task.case.op for record in together] == ["copy", "triad"] * 2
    shared, memory = together[:2], together[2:]
    assert all(vectors(record) <= L2.nbytes / 2 for record in shared)
    assert all(vectors(record) > 0.99 * 8 * L2.nbytes for record in memory)


def test_products_are_computed_and_verified(processor: tuple[Peaks, Calibration]) -> None:
    peaks, work = processor
    assert peaks.flops.keys() == {"float32", "float16", "float64"}
    assert all(rate > 0 for rate in peaks.flops.values())
    products = of(work.records, "matmul")
    assert {record.status for record in products} == {"ok"}
    assert {record.verification.checked for record in products if record.verification} == {"full"}


def test_where_nobody_tells_the_caches_there_is_only_the_memory(
    monkeypatch: pytest.MonkeyPatch, plugin: Plugin, small: None
) -> None:
    monkeypatch.setattr(module, "caches", list)
    monkeypatch.setattr(module, "last_level_bytes", lambda: None)
    plugin("cpu-like", device="cpu")
    assert [level.name for level in measured("cpu-like")[0].levels] == [MEMORY]


# Through the library: stored and kept.

UNAVAILABLE = """
class Backend(NullBackend):
    def why_unavailable(self):
        return "the power is off"
"""


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Peaks, Path]:
    folder = tmp_path_factory.mktemp("calibrated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setattr(module, "_PRODUCTS", {"device": (16, 32)})
        return calibrate("null", threads=1, db=folder / "store.db", say=silent), folder / "store.db"


@pytest.fixture
def copied(calibrated: tuple[Peaks, Path], db: Path) -> Path:
    return Path(shutil.copy(calibrated[1], db))


def kept(db: Path, name: str) -> Peaks | None:
    with closing(open_store(db)) as store:
        found = store.kept("peaks", name)
    return msgspec.convert(found, Peaks) if found else None


def test_the_run_is_stored_and_the_peaks_are_kept(calibrated: tuple[Peaks, Path]) -> None:
    peaks, path = calibrated
    assert kept(path, f"{peaks.chip} ×1") == peaks
    result = show(db=path)
    assert (result.run.label, result.run.tasks) == ("calibrate", len(result.records))
    assert result.run.id in peaks.source
    assert {record.task.case.op for record in result.records} == {"add", "copy", "triad", "matmul"}
    assert {record.environment for record in result.records} == result.environments.keys()


def test_without_an_asynchronous_caller_the_smallest_call_is_only_a_latency(calibrated: tuple[Peaks, Path]) -> None:
    assert calibrated[0].launch.keys() == {"latency"}


def test_what_is_run_later_has_its_share_of_the_peaks(copied: Path) -> None:
    (row,) = run("exp", size="small", backend="null", effort="quick", threads=1, db=copied).rows()
    share = row["metrics"]["of_measured_peak"]
    assert share["bound"] == MEMORY
    assert 0 < share["share"] < 1


def test_a_second_calibration_takes_the_place_of_the_first(
    calibrated: tuple[Peaks, Path], copied: Path, small: None
) -> None:
    last = calibrate("null", threads=1, db=copied, say=silent)
    assert last != calibrated[0]
    assert kept(copied, f"{last.chip} ×1") == last
    with closing(open_store(copied)) as store:
        assert len(store.runs()) == 2


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_a_backend_that_cannot_run_is_an_error_with_its_reason_and_keeps_no_peaks(
    plugin: Plugin, db: Path, monkeypatch: pytest.MonkeyPatch, small: None, device: str
) -> None:
    """Also on a processor, whose caches are measured by NumPy, which can run."""
    monkeypatch.setattr(module, "caches", lambda: [L1])
    monkeypatch.setattr(module, "_PER_CALL", PER_CALL)
    plugin("dead", UNAVAILABLE, device=device)
    with pytest.raises(UserError, match="the power is off"):
        calibrate("dead", threads=1, db=db, say=lambda message: None)
    if db.exists():
        with closing(open_store(db)) as store:
            assert store.kept("peaks", "unknown ×1") is None


def test_a_backend_that_nobody_knows_is_refused_before_a_store_is_made(db: Path) -> None:
    with pytest.raises(UnknownName, match="nope"):
        calibrate("nope", db=db)
    assert not db.exists()


@pytest.mark.parametrize("threads", [0, -1, 5000])
def test_a_number_of_threads_that_cannot_be_is_refused(db: Path, small: None, threads: int) -> None:
    with pytest.raises(UserError, match="threads"):
        calibrate("null", threads=threads, db=db, say=silent)
    assert not db.exists()


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_cannot_be_is_refused_as_for_a_run(db: Path, small: None, timeout: float) -> None:
    with pytest.raises(UserError, match="timeout"):
        calibrate("null", threads=1, timeout=timeout, db=db, say=silent)
    assert not db.exists()


def test_a_store_that_cannot_be_written_is_an_error_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Calibration, "run", lambda self, source: pytest.fail("measured"))
    with pytest.raises(StoreError):
        calibrate("null", threads=1, db=tmp_path)


def test_peaks_of_what_is_not_there_are_not_those_of_the_processor(
    calibrated: tuple[Peaks, Path], copied: Path
) -> None:
    """A drill with a made-up device must not change what real runs are held against."""
    (record,) = run("exp", size="small", backend="numpy-cpu", effort="quick", threads=1, db=copied).records
    facts = show(db=copied).environments[record.environment]
    assert chip(facts) != calibrated[0].chip


def test_a_level_is_told_by_the_operators_that_could_be_measured() -> None:
    assert module._level("L1", {"copy": 2.0, "triad": 3.0}, 10) == Level("L1", 3.0, 10, {"copy": 2.0, "triad": 3.0})


def test_what_a_smaller_cache_seems_to_do_worse_is_left_out() -> None:
    first = module._level("L1", {"copy": 9.0, "triad": 2.0}, 10)
    second = module._level("L2", {"copy": 5.0, "triad": 4.0}, 100)
    third = module._level("L3", {"copy": 0.5}, 1000)
    memory = module._level(MEMORY, {"copy": 1.0, "triad": 1.0}, None)
    found = module._drop_implausible([first, second, third, memory])
    assert found == [Level("L1", 9.0, 10, {"copy": 9.0}), second, memory]
