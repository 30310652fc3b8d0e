"""Every operator of PyTorch's OpInfo database, which PyTorch tests itself with, as an operator `opinfo:NAME`.

The database lists operators, their element types and sample arguments. It is a private module of torch and takes
seconds to import, so this module does not import it: a child process reads the names, and the worker makes the samples.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from opmark.errors import Unsupported, UserError
from opmark.plugin import Implementation, Launch, Operator, Params
from opmark.plugin.param import choice
from opmark.schema import Cost
from opmark.schema.tensor import DTYPES

PREFIX = "opinfo:"
_SAMPLES = "opmark.catalogue.families.opinfo_samples"
_TIMEOUT = 120

PARAMS = (
    choice("sample", "which arguments: a sample of the database enlarged if possible, or as it is",
           ("enlarged", "own"), "enlarged"),
    choice("dtype", "element type; auto: float32 if the operator supports it", ("auto", *DTYPES), "auto"),
)  # fmt: skip


class OpInfoEntry(NamedTuple):
    """An operator of the database."""

    name: str
    """Name with variant, as in `nn.functional.pad/reflect`."""
    function: str
    """Name in torch, as in `nn.functional.pad`."""
    path: str
    """Path of the function, as in `torch.nn.functional.pad`; empty if there is no function of that name."""
    dtypes: list[str]
    """Element types that it supports on a CPU."""
    differentiable: bool


class _OpInfo:
    last = False

    def operator(self, name: str) -> Operator | None:
        if not name.startswith(PREFIX):
            return None
        return Operator(
            name=name,
            summary=f"{name.removeprefix(PREFIX)} of torch's operator database, with a sample of its arguments",
            category="opinfo",
            params=PARAMS,
            inputs=lambda p: {},
            cost=lambda p: Cost(None, 0, 0),
            reference=_no_reference,
            presets={},
            implementations=(Implementation("torch", _builder(name.removeprefix(PREFIX))),),
            foreign=True,
        )

    def names(self, pattern: str) -> Sequence[str] | None:
        if not pattern.startswith(PREFIX):
            return None
        wanted = pattern.removeprefix(PREFIX)
        return [PREFIX + entry.name for entry in entries() if fnmatchcase(entry.name, wanted)]


OPINFO = _OpInfo()


@cache
def entries() -> tuple[OpInfoEntry, ...]:
    """Return the whole database, read by a child process."""
    if find_spec("torch") is None:
        raise UserError(
            "torch is not installed, and the operator database is a part of it", "pip install 'opmark[torch]'"
        )
    try:
        done = subprocess.run(
            [sys.executable, "-m", _SAMPLES], capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"torch's operator database could not be read within {_TIMEOUT} s",
            "try again on a less busy machine",
        ) from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"torch's operator database cannot be read: {last}", "it is a private part of torch")
    return tuple(OpInfoEntry(*fields) for fields in json.loads(done.stdout))


def _no_reference(p: Params, **inputs: Any) -> Any:
    raise Unsupported("operators of the framework's database have no reference")


def _builder(name: str) -> Any:
    def build(p: Params) -> Launch:
        from opmark.catalogue.families.opinfo_samples import call

        return call(name, p["dtype"], enlarged=p["sample"] == "enlarged")

    return build
