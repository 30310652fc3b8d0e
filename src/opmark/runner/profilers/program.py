"""Runs the program of a profiler to its end, or ends it; its output is kept in a file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from opmark.units import seconds

_LAST_LINES = 3
_LAST_CHARACTERS = 500


class Ended(NamedTuple):
    code: int
    trouble: str = ""
    """How it failed; empty if it did not."""


def run_to_end(command: Sequence[str], environ: Mapping[str, str], log_file: Path, timeout: float) -> Ended:
    """Run a command to its end. Its output goes to `log_file`. Whatever ends the wait ends the process, with
    all that it started."""
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "opmark.worker.process_setup", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(environ),
            start_new_session=True,  # Ctrl-C is for the parent, which then ends it
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            return Ended(-signal.SIGKILL, f"not done within {seconds(timeout)}; killed{_quote_end(log_file)}")
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if code == 0:
        return Ended(code)
    how = f"ended with exit code {code}" if code > 0 else f"died of {signal.Signals(-code).name}"
    return Ended(code, how + _quote_end(log_file))


def _quote_end(log_file: Path) -> str:
    """The last lines of the output, which usually say why."""
    text = log_file.read_bytes()[-20 * _LAST_CHARACTERS :].decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()][-_LAST_LINES:]
    last = " | ".join(lines)[-_LAST_CHARACTERS:]
    return f"; it said: {last} (all of it: {log_file})" if last else ""


def find_program(name: str, named: str, folders: Sequence[str]) -> str:
    """The program that the user names, or else `name` on PATH or in one of the folders. Raise FileNotFoundError."""
    if named:
        found = shutil.which(named)
        if found is None:
            raise FileNotFoundError(f"no program {named} can be run here")
        return found
    for path in (None, *folders):
        if found := shutil.which(name, path=path):
            return found
    raise FileNotFoundError(f"{name} is neither on PATH nor in {', '.join(folders)}; --profiler-bin says where it is")


def default_options(options: dict[str, Sequence[str]], args: Sequence[str]) -> list[str]:
    """The options that the user has not given: the profilers take most of them only once."""
    names = {arg.partition("=")[0] for arg in args}
    return [part for option, values in options.items() if option not in names for part in (option, *values)]
