"""Print and write results: data goes to stdout, messages go to stderr."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fcntl import F_GETFL, fcntl
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any, NamedTuple

from opmark.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from opmark.api.result import MachineFacts
    from opmark.schema import Record


_ANY_WIDTH = 1_000_000


def console(*, stderr: bool = False, wide: bool = False, no_color: bool = False) -> Console:
    """Make a console for tables. Lines may have any length if the output is not a terminal, or with `wide`.

    Rich handles FORCE_COLOR and TERM=dumb. Without colour there are no escape sequences at all, not even for bold.
    """
    from opmark.report.console.table import PlainConsole as Console

    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    width = _ANY_WIDTH if wide else None if is_terminal else 1000
    plain = no_color or bool(os.environ.get("NO_COLOR"))
    return Console(stderr=stderr, width=width, highlight=is_terminal, color_system=None if plain else "auto")


def print_json_lines(items: Iterable[Any]) -> None:
    from opmark.report.text import json_line

    for item in items:
        sys.stdout.write(json_line(item) + "\n")
    sys.stdout.flush()


class TableStyle(NamedTuple):
    """How a table looks on a screen; the fields are options of the same names."""

    long: bool = False
    wide: bool = False
    no_color: bool = False


DEFAULT_STYLE = TableStyle()


def print_records(
    records: Sequence[Record], peaks: Mapping[str, MachineFacts] | None = None, style: TableStyle = DEFAULT_STYLE
) -> None:
    """Print a table of records: side by side if several backends ran the same case, unless `long` asks for rows."""
    from opmark.report.console.side_by_side import several_backends

    out = console(wide=style.wide, no_color=style.no_color)
    if any(record.task.settings.data for record in records):
        from opmark.report.console.evaluation import print_record_accuracy

        print_record_accuracy(records, out)
    elif not style.long and several_backends(records):
        from opmark.report.console.side_by_side import print_side_by_side

        print_side_by_side(records, out, peaks)
    else:
        from opmark.report.console.records import print_records as print_table

        print_table(records, out, peaks, wide=style.wide)


def split(values: Iterable[str]) -> list[str]:
    """Split the values of an option that may be repeated and may contain commas."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def write_files(files: Mapping[str, str] | Mapping[str, str | bytes], output: Path | None) -> None:
    """Write one file to `output` or to standard output; several into the folder `output`."""
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
    """Refuse names that lead out of the folder: they are made of ids and operators, which anybody may have written."""
    parts = PureWindowsPath(name).parts  # it knows both kinds of slashes, and drives
    if not parts or PureWindowsPath(name).anchor or ".." in parts or not name.isprintable():
        raise UserError(f"`{name}` is not the name of a file below a folder", "-o FILE.ENDING says what it is called")


def write_out(content: str | bytes, path: Path | None) -> None:
    """Write to a file, whose folder is created if necessary, or to standard output."""
    if path is None:
        _print(content)
        return
    from opmark.files import whole_file

    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_lines(lines: Iterable[str], path: Path | None) -> None:
    """Write lines as they come, to a file or to standard output."""
    if path is None:
        sys.stdout.writelines(lines)
        sys.stdout.flush()
        return
    from opmark.files import whole_file

    with whole_file(path) as file:
        file.writelines(line.encode() for line in lines)


def _print(content: str | bytes) -> None:
    """Write to standard output; refuse to write bytes to a terminal, which would interpret them."""
    if isinstance(content, str):
        sys.stdout.write(content)
    elif sys.stdout.isatty():
        raise UserError("this format is not text, and standard output is a terminal", "-o FILE says where to")
    else:
        sys.stdout.buffer.write(content)
    sys.stdout.flush()  # before messages about it


def open_standard_streams() -> None:
    """Put a stream where the caller has closed one, so that no file of opmark is opened under its number.

    Without a standard error, messages are lost and the command does its work. Without a standard output, writing is an
    error, as it is on a full disk.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            # Opened for reading, standard output refuses what is written to it.
            opened = os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
    out, err = sys.stdout, sys.stderr
    if out is sys.__stdout__ and isinstance(out, io.TextIOWrapper) and out.write_through:
        # What cannot be written has to stay in a buffer, so that `why_stdout_fails` sees it.
        whole = io.BufferedWriter(io.FileIO(out.fileno(), "wb", closefd=False))
        sys.stdout = io.TextIOWrapper(whole, out.encoding, out.errors, line_buffering=True)
    if err is sys.__stderr__ and isinstance(err, io.TextIOWrapper):
        # Each line is written at once, so that messages come before the data that follows them.
        raw = io.BufferedWriter(MessageStream(err.fileno(), "wb", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, err.encoding, err.errors, line_buffering=True)


def why_stdout_fails() -> str:
    """Return why standard output cannot be written, after which it is written nowhere; empty if it can be."""
    try:
        if fcntl(1, F_GETFL) & os.O_ACCMODE == os.O_RDONLY:  # as `open_standard_streams` leaves it
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python writes the rest once more when it ends
        return "it is closed" if error.errno == errno.EBADF else str(error.strerror)
    return ""


class MessageStream(io.FileIO):
    """Standard error. Where it cannot be written, messages are lost, and the command does its work."""

    def write(self, data: Any) -> int:
        with suppress(OSError):
            super().write(data)
        return len(data)


_ESCAPE = "opmark-written-out"


def escape_unencodable() -> None:
    """Let standard output escape characters that its encoding lacks (`\\u2705`), so that no name stops a table; unless
    the environment asks for another treatment (`PYTHONIOENCODING=ascii:replace`)."""
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and out.errors == "strict":
        codecs.register_error(_ESCAPE, _escape)
        out.reconfigure(errors=_ESCAPE)


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Escape characters as JSON does, so that JSON stays valid: those beyond the first plane as two escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    halves = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{halves[i : i + 4]}" for i in range(0, len(halves), 4)), error.end
