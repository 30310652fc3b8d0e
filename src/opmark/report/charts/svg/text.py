"""Text in a picture: escapes it, shortens it where there is no room, and estimates its width."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import takewhile
from unicodedata import east_asian_width

SIZE = 13
"""Pixels of a letter's body, in the picture's own units."""
_SHARES = {**dict.fromkeys("ijl.,:;'|!()[]/ ft", 0.38), **dict.fromkeys("mwMW%@", 0.95)}
"""Widths of characters relative to the font size, as in most fonts without serifs; most others have 0.64."""
_CORE = 0.7
"""Share of the room for the words in which names differ."""


def clean(text: str) -> str:
    """Return text on one line, without characters that cannot be seen or that turn the direction of writing."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else " " if one.isspace() else "" for one in text)


def safe(text: str) -> str:
    """Return text that may stand between tags and in an attribute of a page."""
    return escape(clean(text))


def width(text: str, size: float = SIZE) -> float:
    """Return an estimate, which is rather too wide: the reader's fonts are not known."""
    shares = (_SHARES.get(one) or (0.95 if one > "\u1100" and east_asian_width(one) in "WF" else 0.64) for one in text)
    return sum(shares) * size


def shorten(text: str, room: float, size: float = SIZE) -> str:
    """Return the beginning and the end, which tell names apart; the table of numbers has the whole text."""
    text = clean(text)
    if width(text, size) <= room:
        return text
    keep = max(4, int(len(text) * room / width(text, size)) - 1)
    front = (keep + 1) // 2
    return f"{text[:front].rstrip()}…{text[len(text) - (keep - front) :].lstrip()}"


def shorten_apart(texts: Sequence[str], room: float, size: float = SIZE) -> list[str]:
    """Shorten each text; texts that would then read the same keep the words in which they differ instead."""
    short = [shorten(text, room, size) for text in texts]
    alike: dict[str, set[str]] = {}
    for text, cut in zip(texts, short, strict=True):
        alike.setdefault(cut, set()).add(clean(text))
    return [_differing(clean(text), alike[cut], room, size) if len(alike[cut]) > 1 else cut
            for text, cut in zip(texts, short, strict=True)]  # fmt: skip


def _differing(text: str, group: set[str], room: float, size: float) -> str:
    """Return the beginning, and the words from the first to the last in which the group differs."""
    own, others = text.split(" "), [one.split(" ") for one in group]
    start = _alike(others)
    end = len(own) - _alike([words[start:][::-1] for words in others])
    middle = shorten(" ".join(own[start:end]), room * _CORE, size)
    rest = "…" if end < len(own) else ""
    front = shorten(" ".join(own[:start]), room - width(f" {middle}{rest}", size), size)
    return " ".join(filter(None, (front, middle))) + rest


def _alike(lists: Sequence[Sequence[str]]) -> int:
    """Return how many words at the beginning are the same in all."""
    return sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, zip(*lists, strict=False)))


def text(x: float, y: float, words: str, *, anchor: str = "", classes: str = "", turn: float = 0.0) -> str:
    """Return an SVG element; `turn` is in degrees, around the beginning of the text."""
    more = f' text-anchor="{anchor}"' if anchor else ""
    more += f' class="{classes}"' if classes else ""
    more += f' transform="rotate({turn:.1f} {x:.1f} {y:.1f})"' if turn else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(words)}</text>'
