"""Placement of a run: its device, processors and environment variables, all restored afterwards."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opmark.compat.visible import VARIABLES, select_device, set_variables
from opmark.errors import InvalidFile, UserError
from opmark.registry import backend as find_backend
from opmark.runner.probe import probe
from opmark.schema.peaks import chip
from opmark.workloads.load import read

NODES = Path("/sys/devices/system/node")


@contextmanager
def apply_placement(options: argparse.Namespace, backend: str) -> Iterator[list[str]]:
    """Apply the options; the value is one line for each option that opmark takes differently from ByteMicroPerf."""
    variables, differences = _device_variables(options.device, backend)
    if options.env:
        variables |= _read_variables(options.env, backend)
    with set_variables(variables), _pin_to_processors(_processors_of_nodes(options.numa_node)):
        yield differences


def _device_variables(option: str | None, backend: str) -> tuple[dict[str, str], list[str]]:
    """Return variables that select devices: one per rank of communication; all else is measured on the first."""
    if option is None:
        return {}, []
    if option == "all":
        return {}, ["--device all: communication uses as many as it needs; all else is measured on the first"]
    numbers = [part.strip() for part in option.split(",")]
    if not all(number.isdecimal() for number in numbers):
        raise UserError(f"--device: expected numbers or all, got `{option}`", "as in --device 0")
    kind = find_backend(backend).device
    seen: dict[str, list[str]] = {}
    for number in numbers if kind in VARIABLES else numbers[:1]:
        for variable, value in select_device(kind, int(number), f"--device {number}").items():
            seen.setdefault(variable, []).append(value)
    first = f"--device {option}: communication uses these; all else is measured on {numbers[0]}"
    return {variable: ",".join(values) for variable, values in seen.items()}, [first] if len(numbers) > 1 else []


def _processors_of_nodes(option: str | None) -> set[int] | None:
    """Return the processors of the nodes of `--numa_node`; None for all."""
    if option is None or option == "-1":
        return None
    found: set[int] = set()
    for node in option.split(","):
        listed = NODES / f"node{node.strip()}" / "cpulist"
        if not node.strip().isdecimal() or not listed.is_file():
            known = sorted(path.name.removeprefix("node") for path in NODES.glob("node[0-9]*"))
            raise UserError(
                f"--numa_node: no node `{node.strip()}` on this machine",
                f"its nodes are {', '.join(known)}" if known else "the kernel lists no nodes; leave it out",
            )
        found |= _parse_cpu_list(listed.read_text().strip())
    if not found:
        raise UserError(f"--numa_node {option}: it has memory but no processors", "leave it out, or name another node")
    return found


def _parse_cpu_list(listed: str) -> set[int]:
    """Parse a list of the kernel, as in `0-3,8`."""
    found: set[int] = set()
    for part in filter(None, listed.split(",")):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    return found


def _read_variables(path: Path, backend: str) -> dict[str, str]:
    """Read the variables of all devices and of this one; as in ByteMicroPerf, variables that are set already stay."""
    data = read(path)
    if not isinstance(data, dict) or not all(isinstance(part, dict) for part in data.values()):
        raise InvalidFile(f"{path}: expected variables by device", 'as in {"common": {"OMP_NUM_THREADS": "8"}}')
    found: dict[str, Any] = dict(data.get("common", {}))
    if data.keys() - {"common"}:
        facts = probe([find_backend(backend)])[0].facts or {}
        found |= data.get(chip(facts), {})
    return {str(name): str(value) for name, value in found.items() if str(name) not in os.environ}


@contextmanager
def _pin_to_processors(chosen: set[int] | None) -> Iterator[None]:
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
