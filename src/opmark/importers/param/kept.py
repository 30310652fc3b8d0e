"""Keeps the specs of a PARAM file as they are written, because `opmark param` repeats them in its results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from opmark.importers.param.plain import is_plain


class Said(NamedTuple):
    """The specs of one case, as the iterators of its operator yielded them."""

    build: Any
    input: Any
    forward_only: str = ""
    """Why it has no backward pass; empty if it may have one."""

    @property
    def config(self) -> dict[str, Any] | None:
        """The specs of the case; None if an iterator of a plug-in yields data that JSON cannot hold."""
        config = {"build": self.build, "input": self.input}
        return config if is_plain(config) else None


KeptSpecs = dict[tuple[str, str], Said]
"""Specs by file and id, as in ("configs/add.json", "torch.add|0|0|0")."""

_KEPT: ContextVar[KeptSpecs | None] = ContextVar("kept", default=None)


@contextmanager
def keep_specs() -> Iterator[KeptSpecs]:
    """Collect the specs of all files that are read meanwhile.

    A file is read only once, because an iterator of a plug-in may yield other specs the second time.
    """
    found: KeptSpecs = {}
    token = _KEPT.set(found)
    try:
        yield found
    finally:
        _KEPT.reset(token)


def keep(path: Path, source: str, specs: Said) -> None:
    """Keep the specs of the entry with the source `FILE#id`, if somebody collects them."""
    kept = _KEPT.get()
    if kept is not None:
        kept[str(path), source.rpartition("#")[2]] = specs
