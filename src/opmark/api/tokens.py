"""The token of a dashboard, as who serves one and who sends to one are given it; and where it needs no other guard."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

from opmark.errors import InvalidFile, UserError

VARIABLE = "OPMARK_TOKEN"
LONGEST = 4096
"""Characters; a longer file is something else."""


def token_of(given: str | None, file: str | os.PathLike[str] | None) -> str | None:
    """Said, in a file, or in the environment, in this order."""
    if given is not None and file is not None:
        raise UserError("--token and --token-file are two ways to say the same", "give one of them")
    if file is None:
        return given if given is not None else os.environ.get(VARIABLE) or None
    try:
        with Path(file).expanduser().open("rb") as opened:
            text = opened.read(LONGEST + 2).decode().strip()  # and the end of its line
    except OSError as error:
        raise InvalidFile(f"{file}: cannot be read: {error.strerror}", "--token-file names a file") from None
    except (UnicodeDecodeError, RuntimeError):  # the second: a home that nobody has
        raise InvalidFile(f"{file}: is not text", "--token-file names a file with the token") from None
    if not text or len(text) > LONGEST:
        raise InvalidFile(f"{file}: expected a token, got {'more' if text else 'nothing'}", "it holds nothing else")
    return text


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
