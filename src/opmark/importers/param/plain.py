"""Checks that data from iterators and generators of plug-ins is plain: data that JSON can hold."""

from __future__ import annotations

from typing import Any

from opmark.importers.param.arguments import is_number


def is_plain(node: Any) -> bool:
    try:
        return find_odd(node, "") is None
    except RecursionError:
        return False


def find_odd(node: Any, path: str) -> tuple[str, str] | None:
    """Return place and description of the first thing that is not plain data."""
    if node is None or type(node) in (bool, str):
        return None
    if type(node) in (int, float):
        return None if is_number(node) else (path, str(node))
    if isinstance(node, list | tuple):
        places = ((f"{path}[{i}]", item) for i, item in enumerate(node))
    elif isinstance(node, dict):
        odd = next((key for key in node if type(key) is not str), None)
        if odd is not None:
            return path, f"a key of type {type(odd).__name__}"
        places = ((f"{path}.{key}", item) for key, item in node.items())
    else:
        return path, f"a {type(node).__name__}"
    return next((found for place, item in places if (found := find_odd(item, place))), None)


def without_tuples(node: Any) -> Any:
    """Return plain data with lists in place of tuples, which JSON does not have."""
    if isinstance(node, dict):
        return {key: without_tuples(item) for key, item in node.items()}
    return [without_tuples(item) for item in node] if isinstance(node, list | tuple) else node
