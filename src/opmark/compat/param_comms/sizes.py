"""Sizes of the command line, rounded to whole elements and to equal parts for every rank."""

from __future__ import annotations

from collections.abc import Sequence

from opmark.errors import UserError

MOST = 1000
"""Sizes of one series; PARAM stops at 101 with a line in its log."""


def size_of(text: str, option: str) -> int:
    """Parse `8`, `4K` or `256M`, in powers of 1024."""
    from opmark.schema.byte_count import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError:
        raise UserError(f"{option}: expected bytes, got `{text}`", f"as in {option} 8, 64K, 256M or 1G") from None


def series(begin: int, end: int, factor: int, step: int) -> list[int]:
    """Return sizes from begin to end, multiplied by a factor, or with a step added to."""
    if end < begin:
        raise UserError(f"--b {begin} is larger than --e {end}, so that there are no sizes", "as in --b 8 --e 64M")
    if step < 0:
        raise UserError(f"--sb: expected bytes of at least 0, got {step}", "0 multiplies by --f")
    if not step and factor < 2:
        raise UserError(f"--f: expected a factor of at least 2, got {factor}", "--sb BYTES adds instead of multiplying")
    found = [begin]
    while (following := found[-1] + step if step else found[-1] * factor) <= end:
        found.append(following)
        if len(found) > MOST:
            raise UserError(f"--b {begin} --e {end}: more than {MOST} sizes", "use a larger --f or --sb")
    return found


def elements_of(size: int, element: int, parts: int) -> int:
    """Return the elements of one part, rounded down as in PARAM, but at least one."""
    return max(1, size // element // parts)


def whole_sizes(sizes: Sequence[int], element: int, parts: int) -> list[int]:
    """Return sizes in bytes, rounded to an equal number of elements for every rank, each once."""
    return list(dict.fromkeys(elements_of(size, element, parts) * parts * element for size in sizes))


def split_size(splits: Sequence[int], option: str, ranks: int, element: int) -> int:
    """Return the bytes of equal parts; raise UserError for others, which no operator has parameters for."""
    if len(splits) != ranks:
        raise UserError(
            f"{option}: expected {ranks} numbers, one for each rank of a group, got {len(splits)}",
            f"as in {option} {','.join(['16'] * ranks)}",
        )
    if min(splits) < 1 or len(set(splits)) > 1:
        raise UserError(
            f"{option} {','.join(map(str, splits))}: expected equal parts of at least 1 element",
            "--imbalance 0.5 makes parts that differ by up to half of their mean, the same ones every time",
        )
    return sum(splits) * element
