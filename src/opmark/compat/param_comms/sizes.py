"""The sizes that a command line asks for, and what of each is really moved: whole elements, as many for every rank."""

from __future__ import annotations

from collections.abc import Sequence

from opmark.errors import UserError

MOST = 1000
"""Sizes of one series; PARAM stops at 101 and says nothing but in its log."""


def size_of(text: str, option: str) -> int:
    """`8`, `4K`, `256M`, in powers of 1024."""
    from opmark.schema.byte_count import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError:
        raise UserError(f"{option}: expected bytes, got `{text}`", f"as in {option} 8, 64K, 256M or 1G") from None


def series(begin: int, end: int, factor: int, step: int) -> list[int]:
    """From one to the other, multiplied or, with a step, added."""
    if end < begin:
        raise UserError(f"--b {begin} is larger than --e {end}: there is no size between them", "as in --b 8 --e 64M")
    if step < 0:
        raise UserError(f"--sb: expected bytes of at least 0, got {step}", "0 multiplies by --f")
    if not step and factor < 2:
        raise UserError(f"--f: expected a factor of at least 2, got {factor}", "--sb BYTES adds instead of multiplying")
    found = [begin]
    while (following := found[-1] + step if step else found[-1] * factor) <= end:
        found.append(following)
        if len(found) > MOST:
            raise UserError(f"--b {begin} --e {end}: more than {MOST} sizes", "a larger --f or --sb makes fewer")
    return found


def elements_of(size: int, element: int, parts: int) -> int:
    """Elements of one part: rounded down as PARAM does it, and never none, with which nothing would be measured."""
    return max(1, size // element // parts)


def whole_sizes(sizes: Sequence[int], element: int, parts: int) -> list[int]:
    """In bytes, each once: sizes that differ by less than an element for every rank come to the same."""
    return list(dict.fromkeys(elements_of(size, element, parts) * parts * element for size in sizes))


def split_size(splits: Sequence[int], option: str, ranks: int, element: int) -> int:
    """Bytes of what is split into equal parts; UserError for others, which no operator can be told."""
    if len(splits) != ranks:
        raise UserError(
            f"{option}: expected {ranks} numbers, one for each rank of a group, got {len(splits)}",
            f"as in {option} {','.join(['16'] * ranks)}",
        )
    if min(splits) < 1 or len(set(splits)) > 1:
        raise UserError(
            f"{option} {','.join(map(str, splits))}: parts of given, different lengths cannot be had",
            "--imbalance 0.5 makes parts that differ by up to half of their mean, the same ones every time",
        )
    return sum(splits) * element
