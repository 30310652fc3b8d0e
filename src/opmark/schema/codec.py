"""Strict conversion of plain data into structs: an error names the place and the nearest known key."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Struct, defstruct, field
from msgspec.structs import FieldInfo, fields

from opmark.errors import InvalidFile, nearest
from opmark.schema.case import PHASES

T = TypeVar("T")

_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.+?)`")
_PLACE = re.compile(r" - at `(?:key` in `)?(?P<path>\$.*)`$")
_STEP = re.compile(r"\.(\w+)|\[\.{3}\]|\[(\d+)\]")


def convert(data: object, noun: type[T], where: str) -> T:
    """Convert `data` into the struct `noun`; error messages name `where`, the file."""
    try:
        return msgspec.convert(data, noun)
    except msgspec.ValidationError as error:
        raise _explain(str(error), data, noun, where) from None
    except UnicodeEncodeError:
        raise InvalidFile(
            f"{where}: holds half of a surrogate pair (\\ud800 to \\udfff)", "write the whole character"
        ) from None


MOST_ALIASED = 100_000
"""Values that the aliases of a YAML document may stand for, beside those that are written down."""


def why_too_many_aliases(root: Any) -> str | None:
    """Return why a YAML document must not be read, or None. `root` is the node that PyYAML has composed.

    An alias stands for a whole part of the document, and may stand in another such part: a few lines can mean more
    values than fit into memory. They are counted here without being made.
    """
    counts: dict[int, int] = {}
    open_nodes: set[int] = set()
    stack = [root] if root is not None else []
    while stack:
        node = stack[-1]
        children = node.value if isinstance(node.value, list) else ()
        parts = [part for child in children for part in (child if isinstance(child, tuple) else (child,))]
        if id(node) not in open_nodes:
            open_nodes.add(id(node))
            stack += [part for part in parts if id(part) not in counts]
            if any(id(part) in open_nodes and id(part) not in counts for part in parts):
                return "an alias stands for a part of the document that it is in itself"
        else:
            stack.pop()
            counts[id(node)] = 1 + sum(counts[id(part)] for part in parts)
    aliased = counts[id(root)] - len(counts) if counts else 0
    return (
        f"aliases stand for {aliased:,} values, at most {MOST_ALIASED:,} are read" if aliased > MOST_ALIASED else None
    )


def _explain(text: str, data: object, noun: type, where: str) -> InvalidFile:
    place = _PLACE.search(text)
    path = place["path"] if place else "$"
    message = text[: place.start()] if place else text
    unknown = _UNKNOWN.match(message)
    if not unknown:
        return InvalidFile(f"{where}: {_plain(message)}, at `{path}`", _enum_hint(message))
    known = _fields(noun, path)
    near = nearest(unknown["field"], known)
    hint = f"did you mean `{near}`? " if near else ""
    return InvalidFile(
        f"{where}: unknown key `{unknown['field']}`, at `{path}`", f"{hint}known keys are {', '.join(known)}"
    )


# Words of the decoder's messages, and their replacements for people who write files.
_WORDS = {"`array`": "a list", "`object`": "a mapping", "`str`": "text", "`int`": "a whole number", "`null`": "nothing",
          "`bool`": "true or false", "`float`": "a number"}  # fmt: skip


def _plain(message: str) -> str:
    for word, plain in _WORDS.items():
        message = message.replace(word, plain)
    return message[0].lower() + message[1:]


def _enum_hint(message: str) -> str | None:
    """Suggest a phase: phases are the only enumeration in the files that are read."""
    found = re.match(r"Invalid enum value '(?P<name>.*)'", message)
    if not found:
        return None
    near = nearest(found["name"], PHASES)
    return f"did you mean `{near}`?" if near else f"known: {', '.join(PHASES)}"


def _fields(noun: Any, path: str) -> list[str]:
    """Return the keys that are allowed at `path` below `noun`."""
    for step in _STEP.finditer(path):
        noun = get_type_hints(noun)[step[1]] if step[1] else get_args(noun)[-1]
        if get_origin(noun) not in (list, dict) and not isinstance(noun, type):
            return []
    return [field.encode_name for field in msgspec.structs.fields(noun)]


# Turns Python's cyclic garbage collector off for a while.


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Turn the collector off. It would run inside a sample now and then; and where much is made and nothing
    thrown away, it would look at all of it again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# Make structs that refuse unknown fields.


@cache
def strict_struct(noun: type[Struct]) -> type[Struct]:
    """Return a subclass of a struct that forbids unknown fields, in itself and in every struct inside it."""
    config = noun.__struct_config__
    return defstruct(
        noun.__name__,
        [(one.name, _strict(one.type), _default(one)) for one in fields(noun)],
        bases=(noun,),
        frozen=config.frozen,
        forbid_unknown_fields=True,
        module=noun.__module__,
    )


def _strict(kind: Any) -> Any:
    origin = get_origin(kind)
    if origin is None:
        return strict_struct(kind) if isinstance(kind, type) and issubclass(kind, Struct) else kind
    if origin is Literal:
        return kind
    inner = tuple(part if part is Ellipsis else _strict(part) for part in get_args(kind))
    return reduce(or_, inner) if origin in (Union, UnionType) else origin[inner]


def _default(one: FieldInfo) -> Any:
    if one.default is not NODEFAULT:
        return one.default
    return NODEFAULT if one.default_factory is NODEFAULT else field(default_factory=one.default_factory)
