"""Text elements."""

from __future__ import annotations

from html import escape


def text(x: float, y: float, words: str, *, anchor: str = "", classes: str = "", turn: float = 0.0) -> str:
    """`turn`: degrees, around its own beginning."""
    more = f' text-anchor="{anchor}"' if anchor else ""
    more += f' class="{classes}"' if classes else ""
    more += f' transform="rotate({turn:.1f} {x:.1f} {y:.1f})"' if turn else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(words)}</text>'
