"""The commands of `opmark env`, as functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from opmark.guests import environments
from opmark.guests.environments import Guest, interpreter_for
from opmark.guests.recipes import WORKER_REQUIREMENTS, Recipe, recipe_for, recipes


def create_env(
    name: str,
    *,
    install: Sequence[str] = (),
    python: str | None = None,
    constraint: str | os.PathLike[str] | None = None,
    say: Callable[[str], None] = print,
) -> Guest:
    """Create an environment with pinned versions, for a framework that cannot share this one."""
    environment, recipe = recipe_for(name, install)
    return environments.create(
        environment,
        recipe.summary,
        (*recipe.requirements, *WORKER_REQUIREMENTS),
        interpreter_for(recipe.takes, python),
        Path(constraint) if constraint else None,
        say,
    )


def envs() -> tuple[list[Guest], dict[str, Recipe]]:
    """Return the existing environments and the known recipes."""
    return environments.list_environments(), recipes()


def remove_env(name: str) -> Path:
    """Delete an environment and return the folder that it was in."""
    return environments.remove(name)
