"""`opmark env`: environments for frameworks that cannot share this one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from opmark.api.requests import typed
from opmark.runner.guests import environments
from opmark.runner.guests.environments import WORKER_REQUIREMENTS, Guest, Recipe, interpreter_for, recipe_for, recipes

__all__ = ["Guest", "Recipe", "create_env", "envs", "remove_env"]


@typed
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


@typed
def remove_env(name: str) -> Path:
    """Delete an environment and return the folder that it was in."""
    return environments.remove(name)
