"""Runs a command that dies with whoever started it: `python -m opmark.worker.parent_death COMMAND ...`."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading

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


def main(command: list[str]) -> None:
    die_with_parent()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(_CANNOT_RUN)


if __name__ == "__main__":
    main(sys.argv[1:])
