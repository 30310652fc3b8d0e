"""The fields of a vendor_zoo file, each read once; fields that nothing reads are reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opmark.schema import Problem

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
        self.problems: list[Problem] = []
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
        self.problems.append(Problem(f"{self.path}: {_path(place)}", f"expected {expected}, got {_brief(got)}"))


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
