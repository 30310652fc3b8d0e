"""`opmark env`: environments for frameworks that cannot share this one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opmark.api.keywords import typed
from opmark.runner.guests import environments
from opmark.runner.guests.environments import WORKER_REQUIREMENTS, Guest, Recipe, interpreter_for, recipe_for, recipes
from opmark.schema.progress import OnStep, ignore_step
from opmark.units import count_noun

__all__ = ["Guest", "Recipe", "create_env", "envs", "remove_env"]


@typed
def create_env(
    name: str,
    *,
    install: Sequence[str] = (),
    python: str | None = None,
    constraint: str | os.PathLike[str] | None = None,
    say: Callable[[str], None] = print,
    on_step: OnStep = ignore_step,
) -> Guest:
    """Create an environment with pinned versions, for a framework that cannot share this one. `say` gets the lines of
    pip, `on_step` what it does, without a number."""
    steps = _PipSteps(say, on_step)
    environment, recipe = recipe_for(name, install)
    return environments.create(
        environment,
        recipe.summary,
        (*recipe.requirements, *WORKER_REQUIREMENTS),
        interpreter_for(recipe.takes, python),
        Path(constraint) if constraint else None,
        steps.read,
    )


_COLLECTING, _INSTALLING = "Collecting ", "Installing collected packages"


@dataclass
class _PipSteps:
    """Makes steps of the lines that pip prints. They have no number: how many packages there will be is known only when
    all are there, and how long installing them takes is never said."""

    say: Callable[[str], None]
    on_step: OnStep
    collected: int = 0

    def read(self, line: str) -> None:
        self.say(line)
        if line.startswith(_COLLECTING):
            self.collected += 1
        if line.startswith(_INSTALLING):
            self.on_step(0, 0, f"installing {count_noun(self.collected, 'package')}, all of them downloaded")
        elif self.collected:
            self.on_step(0, 0, f"{count_noun(self.collected, 'package')} so far, {line.strip()[:60]}")
        else:
            self.on_step(0, 0, line.strip()[:100])


def envs() -> tuple[list[Guest], dict[str, Recipe]]:
    """Return the existing environments and the known recipes."""
    return environments.list_environments(), recipes()


@typed
def remove_env(name: str) -> Path:
    """Delete an environment and return the folder that it was in."""
    return environments.remove(name)
