"""What a PARAM file says of its cases, word for word: `opmark param` repeats it in its results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from opmark.importers.param.plain import is_plain


class Said(NamedTuple):
    """One case: the specs that the iterators of its operator gave."""

    build: Any
    input: Any
    forward_only: str = ""
    """Why it has no backward pass; nothing where it may have one."""

    @property
    def config(self) -> dict[str, Any] | None:
        """None where a stranger's iterator gives what no file can hold."""
        config = {"build": self.build, "input": self.input}
        return config if is_plain(config) else None


Kept = dict[tuple[str, str], Said]
"""By file and id, as in ("configs/add.json", "torch.add|0|0|0")."""

_KEPT: ContextVar[Kept | None] = ContextVar("kept", default=None)


@contextmanager
def keeping() -> Iterator[Kept]:
    """Filled by what is read meanwhile: a file is read once, and a stranger's iterator may say another thing then."""
    found: Kept = {}
    token = _KEPT.set(found)
    try:
        yield found
    finally:
        _KEPT.reset(token)


def keep(path: Path, source: str, said: Said) -> None:
    """`source`: of the entry, `FILE#id`."""
    kept = _KEPT.get()
    if kept is not None:
        kept[str(path), source.rpartition("#")[2]] = said
