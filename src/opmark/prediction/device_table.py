"""Tables of times per device: what a schedule over several devices is predicted from, on machines that have none of
them. A table is a YAML or JSON file that `opmark schedule PROGRAM --times FILE` writes, or a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from opmark.errors import InvalidFile, UserError
from opmark.files import whole_file
from opmark.prediction.equilibrium import DeviceTimes
from opmark.prediction.optimum import MOST_UNITS
from opmark.prediction.units import UnitGraph, make_units
from opmark.schema.schedule import OperatorGraph

VERSION = 1


class TableOperator(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    seconds: dict[str, float]
    """By device; a device that cannot run it is left out."""
    needs: list[int] = []
    """Places of the operators that it waits for, counted from 0."""
    nbytes: int = 0
    """Bytes of its results."""


class DeviceTransfer(Struct, frozen=True, forbid_unknown_fields=True):
    """What it costs to move a result from one device to another."""

    seconds: float = 0.0
    """For any result, however small."""
    bandwidth: float = inf
    """Bytes per second on top."""


class DeviceTable(Struct, frozen=True, forbid_unknown_fields=True):
    operators: list[TableOperator]
    program: str = ""
    digest: str = ""
    """The hash of the program's graph: tables of different programs are not joined."""
    transfers: dict[str, DeviceTransfer] = {}
    """By `FROM>TO`."""
    version: int = VERSION

    @property
    def devices(self) -> list[str]:
        return list(dict.fromkeys(name for one in self.operators for name in one.seconds))

    def graph(self) -> OperatorGraph:
        """Return the operators as a graph; UserError if they wait for each other."""
        return OperatorGraph(
            [one.name for one in self.operators], [list(one.needs) for one in self.operators], self.digest,
            [one.nbytes for one in self.operators],
        )  # fmt: skip


def read_tables(paths: Sequence[Path]) -> DeviceTable:
    """Return the table of several files: the same operators, with the devices of all of them."""
    tables = [_read(path) for path in paths]
    first = tables[0]
    for path, other in zip(paths[1:], tables[1:], strict=True):
        same = (first.digest, [(one.name, one.needs) for one in first.operators]) == (
            other.digest, [(one.name, one.needs) for one in other.operators])  # fmt: skip
        if not same:
            raise UserError(
                f"{path}: its operators are not those of {paths[0]}",
                "write both tables for the same program: `opmark schedule PROGRAM --times FILE` on each machine",
            )
        if twice := sorted(set(first.devices) & set(other.devices)):
            raise UserError(f"{path}: device {', '.join(twice)} is in {paths[0]} too", "rename it in one of the files")
        first = msgspec.structs.replace(
            first,
            operators=[
                msgspec.structs.replace(one, seconds={**one.seconds, **more.seconds})
                for one, more in zip(first.operators, other.operators, strict=True)
            ],
            transfers={**first.transfers, **other.transfers},
        )
    return first


