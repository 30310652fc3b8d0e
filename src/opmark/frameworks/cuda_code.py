"""Whether a build has code for an NVIDIA GPU: without it, a framework starts well and fails at its first kernel."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterable
from ctypes import CDLL, byref, c_int, create_string_buffer
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

Capability = tuple[int, int]
"""Compute capability of a GPU: (9, 0) is Hopper."""

_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def has_code(architectures: Iterable[str], gpu: Capability) -> bool:
    """Whether code for one of these architectures, named as in `sm_86` and `compute_90`, runs on a GPU.

    Code for `sm_86` runs on GPUs of the same major version from 8.6 on. `compute_86` is a text that the driver compiles
    for any GPU from 8.6 on. With an `a` behind it, code is for that one architecture.
    """
    for name in architectures:
        found = _ARCHITECTURE.fullmatch(name)
        if found is None:
            continue
        kind, major, minor, only = found.groups()
        made_for = int(major), int(minor)
        same_family = made_for[0] == gpu[0] or (kind == "compute" and not only)
        if made_for == gpu if only == "a" else same_family and made_for <= gpu:
            return True
    return False


def format_architectures(architectures: Iterable[str]) -> str:
    """Return the compute capabilities of architectures, as in `8.0, 8.6, 9.0`."""
    found = {(int(m[2]), int(m[3])) for name in architectures if (m := _ARCHITECTURE.fullmatch(name))}
    return ", ".join(f"{major}.{minor}" for major, minor in sorted(found))


# The code in a library: NVIDIA's compiler puts it into a section of its own, as a row of containers ("fat binaries")
# that hold the same kernels for several architectures.

_SECTION = b".nv_fatbin"
_MAGIC = struct.pack("<I", 0xBA55ED50)
_CONTAINER = struct.Struct("<IHHQ")
"""Magic number, version, bytes of this header, bytes of what follows."""
_ENTRY = struct.Struct("<HHIQIIHHI")
"""Kind, version, bytes of this header, bytes of the code, ..., architecture as in 86."""
_KINDS = {1: "compute", 2: "sm"}


def library_architectures(path: Path) -> list[str]:
    """Return the architectures that a shared library has code for; none if it holds no code for NVIDIA's GPUs."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = set()
        place, end = _find_section(data)
        while (place := data.find(_MAGIC, place, end)) >= 0:
            _, _, header, size = _CONTAINER.unpack_from(data, place)
            entry, place = place + header, place + header + size
            while entry + _ENTRY.size <= min(place, end):
                kind, _, header, size, *_, architecture = _ENTRY.unpack_from(data, entry)
                if kind in _KINDS:
                    found.add((architecture, _KINDS[kind]))
                entry += header + size or _ENTRY.size
    return [f"{kind}_{architecture}" for architecture, kind in sorted(found)]


def _find_section(data: mmap.mmap) -> tuple[int, int]:
    """Return where the section with code for GPUs begins and ends in a 64-bit ELF file; (0, 0) if there is none."""
    if data[:6] != b"\x7fELF\x02\x01":
        return 0, 0
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", data, table + index * size) for index in range(count)]
    names = sections[names_index][4]
    for name, _, _, _, offset, length in sections:
        if data[names + name : names + name + len(_SECTION) + 1] == _SECTION + b"\0":
            return offset, offset + length
    return 0, 0


# The GPU, from the driver itself, for frameworks that do not report it.

_ATTRIBUTES = {"major": 75, "minor": 76, "l2": 38, "sms": 16}
"""Numbers of a device's attributes in the driver's interface."""


class Gpu(NamedTuple):
    name: str
    uuid: str
    """As NVML writes it, without `GPU-`."""
    capability: Capability
    l2: int
    """Bytes of its last-level cache."""
    sms: int
    """Number of its multiprocessors."""


def first_gpu() -> Gpu:
    """Return the GPU that a process uses if it chooses none. Raise OSError if NVIDIA's driver does not tell."""
    driver = CDLL("libcuda.so.1")

    def ask(function: str, *arguments: object) -> None:
        if code := getattr(driver, function)(*arguments):
            raise OSError(f"{function} of NVIDIA's driver fails with error {code}")

    device, value = c_int(), c_int()
    name, uuid = create_string_buffer(256), create_string_buffer(16)
    ask("cuInit", 0)
    ask("cuDeviceGet", byref(device), 0)
    ask("cuDeviceGetName", name, len(name), device)
    ask("cuDeviceGetUuid", uuid, device)
    found = {}
    for attribute, number in _ATTRIBUTES.items():
        ask("cuDeviceGetAttribute", byref(value), number, device)
        found[attribute] = value.value
    capability = found.pop("major"), found.pop("minor")
    return Gpu(name.value.decode(), str(UUID(bytes=uuid.raw)), capability, **found)
