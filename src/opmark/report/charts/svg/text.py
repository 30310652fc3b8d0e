"""Text in a picture: escapes it, shortens it where there is no room, and estimates its width."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import takewhile
from unicodedata import east_asian_width

SIZE = 13
"""Pixels of a letter's body, in the picture's own units."""
_NARROW = frozenset("ijl.,:;'|!()[]/ ft")
_WIDE = frozenset("mwMW%@")
_CORE = 0.7
"""Share of the room for the words in which names differ."""


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


def shorten_apart(texts: Sequence[str], room: float, size: float = SIZE) -> list[str]:
    """Each shortened; of those that would then read the same, what differs is kept instead."""
    short = [shorten(text, room, size) for text in texts]
    alike: dict[str, set[str]] = {}
    for text, cut in zip(texts, short, strict=True):
        alike.setdefault(cut, set()).add(clean(text))
    return [_differing(clean(text), alike[cut], room, size) if len(alike[cut]) > 1 else cut
            for text, cut in zip(texts, short, strict=True)]  # fmt: skip


def _differing(text: str, group: set[str], room: float, size: float) -> str:
    """The beginning, and the words from the first to the last in which the group differs."""
    own, others = text.split(" "), [one.split(" ") for one in group]
    start = _alike(others)
    end = len(own) - _alike([words[start:][::-1] for words in others])
    middle = shorten(" ".join(own[start:end]), room * _CORE, size)
    rest = "…" if end < len(own) else ""
    front = shorten(" ".join(own[:start]), room - width(f" {middle}{rest}", size), size)
    return " ".join(filter(None, (front, middle))) + rest


def _alike(lists: Sequence[Sequence[str]]) -> int:
    """How many words at the beginning are the same in all."""
    return sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, zip(*lists, strict=False)))


def _share(one: str) -> float:
    """Return the width of a character relative to the font size, as in most fonts without serifs."""
    if one in _NARROW:
        return 0.38
    if one in _WIDE or (one > "\u1100" and east_asian_width(one) in "WF"):
        return 0.95
    return 0.64


# SVG elements of text.


def text(x: float, y: float, words: str, *, anchor: str = "", classes: str = "", turn: float = 0.0) -> str:
    """`turn`: degrees, around its own beginning."""
    more = f' text-anchor="{anchor}"' if anchor else ""
    more += f' class="{classes}"' if classes else ""
    more += f' transform="rotate({turn:.1f} {x:.1f} {y:.1f})"' if turn else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(words)}</text>'
