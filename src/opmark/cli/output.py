"""Data to stdout, talk to stderr."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any, NamedTuple

from opmark.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from opmark.api.result import MachineFacts
    from opmark.schema import Record


_ANY_WIDTH = 1_000_000


def console(*, stderr: bool = False, wide: bool = False, no_color: bool = False) -> Console:
    """For tables. Where nobody looks at a screen, lines are as long as they need to be; with `wide` everywhere.

    Rich knows of FORCE_COLOR and TERM=dumb. What asks for no colour gets no escape sequence at all, bold ones neither.
    """
    from opmark.report.console.table import PlainConsole as Console

    seen = (sys.stderr if stderr else sys.stdout).isatty()
    width = _ANY_WIDTH if wide else None if seen else 1000
    plain = no_color or bool(os.environ.get("NO_COLOR"))
    return Console(stderr=stderr, width=width, highlight=seen, color_system=None if plain else "auto")


def print_json_lines(items: Iterable[Any]) -> None:
    from opmark.report.text import json_line

    for item in items:
        sys.stdout.write(json_line(item) + "\n")
    sys.stdout.flush()


class TableStyle(NamedTuple):
    """Of a table on a screen, as the options of the same names say."""

    long: bool = False
    wide: bool = False
    no_color: bool = False


USUAL = TableStyle()


def print_records(
    records: Sequence[Record], peaks: Mapping[str, MachineFacts] | None = None, looks: TableStyle = USUAL
) -> None:
    """Side by side where several backends ran the same case; `long`: a row a task all the same."""
    from opmark.report.console.side_by_side import several_backends

    out = console(wide=looks.wide, no_color=looks.no_color)
    if not looks.long and several_backends(records):
        from opmark.report.console.side_by_side import print_side_by_side

        print_side_by_side(records, out, peaks)
    else:
        from opmark.report.console.records import print_records as print_table

        print_table(records, out, peaks, wide=looks.wide)


def split(values: Iterable[str]) -> list[str]:
    """Options that take several values take them by comma, by repetition, or both."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def write_files(files: Mapping[str, str] | Mapping[str, str | bytes], output: Path | None) -> None:
    """One to where it is told, or to standard output; several into a folder."""
    from opmark.units import count_noun

    if not files:
        raise UserError("nothing of it can be said in that format")
    if len(files) == 1 and (output is None or output.suffix):
        write_out(next(iter(files.values())), output)
        return
    if output is None:
        raise UserError(f"these are {len(files)} files: {', '.join(list(files)[:3])}, ...", "-o FOLDER says where to")
    for name in files:
        _check_name(name)
    for name, content in files.items():
        write_out(content, output / name)
    from opmark.api.requests import talk

    talk(f"{count_noun(len(files), 'file')} in {output}")


def _check_name(name: str) -> None:
    """Names are made of ids and operators, which come from anywhere; nothing is written outside of the folder."""
    parts = PureWindowsPath(name).parts  # which knows both kinds of slashes, and drives
    if not parts or PureWindowsPath(name).anchor or ".." in parts or not name.isprintable():
        raise UserError(f"`{name}` is not the name of a file below a folder", "-o FILE.ENDING says what it is called")


def write_out(content: str | bytes, path: Path | None) -> None:
    """To a file, its folder made if need be, or to standard output."""
    if path is None:
        _print(content)
        return
    from opmark.report.formats.dataframe import whole_file

    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_lines(lines: Iterable[str], path: Path | None) -> None:
    """The same, as they come."""
    if path is None:
        sys.stdout.writelines(lines)
        sys.stdout.flush()
        return
    from opmark.report.formats.dataframe import whole_file

    with whole_file(path) as file:
        file.writelines(line.encode() for line in lines)


def _print(content: str | bytes) -> None:
    """Bytes are for files: a terminal would show them as anything, and obey some."""
    if isinstance(content, str):
        sys.stdout.write(content)
    elif sys.stdout.isatty():
        raise UserError("this format is not text, and standard output is a terminal", "-o FILE says where to")
    else:
        sys.stdout.buffer.write(content)
    sys.stdout.flush()  # before what is said of it


# A stream that cannot write every character writes those out that it cannot, `\u2705`: no name stops a table.

_WRITTEN_OUT = "opmark-written-out"


def write_out_the_unwritable() -> None:
    """On standard output; unless who started us has said what else to do (`PYTHONIOENCODING=ascii:replace`)."""
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and out.errors == "strict":
        codecs.register_error(_WRITTEN_OUT, _written_out)
        out.reconfigure(errors=_WRITTEN_OUT)


def _written_out(error: UnicodeError) -> tuple[str, int]:
    """As JSON has it, so that what is JSON stays so: other characters than those of the first plane are two."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    halves = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{halves[i : i + 4]}" for i in range(0, len(halves), 4)), error.end
