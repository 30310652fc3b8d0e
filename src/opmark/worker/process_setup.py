"""Sets up the process of a worker: it ends with its parent, and imports the code of its side of a comparison.

`python -m opmark.worker.process_setup COMMAND ...` runs any command so that it dies with whoever started it.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opmark.schema import Resources

_PR_SET_PDEATHSIG = 1
_CANNOT_RUN = 126


def die_with_parent() -> None:
    """End this process when its parent ends: a parent that is killed cannot tidy up. This lasts beyond an exec."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def die_with(pid: int) -> None:
    """End this process when another one ends that is not its parent.

    Where the other process cannot be seen (not Linux, or from inside of a container), nothing is done.
    """
    if sys.platform == "linux" and hasattr(os, "pidfd_open"):
        try:
            process = os.pidfd_open(pid)
        except OSError:
            return
        threading.Thread(target=_die_after, args=(process,), daemon=True).start()


def _die_after(process: int) -> None:
    select.select([process], [], [])
    os.kill(os.getpid(), signal.SIGKILL)


def apply_side(environ: Mapping[str, str] = os.environ) -> None:
    """Set the import path of a worker, before anything of the user's is imported. opmark itself stays the parent's."""
    side = _read_side(environ)
    instead = (side.get("checkout") or {}).get("instead_of")
    rest = [entry for entry in sys.path if not (instead and belongs(entry, instead))]
    sys.path[:] = [*side.get("folders", ()), *rest]


def apply_resources(environ: Mapping[str, str] = os.environ) -> None:
    """Keep this process to what it may use of the machine, before any framework starts threads: they inherit it. What
    the kernel refuses ends the process with the reason, since a number under other conditions would mislead."""
    found = read_resources(environ)
    if found is None:
        return
    from opmark.hardware import resctrl, topology

    if found.cores:
        topology.run_on(found.cores)
    if found.memory_node is not None:
        topology.take_memory_from(found.memory_node)
    if found.cache_ways is not None:
        resctrl.join(found.cache_ways)


def read_resources(environ: Mapping[str, str] = os.environ) -> Resources | None:
    """Return what this worker may use of the machine; None for all that there is."""
    from opmark.schema.messages import RESOURCES

    if RESOURCES not in environ:
        return None
    import msgspec

    from opmark.schema import Resources

    return msgspec.json.decode(environ[RESOURCES], type=Resources)


def facts_of_side(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Facts about the side for a record's environment: the variables that were asked for, the commit."""
    side = _read_side(environ)
    commit = (side.get("checkout") or {}).get("commit")
    variables = {name: environ[name] for name in side.get("environ", ()) if name in environ}
    return {"revision": commit, "variables": variables} if commit else {"variables": variables}


def _read_side(environ: Mapping[str, str]) -> dict[str, Any]:
    """The side that the parent has described in a variable; empty where no sides are compared."""
    from opmark.schema.messages import VARIABLE

    return json.loads(environ[VARIABLE]) if VARIABLE in environ else {}


def belongs(path: str, repository: str) -> bool:
    """Whether a file or folder is the repository's own: a virtual environment inside of it is not."""
    return _within(path, repository) and not (_within(sys.prefix, repository) and _within(path, sys.prefix))


def _within(path: str, folder: str) -> bool:
    return Path(path or ".").resolve().is_relative_to(Path(folder).resolve())


def main(command: list[str]) -> None:
    die_with_parent()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(_CANNOT_RUN)


if __name__ == "__main__":
    main(sys.argv[1:])
