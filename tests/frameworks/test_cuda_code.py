"""Which GPUs a build has code for; libraries and drivers are made up."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from opmark.frameworks import cuda_code
from opmark.frameworks.cuda_code import Gpu, first_gpu, format_architectures, has_code, library_architectures

MXNET = ["sm_50", "sm_60", "sm_70", "sm_80", "sm_86"]
TORCH = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]


@pytest.mark.parametrize(
    ("built_for", "gpu", "runs"),
    [
        (MXNET, (3, 7), False),
        (MXNET, (5, 2), True),
        (MXNET, (6, 1), True),
        (MXNET, (7, 5), True),  # sm_70: the same major version
        (MXNET, (8, 9), True),
        (MXNET, (9, 0), False),
        (["sm_86"], (8, 0), False),  # never for an older GPU
        (["compute_86"], (8, 0), False),
        (["compute_86"], (8, 6), True),
        (["compute_50"], (12, 0), True),  # compiled by the driver
        (TORCH, (7, 0), False),
        (TORCH, (9, 0), True),
        (TORCH, (10, 3), True),
        (TORCH, (11, 0), False),
        (TORCH, (12, 1), True),
        (TORCH, (13, 0), True),
        (["sm_90a"], (9, 0), True),
        (["sm_100a"], (10, 3), False),
        (["sm_100f"], (10, 3), True),
        (["compute_90a"], (10, 0), False),
        (["compute_100f"], (12, 0), False),
        (["gfx942", "", "sm_", "sm_x"], (9, 0), False),
        ([], (9, 0), False),
    ],
)
def test_code_runs_on_gpus_that_it_was_made_for(built_for: list[str], gpu: tuple[int, int], runs: bool) -> None:
    assert has_code(built_for, gpu) is runs


def test_architectures_are_written_as_capabilities() -> None:
    assert format_architectures(["sm_120", "compute_120", "sm_90a", "sm_75", "gfx942"]) == "7.5, 9.0, 12.0"
    assert format_architectures([]) == ""


# Libraries.


def container(*entries: tuple[int, int], size: int = 24) -> bytes:
    """A container with code of these kinds (1: text, 2: machine code) for these architectures."""
    code = b"".join(
        struct.pack("<HHIQIIHHI", kind, 0x101, 64, size, 0, 0, 0, 0, architecture).ljust(64, b"\0") + b"\xcc" * size
        for kind, architecture in entries
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(code)) + code


def library(path: Path, sections: dict[bytes, bytes]) -> Path:
    """A 64-bit ELF file with these sections and nothing else."""
    names = b"\0" + b"".join(name + b"\0" for name in [*sections, b".shstrtab"])
    content, headers = b"", [bytes(64)]
    for name, data in [*sections.items(), (b".shstrtab", names)]:
        at = names.index(b"\0" + name + b"\0") + 1
        headers.append(struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, 64 + len(content), len(data), 0, 0, 8, 0))
        content += data
    fields = 3, 62, 1, 0, 0, 64 + len(content), 0, 64, 0, 0, 64, len(headers), len(headers) - 1
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", *fields)
    path.write_bytes(head + content + b"".join(headers))
    return path


def test_the_architectures_of_a_library_are_those_of_its_code(tmp_path: Path) -> None:
    code = container((2, 50), (2, 86)) + bytes(40) + container((2, 86), (1, 86)) + container((7, 99), size=0)
    made = library(tmp_path / "lib.so", {b".text": container((2, 35)), b".nv_fatbin": code, b".data": b"x"})
    assert library_architectures(made) == ["sm_50", "compute_86", "sm_86"]


def test_a_library_without_such_code_has_none(tmp_path: Path) -> None:
    assert library_architectures(library(tmp_path / "lib.so", {b".text": container((2, 35))})) == []
    (tmp_path / "script").write_text("INPUT(libother.so)")
    assert library_architectures(tmp_path / "script") == []


def test_code_that_is_cut_off_ends_the_search(tmp_path: Path) -> None:
    whole = container((2, 80), (2, 90))
    for length in (20, 60, len(whole) - 30, len(whole) - 24 - 64 + 1):
        made = library(tmp_path / "lib.so", {b".nv_fatbin": whole[:length]})
        assert library_architectures(made) in ([], ["sm_80"], ["sm_80", "sm_90"])
    empty = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 200) + bytes(200)  # entries of no size
    assert library_architectures(library(tmp_path / "lib.so", {b".nv_fatbin": empty})) == []


# The driver.


class FakeDriver:
    """As much of libcuda.so.1 as is asked."""

    attributes = {75: 9, 76: 0, 38: 50 << 20, 16: 132}  # noqa: RUF012

    def __init__(self, fails: Sequence[str] = ()) -> None:
        self.started = False
        self._fails = fails

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu") and name in self._fails:
            return lambda *arguments: 100
        return super().__getattribute__(name)

    def cuInit(self, flags: int) -> int:
        self.started = True
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        assert self.started
        device._obj.value = 40 + ordinal
        return 0

    def cuDeviceGetName(self, name: Any, length: int, device: Any) -> int:
        assert device.value == 40
        name.value = b"NVIDIA H200"[:length]
        return 0

    def cuDeviceGetUuid(self, uuid: Any, device: Any) -> int:
        ctypes.memmove(uuid, bytes(range(16)), 16)
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:
        value._obj.value = self.attributes[attribute]
        return 0


def test_the_gpu_is_as_the_driver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_code, "CDLL", lambda name: FakeDriver())
    uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert first_gpu() == Gpu("NVIDIA H200", uuid, (9, 0), l2=50 << 20, sms=132)


@pytest.mark.parametrize("function", ["cuInit", "cuDeviceGet", "cuDeviceGetAttribute"])
def test_a_driver_that_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    monkeypatch.setattr(cuda_code, "CDLL", lambda name: FakeDriver([function]))
    with pytest.raises(OSError, match=f"{function} of NVIDIA's driver fails with error 100"):
        first_gpu()
