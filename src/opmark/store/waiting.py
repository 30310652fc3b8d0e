"""Journals: small stores with records that another store could not take, until it can."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

from opmark.errors import StoreError
from opmark.store.database import Lost
from opmark.store.location import Told, address, shown
from opmark.store.merge import Merged, merge
from opmark.store.sql import SqlStore
from opmark.store.sqlite import Sqlite
from opmark.units import counted

Say = Callable[[str], None]

_ENDING = ".sqlite"


def new_journal(told: Told) -> SqlStore:
    """One that nobody else writes to, or takes, before it is closed."""
    problems = []
    for folder in _folders():
        name = f"{_key(told)}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}{_ENDING}"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return SqlStore(Sqlite(folder / name, alone=True), create=True)
        except (OSError, StoreError) as error:
            problems.append(f"{folder}: {error}")
    raise StoreError(f"no journal can be made either: {'; '.join(problems)}", "make room on one of these disks")


def waiting(told: Told) -> list[Path]:
    """The journals of a store, oldest first."""
    key = _key(told)
    found = [path for folder in _folders() for path in _files(folder) if path.name.startswith(f"{key}-")]
    return sorted(found, key=lambda path: path.name)


def tell_waiting(told: Told, say: Say) -> None:
    """For who only reads."""
    for path in waiting(told):
        say(
            f"not everything is here yet: records that the store could not take are in {path}\n"
            f"hint: the next command that writes brings them in, as does `opmark merge {path}`"
        )


def flush_waiting(store: SqlStore, told: Told, say: Say) -> None:
    """What waits comes in now. What a run is still writing is left to it."""
    for path in waiting(told):
        try:
            journal = SqlStore(Sqlite(path, alone=True), create=False)
        except Lost as error:
            if "locked" not in error.message:
                say(f"left as it is: {error}")
            continue
        except StoreError as error:
            say(f"left as it is: {error}")
            continue
        try:
            flush(store, journal, say)
        except StoreError as error:
            say(f"records still wait in {path}: {error}")


def flush(store: SqlStore, journal: SqlStore, say: Say) -> Merged:
    """Into the store, and then away with it. Interrupted at any point, it can be done again."""
    assert isinstance(journal.database, Sqlite)
    path = journal.database.path
    with closing(journal):
        done = merge(store, journal)
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        (path.parent / name).unlink(missing_ok=True)
    if done.records:
        say(f"{counted(done.records, 'record')} that had waited in {path} came into {store.database.name}")
    return done


def _key(told: Told) -> str:
    """The same for all who name the store alike, with whatever password."""
    where = address(told)
    name = str(where.resolve()) if isinstance(where, Path) else str(shown(told))
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def _folders() -> Iterator[Path]:
    """Where journals may be: the user's own place for such things, else that for what is temporary."""
    import platformdirs

    yield platformdirs.user_state_path("opmark") / "journals"
    yield Path(tempfile.gettempdir()) / f"opmark-journals-{_user()}"


def _files(folder: Path) -> Iterator[Path]:
    """Our own: in a folder that all may write to, others could leave what would then come into our store."""
    try:
        mine = [path for path in (folder, *folder.glob(f"*{_ENDING}")) if path.lstat().st_uid == _user()]
    except OSError:
        return
    if folder in mine and not folder.is_symlink():
        yield from (path for path in mine if path != folder and path.is_file())


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0
