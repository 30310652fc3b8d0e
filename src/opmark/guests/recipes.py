"""What an environment is made of, read from recipes.yaml, or as a person says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import yaml
from msgspec import Struct, convert

from opmark.errors import UnknownName, UserError

SUPPORT = ("msgspec>=0.19", "psutil>=5.9")
"""What a worker needs in any of them."""
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*", re.ASCII)


class Recipe(Struct, frozen=True):
    summary: str
    python: tuple[str, str]
    """The oldest and the newest that there are wheels for."""
    requirements: tuple[str, ...]

    def with_version(self, version: str) -> Recipe:
        """Of the first requirement another version; what goes with that one, pip finds out."""
        package = self.requirements[0].partition("==")[0]
        others = [one for one in self.requirements[1:] if "==" not in one]
        return Recipe(f"{package} {version}", self.python, (f"{package}=={version}", *others))

    def takes(self, version: tuple[int, ...]) -> bool:
        return _number(self.python[0]) <= version[:2] <= _number(self.python[1])


def _number(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


@cache
def recipes() -> dict[str, Recipe]:
    return convert(yaml.safe_load(files(__package__).joinpath("recipes.yaml").read_text()), dict[str, Recipe])


def recipe_for(name: str, install: Sequence[str] = ()) -> tuple[str, Recipe]:
    """(the name of the environment, its recipe): `mxnet`, `torch==2.12.0`, or any name with what to install."""
    plain, _, version = name.partition("==")
    if install:
        if not _NAME.fullmatch(name):
            raise UserError(f"environment `{name}`: expected letters, digits, and - . _ + between them")
        return name, Recipe(", ".join(install), ("3.10", "3.99"), (*install, "numpy>=1.23", "scipy>=1.10"))
    known = recipes()
    if plain not in known:
        unknown = UnknownName("recipe", plain, known)
        unknown.hint = f"{unknown.hint or ''}; a name of your own goes with --install".removeprefix("; ")
        raise unknown
    if "==" not in name:
        return name, known[plain]
    if not _NAME.fullmatch(version):
        raise UserError(f"environment `{name}`: `{version}` is no version", f"as in {plain}==1.2.3")
    return f"{plain}-{version}", known[plain].with_version(version)
