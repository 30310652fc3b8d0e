"""Find datasheets: those of the user, those that ship with opmark, and those of plug-ins."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from opmark.errors import InvalidFile, UserError
from opmark.hardware.sheet import read_sheet
from opmark.registry import hardware_files
from opmark.schema.peaks import Peaks

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
    return tuple(peaks for path in _own_files() for peaks in _read(path))


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


def _own_files() -> Iterator[Path]:
    if named := os.environ.get(ENVIRONMENT):
        place = Path(named)
        if not place.exists():
            raise UserError(f"{ENVIRONMENT}: {place} does not exist", "it names a hardware file, or a folder of them")
        yield from _files(place) if place.is_dir() else [place]
    yield from _files(own_folder())


def _files(folder: Path) -> Iterable[Path]:
    return sorted(f for f in folder.glob("*") if f.suffix in _ENDINGS and f.is_file())


def _find(chip: str, sheets: Iterable[Peaks]) -> Peaks | None:
    return next((peaks for peaks in sheets if chip in names(peaks)), None)


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
    found: list[Any] = sorted((files("opmark.hardware") / "zoo").iterdir(), key=lambda file: file.name)
    return {file.name: file.read_text(encoding="utf-8") for file in found if file.name.endswith(".yaml")}


@cache
def _parse_shipped(name: str) -> tuple[Peaks, ...]:
    return tuple(read_sheet(_texts()[name], name).chips)
