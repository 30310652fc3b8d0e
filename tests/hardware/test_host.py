"""Facts about the host."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from opmark.hardware import host as host_module


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Fake kernel files by path; other paths do not exist."""
    content: dict[str, str] = {}
    monkeypatch.setattr(host_module, "_read", lambda path: content.get(str(path)))
    return content


def test_the_facts_are_those_that_may_explain_a_number() -> None:
    facts = host_module.host()
    assert facts.keys() >= {"machine", "system", "python", "cpu", "cores", "affinity", "memory", "governor"}
    assert facts["cores"] == len(facts["affinity"]) == len(host_module.affinity())
    assert facts["memory"] == psutil.virtual_memory().total
    assert facts["cpu"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_the_cores_are_those_that_this_process_may_use() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert host_module.affinity() == [min(before)]
    finally:
        os.sched_setaffinity(0, before)
    assert host_module.affinity() == sorted(before)


def test_nodes_are_counted_and_their_processors_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As `lscpu` lists them, which ByteMicroPerf puts into its reports."""
    for node, processors in ((0, "0-31"), (1, "32-63"), (10, "")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(f"{processors}\n")
    monkeypatch.setattr(host_module, "NODES", tmp_path)
    assert host_module.numa_nodes() == "3;0-31;32-63;"
    monkeypatch.setattr(host_module, "NODES", tmp_path / "none")
    assert host_module.numa_nodes() is None


def test_without_affinity_it_is_every_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "os", SimpleNamespace(cpu_count=lambda: 3))
    assert host_module.affinity() == [0, 1, 2]


def test_a_governor_that_the_kernel_does_not_tell_is_none(files: dict[str, str]) -> None:
    assert host_module.governor() is None
    files["/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"] = "powersave"
    assert host_module.governor() == "powersave"


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("/sys/devices/system/cpu/intel_pstate/no_turbo", "0", True),
        ("/sys/devices/system/cpu/intel_pstate/no_turbo", "1", False),
        ("/sys/devices/system/cpu/cpufreq/boost", "1", True),
        ("/sys/devices/system/cpu/cpufreq/boost", "0", False),
        ("/somewhere/else", "1", None),
    ],
)
def test_turbo_is_read_from_either_place(files: dict[str, str], path: str, text: str, expected: bool | None) -> None:
    files[path] = text
    assert host_module.turbo() is expected


@pytest.mark.parametrize(("text", "expected"), [("1", True), ("0", False), (None, None)])
def test_hyperthreads_are_read(files: dict[str, str], text: str | None, expected: bool | None) -> None:
    if text is not None:
        files["/sys/devices/system/cpu/smt/active"] = text
    assert host_module.hyperthreads() is expected


def test_reading_gives_the_text_of_a_file_or_none(tmp_path: Path) -> None:
    (tmp_path / "fact").write_text("performance\n")
    assert host_module._read(str(tmp_path / "fact")) == "performance"
    assert host_module._read(str(tmp_path / "nothing")) is None


@pytest.fixture
def cpuinfo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A fake /proc/cpuinfo."""
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(host_module, "Path", lambda _: path)
    return path


def test_the_model_of_the_processor_is_as_the_kernel_says(cpuinfo: Path) -> None:
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Fast: 9000\nflags\t\t: fpu amx_bf16\n")
    assert host_module.cpu_model() == "Fast: 9000"


def test_a_kernel_that_names_no_model_is_no_mistake(cpuinfo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On arm64 there is none; py-cpuinfo is used for designs that are not listed."""
    import cpuinfo as library

    cpuinfo.write_text("processor\t: 0\nFeatures\t: asimd bf16\n")
    monkeypatch.setattr(library, "get_cpu_info", lambda: {"brand_raw": "Neoverse"})
    assert host_module.cpu_model() == "Neoverse"


@pytest.mark.parametrize(
    ("part", "name"), [("0xd40", "Neoverse-V1"), ("0xd0c", "Neoverse-N1"), ("0xd4f", "Neoverse-V2")]
)
def test_an_arm_processor_is_called_by_the_design_that_the_kernel_reports(cpuinfo: Path, part: str, name: str) -> None:
    cpuinfo.write_text(f"processor\t: 0\nBogoMIPS\t: 2100.00\nCPU implementer\t: 0x41\nCPU part\t: {part}\n")
    assert host_module.cpu_model() == name


def test_the_clock_limit_is_none_where_nobody_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in (None, SimpleNamespace(max=0.0)):
        monkeypatch.setattr(psutil, "cpu_freq", lambda answer=answer: answer)
        assert host_module.host.__wrapped__()["max_mhz"] is None
    monkeypatch.setattr(psutil, "cpu_freq", lambda: SimpleNamespace(max=3500.0))
    assert host_module.host.__wrapped__()["max_mhz"] == 3500.0


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake /proc/driver/nvidia."""
    monkeypatch.setattr(host_module, "DRIVER", tmp_path)
    return tmp_path


def add_gpu(driver: Path, bus: str, text: str) -> None:
    (driver / "gpus" / bus).mkdir(parents=True)
    (driver / "gpus" / bus / "information").write_text(text)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\nGCC version:  gcc",
         "535.183.01"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder@U16)",
         "570.86.15"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  390.157  Wed Oct 12 2022", "390.157"),
    ],
)  # fmt: skip
def test_the_version_of_the_driver_is_that_of_its_module(driver: Path, text: str, version: str) -> None:
    (driver / "version").write_text(text)
    assert host_module.nvidia_driver() == {"driver": version}


def test_gpus_are_counted_by_their_names(driver: Path) -> None:
    for number in range(3):
        add_gpu(driver, f"0000:0{number}:00.0", "Model: \t\t NVIDIA H200\nIRQ:   \t\t 77\nGPU UUID: \t GPU-1\n")
    add_gpu(driver, "0000:09:00.0", "Model: \t\t Tesla V100-SXM2-16GB \nIRQ: 78\n")
    assert host_module.nvidia_driver() == {"gpu": "3 × NVIDIA H200, Tesla V100-SXM2-16GB"}


def test_a_driver_that_says_nothing_or_nonsense_has_no_facts(driver: Path) -> None:
    assert host_module.nvidia_driver() == {}
    (driver / "version").write_text("no number here\n")
    add_gpu(driver, "0000:01:00.0", "no model here\n")
    assert host_module.nvidia_driver() == {}


def test_a_gpu_without_the_library_of_its_driver_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that was started without NVIDIA's tools."""
    node, library = tmp_path / "nvidia0", tmp_path / "libcuda.so.1"
    monkeypatch.setattr(host_module, "_NVIDIA_FILES", (str(node),))
    monkeypatch.setattr(host_module, "DRIVER_LIBRARY", str(library))
    assert host_module.why_no_driver_library() is None, "there is no GPU at all"
    node.touch()
    assert host_module.why_no_driver_library() == f"{library} of NVIDIA's driver cannot be loaded here"
    library.write_bytes(b"not a library")
    assert host_module.why_no_driver_library() is not None
    monkeypatch.setattr(host_module, "CDLL", lambda name: None)
    assert host_module.why_no_driver_library() is None
