"""The fields of a vendor_zoo file, each taken once: what nobody took is named, never dropped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opmark.schema import Problem

EMPTY = ("", "-", "--", "/", "n/a", "na", "none", "null", "无", "未知", "tbd")
"""What people write where there is nothing to say."""
_PARTS = ("参数", "缓存", "内存")
"""How the names of what holds other fields end."""
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
        """Of the values below a place that are still there."""
        return [key[-1] for key in self._left if key[:-1] == place]

    def text(self, *place: str, keep: bool = False) -> str | None:
        """None where it is empty; `keep` leaves it for another to take."""
        value = self._left.get(place) if keep else self._left.pop(place, None)
        if _empty(value):
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
            return [part.strip() for part in several if not _empty(part)]
        self._wrong((key,), "a list of texts", value)
        return []

    def number(self, *place: str) -> float | None:
        """None where it is empty. A text that is no number is told as it stands: people explain themselves there."""
        value = self._left.pop(place, None)
        if _empty(value):
            return None
        if isinstance(value, str):
            value = _parsed(value)
            if isinstance(value, str):
                self.note(f"{_path(place)}: `{' '.join(value.split())}` is no number, and not kept")
                return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            self._wrong(place, "a number above 0", value)
            return None
        return float(value)

    def note(self, text: str) -> None:
        self.notes.append(f"{self.path.name}: {text}")

    def leave_the_rest(self) -> None:
        """One line of what a hardware file of ours has no room for, and one a field that nobody knows."""
        rest = {place: value for place, value in self._left.items() if not _empty(value)}
        known = [f"{_ENGLISH[place[-1]]} {_brief(v)}" for place, v in rest.items() if place[-1] in _ENGLISH]
        if known:
            self.note(f"not kept: {', '.join(known)}")
        for place, value in rest.items():
            if place[-1] in _ENGLISH:
                continue
            if place[-1].endswith(_PARTS):
                self._wrong(place, "a mapping", value)
            else:
                self.note(f"{_path(place)}: unknown, and not kept: {_brief(value)}")

    def _wrong(self, place: tuple[str, ...], expected: str, got: Any) -> None:
        self.problems.append(Problem(f"{self.path}: {_path(place)}", f"expected {expected}, got {_brief(got)}"))


def _leaves(value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict) and value and len(place) < _DEEPEST:
        for key, part in value.items():
            yield from _leaves(part, (*place, str(key)))
    else:
        yield place, value


def _empty(value: Any) -> bool:
    return value is None or value == {} or (isinstance(value, str) and value.strip().lower() in EMPTY)


def _parsed(text: str) -> float | str:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return text


def _path(place: tuple[str, ...]) -> str:
    return ".".join(("$", *place))


def _brief(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
