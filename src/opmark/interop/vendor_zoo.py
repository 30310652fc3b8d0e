"""Reads hardware files of ByteMLPerf's vendor_zoo: one file per chip, with Chinese keys and the vendors' figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opmark.schema import Imported, ImportProblem, Peaks
from opmark.schema.machine import MEMORY, Interconnect, Level
from opmark.units import rate

EMPTY = ("", "-", "--", "/", "n/a", "na", "none", "null", "无", "未知", "tbd")
"""Texts that mean an empty field."""
_PARTS = ("参数", "缓存", "内存")
"""Ends of the names of fields that hold other fields."""
_DEEPEST = 3
_ENGLISH = {
    "用途": "use", "照片": "picture", "制程(NM)": "process (nm)", "尺寸": "size", "接口": "slot",
    "内存层次架构图": "picture of the memory", "PE层次架构图": "picture of the units", "算力架构": "architecture",
    "并行方式": "parallelism", "通信带宽(GB/s)": "bandwidth between units (GB/s)", "标量精度": "scalar types",
    "向量精度": "vector types", "张量精度": "tensor types", "RDMA协议": "RDMA",
}  # fmt: skip


class Fields:
    def __init__(self, path: Path, data: dict[str, Any]) -> None:
        self.path = path
        self.problems: list[ImportProblem] = []
        self.notes: list[str] = []
        self._left = dict(_leaves(data, ()))

    def keys(self, *place: str) -> list[str]:
        """Return the keys below a place whose values have not been read yet."""
        return [key[-1] for key in self._left if key[:-1] == place]

    def text(self, *place: str, keep: bool = False) -> str | None:
        """Return a text, None for an empty field; with `keep` it can be read again."""
        value = self._left.get(place) if keep else self._left.pop(place, None)
        if _is_empty(value):
            return None
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            return str(value).strip()
        if not keep:
            self._wrong(place, "a text", value)
        return None

    def texts(self, key: str) -> list[str]:
        value = self._left.pop((key,), None)
        several = value if isinstance(value, list) else [value]
        if all(part is None or isinstance(part, str) for part in several):
            return [part.strip() for part in several if not _is_empty(part)]
        self._wrong((key,), "a list of texts", value)
        return []

    def number(self, *place: str) -> float | None:
        """Return a number, None for an empty field; a text that is not a number becomes a note with its wording."""
        value = self._left.pop(place, None)
        if _is_empty(value):
            return None
        if isinstance(value, str):
            try:
                value = float(value.replace(",", ""))
            except ValueError:
                self.note(f"{_path(place)}: `{' '.join(value.split())}` is not a number and is ignored")
                return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            self._wrong(place, "a number above 0", value)
            return None
        return float(value)

    def note(self, text: str) -> None:
        self.notes.append(f"{self.path.name}: {text}")

    def note_unread(self) -> None:
        """Add one note for fields that opmark's hardware files do not have, and one for each unknown field."""
        rest = {place: value for place, value in self._left.items() if not _is_empty(value)}
        known = [f"{_ENGLISH[place[-1]]} {_brief(v)}" for place, v in rest.items() if place[-1] in _ENGLISH]
        if known:
            self.note(f"ignored: {', '.join(known)}")
        for place, value in rest.items():
            if place[-1] in _ENGLISH:
                continue
            if place[-1].endswith(_PARTS):
                self._wrong(place, "a mapping", value)
            else:
                self.note(f"{_path(place)} is unknown and ignored: {_brief(value)}")

    def _wrong(self, place: tuple[str, ...], expected: str, got: Any) -> None:
        self.problems.append(ImportProblem(f"{self.path}: {_path(place)}", f"expected {expected}, got {_brief(got)}"))


def _leaves(value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict) and value and len(place) < _DEEPEST:
        for key, part in value.items():
            yield from _leaves(part, (*place, str(key)))
    else:
        yield place, value


def _is_empty(value: Any) -> bool:
    return value is None or value == {} or (isinstance(value, str) and value.strip().lower() in EMPTY)


def _path(place: tuple[str, ...]) -> str:
    return ".".join(("$", *place))


