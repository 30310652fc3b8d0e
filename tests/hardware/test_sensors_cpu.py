"""Caches, clock and energy of a processor, from trees that look like the kernel's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.hardware import sensors
from opmark.hardware.sensors import CacheLevel, CpuSensors, _nbytes, caches, last_level_bytes
from opmark.hardware.topology import core_list

CORE = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0

# A server with two threads per core and an L3 cache for every eight of them.
LEVELS = [
    {"type": "Data", "level": "1", "size": "48K", "shared_cpu_list": "0,32"},
    {"type": "Instruction", "level": "1", "size": "64K", "shared_cpu_list": "0,32"},
    {"type": "Unified", "level": "2", "size": "2048K", "shared_cpu_list": "0,32"},
    {"type": "Unified", "level": "3", "size": "32M", "shared_cpu_list": "0-3,32-35"},
]


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for i, level in enumerate(LEVELS):
        _write(tmp_path / f"cpu{CORE}" / "cache" / f"index{i}", level)
    return tmp_path


def test_caches_of_data_come_smallest_first(root: Path) -> None:
    assert caches(root) == [CacheLevel(1, 48 << 10, 2), CacheLevel(2, 2 << 20, 2), CacheLevel(3, 32 << 20, 8)]


def test_the_largest_is_last_whatever_its_number(root: Path) -> None:
    """If L2 is larger than L3, data has to be driven out of L2."""
    (root / f"cpu{CORE}/cache/index2/size").write_text("64M\n")
    assert [cache.level for cache in caches(root)] == [1, 3, 2]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_it_is_a_core_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {9, 5})
    for core, size in ((0, "1M"), (5, "2M"), (9, "3M")):
        _write(tmp_path / f"cpu{core}" / "cache" / "index0", {**LEVELS[3], "size": size})
    assert [cache.nbytes for cache in caches(tmp_path)] == [2 << 20]


def test_it_is_the_first_core_where_there_is_no_affinity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    _write(tmp_path / "cpu0" / "cache" / "index0", LEVELS[3])
    assert [cache.nbytes for cache in caches(tmp_path)] == [32 << 20]


@pytest.mark.parametrize("missing", ["level", "size", "type"])
def test_a_cache_that_is_only_half_told_is_left_out(root: Path, missing: str) -> None:
    (root / f"cpu{CORE}/cache/index3" / missing).unlink()
    assert [cache.level for cache in caches(root)] == [1, 2]


def test_a_cache_of_which_nobody_tells_who_shares_it_is_one_core_s(root: Path) -> None:
    (root / f"cpu{CORE}/cache/index3/shared_cpu_list").unlink()
    assert caches(root)[-1] == CacheLevel(3, 32 << 20, 1)


def test_no_tree_means_no_caches(tmp_path: Path) -> None:
    assert caches(tmp_path) == []
    assert caches(tmp_path / "nowhere") == []
    assert last_level_bytes(tmp_path) is None


@pytest.mark.parametrize(("cores", "instances"), [(64, 8), (8, 1), (20, 2), (4, 1), (1, 1), (None, 1)])
def test_the_last_level_is_all_its_instances(
    root: Path, monkeypatch: pytest.MonkeyPatch, cores: int | None, instances: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert last_level_bytes(root) == instances * (32 << 20)


@pytest.mark.parametrize(
    ("text", "nbytes"), [("32K", 32 << 10), ("1024K", 1 << 20), ("33792K", 33 << 20), ("2M", 2 << 20), ("1G", 1 << 30),
                         ("512", 512)]
)  # fmt: skip
def test_sizes_have_units(text: str, nbytes: int) -> None:
    assert _nbytes(text) == nbytes


@pytest.mark.parametrize(
    ("text", "count"), [("0", 1), ("17", 1), ("0-3", 4), ("0-3,8", 5), ("0,32", 2), ("0-3,32-35", 8), ("8-8", 1)]
)
def test_lists_of_cores_are_counted(text: str, count: int) -> None:
    assert len(core_list(text)) == count


@settings(deadline=None)
@given(st.sets(st.integers(0, 300), min_size=1))
def test_a_list_of_cores_has_as_many_as_were_written(cores: set[int]) -> None:
    starts = sorted(core for core in cores if core - 1 not in cores)
    ends = sorted(core for core in cores if core + 1 not in cores)
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
    assert len(core_list(text)) == len(cores)


@pytest.fixture
def frequency(tmp_path: Path) -> Path:
    path = tmp_path / "cpu" / f"cpu{CORE}" / "cpufreq"
    _write(path, {"scaling_cur_freq": "3400000"})
    return path / "scaling_cur_freq"


ZONES = [
    ("intel-rapl:0", "package-0", 5_000_000),
    ("intel-rapl:0:0", "core", 7_000_000),
    ("intel-rapl:1", "package-1", 9_000_000),
]


@pytest.fixture
def rapl(tmp_path: Path) -> Path:
    """Counters of two packages; the zone `core` is a part of the first."""
    for zone, name, microjoules in ZONES:
        _write(tmp_path / "rapl" / zone, {"name": name, "energy_uj": str(microjoules)})
    _write(tmp_path / "rapl" / "intel-rapl", {"enabled": "1"})
    return tmp_path / "rapl"


def _sensors(tmp_path: Path) -> CpuSensors:
    return CpuSensors(tmp_path / "cpu", tmp_path / "rapl")


def test_the_clock_is_in_hertz_and_read_anew(tmp_path: Path, frequency: Path) -> None:
    sensors = _sensors(tmp_path)
    assert sensors.read().clock == pytest.approx(3.4e9)
    frequency.write_text("800000\n")
    assert sensors.read().clock == pytest.approx(8e8)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_the_clock_is_that_of_a_core_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Core 0 may sleep while core 5 computes."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {9, 5})
    for core, kilohertz in ((0, "800000"), (5, "3400000"), (9, "2000000")):
        _write(tmp_path / "cpu" / f"cpu{core}" / "cpufreq", {"scaling_cur_freq": kilohertz})
    assert _sensors(tmp_path).read().clock == pytest.approx(3.4e9)


def test_energy_is_that_of_all_packages_in_joules(tmp_path: Path, rapl: Path) -> None:
    sensors = _sensors(tmp_path)
    assert sensors.energy() == pytest.approx(14.0)
    (rapl / "intel-rapl:0/energy_uj").write_text("5250000\n")
    assert sensors.energy() == pytest.approx(14.25)
    (rapl / "intel-rapl:1/energy_uj").write_text("10000000\n")
    assert sensors.energy() == pytest.approx(15.25)


def test_the_parts_of_a_package_are_counted_in_it(tmp_path: Path, rapl: Path) -> None:
    (rapl / "intel-rapl:0:0/energy_uj").write_text("8000000\n")
    assert _sensors(tmp_path).energy() == pytest.approx(14.0)


def test_one_package_is_enough(tmp_path: Path) -> None:
    _write(tmp_path / "rapl" / "intel-rapl:0", {"name": "package-0", "energy_uj": "5000000"})
    assert _sensors(tmp_path).energy() == pytest.approx(5.0)


@pytest.mark.usefixtures("rapl")
@pytest.mark.parametrize(
    ("zone", "name"),
    [
        ("intel-rapl:2", "psys"),  # the whole platform, packages included
        ("intel-rapl-mmio:0", "package-0"),  # the same counter, read in another way
    ],
)
def test_a_zone_that_counts_a_package_again_is_left_out(tmp_path: Path, zone: str, name: str) -> None:
    _write(tmp_path / "rapl" / zone, {"name": name, "energy_uj": "5000000"})
    assert _sensors(tmp_path).energy() == pytest.approx(14.0)


def test_what_the_kernel_does_not_tell_is_none(tmp_path: Path) -> None:
    sensors = _sensors(tmp_path)
    assert sensors.read().clock is None
    assert sensors.read().power is None
    assert sensors.read().throttle == ()
    assert sensors.energy() is None


def test_a_counter_that_may_not_be_read_is_none(tmp_path: Path, rapl: Path) -> None:
    """A sum without one package is wrong, and jumps when that package can be read again.

    A folder in place of the file is unreadable even for root.
    """
    counter = rapl / "intel-rapl:0" / "energy_uj"
    counter.unlink()
    counter.mkdir()
    assert _sensors(tmp_path).energy() is None


def test_counters_of_which_none_may_be_read_are_none(tmp_path: Path, rapl: Path) -> None:
    for zone, *_ in ZONES:
        (rapl / zone / "energy_uj").unlink()
    assert _sensors(tmp_path).energy() is None


def test_a_counter_at_zero_is_told(tmp_path: Path, rapl: Path) -> None:
    for zone, *_ in ZONES:
        (rapl / zone / "energy_uj").write_text("0\n")
    assert _sensors(tmp_path).energy() == 0.0


@pytest.mark.parametrize(
    ("clock", "energy", "there"), [(True, False, True), (False, True, True), (True, True, True), (False, False, False)]
)
def test_sensors_that_tell_nothing_are_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: bool, energy: bool, there: bool
) -> None:
    if clock:
        _write(tmp_path / "cpu" / f"cpu{CORE}" / "cpufreq", {"scaling_cur_freq": "3400000"})
    if energy:
        _write(tmp_path / "rapl" / "intel-rapl:0", {"name": "package-0", "energy_uj": "1"})
    folders = (tmp_path / "cpu", tmp_path / "rapl")
    monkeypatch.setattr(CpuSensors.__init__, "__defaults__", folders)
    assert (CpuSensors.detect() is not None) == there


def test_this_machine_tells_something_sensible_or_nothing() -> None:
    found = caches()
    assert found == sorted(found, key=lambda cache: cache.nbytes)
    assert all(cache.nbytes > 0 and cache.shared_by >= 1 for cache in found)
    assert last_level_bytes() is None or last_level_bytes() >= found[-1].nbytes
    assert sensors.CpuSensors.detect() is None or sensors.CpuSensors.detect().read() is not None
