"""The common ways to make an implementation out of a function that a framework already has."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from opmark.schema import Implementation, Launch, Params


def calls(path: str, *inputs: str, **params: str) -> Implementation:
    """An implementation that calls the function at `path` with these inputs, and with keywords from parameters.

    `calls("torch.softmax", "x", dim="axis")` launches `torch.softmax(x, dim=p["axis"])`.
    """
    framework = path.split(".", 1)[0]

    def build(p: Params, **tensors: Any) -> Launch:
        keywords = {keyword: p[name] for keyword, name in params.items()}
        return partial(_resolve(path), *(tensors[name] for name in inputs), **keywords)

    return Implementation(framework, build)


def _resolve(path: str) -> Any:
    """The object that a dotted path names; its longest importable prefix is the module."""
    parts = path.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            value: Any = import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for part in parts[split:]:
            value = getattr(value, part)
        return value
    raise ModuleNotFoundError(f"no module named {parts[0]!r}")
