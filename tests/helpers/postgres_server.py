"""A real PostgreSQL server for tests: made in a temporary directory, on a free port, by an ordinary user."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

_USERS = ("postgres", "nobody")
"""Whoever of them is there runs the server where the tests are run by root, whom it refuses."""
_USER = "tester"
_OWNER = "owner"
"""Of the databases: an ordinary role, as people have one."""
_SETTINGS = {
    "fsync": "off",  # what is killed with the server is safe with the kernel
    "full_page_writes": "off",
    "listen_addresses": "127.0.0.1",
    "max_connections": "60",
    "shared_buffers": "64MB",
}


def programs() -> Path | None:
    """The folder of `initdb` and `pg_ctl`; None where no server is installed."""
    folders = []
    if tool := shutil.which("pg_config"):
        asked = subprocess.run([tool, "--bindir"], capture_output=True, text=True, check=True)
        folders.append(Path(asked.stdout.strip()))
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    folders += sorted(debian, key=lambda path: float(path.parent.name), reverse=True)
    folders += [Path(found).parent for found in [shutil.which("initdb")] if found]
    return next((folder for folder in folders if _all_there(folder)), None)


def _all_there(folder: Path) -> bool:
    return all((folder / name).exists() for name in ("initdb", "pg_ctl", "postgres"))


class Server:
    """Runs from `start` to `stop`, as often as wanted, with its databases as they were."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        """`durable`: as a server is used, and not as quick as tests want it."""
        self._programs = folder
        self._settings = {key: value for key, value in _SETTINGS.items() if not (durable and value == "off")}
        self._as = _ordinary_user()
        self._home = Path(tempfile.mkdtemp(prefix="opmark-pg-"))
        self._numbers = count()
        if self._as:
            os.chown(self._home, self._as["user"], self._as["group"])
        self.port = _free_port()
        data = str(self._home / "data")
        self._call("initdb", "-D", data, "-U", _USER, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        self.start()
        self.execute(f"CREATE ROLE {_OWNER} LOGIN")

    def start(self) -> None:
        told = {**self._settings, "port": str(self.port), "unix_socket_directories": str(self._home)}
        options = " ".join(f"-c {name}={value}" for name, value in told.items())
        log = str(self._home / "log")
        self._call("pg_ctl", "start", "-w", "-t", "60", "-D", str(self._home / "data"), "-l", log, "-o", options)

    def stop(self, how: str = "immediate") -> None:
        """`immediate`: as if the machine had lost its power."""
        self._call("pg_ctl", "stop", "-w", "-t", "60", "-m", how, "-D", str(self._home / "data"))

    @property
    def running(self) -> bool:
        return (self._home / "data" / "postmaster.pid").exists()

    def remove(self) -> None:
        if self.running:
            self.stop()
        shutil.rmtree(self._home)

    def new_database(self) -> str:
        """The address of an empty one."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} OWNER {_OWNER}")
        return self.address(name)

    def address(self, name: str, user: str = _OWNER) -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{name}"

    def execute(self, sql: str, database: str = "postgres") -> list[Any]:
        import psycopg

        with psycopg.connect(self.address(database, _USER), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def _call(self, program: str, *arguments: str) -> None:
        log = self._home / "said"
        with log.open("w") as said:
            made = subprocess.run(
                [self._programs / program, *arguments],
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # a server that is started keeps it open
                stderr=said,
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
                **self._as,
            )
        assert made.returncode == 0, f"{program} {' '.join(arguments)}: {log.read_text()}"


def _ordinary_user() -> dict[str, Any]:
    """For subprocess; nothing where nobody has to be found."""
    if os.geteuid() != 0:
        return {}
    import pwd

    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    who = next(known[name] for name in _USERS if name in known)
    return {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
