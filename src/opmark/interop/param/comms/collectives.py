"""PARAM's collectives as operators of opmark, with the backend and the sizes that its options mean."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opmark.errors import UnknownName, UserError
from opmark.hardware.host import why_no_device

PT2PT = "pt2pt"


@dataclass(frozen=True)
class Collective:
    op: str
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters as in PARAM, where results replace the input (all_reduce) or have tensors of their own."""
    shared: bool = False
    """Whether the size is that of all ranks together, so that it has to divide evenly."""
    per_sender: bool = False
    """Whether the size is what each rank but the root sends; the operator's size is what the root receives."""
    uneven: bool = False
    """Whether parts may differ, with --imbalance and --i or --o."""
    split: tuple[str, ...] = ()
    """The options --i and --o that PARAM accepts for it."""


_IN_PLACE = {"in_place": True}
_LISTS, _ONE_TENSOR = {"lists": True}, {"lists": False}

COLLECTIVES: dict[str, Collective] = {
    "reduce": Collective("reduce", _IN_PLACE),
    "all_reduce": Collective("all_reduce", _IN_PLACE),
    "all_to_all": Collective("all_to_all", _LISTS, shared=True),
    "all_to_allv": Collective("all_to_all", _ONE_TENSOR, shared=True, uneven=True, split=("i", "o")),
    "all_gather": Collective("all_gather", _LISTS, shared=True),
    "all_gather_v": Collective("all_gather", _LISTS, shared=True, uneven=True, split=("o",)),
    "all_gather_object": Collective("all_gather_object", shared=True),
    "broadcast": Collective("broadcast", _IN_PLACE),
    "broadcast_object_list": Collective("broadcast_object"),
    "reduce_scatter": Collective("reduce_scatter", _LISTS, shared=True),
    "reduce_scatter_v": Collective("reduce_scatter", _LISTS, shared=True, uneven=True, split=("i",)),
    "reduce_scatter_base": Collective("reduce_scatter", _ONE_TENSOR, shared=True),
    "all_gather_base": Collective("all_gather", _ONE_TENSOR, shared=True),
    "incast": Collective("incast", per_sender=True),
    "multicast": Collective("multicast"),
    "gather": Collective("gather_ranks", shared=True),
    "scatter": Collective("scatter_ranks", shared=True),
}

_ALIASES = {"".join(filter(str.isalpha, name)): name for name in COLLECTIVES} | {"alltoallbase": "all_to_allv"}
"""Collectives by the letters of their names, as PARAM accepts AllReduce and all-reduce."""


def find_collective(text: str) -> str:
    found = _ALIASES.get("".join(filter(str.isalpha, text.lower())))
    if found is None:
        raise UnknownName("collective", text, COLLECTIVES, "opmark param comms -h")
    return found


DTYPES: dict[str, str] = {
    "float32": "float32", "float": "float32", "float64": "float64", "double": "float64", "float16": "float16",
    "half": "float16", "bfloat16": "bfloat16", "int32": "int32", "int": "int32", "int64": "int64", "long": "int64",
    "int8": "int8", "char": "int8", "uint8": "uint8", "byte": "uint8",
}  # fmt: skip
"""PARAM's names of element types, and opmark's."""


def find_dtype(text: str) -> str:
    """Return opmark's name; no operator of communication has PARAM's other types (bool)."""
    found = DTYPES.get(text.lower())
    if found is None:
        raise UnknownName("data type", text, DTYPES, "opmark param comms -h")
    return found


# The backend of opmark for PARAM's `--device` and `--backend`.

ENGINES = {"cpu": "gloo", "cuda": "nccl"}
"""The library that moves the data, by device, as torch chooses it."""


@dataclass(frozen=True)
class CommsEngine:
    backend: str
    """opmark's backend."""
    device: str
    engine: str


def place_of(device: str | None, engine: str | None) -> CommsEngine:
    """Choose device and engine; each determines the other, and the default is a GPU if there is one, as in PARAM."""
    if device == "tpu":
        raise UserError("--device tpu: opmark has no backend for it", f"use one of {', '.join(ENGINES)}")
    if engine is not None and engine not in ENGINES.values():
        raise UserError(
            f"--backend {engine}: opmark uses the engine that torch.distributed chooses for the device",
            "gloo for --device cpu, nccl for --device cuda",
        )
    kind = "cuda" if device == "rocm" else device or _device_of(engine)
    if engine is not None and engine != ENGINES[kind]:
        raise UserError(
            f"--backend {engine}: the engine of --device {kind} is {ENGINES[kind]}",
            f"use --device {_device_of(engine)}, or leave --backend out",
        )
    return CommsEngine(f"torch-{kind}", kind, ENGINES[kind])


def _device_of(engine: str | None) -> str:
    if engine is not None:
        return next(device for device, own in ENGINES.items() if own == engine)
    return "cuda" if _has_gpu() else "cpu"


def _has_gpu() -> bool:
    """Look for a GPU; a process that imports the framework is started only if a driver is loaded."""
    if sys.platform != "linux" or why_no_device("cuda"):
        return False
    from opmark.plugin.registry import backend as find_backend
    from opmark.runner.probe import probe

    return not probe([find_backend("torch-cuda")])[0].reason


# Sizes of the command line, rounded to whole elements and to equal parts for every rank.

MOST = 1000
"""Sizes of one series; PARAM stops at 101 with a line in its log."""


def size_of(text: str, option: str) -> int:
    """Parse `8`, `4K` or `256M`, in powers of 1024."""
    from opmark.plugin.param import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError:
        raise UserError(f"{option}: expected bytes, got `{text}`", f"as in {option} 8, 64K, 256M or 1G") from None


def series(begin: int, end: int, factor: int, step: int) -> list[int]:
    """Return sizes from begin to end, multiplied by a factor, or with a step added to."""
    if end < begin:
        raise UserError(f"--b {begin} is larger than --e {end}, so that there are no sizes", "as in --b 8 --e 64M")
    if step < 0:
        raise UserError(f"--sb: expected bytes of at least 0, got {step}", "0 multiplies by --f")
    if not step and factor < 2:
        raise UserError(f"--f: expected a factor of at least 2, got {factor}", "--sb BYTES adds instead of multiplying")
    found = [begin]
    while (following := found[-1] + step if step else found[-1] * factor) <= end:
        found.append(following)
        if len(found) > MOST:
            raise UserError(f"--b {begin} --e {end}: more than {MOST} sizes", "use a larger --f or --sb")
    return found


def elements_of(size: int, element: int, parts: int) -> int:
    """Return the elements of one part, rounded down as in PARAM, but at least one."""
    return max(1, size // element // parts)


def whole_sizes(sizes: Sequence[int], element: int, parts: int) -> list[int]:
    """Return sizes in bytes, rounded to an equal number of elements for every rank, each once."""
    return list(dict.fromkeys(elements_of(size, element, parts) * parts * element for size in sizes))


def split_size(splits: Sequence[int], option: str, ranks: int, element: int) -> int:
    """Return the bytes of equal parts; raise UserError for others, which no operator has parameters for."""
    if len(splits) != ranks:
        raise UserError(
            f"{option}: expected {ranks} numbers, one for each rank of a group, got {len(splits)}",
            f"as in {option} {','.join(['16'] * ranks)}",
        )
    if min(splits) < 1 or len(set(splits)) > 1:
        raise UserError(
            f"{option} {','.join(map(str, splits))}: expected equal parts of at least 1 element",
            "--imbalance 0.5 makes parts that differ by up to half of their mean, the same ones every time",
        )
    return sum(splits) * element
