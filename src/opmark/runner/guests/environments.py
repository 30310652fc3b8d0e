"""The environments of `opmark env`: virtual environments in one folder, the recipes they are made from, and questions
to their interpreters."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import cache
from importlib.resources import files
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct, convert

from opmark.errors import UnknownName, UserError

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
    return _read_description(path) if path and os.path.isfile(path) else None  # noqa: PTH113 - any text


def _read_description(path: Path) -> Guest | None:
    """Return None for a file that opmark did not write: such an environment does not count."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Guest)
    except (msgspec.MsgspecError, OSError):
        return None


def remove(name: str) -> Path:
    """Delete an environment and return its folder; one that was created only in part is deleted as well."""
    place = environments_folder() / name
    if "/" in name or name in ("", ".", "..") or not os.path.exists(place / "pyvenv.cfg"):  # noqa: PTH110
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


# Questions to another interpreter that need no large import there.

_TIMEOUT = 60.0
_OWN_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables that lead this interpreter to its packages, and would lead another one astray."""
# The answer begins with a mark because a site's start-up files may print something before it.
_MARK = "opmark:"
_ASK = f"""
import json, sys
from importlib.util import find_spec
def there(name):
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
print({_MARK!r} + json.dumps(dict(version=list(sys.version_info[:3]), executable=sys.executable,
    abi=sys.implementation.cache_tag or "", has=[name for name in sys.argv[1:] if there(name)])))
"""


class Interpreter(Struct, frozen=True):
    version: tuple[int, int, int]
    executable: str
    abi: str
    """Cache tag, as in `cpython-311`: compiled modules of another one do not fit."""
    has: tuple[str, ...]
    """The requested modules that are installed there."""

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))


def own_environ() -> dict[str, str]:
    """Return the environment without the variables that are about this interpreter only."""
    return {key: value for key, value in os.environ.items() if key not in _OWN_VARIABLES}


@cache
def inspect_interpreter(python: str, modules: tuple[str, ...]) -> Interpreter:
    """Start an interpreter and ask for its version and which modules it has; raise UserError if it is no Python."""
    if not Path(python).is_file() or not os.access(python, os.X_OK):
        raise UserError(f"`{python}` is not a program", "give the path of a Python interpreter, as in .venv/bin/python")
    try:
        done = subprocess.run(
            [python, "-c", _ASK, *modules], capture_output=True, text=True, timeout=_TIMEOUT, check=False,
            stdin=subprocess.DEVNULL, env=own_environ(),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"`{python}` cannot be run: {error}", "give the path of a Python interpreter") from None
    answers = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode != 0 or not answers:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise UserError(f"`{python}` does not answer as Python does: {last}", "give the path of a Python interpreter")
    return convert(json.loads(answers[-1].removeprefix(_MARK)), Interpreter)


# Recipes of environments: which packages are installed, from environments.yaml or from the user.

WORKER_REQUIREMENTS = ("msgspec>=0.19", "psutil>=5.9")
"""Packages that a worker needs in every environment."""
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*", re.ASCII)


class Recipe(Struct, frozen=True):
    summary: str
    python: tuple[str, str]
    """The oldest and the newest Python that there are wheels for."""
    requirements: tuple[str, ...]

    def with_version(self, version: str) -> Recipe:
        """Take another version of the first requirement, and drop the other pins: pip finds versions that fit."""
        package = self.requirements[0].partition("==")[0]
        others = [one for one in self.requirements[1:] if "==" not in one]
        return Recipe(f"{package} {version}", self.python, (f"{package}=={version}", *others))

    def takes(self, version: tuple[int, ...]) -> bool:
        return _number(self.python[0]) <= version[:2] <= _number(self.python[1])


def _number(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


@cache
def recipes() -> dict[str, Recipe]:
    return convert(
        yaml.safe_load(files("opmark.frameworks").joinpath("environments.yaml").read_text()), dict[str, Recipe]
    )


def recipe_for(name: str, install: Sequence[str] = ()) -> tuple[str, Recipe]:
    """Return an environment's name and recipe for `mxnet`, `torch==2.12.0`, or any name with packages to install."""
    plain, _, version = name.partition("==")
    if install:
        if not _NAME.fullmatch(name):
            raise UserError(f"environment `{name}`: expected letters and digits, with - . _ + between them")
        return name, Recipe(", ".join(install), ("3.10", "3.99"), (*install, "numpy>=1.23", "scipy>=1.10"))
    known = recipes()
    if plain not in known:
        unknown = UnknownName("recipe", plain, known)
        unknown.hint = f"{unknown.hint or ''}; any other name needs --install".removeprefix("; ")
        raise unknown
    if "==" not in name:
        return name, known[plain]
    if not _NAME.fullmatch(version):
        raise UserError(f"environment `{name}`: `{version}` is not a version", f"as in {plain}==1.2.3")
    return f"{plain}-{version}", known[plain].with_version(version)
