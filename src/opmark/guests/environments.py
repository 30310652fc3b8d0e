"""The environments of `opmark env`: virtual environments in a folder of ours, each with a note of what it is."""

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
from opmark.guests.interpreter import ask, own_environ

VARIABLE = "OPMARK_ENVS"
_NOTE = "opmark.json"
_LONGEST = 300
"""Characters of a line of pip's that a complaint quotes."""

Say = Callable[[str], None]


class Guest(Struct, frozen=True):
    """An environment that was made, to its end."""

    name: str
    summary: str
    requirements: tuple[str, ...]
    version: str
    """Of its Python."""
    packages: dict[str, str]
    """What is installed."""
    created: str

    @property
    def folder(self) -> Path:
        return folder() / self.name

    @property
    def python(self) -> Path:
        return _python(self.folder)


def folder() -> Path:
    told = os.environ.get(VARIABLE)
    if told:
        return Path(told).expanduser().absolute()
    import platformdirs

    return platformdirs.user_data_path("opmark") / "envs"


def cache_folder() -> Path:
    """For what can be made anew at any time."""
    import platformdirs

    return platformdirs.user_cache_path("opmark") / "guests"


def found() -> list[Guest]:
    """Those that are whole, by name."""
    here = folder()
    notes = sorted(here.glob(f"*/{_NOTE}")) if here.is_dir() else []
    return [guest for guest in map(_read, notes) if guest is not None]


def find(name: str) -> Guest | None:
    note = folder() / name / _NOTE if name and "/" not in name else None
    return _read(note) if note and note.is_file() else None


def _read(note: Path) -> Guest | None:
    """None for what is no note of ours: such an environment is not there."""
    try:
        return msgspec.json.decode(note.read_bytes(), type=Guest)
    except (msgspec.MsgspecError, OSError):
        return None


def remove(name: str) -> Path:
    """Where it was; what was only half made is removed as well."""
    place = folder() / name
    if "/" in name or name in ("", ".", "..") or not (place / "pyvenv.cfg").exists():
        raise UnknownName("environment", name, [guest.name for guest in found()], "opmark env list")
    if place.is_symlink():
        place.unlink()
    else:
        shutil.rmtree(place)
    return place


def create(
    name: str, summary: str, requirements: Sequence[str], python: str, constraints: Path | None, say: Say
) -> Guest:
    """A virtual environment of that interpreter with these packages. What fails leaves nothing behind."""
    place = folder() / name
    if find(name):
        raise UserError(f"the environment `{name}` is there already, in {place}", f"`opmark env remove {name}` first")
    if place.exists() and not (place / "pyvenv.cfg").exists():
        raise UserError(f"{place} is there, and it is no environment", "choose another name, or move it away")
    with _building(place):
        say(f"making {place} with {python}")
        _run([python, "-m", "venv", "--clear", str(place)], say, "the virtual environment could not be made")
        pip = [str(_python(place)), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        limits = ["--constraint", str(constraints)] if constraints else []
        _run([*pip, "install", *limits, *requirements], say, f"pip could not install {' '.join(requirements)}")
        guest = Guest(
            name=name,
            summary=summary,
            requirements=tuple(requirements),
            version=_output([str(_python(place)), "-c", "import platform; print(platform.python_version())"]).strip(),
            packages=_packages(_output([*pip, "list", "--format=json"])),
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
        # The note comes last: an environment without one is not there.
        (place / _NOTE).write_bytes(msgspec.json.format(msgspec.json.encode(guest)))
    return guest


@contextmanager
def _building(place: Path) -> Iterator[None]:
    """The folder is gone again unless all went well, also after Ctrl-C. Two do not build the same one."""
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = place.with_name(f".{place.name}.lock")
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"somebody is making `{place.name}` right now", "wait for it; `opmark env list`") from None
        try:
            yield
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        finally:
            lock.unlink(missing_ok=True)


def _python(place: Path) -> Path:
    return place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _packages(listed: str) -> dict[str, str]:
    return {package["name"]: package["version"] for package in msgspec.json.decode(listed)}


def _run(command: Sequence[str], say: Say, failure: str) -> None:
    """Its lines are said as they come; its last ones are in the complaint if it fails."""
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
        said = " | ".join(line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..." for line in last)
        raise UserError(f"{failure}: {said or 'it said nothing'}", "nothing was left behind")


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, env=own_environ()).stdout


def interpreter_for(takes: Callable[[tuple[int, ...]], bool], told: str | None) -> str:
    """The interpreter that was named, this one if it fits, or one that does and is on the path."""
    if told:
        version = ask(told, ()).version
        if not takes(version):
            raise UserError(f"{told} is Python {'.'.join(map(str, version))}, which its packages have no wheels for")
        return told
    if takes(sys.version_info[:2]):
        return sys.executable
    for minor in range(14, 9, -1):
        path = shutil.which(f"python3.{minor}")
        if path and takes((3, minor)):
            return path
    raise UserError("no Python on the path is one that its packages have wheels for", "give one: --python PATH")