def _brief(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


_SECTIONS = ("SKU参数", "硬件参数", "内存参数", "算力参数", "卡间通信参数")
_FIGURE = re.compile(r"(?P<type>[A-Z]+\d+)(?:标量|向量|张量|量)?算力\((?:TOPS|TFLOPS)\)")
_UNITS = {"标量参数": "scalar", "向量参数": "vector", "张量参数": "tensor"}
_TYPES = {
    "INT4": ("int4",), "INT8": ("int8",), "FP4": ("float4_e2m1fn",), "FP8": ("float8_e4m3fn", "float8_e5m2"),
    "BF16": ("bfloat16",), "FP16": ("float16",), "TF32": ("tfloat32",), "FP32": ("float32",), "FP64": ("float64",),
}  # fmt: skip
_CACHES = {"一级缓存": "L1", "二级缓存": "L2"}


class _VendorZoo:
    name = "vendor-zoo"
    summary = "hardware of ByteMLPerf: vendor_zoo/VENDOR/CHIP.json"

    def recognises(self, path: Path, data: Any) -> bool:
        return isinstance(data, dict) and any(section in data for section in _SECTIONS)

    def read(self, path: Path, data: Any, seed: int) -> Imported:
        fields = Fields(path, data)
        sources = fields.texts("数据源")
        notes: dict[str, str] = {}
        peaks = Peaks(
            chip=_name(fields),
            source=f"ByteMLPerf vendor_zoo, {path.name}" + (f": {', '.join(sources)}" if sources else ""),
            flops=_flops(fields, notes),
            levels=_levels(fields),
            vendor=fields.text("SKU参数", "厂商") or "",
            memory=_bytes(fields.number("内存参数", "内存", "内存容量(GB)"), 1e9),
            interconnect=_interconnect(fields, notes),
            power=fields.number("硬件参数", "功耗(W/TDP)"),
            notes={**({"memory": kind} if (kind := fields.text("内存参数", "内存", "内存类型")) else {}), **notes},
        )
        fields.note_unread()
        if not (peaks.flops or peaks.levels):
            message = "the file has neither a peak nor a bandwidth"
            fields.problems.append(ImportProblem(str(path), message, "all its figures are empty"))
            return Imported(problems=tuple(fields.problems), notes=tuple(fields.notes))
        return Imported(chips=(peaks,), problems=tuple(fields.problems), notes=tuple(fields.notes))


def _name(fields: Fields) -> str:
    vendor, model = fields.text("SKU参数", "厂商", keep=True), fields.text("SKU参数", "型号")
    if model is None:
        fields.note(f"the file has no 型号 (model): the chip is named {fields.path.stem} after the file")
        model = fields.path.stem
    return model if vendor is None or model.startswith(vendor) else f"{vendor} {model}"


def _flops(fields: Fields, notes: dict[str, str]) -> dict[str, float]:
    """Return the peak of each element type: that of the fastest unit, which a matrix product can use."""
    by_unit: dict[str, dict[str, float]] = {}
    for section, unit in _UNITS.items():
        for key in fields.keys("算力参数", section):
            figure = _FIGURE.fullmatch(key)
            if figure is None or figure["type"] not in _TYPES:
                continue
            value = fields.number("算力参数", section, key)
            if value is not None:
                by_unit.setdefault(figure["type"], {})[unit] = value * 1e12
    _split_tf32(fields, by_unit, notes)
    found: dict[str, float] = {}
    for kind in _TYPES:
        if kind not in by_unit:
            continue
        best = max(by_unit[kind], key=by_unit[kind].__getitem__)
        others = [f"{unit} {rate(value, 'FLOP/s')}" for unit, value in by_unit[kind].items() if unit != best]
        for dtype in _TYPES[kind]:
            found[dtype] = by_unit[kind][best]
            if others or best != "tensor":
                notes.setdefault(f"flops.{dtype}", "; ".join([f"of the {best} units", *others]))
    return found


def _split_tf32(fields: Fields, by_unit: dict[str, dict[str, float]], notes: dict[str, str]) -> None:
    """Move FP32 of tensor units to TF32 for older files, which list TF32 among precisions, but have no figure."""
    fp32, precisions = by_unit.get("FP32", {}), fields.text("算力参数", "张量参数", "张量精度", keep=True) or ""
    if "TF32" in by_unit or "TF32" not in precisions or not 0 < fp32.get("vector", 0) < fp32.get("tensor", 0):
        return
    by_unit["TF32"] = {"tensor": fp32.pop("tensor")}
    notes["flops.tfloat32"] = "the file has it as FP32 of the tensor units"
    fields.note("FP32 of the tensor units is TF32; float32 is that of the vector units")


def _levels(fields: Fields) -> list[Level]:
    found: list[Level] = []
    for key, usual in _CACHES.items():
        place = ("内存参数", key)
        kind = fields.text(*place, "缓存类型") or ""
        nbytes = _bytes(fields.number(*place, "缓存容量(MB)"), 1e6)
        bandwidth = fields.number(*place, "缓存带宽(TB/s)")
        if nbytes is None and bandwidth is None:
            continue
        name = "SRAM" if "buffer" in kind.lower() and all(level.name != "SRAM" for level in found) else usual
        found.append(Level(name, bandwidth * 1e12 if bandwidth else None, nbytes))
    found.sort(key=lambda level: level.nbytes or 0)
    bandwidth = fields.number("内存参数", "内存", "内存带宽(GB/s)")
    return [*found, Level(MEMORY, bandwidth * 1e9)] if bandwidth else found


def _interconnect(fields: Fields, notes: dict[str, str]) -> list[Interconnect]:
    """Return the link; a bandwidth beside a number of ports may be that of one port or of all, and is only noted."""
    section = "卡间通信参数"
    name = fields.text(section, "通信方式")
    links, out = fields.number(section, "端口数量"), fields.number(section, "上行带宽(GB/s)")
    into = fields.number(section, "下行带宽(GB/s)")
    if links is not None and out is not None:
        notes["interconnect"] = (
            f"{out:g} GB/s up, {into or out:g} GB/s down; the file does not say whether of one port or of all {links:g}"
        )
        out = None
    if name is None and links is None and out is None:
        return []
    return [Interconnect(name or "unnamed", out * 1e9 if out else None, int(links) if links else None)]


def _bytes(value: float | None, unit: float) -> int | None:
    return None if value is None else round(value * unit)


VENDOR_ZOO = _VendorZoo()
