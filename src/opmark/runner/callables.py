"""Finds out in a child process whether callables exist, since only their framework can tell."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable

from opmark.registry import operator as find_operator

_TIMEOUT = 120.0


def missing_callables(names: Iterable[str]) -> dict[str, str]:
    """The callables that cannot be imported, with the reason. Operators of the catalogue and patterns are left out."""
    dotted = (name for name in set(names) if set(name) & set(".:") and not set(name) & set("*?["))
    asked = sorted(name for name in dotted if find_operator(name).category == "callable")
    if not asked:
        return {}
    command = [sys.executable, "-m", "opmark.runner.callables"]
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return dict.fromkeys(asked, f"nobody could tell whether it exists: {last[0]}")
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    from opmark.errors import UserError
    from opmark.frameworks.callables import found

    wrong = {}
    for name in json.load(sys.stdin):
        try:
            found(name)
        except UserError as error:
            wrong[name] = f"{error.message}; {error.hint}" if error.hint else error.message
        except ImportError as error:
            wrong[name] = str(error)
    print(json.dumps(wrong))


if __name__ == "__main__":
    main()
