"""What an argument of theirs is among our parameters, one field each, read in both directions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any

from opmark.errors import nearest
from opmark.importers.bytemicroperf.values import (
    LARGEST,
    SHAPE,
    Arguments,
    Refused,
    checked,
    dtype_of,
    in_their_spelling,
    missing,
    own_tokens,
    shown,
    sizes,
)
from opmark.registry import operator
from opmark.schema.param import REQUIRED


@cache
def _choices(op: str, param: str) -> tuple[str, ...]:
    return operator(op).param(param).choices


class Field(ABC):
    """`names` are the arguments that it reads, `ours` the parameters that it decides."""

    @property
    def names(self) -> tuple[str, ...]:
        return ()

    @property
    def ours(self) -> tuple[str, ...]:
        return ()

    @abstractmethod
    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        """Parameters of ours; raises Refused."""

    @abstractmethod
    def write(self, params: Arguments) -> dict[str, Any] | None:
        """Arguments of theirs; None where they cannot say it."""

    def remark(self, given: Arguments) -> str:
        """How what is measured here differs, where these arguments are such."""
        return ""


@dataclass(frozen=True)
class Value(Field):
    """One argument that is one parameter. Where it is optional, both systems have the same default."""

    theirs: str
    to: str = ""
    """Our name, where it is another."""
    kind: str = "size"
    optional: bool = False
    also: tuple[str, ...] = ()
    """Names that other generations have for it."""
    most: int = LARGEST

    @property
    def names(self) -> tuple[str, ...]:
        return (self.theirs, *self.also)

    @property
    def ours(self) -> tuple[str, ...]:
        return (self.to or self.theirs,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        for name in self.names:
            if name in given:
                return {self.ours[0]: checked(name, self.kind, given[name], self.most)}
        if self.optional:
            return {}
        raise missing(self.theirs, given)

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {self.theirs: params[self.ours[0]]}


@dataclass(frozen=True)
class Word(Value):
    """One of a few words."""

    words: Mapping[str, str] = field(default_factory=dict)
    """Ours by theirs; the first of those with the same meaning is written."""

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        name = next((name for name in self.names if name in given), None)
        if name is None:
            return {}
        word = given[name]
        if not isinstance(word, str) or word not in self.words:
            near = nearest(str(word), self.words)
            raise Refused(f"argument `{name}`: expected one of {', '.join(self.words)}, got {shown(word)}", name,
                          f"did you mean `{near}`?" if near else "")  # fmt: skip
        return {self.ours[0]: self.words[word]}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        found = next((word for word, ours in self.words.items() if ours == params[self.ours[0]]), None)
        return None if found is None else {self.theirs: found}


@dataclass(frozen=True)
class Dtype(Field):
    theirs: str = "dtype"
    to: str = "dtype"
    default: Any = REQUIRED

    @property
    def names(self) -> tuple[str, ...]:
        return (self.theirs,)

    @property
    def ours(self) -> tuple[str, ...]:
        return (self.to,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        value = given.get(self.theirs, self.default)
        if value is REQUIRED:
            raise missing(self.theirs, given)
        found, choices = dtype_of(self.theirs, value), _choices(op, self.to)
        if choices and found not in choices:
            raise Refused(f"argument `{self.theirs}`: `{op}` has no {value}; expected one of {', '.join(choices)}",
                          self.theirs)  # fmt: skip
        return {self.to: found}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {self.theirs: in_their_spelling(params[self.to])}


@dataclass(frozen=True)
class Rows(Field):
    """Several sizes that are one shape."""

    theirs: tuple[str, ...] = ("batch_size", "dim_size")

    @property
    def ours(self) -> tuple[str, ...]:
        return (SHAPE,)

    @property
    def names(self) -> tuple[str, ...]:
        return (SHAPE, *self.theirs)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        if SHAPE in given:
            return {SHAPE: checked(SHAPE, "shape", given[SHAPE])}
        return {SHAPE: sizes(given, self.theirs)}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        shape = params[SHAPE]
        return dict(zip(self.theirs, shape, strict=True)) if len(shape) == len(self.theirs) else None


@dataclass(frozen=True)
class Elements(Field):
    """As many elements as rows of a width have together; their number of rows is a matter of taste."""

    @property
    def names(self) -> tuple[str, ...]:
        return (SHAPE, "batch_size", "dim_size")

    @property
    def ours(self) -> tuple[str, ...]:
        return ("n",)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {"n": prod(Rows().read(given, op)[SHAPE])}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        n, width = params["n"], 1024
        rows = n // width if n % width == 0 else 1
        return {"batch_size": rows, "dim_size": n // rows}


@dataclass(frozen=True)
class OwnTokens(Field):
    """num_tokens // sp_size, where the parameter of ours is what one rank has."""

    to: str

    @property
    def names(self) -> tuple[str, ...]:
        return ("num_tokens", "sp_size")

    @property
    def ours(self) -> tuple[str, ...]:
        return (self.to,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {self.to: own_tokens(given)}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {"num_tokens": params[self.to]}


@dataclass(frozen=True)
class TokenRows(Field):
    """The tokens of one rank, each `times` its hidden size long."""

    times: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        return ("num_tokens", "sp_size", "hidden_size")

    @property
    def ours(self) -> tuple[str, ...]:
        return (SHAPE,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {SHAPE: [own_tokens(given), self.times * sizes(given, ("hidden_size",))[0]]}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        shape = params[SHAPE]
        if len(shape) != 2 or shape[1] % self.times:
            return None
        return {"num_tokens": shape[0], "hidden_size": shape[1] // self.times}


@dataclass(frozen=True)
class Constant(Field):
    """A parameter that they have no argument for."""

    to: str
    value: Any

    @property
    def ours(self) -> tuple[str, ...]:
        return (self.to,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {self.to: self.value}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {} if params[self.to] == self.value else None


@dataclass(frozen=True)
class Only(Field):
    """An argument that our operator has no parameter for: one value of it is what the operator does."""

    theirs: str
    value: Any = None
    """None: the element type of the whole, `dtype`."""
    said: bool = False
    """Whether it is written."""
    default_dtype: str = ""
    """What `dtype` is where it is not given."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.theirs,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        if self.theirs not in given:
            return {}
        expected, got = self._expected(given), given[self.theirs]
        if _plain(self.theirs, got) != expected or isinstance(got, bool) != isinstance(expected, bool):
            raise Refused(f"argument `{self.theirs}`: `{op}` has it as {shown(expected)}, got {shown(got)}",
                          self.theirs)  # fmt: skip
        return {}

    def _expected(self, given: Arguments) -> Any:
        return dtype_of("dtype", given.get("dtype", self.default_dtype)) if self.value is None else self.value

    def write(self, params: Arguments) -> dict[str, Any] | None:
        if not self.said:
            return {}
        value = params["dtype"] if self.value is None else self.value
        return {self.theirs: in_their_spelling(value) if isinstance(value, str) else value}


def _plain(name: str, value: Any) -> Any:
    return dtype_of(name, value) if name.endswith("dtype") else value


@dataclass(frozen=True)
class Unused(Field):
    """Arguments that change nothing in what is measured."""

    theirs: tuple[str, ...]
    instead: str = ""
    """What is so here whatever they say, where they do change something there."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.theirs

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {}

    def remark(self, given: Arguments) -> str:
        said = [f"`{name}`" for name in self.theirs if name in given] if self.instead else []
        return f"{', '.join(said)}: {self.instead}" if said else ""
