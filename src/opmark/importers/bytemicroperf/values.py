"""Checks values of ByteMicroPerf's arguments; errors name the argument."""

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
"""Arguments of one point, by ByteMicroPerf's names."""

SHAPE = "shape"
"""The whole shape, for files of the first generation; ByteMicroPerf itself has no argument of this name."""

LARGEST = 2**48
"""Largest size; a larger number is taken for a mistake."""
FEW = 2**20
"""Largest number of things that are listed one by one, such as sequences and experts."""

_SPELLINGS = {"float": "float32", "half": "float16", "double": "float64", "float8": "float8_e4m3fn"}
_THEIRS = {"float8_e4m3fn": "float8"}
_NO_TYPE = {
    "tfloat32": "float32 is measured without TF32 here; opmark has no products in TF32 yet",
    "int4": "no operator of opmark has weights of 4 bits",
    "mxfloat8": "no operator of opmark has a scale for each block of elements",
    "mxfloat4": "no operator of opmark has a scale for each block of elements",
}

_SLIP = 0.8
"""Least similarity of a mistyped name to the one that was meant: `bach_size` is batch_size, `cache_size` is not."""

_BRIEF = Repr()
_BRIEF.maxlist = _BRIEF.maxdict = 8
_BRIEF.maxstring = _BRIEF.maxother = 60


class Refused(Exception):
    """A point that cannot be imported; `argument` is the one to blame, if there is one."""

    def __init__(self, message: str, argument: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message, self.argument, self.hint = message, argument, hint


def quote(value: Any) -> str:
    """Quote a value of a file, shortened if it is long."""
    plain = isinstance(value, str) and value.isprintable() and len(value) <= _BRIEF.maxstring
    return f"`{value if plain else _BRIEF.repr(value)}`"


def check_value(name: str, kind: str, value: Any, most: int = LARGEST) -> Any:
    """Check a value by a kind of `Param`, and return it."""
    if type(value) is int and kind == "size" and 0 < value <= most:  # nearly all values of a large file
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
    """Return opmark's name of an element type."""
    found = _SPELLINGS.get(value, value) if isinstance(value, str) else None
    if found in DTYPES:
        return str(found)
    near = nearest(str(value), DTYPES)
    hint = _NO_TYPE.get(str(value)) or (f"did you mean `{near}`?" if near else f"known: {', '.join(DTYPES)}")
    raise Refused(f"argument `{name}`: opmark has no element type {quote(value)}", name, hint)


def foreign_dtype(dtype: str) -> str:
    return _THEIRS.get(dtype, dtype)


def missing_argument(name: str, given: Arguments) -> Refused:
    near = nearest(name, given)
    return Refused(f"argument `{name}` is missing", hint=f"did you mean it by `{near}`?" if near else "")


@lru_cache(1024)
def similar_name(name: str, known: frozenset[str]) -> str | None:
    """Return the known name that a mistyped one is very similar to."""
    found = get_close_matches(name.casefold(), known, n=1, cutoff=_SLIP)
    return found[0] if found else None


ROW = 1024
"""Elements per row in every file that ByteMicroPerf ships for buffers."""


def split_rows(count: int) -> list[int]:
    """Return elements as a shape in rows of 1024 where possible, and else as one row."""
    return [count // ROW, ROW] if count % ROW == 0 else [1, count]


def sizes_of(given: Arguments, names: tuple[str, ...]) -> list[int]:
    for name in names:
        if name not in given:
            raise missing_argument(name, given)
    return [check_value(name, "size", given[name]) for name in names]


def tokens_per_rank(given: Arguments) -> int:
    """Return the tokens of one of the ranks that share them."""
    tokens = sizes_of(given, ("num_tokens",))[0]
    ranks = check_value("sp_size", "size", given.get("sp_size", 1))
    if tokens < ranks:
        raise Refused(f"argument `sp_size`: expected at most num_tokens={tokens}, got `{ranks}`", "sp_size")
    return int(tokens // ranks)
