"""Datasheets of chips: find, read and write them, and check the figures of foreign files against them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct
from msgspec.structs import replace

from opmark.errors import InvalidFile, UserError, nearest
from opmark.plugin.registry import hardware_files
from opmark.schema.codec import convert, why_too_many_aliases
from opmark.schema.machine import MEMORY, RATED, Peaks
from opmark.units import rate as format_rate
from opmark.units import significant

ENVIRONMENT = "OPMARK_HARDWARE"
"""Environment variable that names a hardware file of the user, or a folder of them."""
_ENDINGS = (".yaml", ".yml", ".json")


def datasheet(chip: str, threads: int | None = None) -> Peaks | None:
    """Return the datasheet of a chip by its exact name or an alias; the user's own come first, those of plug-ins last.

    For a processor, the peaks are scaled to the number of threads.
    """
    found = _find(chip, own_datasheets()) or shipped_datasheet(chip) or _find(chip, plugin_datasheets(chip))
    return found.of_threads(threads) if found else None


def shipped_datasheet(chip: str) -> Peaks | None:
    """Parse only the files that contain the name: parsing all of them takes longer than showing a run."""
    holding = (_parse_shipped(name) for name, text in _texts().items() if chip in text)
    return _find(chip, (peaks for sheet in holding for peaks in sheet))


def datasheets() -> tuple[Peaks, ...]:
    """Return all datasheets, the user's own first. A chip hides later ones of the same name."""
    seen: set[str] = set()
    found = []
    for peaks in (*own_datasheets(), *shipped_datasheets(), *plugin_datasheets()):
        if peaks.chip not in seen:
            found.append(peaks)
        seen.update(names(peaks))
    return tuple(found)


def own_datasheets() -> tuple[Peaks, ...]:
    """Return the chips of the file or folder in OPMARK_HARDWARE, then of the folder `hardware` in the user's data."""
    places = [own_folder()]
    if named := os.environ.get(ENVIRONMENT):
        places.insert(0, Path(named))
        if not places[0].exists():
            raise UserError(
                f"{ENVIRONMENT}: {places[0]} does not exist", "it names a hardware file, or a folder of them"
            )
    paths = [path for place in places for path in ([place] if place.is_file() else sorted(place.glob("*")))]
    return tuple(
        peaks for path in paths if path in places or (path.suffix in _ENDINGS and path.is_file())
        for peaks in _read(path)
    )  # fmt: skip


def shipped_datasheets() -> tuple[Peaks, ...]:
    return tuple(peaks for name in _texts() for peaks in _parse_shipped(name))


def plugin_datasheets(chip: str = "") -> tuple[Peaks, ...]:
    """Return the chips of plug-ins; with a chip, only of files that contain its name. A broken file is reported and
    skipped."""
    return tuple(
        peaks for where, text in hardware_files().items() if chip in text for peaks in _parse_plugin_file(where, text)
    )


def names(peaks: Peaks) -> tuple[str, ...]:
    return (peaks.chip, *peaks.aliases)


def own_folder() -> Path:
    import platformdirs

    return platformdirs.user_data_path("opmark") / "hardware"


def _find(chip: str, sheets: Iterable[Peaks]) -> Peaks | None:
    return next((peaks for peaks in sheets if chip == peaks.chip or chip in peaks.aliases), None)


