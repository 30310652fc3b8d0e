"""opmark env"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opmark.api.requests import talk
from opmark.cli.output import console, print_json_lines

env = typer.Typer(no_args_is_help=True, help="Environments for frameworks that cannot share this one: guests.")


@env.command()
def create(
    name: Annotated[str, typer.Argument(help="mxnet, tensorflow, ...; torch==2.12.0; any name, with --install.")],
    install: Annotated[list[str] | None, typer.Option(help="What pip is to install, for a name of your own.")] = None,
    python: Annotated[str | None, typer.Option(help="The interpreter. [default: this one, if it fits]")] = None,
    constraint: Annotated[Path | None, typer.Option(help="A constraints file for pip.")] = None,
) -> None:
    """Make a virtual environment with pinned versions."""
    from opmark.api.env import create_env

    with console(stderr=True).status(f"{name} ...") as status:
        guest = create_env(
            name, install=install or (), python=python, constraint=constraint,
            say=lambda line: status.update(line[:200]),
        )  # fmt: skip
    talk(f"{guest.name}: {guest.summary}, Python {guest.version}, in {guest.folder}")


@env.command("list")
def list_(as_json: Annotated[bool, typer.Option("--json", help="One JSON object an environment.")] = False) -> None:
    """What there is, and what could be made."""
    from opmark.api.env import envs
    from opmark.report.guests import guest_view, guests_table

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
