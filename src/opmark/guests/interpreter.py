"""Questions to another interpreter that need no large import there."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path

from msgspec import Struct, convert

from opmark.errors import UserError

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
