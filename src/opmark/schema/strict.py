"""Make structs that refuse unknown fields.

A store is read leniently, as a newer version may have written more fields. Data that is received and stored is read
strictly, as unknown fields would be lost.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from msgspec import NODEFAULT, Struct, defstruct, field
from msgspec.structs import FieldInfo, fields


@cache
def strict(noun: type[Struct]) -> type[Struct]:
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
        return strict(kind) if isinstance(kind, type) and issubclass(kind, Struct) else kind
    if origin is Literal:
        return kind
    inner = tuple(part if part is Ellipsis else _strict(part) for part in get_args(kind))
    return reduce(or_, inner) if origin in (Union, UnionType) else origin[inner]


def _default(one: FieldInfo) -> Any:
    if one.default is not NODEFAULT:
        return one.default
    return NODEFAULT if one.default_factory is NODEFAULT else field(default_factory=one.default_factory)
