"""Reads large JSON files that hold one long list: nodes of an execution trace, events of a Chrome trace.

Items are decoded one after the other, so that a file of 500 MB never becomes a tree of Python objects. A file that
is not quite JSON, as torch writes it at times, is read item by item where its meaning is clear.
"""

from __future__ import annotations

import gzip
import json
import mmap
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

import msgspec

from opmark.errors import InvalidFile
from opmark.schema import ImportProblem

T = TypeVar("T")
GZIP = b"\x1f\x8b"
_LENIENT = json.JSONDecoder(strict=False)
"""Takes NaN, Infinity and control characters in texts, which JSON forbids."""
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BETWEEN = re.compile(r"[\s,]*")
_ITEM = re.compile(r'\{\s*"')
_MOST_BROKEN = 100
_GIVE_BACK = getattr(mmap, "MADV_DONTNEED", None)
_CHUNK = 2**20
_FORGET = 10_000
"""Items after which pages of the file are given back."""
_AGAIN = "the program that wrote it was stopped, or did not close the file: record the trace again"


@dataclass
class JsonList(Generic[T]):
    """The list of a file, and what stands beside it."""

    head: dict[str, Any]
    """Other members of the outermost object; empty for a file that is a bare list."""
    raw: list[Any]
    """Items that are not decoded yet: bytes of JSON, or plain data."""
    kind: type[T]
    where: str
    """The file and the list in it, as messages name them: `step.json: $.nodes`."""
    problems: list[ImportProblem] = field(default_factory=list)
    """Items that cannot be read. Going through the items adds those that are not of their kind."""
    content: Any = None
    """The file, if it is mapped."""

    def items(self) -> Iterator[tuple[int, T]]:
        """Yield every item with its number, once: an item is forgotten when the next one is asked for."""
        decode = msgspec.json.Decoder(self.kind).decode
        for number, raw in enumerate(self.raw):
            self.raw[number] = None
            if number % _FORGET == 0 and isinstance(self.content, mmap.mmap) and _GIVE_BACK is not None:
                self.content.madvise(_GIVE_BACK)  # pages that are needed again are read again
            try:
                found = decode(raw) if isinstance(raw, msgspec.Raw) else msgspec.convert(raw, self.kind, strict=False)
            except msgspec.DecodeError as error:
                self.problems.append(ImportProblem(f"{self.where}[{number}]", f"cannot be read: {error}"))
                continue
            yield number, found


def read_content(path: Path) -> Any:
    """Return the bytes of a file, mapped. A compressed one is decompressed into a temporary file, which has no name and
    goes with the map."""
    try:
        with path.open("rb") as file:
            if file.read(2) == GZIP:
                file.seek(0)
                with gzip.open(file) as plain, tempfile.TemporaryFile() as whole:
                    shutil.copyfileobj(plain, whole, _CHUNK)
                    whole.flush()
                    return _map(path, whole)
            return _map(path, file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidFile(f"{path}: the compressed data ends too early or is damaged: {error}", _AGAIN) from None
    except OSError as error:
        raise InvalidFile(f"{path}: cannot be read: {error.strerror}", "check the path") from None


def _map(path: Path, file: IO[bytes]) -> mmap.mmap:
    if file.seek(0, 2) == 0:
        raise InvalidFile(f"{path}: is empty", _AGAIN)
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def decompress_head(head: bytes) -> bytes:
    """Return the beginning of a compressed file, as far as its first bytes tell it."""
    try:
        return zlib.decompressobj(wbits=31).decompress(head)
    except zlib.error:
        return b""


def read_list(path: Path, content: Any, key: str, kind: type[T]) -> JsonList[T]:
    """Read the list `key` of the outermost object of a JSON file, or the file if it is a bare list.

    InvalidFile if it ends too early: part of a program is not silently taken for all of it.
    """
    where = f"{path}: $.{key}"
    view = memoryview(content)
    try:
        if bytes(view[:64]).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":
            return JsonList({}, _LIST.decode(content), kind, f"{path}: $", content=content)
        found = _OBJECT.decode(view[3:] if bytes(view[:3]) == b"\xef\xbb\xbf" else content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _read_leniently(path, content, key, kind, str(error))
    items = found.pop(key, None)
    if items is None:
        raise InvalidFile(f"{path}: has no `{key}`", "expected a trace")
    try:
        listed = _LIST.decode(items)
    except msgspec.DecodeError:
        raise InvalidFile(f"{where}: expected a list", "expected a trace") from None
    head = {name: msgspec.json.decode(value) for name, value in found.items()}
    return JsonList(head, listed, kind, where, content=content)


def _read_leniently(path: Path, content: Any, key: str, kind: type[T], error: str) -> JsonList[T]:
    """Read a list item by item: commas may be missing, numbers may be NaN, an item that is broken becomes a problem."""
    text = str(memoryview(content), "utf-8", errors="replace").removeprefix("\ufeff")
    found = re.search(rf'"{key}"\s*:\s*\[|^\s*\[', text)
    if found is None:
        raise InvalidFile(f"{path}: is no JSON with a list `{key}`: {error}", _AGAIN)
    where = f"{path}: $.{key}" if key in found[0] else f"{path}: $"
    place, items = found.end(), []
    broken: list[ImportProblem] = []
    while True:
        between = _BETWEEN.match(text, place)
        assert between is not None
        place = between.end()
        if text[place : place + 1] == "]":
            break
        try:
            item, place = _LENIENT.raw_decode(text, place)
            items.append(item)
        except (json.JSONDecodeError, RecursionError) as reason:
            following = _ITEM.search(text, place + 1)
            while following is not None and not _is_item(text, following.start()):
                following = _ITEM.search(text, following.start() + 1)
            if following is None or len(broken) >= _MOST_BROKEN:
                line = text.count("\n", 0, place) + 1
                raise InvalidFile(
                    f"{path}:{line}: ends or is damaged at byte {place:,} of {len(text):,}, after {len(items):,} "
                    f"complete items of `{key}`",
                    _AGAIN,
                ) from None
            broken.append(ImportProblem(f"{where}[{len(items)}]", f"is no JSON: {reason}"))
            place = following.start()
    rest = text[: found.end()] + text[place:]
    try:
        head = _LENIENT.decode(rest)
    except json.JSONDecodeError:
        head = dict(re.findall(r'"(\w+)"\s*:\s*"([^"\\]*)"', text[: found.start()]))
    if isinstance(head, dict):
        head.pop(key, None)
    return JsonList(head if isinstance(head, dict) else {}, items, kind, where, broken)


def _is_item(text: str, place: int) -> bool:
    """Return whether an object that begins here looks like an item of the list, not like a part of one."""
    head = text[place : place + 400]
    return '"id"' in head[:60] or '"ph"' in head or ('"name"' in head[:60] and '"parent"' in head)
