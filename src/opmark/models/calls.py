"""Calls of torch's operators, as traces and lists of inputs have them, as entries of a workload.

Which calls are operators of the catalogue is found out by a child process, which imports torch: this one may be the
parent.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar

import msgspec

from opmark.errors import Unsupported
from opmark.models.host import ChildQuestion, HostProcess, read_answer
from opmark.schema import Entry

CALLS = "calls"
OVERLOADS = "overloads"
"""What a child process is asked for."""

T = TypeVar("T")


class TorchCall(msgspec.Struct, frozen=True):
    """A call of an operator of torch."""

    name: str
    """`add.Tensor`, or with another namespace than aten `torchvision::nms.default`."""
    args: list[Any] = []
    """Arguments as a workload writes them: a tensor as `8x64 float32`."""
    kwargs: dict[str, Any] = {}


class KnownCall(msgspec.Struct, frozen=True):
    """What torch and the catalogue know of a call."""

    name: str = ""
    """The operator as this torch names it; empty if it has none."""
    op: str = ""
    """The operator of the catalogue that makes the very same call; empty if there is none."""
    params: dict[str, Any] = {}
    problem: str = ""
    """Why the call cannot be made here."""
    no_data: bool = False
    """Whether it only makes a view of a tensor, or a tensor without values."""


class OverloadQuestion(msgspec.Struct, frozen=True):
    """A call whose overload was not recorded."""

    name: str
    """`aten::add`."""
    kinds: list[str]
    """What each argument is: `Tensor`, `Tensor[]`, `int`, `int[]`, `float`, `bool`, `str`, `None`, or `` if unknown."""


def recognise_calls(calls: Sequence[TorchCall], device: str = "cpu") -> list[KnownCall]:
    """Return what is known of each call. Where torch is not installed, nothing is known but the name."""
    if find_spec("torch") is None:
        return [KnownCall(call.name) for call in calls]
    keys = [msgspec.json.encode(call) for call in calls]
    kept = _kept(device)
    new = {key: call for key, call in zip(keys, calls, strict=True) if key not in kept}
    if new:
        kept.update(zip(new, _ask(list(new.values()), device), strict=True))
    return [kept[key] for key in keys]


@cache
def _kept(device: str) -> dict[bytes, KnownCall]:
    """Return what was found out in this process, by the call as JSON. A folder of files has many calls in common."""
    return {}


def find_overloads(calls: list[OverloadQuestion]) -> list[str]:
    """Return the schema of the overload that takes such arguments, for each call; empty if none does."""
    return _ask_torch(OVERLOADS, list[str], calls=calls) if calls else []


def _ask(calls: list[TorchCall], device: str) -> list[KnownCall]:
    return _ask_torch(CALLS, list[KnownCall], calls=calls, device=device)


def _ask_torch(what: str, kind: type[T], **options: Any) -> T:
    question = ChildQuestion(what, what, {}, options)
    try:
        found: T = read_answer(_recogniser().ask(question), kind)
    except Unsupported:
        _recogniser.cache_clear()  # it has ended; another question gets another process
        raise
    return found


@cache
def _recogniser() -> HostProcess:
    """Return the process that has imported torch, which takes seconds, and stays for the next file."""
    return HostProcess(sys.executable)


def release_recognition() -> None:
    """End the process that recognises calls, if there is one, and forget what it found."""
    if _recogniser.cache_info().currsize:
        _recogniser().close()
        _recogniser.cache_clear()
    _kept.cache_clear()


def entry_of_call(call: TorchCall, known: KnownCall, count: int = 1, **fields: Any) -> Entry:
    """Return the entry of a call: that of the catalogue, or of the callable."""
    if known.op:
        axes = {name: [one] if isinstance(one, list) else one for name, one in known.params.items()}
        return Entry(known.op, axes, count=count, **fields)  # a list would be an axis, so it is in another one
    return Entry(call_path(known.name or call.name), args=call.args, kwargs=call.kwargs or None, count=count, **fields)


def call_path(name: str) -> str:
    """Return the dotted path of an operator: `torch.ops.aten.add.Tensor`."""
    base, _, overload = name.partition(".")
    space, _, own = base.rpartition("::")
    return f"torch.ops.{space or 'aten'}.{own}.{overload or 'default'}"
