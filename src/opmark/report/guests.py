"""Environments for guests: what there is, and what could be made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Group
from rich.text import Text

from opmark.guests.environments import Guest
from opmark.guests.recipes import Recipe
from opmark.report.tables import plain_table


def guest_view(guest: Guest) -> dict[str, Any]:
    return {**msgspec.to_builtins(guest), "folder": str(guest.folder), "python": str(guest.python)}


def guests_table(made: Sequence[Guest], recipes: Mapping[str, Recipe]) -> Group:
    """Environments that are there, then the others that `opmark env create` knows by name."""
    there = plain_table("environment", "Python", "made of", "folder")
    for guest in made:
        there.add_row(Text(guest.name), guest.version, Text(", ".join(guest.requirements)), Text(str(guest.folder)))
    could = plain_table("could be made", "Python", "made of")
    for name, recipe in recipes.items():
        if name not in {guest.name for guest in made}:
            could.add_row(Text(name), " to ".join(recipe.python), Text(", ".join(recipe.requirements)))
    parts: list[Any] = [there, Text()] if made else []
    return Group(*parts, could)
