"""Schemas of torch's operators as text: `aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_SCHEMA = re.compile(r"([\w.]+)::(\w+)(?:\.(\w+))?\((.*)\)\s*->.*", re.DOTALL)


class SchemaArgument(NamedTuple):
    name: str
    kind: str
    """`Tensor`, `SymInt[2]`, `ScalarType?`."""
    default: str | None
    by_name: bool
    """Whether it is only given by name."""


class CallSchema(NamedTuple):
    space: str
    name: str
    overload: str
    arguments: tuple[SchemaArgument, ...]

    @property
    def full_name(self) -> str:
        """Name with the overload, as calls have it: `add.Tensor`, `torchvision::nms.default`."""
        own = f"{self.name}.{self.overload or 'default'}"
        return own if self.space == "aten" else f"{self.space}::{own}"


@lru_cache(maxsize=8192)
def parse_schema(text: str) -> CallSchema | None:
    """Parse the schema of an operator as torch writes it; None if it is none."""
    found = _SCHEMA.fullmatch(text.strip())
    if found is None:
        return None
    arguments, by_name = [], False
    for part in split_outside_brackets(found[4]):
        if part == "*":
            by_name = True
            continue
        declared, has_default, default = part.partition("=")
        kind, _, name = declared.strip().rpartition(" ")
        arguments.append(SchemaArgument(name, kind, default.strip() if has_default else None, by_name))
    return CallSchema(found[1], found[2], found[3] or "", tuple(arguments))


def split_outside_brackets(text: str) -> Iterator[str]:
    """Yield the parts between commas that stand in no bracket."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        if letter in "([<":
            depth += 1
        elif letter in ")]>":
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:place].strip()
            start = place + 1
    if text[start:].strip():
        yield text[start:].strip()
