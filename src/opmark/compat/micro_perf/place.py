"""Where it runs: which device, which processors, which environment variables. All is as it was afterwards."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opmark.compat.visible import VARIABLES, environment, only
from opmark.errors import InvalidFile, UserError
from opmark.registry import backend as find_backend
from opmark.runner.probe import probe
from opmark.schema.peaks import chip
from opmark.workloads.load import read

NODES = Path("/sys/devices/system/node")


@contextmanager
def placed(given: argparse.Namespace, backend: str) -> Iterator[list[str]]:
    """What of it was understood in another way than it was written, a line each."""
    variables, said = _device(given.device, backend)
    if given.env:
        variables |= _variables(given.env, backend)
    with environment(variables), _processors(_of_nodes(given.numa_node)):
        yield said


def _device(asked: str | None, backend: str) -> tuple[dict[str, str], list[str]]:
    """Communication has one of them a rank, in this order; all else is measured on the first."""
    if asked is None:
        return {}, []
    if asked == "all":
        return {}, ["--device all: communication uses as many as it needs; all else is measured on the first"]
    numbers = [part.strip() for part in asked.split(",")]
    if not all(number.isdecimal() for number in numbers):
        raise UserError(f"--device: expected numbers or all, got `{asked}`", "as in --device 0")
    kind = find_backend(backend).device
    seen: dict[str, list[str]] = {}
    for number in numbers if kind in VARIABLES else numbers[:1]:
        for variable, value in only(kind, int(number), f"--device {number}").items():
            seen.setdefault(variable, []).append(value)
    first = f"--device {asked}: communication uses these; all else is measured on {numbers[0]}"
    return {variable: ",".join(values) for variable, values in seen.items()}, [first] if len(numbers) > 1 else []


def _of_nodes(asked: str | None) -> set[int] | None:
    """The processors of the nodes that are asked for; None for all."""
    if asked is None or asked == "-1":
        return None
    found: set[int] = set()
    for node in asked.split(","):
        listed = NODES / f"node{node.strip()}" / "cpulist"
        if not node.strip().isdecimal() or not listed.is_file():
            known = sorted(path.name.removeprefix("node") for path in NODES.glob("node[0-9]*"))
            raise UserError(
                f"--numa_node: no node `{node.strip()}` on this machine",
                f"its nodes are {', '.join(known)}" if known else "the kernel lists none; leave it out",
            )
        found |= _numbers(listed.read_text().strip())
    if not found:
        raise UserError(f"--numa_node {asked}: it has memory and no processors", "leave it out, or name another one")
    return found


def _numbers(listed: str) -> set[int]:
    """`0-3,8` as the kernel writes it."""
    found: set[int] = set()
    for part in filter(None, listed.split(",")):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    return found


def _variables(path: Path, backend: str) -> dict[str, str]:
    """Those of all devices and of the one here; what is set already stays, as there."""
    data = read(path)
    if not isinstance(data, dict) or not all(isinstance(part, dict) for part in data.values()):
        raise InvalidFile(f"{path}: expected variables by device", 'as in {"common": {"OMP_NUM_THREADS": "8"}}')
    found: dict[str, Any] = dict(data.get("common", {}))
    if data.keys() - {"common"}:
        facts = probe([find_backend(backend)])[0].facts or {}
        found |= data.get(chip(facts), {})
    return {str(name): str(value) for name, value in found.items() if str(name) not in os.environ}


@contextmanager
def _processors(chosen: set[int] | None) -> Iterator[None]:
    if chosen is None:
        yield
        return
    if not hasattr(os, "sched_setaffinity"):
        raise UserError("--numa_node: this system cannot pin a process to processors", "leave it out")
    before = os.sched_getaffinity(0)
    if not chosen & before:
        raise UserError("--numa_node: this process may not use any processor of that node", "leave it out")
    os.sched_setaffinity(0, chosen & before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
