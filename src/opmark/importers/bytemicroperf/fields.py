"""Fields: how arguments of ByteMicroPerf become parameters of opmark, and back."""

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
    check_value,
    dtype_of,
    foreign_dtype,
    missing_argument,
    quote,
    sizes_of,
    split_rows,
    tokens_per_rank,
)
from opmark.registry import operator
from opmark.schema.param import REQUIRED


@cache
def _choices(op: str, param: str) -> tuple[str, ...]:
    return operator(op).param(param).choices


class Field(ABC):
    """Translates the arguments `names` of ByteMicroPerf to the parameters `ours` of opmark, and back."""

    @property
    def names(self) -> tuple[str, ...]:
        return ()

    @property
    def ours(self) -> tuple[str, ...]:
        return ()

    @abstractmethod
    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        """Return parameters of opmark; raise Refused for values that opmark cannot measure."""

    @abstractmethod
    def write(self, params: Arguments) -> dict[str, Any] | None:
        """Return arguments of ByteMicroPerf; None where it cannot express the parameters."""

    def remark(self, given: Arguments) -> str:
        """Say how opmark measures these arguments differently; empty where it does not."""
        return ""


@dataclass(frozen=True)
class Value(Field):
    """One argument that is one parameter. If it is optional, both systems have the same default."""

    theirs: str
    to: str = ""
    """opmark's name, where it differs."""
    kind: str = "size"
    optional: bool = False
    also: tuple[str, ...] = ()
    """Names of the argument in other generations."""
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
                return {self.ours[0]: check_value(name, self.kind, given[name], self.most)}
        if self.optional:
            return {}
        raise missing_argument(self.theirs, given)

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {self.theirs: params[self.ours[0]]}


@dataclass(frozen=True)
class Word(Value):
    words: Mapping[str, str] = field(default_factory=dict)
    """opmark's words by ByteMicroPerf's; of several with the same meaning the first is written."""

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        name = next((name for name in self.names if name in given), None)
        if name is None:
            return {}
        word = given[name]
        if not isinstance(word, str) or word not in self.words:
            near = nearest(str(word), self.words)
            raise Refused(f"argument `{name}`: expected one of {', '.join(self.words)}, got {quote(word)}", name,
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
            raise missing_argument(self.theirs, given)
        found, choices = dtype_of(self.theirs, value), _choices(op, self.to)
        if choices and found not in choices:
            raise Refused(f"argument `{self.theirs}`: `{op}` has no {value}; expected one of {', '.join(choices)}",
                          self.theirs)  # fmt: skip
        return {self.to: found}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {self.theirs: foreign_dtype(params[self.to])}


@dataclass(frozen=True)
class Rows(Field):
    """Several sizes that make up one shape."""

    theirs: tuple[str, ...] = ("batch_size", "dim_size")

    @property
    def ours(self) -> tuple[str, ...]:
        return (SHAPE,)

    @property
    def names(self) -> tuple[str, ...]:
        return (SHAPE, *self.theirs)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        if SHAPE in given:
            return {SHAPE: check_value(SHAPE, "shape", given[SHAPE])}
        return {SHAPE: sizes_of(given, self.theirs)}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        shape = params[SHAPE]
        return dict(zip(self.theirs, shape, strict=True)) if len(shape) == len(self.theirs) else None


@dataclass(frozen=True)
class Elements(Field):
    """A number of elements, as rows times width; the division into rows does not matter."""

    @property
    def names(self) -> tuple[str, ...]:
        return (SHAPE, "batch_size", "dim_size")

    @property
    def ours(self) -> tuple[str, ...]:
        return ("n",)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {"n": prod(Rows().read(given, op)[SHAPE])}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return dict(zip(("batch_size", "dim_size"), split_rows(params["n"]), strict=True))


@dataclass(frozen=True)
class OwnTokens(Field):
    """num_tokens // sp_size, for a parameter of opmark that holds the tokens of one rank."""

    to: str

    @property
    def names(self) -> tuple[str, ...]:
        return ("num_tokens", "sp_size")

    @property
    def ours(self) -> tuple[str, ...]:
        return (self.to,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {self.to: tokens_per_rank(given)}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {"num_tokens": params[self.to]}


@dataclass(frozen=True)
class TokenRows(Field):
    """The tokens of one rank as a shape, each `times` the hidden size long."""

    times: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        return ("num_tokens", "sp_size", "hidden_size")

    @property
    def ours(self) -> tuple[str, ...]:
        return (SHAPE,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {SHAPE: [tokens_per_rank(given), self.times * sizes_of(given, ("hidden_size",))[0]]}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        shape = params[SHAPE]
        if len(shape) != 2 or shape[1] % self.times:
            return None
        return {"num_tokens": shape[0], "hidden_size": shape[1] // self.times}


@dataclass(frozen=True)
class Constant(Field):
    """A parameter that ByteMicroPerf has no argument for."""

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
    """An argument that opmark has no parameter for: only the value that the operator always has is accepted."""

    theirs: str
    value: Any = None
    """The accepted value; None: the same as `dtype`."""
    exported: bool = False
    """Whether the argument is written to files."""
    default_dtype: str = ""
    """The value of `dtype` where a file does not have it."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.theirs,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        if self.theirs not in given:
            return {}
        got = given[self.theirs]
        expected = dtype_of("dtype", given.get("dtype", self.default_dtype)) if self.value is None else self.value
        value = dtype_of(self.theirs, got) if self.theirs.endswith("dtype") else got
        if value != expected or isinstance(got, bool) != isinstance(expected, bool):
            raise Refused(f"argument `{self.theirs}`: `{op}` accepts only {quote(expected)}, got {quote(got)}",
                          self.theirs)  # fmt: skip
        return {}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        if not self.exported:
            return {}
        value = params["dtype"] if self.value is None else self.value
        return {self.theirs: foreign_dtype(value) if isinstance(value, str) else value}


@dataclass(frozen=True)
class Unused(Field):
    """Arguments that change nothing in what opmark measures."""

    theirs: tuple[str, ...]
    instead: str = ""
    """A note on what opmark does instead, for arguments that make a difference in ByteMicroPerf."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.theirs

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {}

    def remark(self, given: Arguments) -> str:
        ignored = [f"`{name}`" for name in self.theirs if name in given] if self.instead else []
        return f"{', '.join(ignored)}: {self.instead}" if ignored else ""
