"""Finds the program of a profiler, and its default options."""

from __future__ import annotations

import shutil
from collections.abc import Sequence


def find(name: str, named: str, folders: Sequence[str]) -> str:
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


def defaults(options: dict[str, Sequence[str]], args: Sequence[str]) -> list[str]:
    """The options that the user has not given: the profilers take most of them only once."""
    given = {arg.partition("=")[0] for arg in args}
    return [part for option, values in options.items() if option not in given for part in (option, *values)]
