"""Finds files of installed packages without importing them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from opmark.errors import UserError

EXTRA = "pip install 'opmark[real-models]'"


def package_file(place: str, user: str) -> Path:
    """Return the path of a file or folder of a package, such as `magika/models/model.onnx`. UserError, which says that
    `user` needs it, where the package is not installed or has no such file."""
    package, _, rest = place.partition("/")
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise UserError(f"{user} needs the package {package.replace('_', '-')}, which is not installed", EXTRA)
    path = Path(found.submodule_search_locations[0]) / rest
    if not path.exists():
        raise UserError(
            f"{user} needs `{rest}` of the package {package}, and there is no `{path}`",
            f"install the version that opmark knows: {EXTRA}",
        )
    return path
