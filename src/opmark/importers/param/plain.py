"""Plain data: what JSON can hold. What a stranger's iterator or data generator gives may be anything."""

from __future__ import annotations

from typing import Any

from opmark.importers.param.arguments import is_number


def is_plain(node: Any) -> bool:
    try:
        return misfit(node, "") is None
    except RecursionError:
        return False


def misfit(node: Any, path: str) -> tuple[str, str] | None:
    """The first thing that is no plain data: its place and what it is."""
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
    return next((found for place, item in places if (found := misfit(item, place))), None)


def listed(node: Any) -> Any:
    """Plain data without tuples, which no file can hold."""
    if isinstance(node, dict):
        return {key: listed(item) for key, item in node.items()}
    return [listed(item) for item in node] if isinstance(node, list | tuple) else node