def _read(path: Path) -> DeviceTable:
    try:
        document: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        found = msgspec.convert(document, DeviceTable, strict=False)  # YAML takes 1e-5 for a text
    except (yaml.YAMLError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise InvalidFile(f"{path}: this is no table of times: {error}", "docs/schedule.md has an example") from None
    for place, one in enumerate(found.operators):
        if one.nbytes < 0:
            raise InvalidFile(f"{path}: operator {place} ({one.name}): its results have {one.nbytes} bytes")
        for name, value in one.seconds.items():
            if not 0 < value < inf:
                raise InvalidFile(f"{path}: operator {place} ({one.name}): {value:g} s on {name}; a time is above 0")
    for name, transfer in found.transfers.items():
        if name.count(">") != 1 or not 0 <= transfer.seconds < inf or not transfer.bandwidth > 0:
            raise InvalidFile(f"{path}: transfer `{name}`: expected FROM>TO with seconds and a bandwidth above 0")
    if not found.operators:
        raise InvalidFile(f"{path}: the table has no operators", "`opmark schedule PROGRAM --times FILE` writes one")
    return found


def write_table(table: DeviceTable, path: Path) -> None:
    document = msgspec.to_builtins(table)
    with whole_file(path) as file:
        file.write(yaml.safe_dump(document, sort_keys=False, width=120).encode())


def device_times(table: DeviceTable, devices: Sequence[str]) -> tuple[UnitGraph, DeviceTimes]:
    """Return the units of a table, and what they cost on these devices. Each operator is a unit, because neighbours may
    be fastest on different devices; where there are too many for the solver, chains and short operators are joined, as
    far as a device can run them all."""
    graph = table.graph()
    absent = [name for name in devices if name not in table.devices]
    if absent:
        raise UserError(
            f"no times of {', '.join(absent)}: the table has {', '.join(table.devices) or 'no device'}",
            f"`opmark schedule {table.program or 'PROGRAM'} --no-run --times FILE`, started where it is, measures it",
        )
    for place, one in enumerate(table.operators):
        if not set(one.seconds) & set(devices):
            raise UserError(f"operator {place} ({one.name}) has no time on {' or '.join(devices)}")
    for name in table.transfers:
        if unknown := [device for device in name.split(">") if device not in table.devices]:
            raise UserError(
                f"transfer `{name}`: no operator has a time on {' or '.join(unknown)}",
                f"the devices of the table are {', '.join(table.devices)}",
            )
    seconds = [min(one.seconds[name] for name in devices if name in one.seconds) for one in table.operators]
    everywhere = all(set(devices) <= set(one.seconds) for one in table.operators)
    # Where some operators cannot run everywhere, joining them could leave no device that runs a unit.
    joined = everywhere and len(seconds) > MOST_UNITS
    units = make_units(graph, seconds, _shortest(seconds)) if joined else _each_alone(graph, seconds)
    rows = []
    for members in units.members:
        own = [table.operators[i].seconds for i in members]
        rows.append(tuple(
            sum(one[name] for one in own) if all(name in one for one in own) else inf for name in devices
        ))  # fmt: skip
    transfers = unit_transfers(units, graph, devices, table.transfers)
    return units, DeviceTimes(tuple(devices), tuple(rows), units.needs, transfers)


def unit_transfers(
    units: UnitGraph, graph: OperatorGraph, devices: Sequence[str], transfers: Mapping[str, DeviceTransfer]
) -> dict[tuple[int, int], dict[tuple[int, int], float]]:
    """Return by (from, to) unit what it costs to send results, by (from, to) device."""
    found: dict[tuple[int, int], dict[tuple[int, int], float]] = {}
    owner = {operator: unit for unit, members in enumerate(units.members) for operator in members}
    for unit, members in enumerate(units.members):
        for before in units.needs[unit]:
            sent = {i for m in members for i in graph.needs[m] if owner[i] == before}
            nbytes = sum(graph.nbytes[i] for i in sent)
            found[before, unit] = {
                (a, b): transfer.seconds + nbytes / transfer.bandwidth
                for a, source in enumerate(devices)
                for b, target in enumerate(devices)
                if a != b and (transfer := transfers.get(f"{source}>{target}")) is not None
            }
    return found


def _shortest(seconds: Sequence[float]) -> float:
    """Return the time below which operators are joined: a hundredth of the whole, so that tables in any unit of time
    give graphs that can be solved."""
    return sum(seconds) / 100


def _each_alone(graph: OperatorGraph, seconds: Sequence[float]) -> UnitGraph:
    from opmark.schema.schedule import topological_order

    order = topological_order(graph.needs)
    place = {operator: unit for unit, operator in enumerate(order)}
    return UnitGraph(
        tuple((operator,) for operator in order),
        tuple(frozenset(place[before] for before in graph.needs[operator]) for operator in order),
        tuple(seconds[operator] for operator in order),
    )
