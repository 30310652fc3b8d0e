"""The zoo: every model by name, without importing a framework."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from opmark.models.zoo.entry import ZooModel


@cache
def zoo() -> dict[str, ZooModel]:
    """Return the models by name, from the `MODELS` of every module of this package."""
    modules = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    return {model.name: model for module in modules for model in getattr(module, "MODELS", ())}


def find(name: str) -> ZooModel | None:
    """Return a model by its name or an alias."""
    known = zoo()
    return known.get(name) or next((model for model in known.values() if name in model.aliases), None)
