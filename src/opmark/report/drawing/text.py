"""Words in a picture: made harmless, shortened where there is no room, and how wide they are about."""

from __future__ import annotations

from html import escape
from unicodedata import east_asian_width

SIZE = 13
"""Pixels of a letter's body, in the picture's own units."""
_NARROW = frozenset("ijl.,:;'|!()[]/ ft")
_WIDE = frozenset("mwMW%@")


def clean(text: str) -> str:
    """On one line, and without what cannot be seen or turns the direction of writing."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else " " if one.isspace() else "" for one in text)


def safe(text: str) -> str:
    """Fit for a page, between tags and in an attribute."""
    return escape(clean(text))


def width(text: str, size: float = SIZE) -> float:
    """An estimate that is rather too wide: nobody here knows the reader's fonts."""
    return sum(map(_share, text)) * size


def shorten(text: str, room: float, size: float = SIZE) -> str:
    """The beginning and the end, which tell names apart; what is left out is in the table of numbers."""
    text = clean(text)
    if width(text, size) <= room:
        return text
    keep = max(4, int(len(text) * room / width(text, size)) - 1)
    front = (keep + 1) // 2
    return f"{text[:front].rstrip()}…{text[len(text) - (keep - front) :].lstrip()}"


def _share(one: str) -> float:
    """Of the size, as in most fonts without serifs."""
    if one in _NARROW:
        return 0.38
    if one in _WIDE or (one > "\u1100" and east_asian_width(one) in "WF"):
        return 0.95
    return 0.64
