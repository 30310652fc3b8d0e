"""Journals that wait: small local stores with records that another store could not take, until it can."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

from sqlalchemy import make_url

from opmark.errors import StoreError
from opmark.store.location import Told, address, display_address
from opmark.store.merge import Merged, merge
from opmark.store.protocol import StoreUnreachable
from opmark.store.sql import SqlStore
from opmark.store.sqlite import Sqlite
from opmark.store.tables import META
from opmark.units import count_noun

Say = Callable[[str], None]

_ENDING = ".sqlite"
_OF = "journal of"
"""The key in a journal's table `meta` for the identity of its store."""
_ROOM = 256 * 1024
"""Bytes that a new journal takes at once: some hundred records, whatever becomes of the disk."""
_PORT = 5432
_SECRET = ("password", "passfile", "sslpassword")


def new_journal(told: Told, identity: str | None = None, besides: Collection[Path] = ()) -> SqlStore:
    """A journal that nobody else writes to, or takes, before it is closed. It has its tables and some room.

    `identity`: that of the store which it belongs to. `besides`: folders that need not be tried.
    """
    problems = []
    for folder in (folder for folder in _folders() if folder not in besides):
        path = folder / f"{_key(told)}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}{_ENDING}"
        journal = None
        try:
            _make_folder(folder)
            journal = SqlStore(Sqlite(path, alone=True), create=True)
            _prove_room(journal, identity)
            return journal
        except (OSError, StoreError) as error:
            problems.append(f"{folder}: {error.message if isinstance(error, StoreError) else error}")
            if journal:
                discard(journal)
    raise StoreError(
        f"no journal can be made either: {'; '.join(problems) or 'all folders were tried'}",
        "make room on one of these disks",
    )


def _prove_room(journal: SqlStore, identity: str | None) -> None:
    """Write to a new journal: a file can be made on a disk that has no room for a single record."""
    with journal.writing() as connection:
        connection.execute(META.insert(), {"key": _OF, "value": identity or ""})
    for statement in ("CREATE TABLE room (taken)", f"INSERT INTO room VALUES (randomblob({_ROOM}))", "DROP TABLE room"):
        with journal.writing() as connection:
            connection.exec_driver_sql(statement)


def discard(journal: SqlStore) -> None:
    """Remove a journal that has nothing in it that anybody needs."""
    path = path_of(journal)
    journal.close()
    _remove(path)


def path_of(journal: SqlStore) -> Path:
    assert isinstance(journal.database, Sqlite)
    return journal.database.path


def _remove(path: Path) -> None:
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}-journal"):
        (path.parent / name).unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    """Make a folder for us alone: in one that somebody else made, they could read, or take away, what is written."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _is_ours(folder):
        raise OSError(f"{folder} is a link, or of another user")
    folder.chmod(0o700)


def _is_ours(folder: Path) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == _user()


def pending_journals(told: Told) -> list[Path]:
    """The journals of a store, oldest first."""
    key = _key(told)
    found = [path for folder in _folders() for path in _files(folder) if path.name.startswith(f"{key}-")]
    return sorted(found, key=lambda path: path.name)


def tell_waiting(told: Told, say: Say) -> None:
    """Tell somebody who only reads the store that records wait in journals."""
    for path in pending_journals(told):
        say(
            f"not everything is here yet: records that the store could not take are in {path}\n"
            f"hint: the next command that writes brings them in, as does `opmark merge {path} --db {display_address(told)}`"
        )


def flush_pending(store: SqlStore, told: Told, say: Say) -> None:
    """Merge the journals that wait. One that a run is still writing is left to it."""
    for path in pending_journals(told):
        try:
            journal = SqlStore(Sqlite(path, alone=True, wait=0.0), create=False, in_place=True)
        except StoreUnreachable as error:
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
    """Merge a journal into the store, and remove it. Interrupted at any point, this can be done again."""
    path = path_of(journal)
    with closing(journal):
        _check_same_store(store, journal)
        done = merge(store, journal)
    _remove(path)
    if done.records:
        say(f"{count_noun(done.records, 'record')} that had waited in {path} came into {store.database.name}")
    return done


def _check_same_store(store: SqlStore, journal: SqlStore) -> None:
    """Raise StoreError where another store has the address by now: its file was replaced, its database made anew."""
    wanted = journal.said_of_itself(_OF)
    if wanted and wanted != store.identity:
        raise StoreError(
            f"they are of another store, which was at {store.database.name} before",
            f"`opmark merge {path_of(journal)} --db {store.database.name}` brings them into this one all the same",
        )


def _key(told: Told) -> str:
    """A key that is equal for all addresses of the same store, with whatever password."""
    where = address(told)
    name = str(where.resolve()) if isinstance(where, Path) else _normalised(where)
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def _normalised(where: str) -> str:
    """The parts of an address that lead to another place: options may name a schema, and a host may be among them."""
    url = make_url(where)
    asked = {name: value for name, value in url.query.items() if name not in _SECRET}
    port = url.port or asked.pop("port", _PORT)
    return repr((url.username, url.host, str(port), url.database, sorted(asked.items())))


def _folders() -> Iterator[Path]:
    """Folders for journals: the user's own folder for state, else the one for temporary files."""
    import platformdirs

    yield platformdirs.user_state_path("opmark") / "journals"
    yield Path(tempfile.gettempdir()) / f"opmark-journals-{_user()}"


def _files(folder: Path) -> Iterator[Path]:
    """Our own journals in a folder: where all may write, others could leave what would then come into our store."""
    try:
        if _is_ours(folder):
            yield from [path for path in folder.glob(f"*{_ENDING}") if _is_our_file(path)]
    except OSError:
        return


def _is_our_file(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISREG(found.st_mode) and found.st_uid == _user()


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0
