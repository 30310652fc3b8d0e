"""What was tuned: find it, write it to a file, read it from one. `opmark tuned`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import to_builtins

from opmark.api.keywords import typed
from opmark.api.result import open_store
from opmark.errors import UnknownName, UserError
from opmark.plugin.formats import HEAD, TuningFormat, TuningLog
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.plugin.registry import tuning_formats
from opmark.plugin.space import format_configuration
from opmark.schema import ImportProblem
from opmark.schema.options import PathLike
from opmark.schema.tuned import TunedEntry
from opmark.tuning import database
from opmark.tuning.database import FoundEntry

__all__ = ["FoundEntry", "TunedImport", "export_tuned", "found_view", "import_tuned", "store_entries", "tuned"]


@typed
def tuned(
    op: str | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    near: Mapping[str, Any] | None = None,
    backend: str | None = None,
    db: PathLike | None = None,
) -> list[FoundEntry]:
    """Return what was tuned, the newest of each case, backend and target: of an operator, with these parameters, or the
    nearest shapes with the loss to expect from their configurations."""
    operator = find_operator(op) if op else None
    if near and operator is None:
        raise UserError("--near needs an operator", "as in `opmark tuned matmul --near M=1000`")
    for name in (*(params or {}), *(near or {})):
        if operator:
            operator.param(name)
    info = find_backend(backend) if backend else None
    with closing(open_store(db)) as store:
        found = database.find_entries(store, operator.name if operator else None, info, near=near or {})
        wanted = {key: value if isinstance(value, list) else [value] for key, value in (params or {}).items()}
        found = [one for one in found if all(one.entry.params.get(key) in some for key, some in wanted.items())]
        return database.with_losses(store, found) if near else found


def found_view(found: FoundEntry) -> dict[str, Any]:
    """Return the plain data of an entry as it looks from here."""
    return {
        **to_builtins(found.entry), "id": found.entry.id, "distance": found.distance, "stale": list(found.stale),
        "expected_loss": found.loss, "loss_from_pairs": found.pairs,
    }  # fmt: skip


@typed
def export_tuned(
    output: PathLike, *, op: str | None = None, format: str = "", db: PathLike | None = None
) -> tuple[int, list[str]]:
    """Write what was tuned to a file, all targets included: in opmark's JSON, or in another system's format, for which
    `output` is a folder where it has several files, or names that matter. Return the number of entries, and what the
    format cannot express; if that is everything, nothing is written."""
    with closing(open_store(db)) as store:
        entries = database.newest(store.tuned(find_operator(op).name if op else None))
    if not format:
        Path(output).write_bytes(database.file_text(entries))
        return len(entries), []
    texts, left_out = _format(format).files(entries)
    if len(left_out) == len(entries):
        return 0, list(left_out)  # files without an entry would only be in the way
    # What is in a folder is known by its name, and there will be more of it.
    several = len(texts) != 1 or any("/" in name for name in texts)
    for name, text in texts.items():
        path = Path(output) / name if several else Path(output)
        # Names come from entries, and entries from files of others.
        if several and not path.resolve().is_relative_to(Path(output).resolve()):
            raise UserError(
                f"an entry would be written to `{name}`, outside of {output}", "`opmark tuned` lists entries"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return len(entries) - len(left_out), list(left_out)


@typed
def import_tuned(*files: PathLike, format: str = "", db: PathLike | None = None) -> TunedImport:
    """Read files that `export_tuned` wrote, and tuning logs of other systems. All files are read before anything is
    stored; lines that cannot be understood are named."""
    if not files:
        raise UserError("no file to import is named", "as in `opmark tuned import tuned.json`")
    logs = [_read(Path(file), format) for file in files]
    entries = [entry for log in logs for entry in log.entries]
    problems = [str(problem) for log in logs for problem in log.problems]
    notes = [note for log in logs for note in log.notes]
    return TunedImport(len(entries), store_entries(entries, db=db) if entries else 0, problems, notes)


class TunedImport(NamedTuple):
    """What `import_tuned` has read."""

    entries: int
    new: int
    problems: Sequence[str]
    """One line for each part of a file that was not understood."""
    notes: Sequence[str]


def _format(name: str) -> TuningFormat:
    known = tuning_formats()
    if name not in known:
        raise UnknownName("format of tuning logs", name, known)
    return known[name]


def _read(path: Path, format: str) -> TuningLog:
    if format:
        return _format(format).read(path)
    if not path.exists():
        raise UserError(f"there is no file {path}", "as in `opmark tuned import tuned.json`")
    head = b""
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(HEAD)
    for one in tuning_formats().values():
        if one.recognises(path, head):
            return one.read(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder of no known format", f"formats: {', '.join(tuning_formats())}")
    entries, problems = list[TunedEntry](), list[ImportProblem]()
    for number, entry in enumerate(database.read_file(path.read_bytes(), str(path)), 1):
        if why := database.why_refused(entry):
            name = f"{entry.op} {format_configuration(entry.params)}".rstrip()
            problems.append(ImportProblem(f"{path}: entry {number} ({name} on {entry.backend})", f"refused: {why}"))
        else:
            entries.append(entry)
    return TuningLog(entries, problems)


def store_entries(entries: Sequence[TunedEntry], *, db: PathLike | None = None) -> int:
    """Store entries, whoever made them, and return how many were new: importers of other formats call this."""
    with closing(open_store(db, create=True)) as store:
        return database.store_tuned(store, list(entries))