@cache
def _read(path: Path) -> tuple[Peaks, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidFile(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{path}: is not text: byte {error.start} is not UTF-8") from None
    return tuple(read_sheet(text, str(path)).chips)


@cache
def _parse_plugin_file(where: str, text: str) -> tuple[Peaks, ...]:
    try:
        return tuple(read_sheet(text, where).chips)
    except InvalidFile as error:
        print(f"warning: the hardware file of a plug-in is broken and skipped: {error.message}", file=sys.stderr)
        return ()


@cache
def _texts() -> dict[str, str]:
    found: list[Any] = sorted((files("opmark.hardware") / "chips").iterdir(), key=lambda file: file.name)
    return {file.name: file.read_text(encoding="utf-8") for file in found if file.name.endswith(".yaml")}


@cache
def _parse_shipped(name: str) -> tuple[Peaks, ...]:
    return tuple(read_sheet(_texts()[name], name).chips)


# Check the figures of a foreign hardware file against the datasheet that ships for the same chip.

_SAME = 0.05
"""Figures within this relative distance are the same, only rounded differently."""


def reconcile(chip: Peaks) -> tuple[Peaks, list[str]]:
    """Return the chip with dense peaks and the names that drivers report, and a line for each change.

    Of two different figures the lower one is used: most files that state more give the peak with sparsity, twice the
    dense one.
    """
    sheet = shipped_datasheet(chip.chip)
    if sheet is None:
        return chip, []
    flops, notes = dict(chip.flops), dict(chip.notes)
    changes: dict[str, list[str]] = {}
    for dtype, figure in chip.flops.items():
        known = sheet.flops.get(dtype)
        if known is None or abs(figure - known) <= _SAME * known:
            continue
        flops[dtype] = min(figure, known)
        used = "the datasheet's is used" if figure > known else "the file's is used"
        in_file, in_sheet = format_rate(figure, "FLOP/s"), format_rate(known, "FLOP/s")
        both = f"{in_file} in the file, {in_sheet} in the datasheet of {sheet.chip}"
        key = f"flops.{dtype}"
        notes[key] = "; ".join(filter(None, (notes.get(key), f"{both}: {used}")))
        changes.setdefault(f"{_describe_factor(figure / known)}: {used}", []).append(dtype)
    aliases = [name for name in dict.fromkeys((*chip.aliases, *names(sheet))) if name != chip.chip]
    lines = [f"{chip.chip}: {', '.join(types)} {text}" for text, types in changes.items()]
    return replace(chip, flops=flops, notes=notes, aliases=aliases), lines


def _describe_factor(times: float) -> str:
    """Describe a figure of the file as a multiple of the datasheet's."""
    twice = abs(times - 2) <= 2 * _SAME
    return "twice the datasheet's, as with sparsity" if twice else f"{significant(times, 2)} times the datasheet's"


# Read and write hardware files: chips with their peaks.

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
    except yaml.YAMLError as error:
        raise InvalidFile(f"{where}: is not YAML: {error}", _LOOKS) from None
    except RecursionError:
        raise InvalidFile(f"{where}: lists and mappings are nested too deeply", _LOOKS) from None


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
    figures: dict[str, float | None] = {f"flops.{dtype}": rate for dtype, rate in peaks.flops.items()}
    for dtype in peaks.flops:
        if dtype not in RATED:
            near = nearest(dtype, RATED)
            meant = f"did you mean `{near}`? " if near else ""
            raise InvalidFile(
                f"{where}: unknown element type `{dtype}`, at `{place}.flops`", f"{meant}known are {', '.join(RATED)}"
            )
    for number, level in enumerate(peaks.levels):
        figures |= {f"levels[{number}].bandwidth": level.bandwidth, f"levels[{number}].nbytes": level.nbytes}
        if level.name == MEMORY and level.nbytes is not None:
            raise InvalidFile(f"{where}: the memory has its size in `memory`, at `{place}.levels[{number}].nbytes`")
    sizes = [level.nbytes for level in peaks.levels if level.nbytes is not None]
    if any(small > large for small, large in pairwise(sizes)):
        raise InvalidFile(f"{where}: expected the smallest cache first, at `{place}.levels`")
    for key, value in (figures | {"memory": peaks.memory, "power": peaks.power, "cores": peaks.cores}).items():
        if value is not None and not 0 < value < float("inf"):
            raise InvalidFile(f"{where}: expected a number above 0, got {value}, at `{place}.{key}`")


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

    def get_single_node(self) -> Any:
        node = super().get_single_node()
        if problem := why_too_many_aliases(node):
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return node

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
