"""The options of `opmark run` that concern a profiler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from opmark.errors import InvalidParameter

if TYPE_CHECKING:
    from opmark.runner.profiling import Profiling


def profiling(
    name: str | None,
    program: str | None,
    args: Path | None,
    command: str | None,
    folder: Path | None,
    iterations: int,
    batch: int,
    timeout: float,
) -> Profiling | None:
    """What was asked for, as `api.run` takes it; a command line names its profiler by itself."""
    from opmark.runner.profiling import COMMAND, DEFAULT_FOLDER, Profiling, arguments_in

    name = name or (COMMAND if command else None)
    if name is None:
        for option, given in {"bin": program, "args": args}.items():
            if given is not None:
                raise InvalidParameter(f"--profiler-{option} goes with --profiler", "as in --profiler ncu")
        return None
    return Profiling(
        name,
        bin=program,
        args=arguments_in(args) if args else (),
        command=command,
        folder=folder or DEFAULT_FOLDER,
        iterations=iterations,
        batch=batch,
        timeout=timeout,
    )
