"""What `opmark env` does, as functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from opmark.guests import environments
from opmark.guests.environments import Guest, interpreter_for
from opmark.guests.recipes import SUPPORT, Recipe, recipe_for, recipes


def create_env(
    name: str,
    *,
    install: Sequence[str] = (),
    python: str | None = None,
    constraint: str | os.PathLike[str] | None = None,
    say: Callable[[str], None] = print,
) -> Guest:
    """An environment with pinned versions, for a framework that cannot share this one."""
    called, recipe = recipe_for(name, install)
    interpreter, limits = interpreter_for(recipe.takes, python), Path(constraint) if constraint else None
    return environments.create(called, recipe.summary, (*recipe.requirements, *SUPPORT), interpreter, limits, say)


def envs() -> tuple[list[Guest], dict[str, Recipe]]:
    """The environments that there are, and the recipes that are known."""
    return environments.found(), recipes()


def remove_env(name: str) -> Path:
    """Deletes it; returns where it was."""
    return environments.remove(name)
