"""The datasheets that ship, and those of the user."""

from __future__ import annotations

from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from opmark.errors import InvalidFile, UserError
from opmark.hardware import datasheets as module
from opmark.hardware.datasheets import ENVIRONMENT, VERSION, datasheet, datasheets, names, shipped_datasheets
from opmark.schema.machine import MEMORY, RATED, Peaks

every_chip = pytest.mark.parametrize("peaks", shipped_datasheets(), ids=lambda peaks: peaks.chip)
FILES = [file for file in (files("opmark.hardware") / "chips").iterdir() if file.name.endswith(".yaml")]
MINE = "schema: 1\nchips: [{chip: %s, source: me, flops: {float32: 1e12}, levels: [{name: memory, bandwidth: 1e11}]}]\n"


@pytest.fixture(autouse=True)
def _nobodys_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide hardware files of the user who runs the tests."""
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.setattr(module, "own_folder", lambda: tmp_path / "kept" / "hardware")


def found(chip: str) -> Peaks:
    peaks = datasheet(chip)
    assert peaks is not None
    return peaks


def is_unknown(figure: str, peaks: Peaks) -> bool:
    """Whether a note says that no source has this figure."""
    return any(figure in note and "no other was found" in note for note in peaks.notes.values())


def test_every_chip_of_every_file_is_there_once() -> None:
    written = [chip["chip"] for file in FILES for chip in yaml.safe_load(file.read_text(encoding="utf-8"))["chips"]]
    assert len(written) >= 25
    assert sorted(peaks.chip for peaks in datasheets()) == sorted(written)
    assert len(set(written)) == len(written)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_says_which_schema_it_follows(file: object) -> None:
    assert yaml.safe_load(file.read_text(encoding="utf-8"))["schema"] == VERSION  # type: ignore[attr-defined]


@every_chip
def test_a_datasheet_says_whose_it_is_and_where_its_numbers_are_from(peaks: Peaks) -> None:
    assert "datasheet" in peaks.source or "/" in peaks.source or "Hot Chips" in peaks.source
    assert peaks.vendor
    assert (peaks.launch, peaks.threads) == ({}, None)


@every_chip
def test_a_note_is_about_a_figure_that_is_there(peaks: Peaks) -> None:
    levels = {f"levels.{level.name}" for level in peaks.levels}
    flops = {f"flops.{dtype}" for dtype in peaks.flops}
    there = {name for name in ("flops", "levels", "memory", "interconnect", "power") if getattr(peaks, name)}
    assert peaks.notes.keys() <= levels | flops | there


@every_chip
def test_memory_is_the_last_level_and_caches_grow(peaks: Peaks) -> None:
    """A chip without memory behind its SRAM has none."""
    *caches, last = peaks.levels
    assert all(level.name != MEMORY and level.nbytes for level in caches)
    assert last.name in (MEMORY, "SRAM")
    assert last.name == "SRAM" or last.nbytes is None
    assert last.name == "SRAM" or last.bandwidth is not None or is_unknown("bandwidth", peaks)
    assert all((small.nbytes or 0) <= (large.nbytes or 0) for small, large in pairwise(caches))


@every_chip
def test_bandwidths_are_in_bytes_a_second_and_fall_from_level_to_level(peaks: Peaks) -> None:
    """All lie between a slow processor's memory and a fast accelerator's: a wrong unit would be off a thousandfold."""
    bandwidths = [level.bandwidth for level in peaks.levels if level.bandwidth is not None]
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert all(1e10 < bandwidth < 1e14 for bandwidth in bandwidths)
    assert peaks.memory_bandwidth is None or peaks.memory_bandwidth < 1e13


@every_chip
def test_sizes_links_and_power_are_in_bytes_and_watts(peaks: Peaks) -> None:
    caches = [level.nbytes for level in peaks.levels if level.nbytes]
    assert all(1 << 20 <= nbytes < 1 << 30 for nbytes in caches)
    assert peaks.memory is None or 8e9 <= peaks.memory <= 1e12
    assert peaks.memory is None or all(nbytes < peaks.memory for nbytes in caches)
    assert all(1e10 <= link.bandwidth <= 2e12 for link in peaks.interconnect if link.bandwidth)
    assert peaks.power is None or 50 <= peaks.power <= 2000


@every_chip
def test_peaks_are_of_known_element_types_in_operations_a_second(peaks: Peaks) -> None:
    assert peaks.flops.keys() <= set(RATED)
    assert is_unknown("operations per second", peaks) or peaks.flops.keys() & {"float32", "float16", "bfloat16"}
    assert all(1e11 < flops < 1e17 for flops in peaks.flops.values())


@every_chip
def test_fewer_bits_are_never_slower(peaks: Peaks) -> None:
    """TPUs convert 8-bit types, some without a gain; float32 is without TF32."""
    orders = (
        ("float64", "float32", "tfloat32", "float16", "float8_e4m3fn", "float4_e2m1fn"),
        ("float32", "bfloat16", "int8", "int4"),
    )
    for order in orders:
        rates = [peaks.flops[dtype] for dtype in order if dtype in peaks.flops]
        assert rates == sorted(rates)
    assert ("float8_e4m3fn" in peaks.flops) == ("float8_e5m2" in peaks.flops)


@every_chip
def test_dense_means_that_half_the_bits_are_at_most_twice_as_fast(peaks: Peaks) -> None:
    """If one of them were with sparsity, the factor would be four. GeForce chips halve the rate of sums in float32, the
    AI 100 triples that of 8-bit types."""
    if peaks.chip.startswith(("NVIDIA GeForce", "Qualcomm")):
        return
    half = peaks.flops.get("float16") or peaks.flops.get("bfloat16", 0.0)
    eight = [peaks.flops[dtype] for dtype in ("int8", "float8_e4m3fn", "float8_e5m2") if dtype in peaks.flops]
    assert all(half <= rate <= 2.03 * half for rate in eight)
    if "tfloat32" in peaks.flops:
        assert half <= 2.05 * peaks.flops["tfloat32"]


def test_a_processors_peaks_are_what_its_note_multiplies() -> None:
    processors = [peaks for peaks in datasheets() if peaks.cores]
    assert len(processors) >= 4
    for peaks in processors:
        assert peaks.notes["flops"].startswith(f"{peaks.cores} cores x ")
        clock = float(peaks.notes["flops"].split(" cores x ")[1].split(" GHz")[0]) * 1e9
        a_cycle = peaks.flops["float32"] / (peaks.cores or 1) / clock
        assert a_cycle == pytest.approx(round(a_cycle), rel=1e-3)
        assert round(a_cycle) in (32, 64)
        assert peaks.flops["float64"] == pytest.approx(peaks.flops["float32"] / 2, rel=1e-3)


@every_chip
def test_a_chip_is_found_by_its_exact_name_and_by_its_others(peaks: Peaks) -> None:
    for name in names(peaks):
        assert datasheet(name) is peaks


def test_a_name_means_one_chip() -> None:
    every = [name for peaks in datasheets() for name in names(peaks)]
    assert len(set(every)) == len(every)


@every_chip
def test_a_name_that_is_only_nearly_the_same_is_another_chip(peaks: Peaks) -> None:
    """Variants of a chip differ in memory and power; a wrong peak is worse than none."""
    known = {name for other in datasheets() for name in names(other)}
    for other in {peaks.chip.lower(), peaks.chip + " Plus", peaks.chip[1:], peaks.chip[:-1]} - known:
        assert datasheet(other) is None


@pytest.mark.parametrize("name", ["", "unknown", "NVIDIA", "AMD EPYC", "schema", "float32"])
def test_an_unknown_chip_has_no_datasheet(name: str) -> None:
    assert datasheet(name) is None


def test_variants_of_a_chip_differ_in_their_memory() -> None:
    large, small = found("NVIDIA A100-SXM4-80GB"), found("NVIDIA A100-SXM4-40GB")
    assert large.flops == small.flops
    assert (large.memory_bandwidth, large.memory) == (2.039e12, 80 * 10**9)
    assert (small.memory_bandwidth, small.memory) == (1.555e12, 40 * 10**9)


def test_the_h200_by_hand() -> None:
    peaks = found("NVIDIA H200")
    assert peaks.memory_bandwidth == 4.8e12
    assert (peaks.flops["float32"], peaks.flops["bfloat16"]) == (67e12, 989.5e12)


def test_a_processor_is_found_as_the_kernel_names_it_and_with_fewer_threads_computes_less() -> None:
    whole, part = found("AMD EPYC 9654 96-Core Processor"), datasheet("AMD EPYC 9654 96-Core Processor", 24)
    assert part is not None
    assert part.flops["float32"] == pytest.approx(whole.flops["float32"] / 4)
    assert part.levels == whole.levels
    assert datasheet("AMD EPYC 9654 96-Core Processor", 192) is whole
    assert datasheet("NVIDIA H200", 1) is datasheet("NVIDIA H200")


def test_the_environment_names_a_file_that_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.yaml").write_text(MINE % "NVIDIA H200")
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "mine.yaml"))
    assert found("NVIDIA H200").source == "me"
    assert found("NVIDIA H100 PCIe").source != "me"
    assert [peaks.source for peaks in datasheets() if peaks.chip == "NVIDIA H200"] == ["me"]
    assert datasheets()[0].source == "me"
    assert len(datasheets()) == len(shipped_datasheets())


def test_the_environment_names_a_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b.yaml").write_text(MINE % "Fast 2")
    (tmp_path / "a.yml").write_text(MINE % "Fast 1")
    (tmp_path / "c.json").write_text('{"schema": 1, "chips": []}')
    (tmp_path / "notes.txt").write_text("no file of ours: [")
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    assert [peaks.chip for peaks in datasheets()[:2]] == ["Fast 1", "Fast 2"]


def test_what_is_kept_with_the_runs_comes_after_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept" / "hardware"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text((MINE % "Fast 1").replace("source: me", "source: kept"))
    assert found("Fast 1").source == "kept"
    (tmp_path / "now.yaml").write_text(MINE % "Fast 1")
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "now.yaml"))
    assert found("Fast 1").source == "me"


def test_an_alias_of_ones_own_hides_the_chip_that_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (MINE % "Mine").replace("source:", "aliases: [NVIDIA H200], source:")
    (tmp_path / "mine.yaml").write_text(text)
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "mine.yaml"))
    assert found("NVIDIA H200").chip == "Mine"
    assert "NVIDIA H200" not in [peaks.chip for peaks in datasheets()]


def test_a_place_that_is_not_there_is_the_environments_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "gone.yaml"))
    with pytest.raises(UserError, match=rf"{ENVIRONMENT}: .*gone\.yaml does not exist"):
        datasheet("NVIDIA H200")


@pytest.mark.parametrize("content", [b"chips: [", b"\xff\xfe", b"schema: 1\nchips: {}\n", b"[]", b""])
def test_a_broken_file_is_named(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.yaml").write_bytes(content)
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    with pytest.raises(InvalidFile, match=r"broken\.yaml"):
        datasheet("NVIDIA H200")


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("NVIDIA A800-SXM4-80GB", "NVIDIA A800-SXM4-80GB"),
        ("Intel(R) Xeon(R) Platinum 8336C CPU @ 2.30GHz", "Intel(R) Xeon(R) Platinum 8336C CPU @ 2.30GHz"),
        ("STC P920", "Stream Computing STC P920"),
        ("Moffett-AI S30", "Moffett S30"),
        ("GOYA", "Habana Goya HL-100"),
        ("Tesla K80", "Tesla K80"),
        ("GeForce RTX 2080 Ti", "NVIDIA GeForce RTX 2080 Ti"),
        ("HL-225", "Intel Gaudi 2"),
        ("Neoverse-V1", "AWS Graviton3"),
    ],
)
def test_chips_that_the_readmes_of_other_systems_name(name: str, chip: str) -> None:
    assert found(name).chip == chip


def test_a_peak_of_sparse_matrices_is_stated_in_a_note_and_the_dense_one_is_used() -> None:
    peaks = found("Moffett S30")
    assert (peaks.flops["bfloat16"] * 32, peaks.flops["int8"] * 32) == (1440e12, 2880e12)
    assert "1440 TFLOP/s" in peaks.notes["flops"]


def test_the_utilisation_of_bytemicroperfs_readme_is_that_of_its_chip() -> None:
    """1790.52 GB/s are 87.81 % there."""
    assert round(100 * 1790.52e9 / (found("NVIDIA A800-SXM4-80GB").memory_bandwidth or 1), 2) == 87.81


def test_figures_that_differ_between_sources_are_both_told() -> None:
    peaks = found("Graphcore C600")
    assert {link.name for link in peaks.interconnect} == {"IPU-Link", "PCIe Gen4 x16"}
    assert "65 TB/s" in peaks.notes["levels.SRAM"]
    assert "52 TB/s" in peaks.notes["levels.SRAM"]
