"""What can be known of another interpreter without importing anything big in it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct, convert

from opmark.errors import UserError

_TIMEOUT = 60.0
OF_ONE = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables that are about one interpreter."""
# Printed behind a mark: what a site's start-up files print comes before it.
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
    """As in `cpython-311`: compiled modules of another one do not fit."""
    has: tuple[str, ...]
    """Of the modules that were asked for, those that are there."""

    @property
    def shown(self) -> str:
        return ".".join(map(str, self.version))


def own_environ() -> dict[str, str]:
    """Without what leads this interpreter to its packages, and another one astray."""
    return {key: value for key, value in os.environ.items() if key not in OF_ONE}


def ask(python: str, modules: Sequence[str]) -> Interpreter:
    """UserError where it is no Python that answers."""
    return _asked(str(python), tuple(modules))


@cache
def _asked(python: str, modules: tuple[str, ...]) -> Interpreter:
    if not Path(python).is_file() or not os.access(python, os.X_OK):
        raise UserError(f"`{python}` is no program", "give the path of a Python interpreter, as in .venv/bin/python")
    try:
        done = subprocess.run(
            [python, "-c", _ASK, *modules], capture_output=True, text=True, timeout=_TIMEOUT, check=False,
            stdin=subprocess.DEVNULL, env=own_environ(),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"`{python}` cannot be run: {error}", "give the path of a Python interpreter") from None
    told = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode != 0 or not told:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise UserError(f"`{python}` does not answer as Python does: {said}", "give the path of a Python interpreter")
    return convert(json.loads(told[-1].removeprefix(_MARK)), Interpreter)
