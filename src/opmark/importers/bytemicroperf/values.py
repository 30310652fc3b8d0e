"""Values of their arguments, checked: what is wrong with one is said in its name."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from reprlib import Repr
from typing import Any

from opmark.errors import InvalidParameter, nearest
from opmark.schema.dtype import DTYPES
from opmark.schema.param import Param

Arguments = Mapping[str, Any]
"""Of one point, by their names."""

SHAPE = "shape"
"""Not a name of theirs: the whole shape, where a file of the first generation says it."""

LARGEST = 2**48
"""No tensor is longer; what is written beyond it is a slip."""
FEW = 2**20
"""Sequences, experts: what is listed one by one."""

_SPELLINGS = {"float": "float32", "half": "float16", "double": "float64", "float8": "float8_e4m3fn"}
_THEIRS = {"float8_e4m3fn": "float8"}
_NO_TYPE = {
    "tfloat32": "float32 is measured without TF32 here; products in TF32 cannot be had yet",
    "int4": "no operator here has weights of 4 bits",
    "mxfloat8": "no operator here has a scale for each block of elements",
    "mxfloat4": "no operator here has a scale for each block of elements",
}

_SLIP = 0.8
"""How alike two names are at least where one is taken for the other mistyped: `bach_size`, but not `cache_size`."""

_BRIEF = Repr()
_BRIEF.maxlist = _BRIEF.maxdict = 8
_BRIEF.maxstring = _BRIEF.maxother = 60


class Refused(Exception):
    """A point that cannot be imported; `argument` is the one to blame, where it is one."""

    def __init__(self, message: str, argument: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message, self.argument, self.hint = message, argument, hint


def shown(value: Any) -> str:
    """What stands in a file, cut where it gets long."""
    plain = isinstance(value, str) and value.isprintable() and len(value) <= _BRIEF.maxstring
    return f"`{value if plain else _BRIEF.repr(value)}`"


def checked(name: str, kind: str, value: Any, most: int = LARGEST) -> Any:
    """Of a kind of opmark.schema.param."""
    if type(value) is int and kind == "size" and 0 < value <= most:  # what nearly all are, in files of 10,000 cases
        return value
    try:
        found = _param(name, kind).check(value)
    except InvalidParameter as error:
        raise Refused(error.message.replace("parameter", "argument", 1), name) from None
    numbers = found if isinstance(found, list) else [found]
    if any(isinstance(n, int) and n > most for n in numbers):
        raise Refused(f"argument `{name}`: expected at most {most}, got `{max(numbers)}`", name)
    return found


@cache
def _param(name: str, kind: str) -> Param:
    return Param(name, kind, "")


def dtype_of(name: str, value: Any) -> str:
    """An element type of theirs by our name."""
    found = _SPELLINGS.get(value, value) if isinstance(value, str) else None
    if found in DTYPES:
        return str(found)
    near = nearest(str(value), DTYPES)
    hint = _NO_TYPE.get(str(value)) or (f"did you mean `{near}`?" if near else f"known: {', '.join(DTYPES)}")
    raise Refused(f"argument `{name}`: there is no element type {shown(value)} here", name, hint)


def in_their_spelling(dtype: str) -> str:
    return _THEIRS.get(dtype, dtype)


def missing(name: str, given: Arguments) -> Refused:
    near = nearest(name, given)
    return Refused(f"argument `{name}` is missing", hint=f"is `{near}` meant to be it?" if near else "")


@lru_cache(1024)
def slip(name: str, known: frozenset[str]) -> str | None:
    """What a name was meant to be, where hardly more than a letter of it is wrong."""
    found = get_close_matches(name.casefold(), known, n=1, cutoff=_SLIP)
    return found[0] if found else None


def sizes(given: Arguments, names: tuple[str, ...]) -> list[int]:
    for name in names:
        if name not in given:
            raise missing(name, given)
    return [checked(name, "size", given[name]) for name in names]


def own_tokens(given: Arguments) -> int:
    """What one of the ranks that share the tokens has."""
    tokens = sizes(given, ("num_tokens",))[0]
    ranks = checked("sp_size", "size", given.get("sp_size", 1))
    if tokens < ranks:
        raise Refused(f"argument `sp_size`: expected at most num_tokens={tokens}, got `{ranks}`", "sp_size")
    return int(tokens // ranks)
