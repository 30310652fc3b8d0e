"""Pending journals: small local stores with records that wait to be merged into a store that could not take them."""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from datetime import datetime, timezone
from pathlib import Path

from sqlalchemy import make_url

from opmark.errors import StoreError
from opmark.store.location import StoreLocation, address, display_address
from opmark.store.merge import Merged, merge
from opmark.store.protocol import StoreUnreachable
from opmark.store.sql import SqlStore
from opmark.store.sqlite import Sqlite
from opmark.store.tables import META
from opmark.units import count_noun

Say = Callable[[str], None]

_ENDING = ".sqlite"
_OF = "journal of"
"""Key in the table `meta` of a journal for the identity of its store."""
_ROOM = 256 * 1024
"""Bytes that a new journal reserves: enough for some hundred records even if the disk becomes full."""
_TIME = "20300101-000000"
"""Form of the time in the name of a journal."""
_PATIENCE = 2.0
"""Seconds to wait for another process that merges a journal at this moment."""
_PORT = 5432
_SECRET = ("password", "passfile", "sslpassword")


def new_journal(location: StoreLocation, identity: str | None = None, besides: Collection[Path] = ()) -> SqlStore:
    """Create a journal with its tables and some reserved space. It is locked until it is closed.

    `identity` is that of the store to which the records belong; the folders `besides` are not tried.
    """
    problems = []
    for folder in (folder for folder in _folders() if folder not in besides):
        path = folder / f"{_key(location)}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}{_ENDING}"
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
    """Remove a journal that holds nothing needed."""
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
    """Create a folder for this user alone. In a folder of another user, that user could read or remove journals."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _is_ours(folder, stat.S_ISDIR):
        raise OSError(f"{folder} is a link, or of another user")
    folder.chmod(0o700)


def pending_journals(location: StoreLocation) -> list[Path]:
    """Return the journals of a store, oldest first. Journals of other users are ignored, who could place files where
    everybody may write."""
    key, found = _key(location), list[Path]()
    for folder in _folders():
        with suppress(OSError):
            if _is_ours(folder, stat.S_ISDIR):
                found += [path for path in folder.glob(f"{key}-*{_ENDING}") if _is_ours(path, stat.S_ISREG)]
    return sorted(found, key=lambda path: path.name)


def _is_ours(path: Path, is_kind: Callable[[int], bool]) -> bool:
    found = path.lstat()
    return is_kind(found.st_mode) and found.st_uid == _user()


def tell_waiting(location: StoreLocation, say: Say) -> None:
    """Tell a reader of the store that some records wait in journals."""
    for path in pending_journals(location):
        say(
            f"not everything is here yet: records that the store could not take are in {path}\n"
            f"hint: the next command that writes brings them in, as does `{merge_command(path, location)}`"
        )


def merge_command(journal: Path, location: StoreLocation) -> str:
    """Return a command line that merges a journal. It never shows a password; PGPASSWORD has its place."""
    where = address(location)
    secret = isinstance(where, str) and make_url(where).password is not None
    shown = shlex.join(["opmark", "merge", str(journal), "--db", str(display_address(location))])
    return f"PGPASSWORD=... {shown}" if secret else shown


def journals_of(location: StoreLocation, run_ids: Collection[str]) -> list[Path]:
    """Return the pending journals of a store that hold something of these runs. A journal that cannot be read, because
    it is damaged or another process has it, may hold them, too, unless it is older than the runs."""
    found = []
    for path in pending_journals(location):
        try:
            with closing(SqlStore(Sqlite(path, wait=_PATIENCE), create=False)) as journal:
                holds = any(run.id in run_ids for run in journal.runs())
        except StoreError:
            made = path.name.partition("-")[2]  # this and the id of a run begin with a time, of the same form
            holds = path.exists() and any(made[: len(_TIME)] >= run_id[: len(_TIME)] for run_id in run_ids)
        if holds:
            found.append(path)
    return found


def flush_pending(store: SqlStore, location: StoreLocation, say: Say) -> None:
    """Merge all pending journals, except those that a run is still writing."""
    for path in pending_journals(location):
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
    """Merge a journal into the store, and remove it. Interrupted at any point, this can be done again. A journal with
    damaged records is renamed and kept."""
    path = path_of(journal)
    with closing(journal):
        _check_same_store(store, journal)
        done = merge(store, journal, limits=None)
    if done.refused:
        kept = path.rename(path.with_name(f"damaged-{path.name}"))
        say(f"{count_noun(len(done.refused), 'damaged record')} stayed in {kept}; the first: {done.refused[0]}")
    else:
        _remove(path)
    if done.records:
        say(f"{count_noun(done.records, 'record')} that had waited in {path} came into {store.database.name}")
    return done


def _check_same_store(store: SqlStore, journal: SqlStore) -> None:
    """Raise StoreError if another store is at the address now, because the file was replaced or the database
    recreated."""
    wanted = journal.read_meta(_OF)
    if wanted and wanted != store.identity:
        raise StoreError(
            f"they are of another store, which was at {store.database.name} before",
            f"`opmark merge {path_of(journal)} --db {store.database.name}` brings them into this one all the same",
        )


def _key(location: StoreLocation) -> str:
    """Return a key that is equal for all addresses of the same store, whatever the password."""
    where = address(location)
    name = str(where.resolve()) if isinstance(where, Path) else _normalised(where)
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def _normalised(where: str) -> str:
    """Return the parts of an address that identify the store. Options count, because they may name a schema or a
    host."""
    url = make_url(where)
    options = {name: value for name, value in url.query.items() if name not in _SECRET}
    port = url.port or options.pop("port", _PORT)
    return repr((url.username, url.host, str(port), url.database, sorted(options.items())))


def _folders() -> Iterator[Path]:
    """Yield the folders for journals: the state folder of the user, then the one for temporary files."""
    import platformdirs

    yield platformdirs.user_state_path("opmark") / "journals"
    yield Path(tempfile.gettempdir()) / f"opmark-journals-{_user()}"


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0
