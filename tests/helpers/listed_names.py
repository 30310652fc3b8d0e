"""Which names of a list do not exist in an interpreter. It is asked itself: no test should import all of that."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

from opmark.runner.guests.environments import own_environ

MISSING = """
import json, sys
from importlib import import_module

def exists(name):
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        return found is not None
    return False

print("missing:" + json.dumps([name for name in sys.argv[1:] if not exists(name)]))
"""


def missing_names(python: str, names: Sequence[str]) -> list[str]:
    """Return the names that do not exist there."""
    command = [python, "-W", "ignore", "-c", MISSING, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=own_environ(), timeout=280)
    answers = [line for line in done.stdout.splitlines() if line.startswith("missing:")]
    assert answers, done.stderr
    found: list[str] = json.loads(answers[-1].removeprefix("missing:"))
    return found
