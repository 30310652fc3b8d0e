"""The environments of `opmark env`: virtual environments in one folder, each with a file that describes it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import msgspec
from msgspec import Struct

from opmark.errors import UnknownName, UserError
from opmark.guests.interpreter import inspect_interpreter, own_environ

VARIABLE = "OPMARK_ENVS"
_DESCRIPTION = "opmark.json"
_LONGEST_LINE = 300
"""Characters of one line of pip's output that an error message quotes."""

Say = Callable[[str], None]


class Guest(Struct, frozen=True):
    """An environment that was created completely."""

    name: str
    summary: str
    requirements: tuple[str, ...]
    version: str
    """Version of its Python."""
    packages: dict[str, str]
    """Version of each installed package, by name."""
    created: str

    @property
    def folder(self) -> Path:
        return environments_folder() / self.name

    @property
    def python(self) -> Path:
        return _python(self.folder)


def environments_folder() -> Path:
    configured = os.environ.get(VARIABLE)
    if configured:
        return Path(configured).expanduser().absolute()
    import platformdirs

    return platformdirs.user_data_path("opmark") / "envs"


def cache_folder() -> Path:
    """Folder for files that can be created again at any time."""
    import platformdirs

    return platformdirs.user_cache_path("opmark") / "guests"


def list_environments() -> list[Guest]:
    """Return all complete environments, sorted by name."""
    root = environments_folder()
    descriptions = sorted(root.glob(f"*/{_DESCRIPTION}")) if root.is_dir() else []
    return [guest for guest in map(_read_description, descriptions) if guest is not None]


def find_environment(name: str) -> Guest | None:
    path = environments_folder() / name / _DESCRIPTION if name and "/" not in name else None
    return _read_description(path) if path and path.is_file() else None


def _read_description(path: Path) -> Guest | None:
    """Return None for a file that opmark did not write: such an environment does not count."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Guest)
    except (msgspec.MsgspecError, OSError):
        return None


def remove(name: str) -> Path:
    """Delete an environment and return its folder; one that was created only in part is deleted as well."""
    place = environments_folder() / name
    if "/" in name or name in ("", ".", "..") or not (place / "pyvenv.cfg").exists():
        raise UnknownName("environment", name, [guest.name for guest in list_environments()], "opmark env list")
    if place.is_symlink():
        place.unlink()
    else:
        shutil.rmtree(place)
    return place


def create(
    name: str, summary: str, requirements: Sequence[str], python: str, constraints: Path | None, say: Say
) -> Guest:
    """Create a virtual environment of this interpreter with these packages; a failure leaves nothing behind."""
    place = environments_folder() / name
    if find_environment(name):
        raise UserError(f"the environment `{name}` exists already, in {place}", f"run `opmark env remove {name}` first")
    if place.exists() and not (place / "pyvenv.cfg").exists():
        raise UserError(f"{place} exists and is not an environment", "choose another name, or move the folder away")
    with _building(place):
        say(f"creating {place} with {python}")
        _run([python, "-m", "venv", "--clear", str(place)], say, "the virtual environment could not be created")
        pip = [str(_python(place)), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        limits = ["--constraint", str(constraints)] if constraints else []
        _run([*pip, "install", *limits, *requirements], say, f"pip could not install {' '.join(requirements)}")
        packages = _output([*pip, "list", "--format=json"])
        guest = Guest(
            name=name,
            summary=summary,
            requirements=tuple(requirements),
            version=_output([str(_python(place)), "-c", "import platform; print(platform.python_version())"]).strip(),
            packages={package["name"]: package["version"] for package in msgspec.json.decode(packages)},
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
        # The description comes last: an environment without one does not count as created.
        (place / _DESCRIPTION).write_bytes(msgspec.json.format(msgspec.json.encode(guest)))
    return guest


@contextmanager
def _building(place: Path) -> Iterator[None]:
    """Remove the folder after any failure, Ctrl-C included, and let only one process build it at a time."""
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = place.with_name(f".{place.name}.lock")
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another process is creating `{place.name}` right now", "wait for it, then look at `opmark env list`"
            ) from None
        try:
            yield
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        finally:
            lock.unlink(missing_ok=True)


def _python(place: Path) -> Path:
    return place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _run(command: Sequence[str], say: Say, failure: str) -> None:
    """Pass the output on line by line; the error of a command that fails quotes its last lines."""
    last: deque[str] = deque(maxlen=3)
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        env=own_environ(),
    ) as process:
        assert process.stdout is not None
        for line in map(str.strip, process.stdout):
            if line:
                last.append(line)
                say(line)
    if process.returncode != 0:
        quoted = " | ".join(line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} ..." for line in last)
        raise UserError(f"{failure}: {quoted or 'it printed nothing'}", "the folder was removed again")


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, env=own_environ()).stdout


def interpreter_for(takes: Callable[[tuple[int, ...]], bool], python: str | None) -> str:
    """Return the interpreter that was named, this one if its version fits, or the newest on the path that fits."""
    if python:
        version = inspect_interpreter(python, ()).version
        if not takes(version):
            number = ".".join(map(str, version))
            raise UserError(f"{python} is Python {number}, and the packages have no wheels for this version")
        return python
    if takes(sys.version_info[:2]):
        return sys.executable
    for minor in range(14, 9, -1):
        path = shutil.which(f"python3.{minor}")
        if path and takes((3, minor)):
            return path
    raise UserError("the packages have wheels for no Python on the path", "name an interpreter: --python PATH")
