"""Markers: a circle, or a path of few letters, because there may be ten thousand of them."""

from __future__ import annotations

from collections.abc import Callable


def marker(kind: int, radius: float) -> Callable[[float, float, int], str]:
    """What draws one at a place, with the number of its row."""
    if kind == 0:
        size = f"{radius:.4g}"
        return lambda x, y, i: f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" data-i="{i}"/>'
    across, up, tail = outline(kind, radius)
    return lambda x, y, i: f'<path d="M{x + across:.1f} {y + up:.1f}{tail}" data-i="{i}"/>'


def sample(kind: int, x: float, y: float, radius: float) -> str:
    """In a legend: of no row."""
    if kind == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.4g}"/>'
    across, up, tail = outline(kind, radius)
    return f'<path d="M{x + across:.1f} {y + up:.1f}{tail}"/>'


def outline(kind: int, radius: float) -> tuple[float, float, str]:
    """Where the path begins, from the middle, and how it goes on; all about as large as the circle."""
    r, side, high = radius, 0.89 * radius, 1.2 * radius
    third = 0.4 * radius
    arm = 1.15 * radius - third
    shapes = {
        1: (-side, -side, _line("h", 2 * side, "v", 2 * side, "h", -2 * side)),
        2: (0.0, -high, _line("l", high, 1.9 * r, "h", -2 * high)),
        3: (0.0, -1.3 * r, _line("l", 1.3 * r, 1.3 * r, -1.3 * r, 1.3 * r, -1.3 * r, -1.3 * r)),
        4: (0.0, high, _line("l", high, -1.9 * r, "h", -2 * high)),
        5: (-third, -third - arm, _plus(2 * third, arm)),
        6: (0.0, -third * 1.41, _cross(third, arm)),
        7: (high, 0.0, _line("l", -1.9 * r, -high, "v", 2 * high)),
    }
    return shapes[kind]


def _line(*parts: str | float) -> str:
    text = ""
    for part in parts:
        letter = isinstance(part, str)
        separate = "" if letter or not text or text[-1].isalpha() or str(part).startswith("-") else " "
        text += f"{separate}{part}" if letter else f"{separate}{part:.3g}"
    return text + "z"


def _plus(wide: float, arm: float) -> str:
    return _line("h", wide, "v", arm, "h", arm, "v", wide, "h", -arm, "v", arm, "h", -wide, "v", -arm, "h", -arm,
                 "v", -wide, "h", arm)  # fmt: skip


def _cross(third: float, arm: float) -> str:
    """The plus turned by 45 degrees, from the inner corner at the top."""
    a, b = 0.707 * arm, 1.414 * third
    return _line("l", a, -a, b, b, -a, a, a, a, -b, b, -a, -a, -a, a, -b, -b, a, -a, -a, -a, b, -b)
