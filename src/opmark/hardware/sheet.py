"""Read and write hardware files: chips with their peaks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from opmark.errors import InvalidFile, nearest
from opmark.schema.codec import convert
from opmark.schema.peaks import MEMORY, RATED, Peaks

VERSION = 1
_VENDOR_ZOO_SUFFIX = "参数"
"""Every section name of a vendor_zoo file ends with this."""
_LOOKS = "docs/add-a-chip.md shows what a hardware file looks like"


class Sheet(Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    chips: list[Peaks]


def is_sheet(data: Any) -> bool:
    """Return whether plain data is meant as an opmark hardware file, valid or not."""
    return isinstance(data, dict) and "chips" in data and "cases" not in data


def read_sheet(text: str, where: str) -> Sheet:
    """Parse a hardware file; error messages name `where`, the file."""
    try:
        return sheet_of(yaml.load(text, Loader=_Loader), where)  # a safe loader, made stricter
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        raise InvalidFile(f"{place}: {error.problem}", _LOOKS) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidFile(f"{where}: is not YAML: {error}", _LOOKS) from None


def sheet_of(data: Any, where: str) -> Sheet:
    if not isinstance(data, dict):
        raise InvalidFile(f"{where}: expected a mapping with `schema` and `chips`", _LOOKS)
    if any(str(key).endswith(_VENDOR_ZOO_SUFFIX) for key in data):
        raise InvalidFile(
            f"{where}: is a hardware file of ByteMLPerf's vendor_zoo, not of opmark",
            f"`opmark import {where} -o mine.yaml` converts it",
        )
    sheet = convert(data, Sheet, where)
    if sheet.schema != VERSION:
        raise InvalidFile(
            f"{where}: the file has schema {sheet.schema}; this opmark reads {VERSION}", f"write schema: {VERSION}"
        )
    for number, peaks in enumerate(sheet.chips):
        _check(peaks, where, f"$.chips[{number}]")
    every = [name for peaks in sheet.chips for name in (peaks.chip, *peaks.aliases)]
    if twice := next((name for i, name in enumerate(every) if name in every[:i]), None):
        raise InvalidFile(f"{where}: `{twice}` stands for two chips", "a name or an alias means one chip")
    return sheet


def _check(peaks: Peaks, where: str, place: str) -> None:
    for dtype, rate in peaks.flops.items():
        if dtype not in RATED:
            near = nearest(dtype, RATED)
            meant = f"did you mean `{near}`? " if near else ""
            raise InvalidFile(
                f"{where}: unknown element type `{dtype}`, at `{place}.flops`", f"{meant}known are {', '.join(RATED)}"
            )
        _positive(rate, where, f"{place}.flops.{dtype}")
    for number, level in enumerate(peaks.levels):
        _positive(level.bandwidth, where, f"{place}.levels[{number}].bandwidth")
        _positive(level.nbytes, where, f"{place}.levels[{number}].nbytes")
        if level.name == MEMORY and level.nbytes is not None:
            raise InvalidFile(f"{where}: the memory has its size in `memory`, at `{place}.levels[{number}].nbytes`")
    sizes = [level.nbytes for level in peaks.levels if level.nbytes is not None]
    if any(small > large for small, large in pairwise(sizes)):
        raise InvalidFile(f"{where}: expected the smallest cache first, at `{place}.levels`")
    for key in ("memory", "power", "cores"):
        _positive(getattr(peaks, key), where, f"{place}.{key}")


def _positive(value: float | None, where: str, place: str) -> None:
    if value is not None and not 0 < value < float("inf"):
        raise InvalidFile(f"{where}: expected a number above 0, got {value}, at `{place}`")


def yaml_text(chips: Sequence[Peaks]) -> str:
    """Format chips as YAML, with one line per figure and without unknown figures."""
    return "\n".join([f"schema: {VERSION}", "chips:", *(line for peaks in chips for line in _block(peaks))]) + "\n"


def json_text(chips: Sequence[Peaks]) -> str:
    whole = {"schema": VERSION, "chips": [brief(peaks) for peaks in chips]}
    return msgspec.json.encode(whole).decode() + "\n"


def brief(peaks: Peaks) -> dict[str, Any]:
    """Return the fields that differ from the defaults."""
    usual = msgspec.to_builtins(Peaks("", "", {}, []))
    needed = ("chip", "source", "flops", "levels")
    found = {key: value for key, value in msgspec.to_builtins(peaks).items() if key in needed or value != usual[key]}
    for key in ("levels", "interconnect"):
        if key in found:
            found[key] = [{k: v for k, v in part.items() if v not in (None, {})} for part in found[key]]
    return found


def _block(peaks: Peaks) -> Iterator[str]:
    for key, value in brief(peaks).items():
        start = "  - " if key == "chip" else "    "
        if key in ("levels", "interconnect") and value:
            yield f"{start}{key}:"
            yield from (f"      - {_flow(part)}" for part in value)
        elif key == "notes":
            yield f"{start}{key}:"
            yield from (f"      {_flow(figure)}: {_flow(note)}" for figure, note in value.items())
        else:
            yield f"{start}{key}: {_flow(value)}"


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(part)}" for key, part in value.items()) + "}"
    if isinstance(value, float):
        short = f"{value:.12g}"
        return short if float(short) == value else repr(value)
    return msgspec.json.encode(value).decode()


_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # five times as fast, if PyYAML was built with it


class _Loader(_Base):  # type: ignore[misc]
    """A safe loader that refuses repeated keys and reads 1e12 as a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key `{key.value}` appears twice in one mapping", problem_mark=key.start_mark
                )
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        return dict(super().construct_mapping(node, deep))


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)
