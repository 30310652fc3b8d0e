"""Text from anywhere, made harmless: a label or an operator may be called whatever its maker liked.

A terminal obeys escape sequences, and turns the direction of what it prints, wherever they come from.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder(decimal_format="number")
_DOUBTFUL = re.compile("[^ -~\n\t]")
"""All that has to be looked at one by one."""
_UNSEEN = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""What JSON may hold as it is, and a terminal obeys or does not show."""


def printable(text: str) -> str:
    """On one line: what cannot be seen is written as Python writes it, `\\x1b` or `\\n`."""
    return text if text.isprintable() else "".join(map(_seen, text))


def harmless(text: str) -> str:
    """The same, but lines stay lines."""
    return _DOUBTFUL.sub(lambda found: _seen(found[0]), text)


def _seen(one: str) -> str:
    return one if one.isprintable() else one.encode("unicode_escape").decode("ascii")


def json_line(item: Any) -> str:
    """JSON without a character that a terminal would obey; what is no number is null."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", _encoder.encode(item).decode())
