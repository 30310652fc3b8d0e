"""Foreign documents with something wrong in them: a place is chosen, and what stands there is spoiled."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

Path = tuple[str | int, ...]

JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 2**31, 2**63, 10**30, 0.5, -1.5, float("nan"), float("inf"),
    "", " ", "x", "float32", "torch.add", "int", "tensor", "[1, 2]", "8x64 float32", "8x64 flaot32", "{M}",
    "__range__", "../..", "\u2028", "a\nb",
    [], [[]], {}, [1], [1, 2, 3], [[1, 2], [3, 4]], ["float32", "float16"], [None], [[1, 5, 2]], [-1, 0], [0], [[[[]]]],
    {"a": 1}, {"args": []}, {"type": "int", "value": 1}, {"type": "tensor", "dtype": "float", "shape": [2]},
    {"__range__": ["shape"]},
)  # fmt: skip
"""Values that people and programs leave in files by mistake."""


def places(node: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


@st.composite
def spoiled(draw: st.DrawFn, document: Any, times: int = 2) -> Any:
    """A copy with one or a few changes: replaced, left out, doubled, wrapped, renamed."""
    found = deepcopy(document)
    for _ in range(draw(st.integers(1, times))):
        place = draw(st.sampled_from(list(places(found))))
        found = _changed(found, place, draw(st.sampled_from(CHANGES)), draw(st.sampled_from(JUNK)))
    return found


CHANGES = ("replace", "replace", "drop", "double", "wrap", "rename", "add")


def _changed(document: Any, place: Path, change: str, junk: Any) -> Any:
    if not place:
        return [document] if change == "wrap" else deepcopy(junk) if change == "replace" else document
    parent = document
    for step in place[:-1]:
        parent = parent[step]
    key, old = place[-1], parent[place[-1]]
    if change == "drop":
        del parent[key]
    elif change == "wrap":
        parent[key] = [old]
    elif change == "double" and isinstance(parent, list):
        parent.insert(int(key), deepcopy(old))
    elif change == "rename" and isinstance(parent, dict):
        parent[f"{key}x"] = parent.pop(key)
    elif change == "add" and isinstance(old, dict):
        old["surprise"] = deepcopy(junk)
    else:
        parent[key] = deepcopy(junk)
    return document
