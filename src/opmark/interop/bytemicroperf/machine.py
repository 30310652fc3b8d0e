"""The machine of a run: its device, processors, chip and ranks. Environment variables are restored afterwards."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from opmark.catalogue.workload_file import read
from opmark.errors import InvalidFile, UserError
from opmark.hardware.datasheets import datasheet, is_sheet, names, sheet_of
from opmark.hardware.host import NODES
from opmark.interop.bytemicroperf.report_figures import other_chip
from opmark.interop.bytemicroperf.selection import WorkloadEntry
from opmark.interop.visible_devices import VARIABLES, select_device, set_variables
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.runner.probe import probe
from opmark.runner.workload_source import read_source
from opmark.schema.machine import Peaks, chip


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


# The chip of `--vendor_path`: a file of vendor_zoo, or of opmark's own hardware format.

_FEW = 8
"""Names of chips that a message lists."""

ChipLookup = Callable[[Mapping[str, Any]], "Peaks | None"]
"""Finds the datasheet for the facts of an environment."""


def make_chip_lookup(path: Path | None, say: Callable[[str], None]) -> ChipLookup:
    """Return a lookup in a file, or without one in the datasheets that ship."""
    if path is None:
        return lambda facts: datasheet(chip(dict(facts)), facts.get("threads"))
    known = _read_chips(path)
    printed: set[str] = set()

    def once(line: str) -> None:
        if line not in printed:
            say(line)
        printed.add(line)

    return lambda facts: _find_chip(known, chip(dict(facts)), path, once)


def _read_chips(path: Path) -> Sequence[Peaks]:
    data = read(path)
    found: Sequence[Peaks] = sheet_of(data, str(path)).chips if is_sheet(data) else read_source(path).chips
    if not found:
        raise InvalidFile(
            f"{path}: the file describes no chip",
            "expected a file of vendor_zoo, or `chips` as in opmark's hardware files",
        )
    return found


def _find_chip(known: Sequence[Peaks], name: str, path: Path, say: Callable[[str], None]) -> Peaks | None:
    """Find a chip by name; the only chip of a file is used whatever its name, with a remark."""
    found = next((peaks for peaks in known if name in names(peaks)), None)
    if found is not None:
        return found
    if len(known) == 1:
        say(f"--vendor_path {path}: {other_chip(known[0], name)}")
        return known[0]
    listed = ", ".join(peaks.chip for peaks in known[:_FEW]) + (", ..." if len(known) > _FEW else "")
    say(f"--vendor_path {path}: none of its {len(known)} chips is `{name}`: it has {listed}; utilisation stays empty")
    return None


# Ranks of communication are limited to the number of devices, or to the list of `--device`.

_RANKS = "ranks"


class FittingItems(NamedTuple):
    items: list[WorkloadEntry]
    left_out: list[str]
    """One line for each task that is left out, in whole or in part."""


def fit_ranks(items: Sequence[WorkloadEntry], device: str | None, kind: str, *, v1: bool) -> FittingItems:
    """Leave out cases with more ranks than there are devices; `device` is the option, `kind` that of the backend."""
    most = _rank_limit(device, kind)
    kept: list[WorkloadEntry] = []
    lines: dict[str, None] = {}
    beyond: dict[str, set[int]] = {}
    for item in items:
        title, numbers = item.title(v1=v1), _rank_numbers(item)
        many = {ranks for ranks in numbers if most is not None and ranks > most}
        if kind == "cpu" and find_operator(item.entry.op).device_only:
            lines[f"{title}: left out, because there is no device beside the host"] = None
        elif not many:
            kept.append(item)
        else:
            beyond.setdefault(title, set()).update(many)
            kept += [_limit_ranks(item, most)] if most and len(many) < len(set(numbers)) else []
    for title, too_many in beyond.items():
        lines[_left_out_line(title, sorted(too_many), most, kind)] = None
    return FittingItems(kept, list(lines))


def _rank_limit(device: str | None, kind: str) -> int | None:
    """Return the most ranks; None where only the worker knows the number of devices."""
    if device not in (None, "all"):
        return len(str(device).split(","))
    return _cores() if kind == "cpu" else None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _left_out_line(title: str, numbers: Sequence[int], most: int | None, kind: str) -> str:
    listed = ", ".join(map(str, numbers))
    if kind == "cpu":
        return f"{title}: left out with {listed} ranks: there are {most}, one per core, or as many as --device lists"
    return f"{title}: left out with {listed} ranks: --device names {most}"


def most_ranks(items: Sequence[WorkloadEntry]) -> int:
    return max((ranks for item in items for ranks in _rank_numbers(item)), default=1)


def _rank_numbers(item: WorkloadEntry) -> list[int]:
    """Return the number of ranks of each value of the axis of ranks; none for an operator of one device."""
    found = _axis(item)
    return [_ranks(found[0], value) for value in found[1]] if found else []


def _axis(item: WorkloadEntry) -> tuple[str, list[Any]] | None:
    """Return key and values of `ranks`, or of a dotted key that contains it."""
    if item.kind == "compute":
        return None
    written = item.entry.params
    key = next((key for key in written if _RANKS in key.split(".")), None)
    if key is None:
        return None
    return key, written[key] if isinstance(written[key], list) else [written[key]]


def _ranks(key: str, value: Any) -> int:
    return int(value[key.split(".").index(_RANKS)] if "." in key else value)


def _limit_ranks(item: WorkloadEntry, most: int) -> WorkloadEntry:
    key, values = _axis(item) or ("", [])
    few = [value for value in values if _ranks(key, value) <= most]
    entry = replace(item.entry, params={**item.entry.params, key: few})
    return item._replace(entry=entry, cases=item.cases * len(few) // len(values))
