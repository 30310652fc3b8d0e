"""opmark env"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Group
from rich.text import Text

from opmark.api.requests import talk
from opmark.cli.output import console, print_json_lines
from opmark.report.console.table import plain_table

if TYPE_CHECKING:
    from opmark.api.env import Guest, Recipe

env = typer.Typer(no_args_is_help=True)


@env.command()
def create(
    name: Annotated[str, typer.Argument(help="mxnet, tensorflow, ...; torch==2.12.0; any name, with --install.")],
    install: Annotated[
        list[str] | None, typer.Option(help="Requirements to install with pip, for a name of your own.")
    ] = None,
    python: Annotated[str | None, typer.Option(help="The interpreter. [default: this one, if it fits]")] = None,
    constraint: Annotated[Path | None, typer.Option(help="A constraints file for pip.")] = None,
) -> None:
    """Make a virtual environment with pinned versions."""
    from opmark.api.env import create_env
    from opmark.api.progress import StepProgress

    with StepProgress(f"env create {name}", measures=False) as progress:
        guest = create_env(
            name, install=install or (), python=python, constraint=constraint,
            say=lambda line: None, on_step=progress.step,
        )  # fmt: skip
    talk(f"{guest.name}: {guest.summary}, Python {guest.version}, in {guest.folder}")


@env.command("list")
def list_(as_json: Annotated[bool, typer.Option("--json", help="One JSON object per environment.")] = False) -> None:
    """List the environments that exist, and those that could be made."""
    from opmark.api.env import envs

    made, recipes = envs()
    if as_json:
        print_json_lines([guest_view(guest) for guest in made])
    else:
        console().print(guests_table(made, recipes))


@env.command()
def remove(name: Annotated[str, typer.Argument(help="As in `opmark env list`.")]) -> None:
    """Delete an environment."""
    from opmark.api.env import remove_env

    talk(f"removed {remove_env(name)}")


def guest_view(guest: Guest) -> dict[str, Any]:
    return {**msgspec.to_builtins(guest), "folder": str(guest.folder), "python": str(guest.python)}


def guests_table(made: Sequence[Guest], recipes: Mapping[str, Recipe]) -> Group:
    """Make a table of the environments, and one of the recipes that have none yet."""
    there = plain_table("environment", "Python", "made of", "folder")
    for guest in made:
        there.add_row(Text(guest.name), guest.version, Text(", ".join(guest.requirements)), Text(str(guest.folder)))
    could = plain_table("could be made", "Python", "made of")
    for name, recipe in recipes.items():
        if name not in {guest.name for guest in made}:
            could.add_row(Text(name), " to ".join(recipe.python), Text(", ".join(recipe.requirements)))
    parts: list[Any] = [there, Text()] if made else []
    return Group(*parts, could)
