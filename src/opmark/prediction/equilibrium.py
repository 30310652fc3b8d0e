"""Parallel operators on resources that they do not share: a Nash equilibrium by best response.

Every unit is a player who chooses a device. A device runs one unit at a time and takes next the unit that could begin
first; what a unit needs from another device has to be transferred. A player's cost is the time when its unit is done.
Players move one after the other to the device where they are done first, until nobody moves: then no player can do
better alone, although all of them together might. How much that costs, the price of anarchy, is the makespan of the
worst equilibrium that was found divided by the optimum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from random import Random

_MOST_ROUNDS = 200
_STARTS = 8
_LEAST_GAIN = 1e-12
"""Seconds below which a move gains nothing."""


@dataclass(frozen=True)
class DeviceTimes:
    """What units cost on each device, and what it costs to move a result from one to another."""

    devices: tuple[str, ...]
    seconds: tuple[tuple[float, ...], ...]
    """seconds[unit][device]; infinite where a unit cannot run there."""
    needs: tuple[frozenset[int], ...]
    transfers: Mapping[tuple[int, int], Mapping[tuple[int, int], float]]
    """By (from, to) unit: seconds by (from, to) device."""

    def transfer(self, before: int, unit: int, source: int, target: int) -> float:
        if source == target:
            return 0.0
        return self.transfers.get((before, unit), {}).get((source, target), 0.0)


@dataclass(frozen=True)
class PlayedSchedule:
    """Units on devices, with the times that follow."""

    devices: tuple[int, ...]
    """The device of each unit."""
    starts: tuple[float, ...]
    ends: tuple[float, ...]

    @property
    def makespan(self) -> float:
        return max(self.ends, default=0.0)


@dataclass(frozen=True)
class Equilibria:
    best: PlayedSchedule
    worst: PlayedSchedule
    found: int
    """Number of different equilibria."""
    started: int
    """Number of starts; one that goes round in a circle finds none."""
    moves: int


def play(times: DeviceTimes, devices: Sequence[int]) -> PlayedSchedule:
    """Return what happens when each unit runs on its device: devices are never idle while a unit could begin."""
    count = len(devices)
    waits = [set(before) for before in times.needs]
    followers: list[list[int]] = [[] for _ in range(count)]
    for unit, before in enumerate(times.needs):
        for other in before:
            followers[other].append(unit)
    free = [0.0] * len(times.devices)
    starts, ends = [inf] * count, [inf] * count
    ready = [(0.0, unit) for unit, before in enumerate(waits) if not before]
    heapify(ready)
    waiting: list[list[tuple[float, int]]] = [[] for _ in times.devices]
    left = count
    while left:
        while ready:
            at, unit = heappop(ready)
            heappush(waiting[devices[unit]], (at, unit))
        # The device that can begin something first does so; on it, the unit that has waited longest.
        device = min(
            (one for one in range(len(waiting)) if waiting[one]),
            key=lambda one: (max(free[one], waiting[one][0][0]), one),
        )
        at, unit = heappop(waiting[device])
        starts[unit] = max(free[device], at)
        ends[unit] = starts[unit] + times.seconds[unit][device]
        free[device] = ends[unit]
        left -= 1
        for follower in followers[unit]:
            waits[follower].discard(unit)
            if not waits[follower]:
                place = devices[follower]
                arrived = max(
                    ends[other] + times.transfer(other, follower, devices[other], place)
                    for other in times.needs[follower]
                )
                heappush(ready, (arrived, follower))
    return PlayedSchedule(tuple(devices), tuple(starts), tuple(ends))


def best_response(times: DeviceTimes, start: Sequence[int]) -> tuple[PlayedSchedule | None, int]:
    """Return the equilibrium that is reached from a start, and the number of moves; None where players go round in a
    circle."""
    devices, moves = list(start), 0
    seen = {tuple(devices)}
    for _ in range(_MOST_ROUNDS):
        moved = False
        for unit in range(len(devices)):
            better = _better_device(times, devices, unit)
            if better is not None:
                devices[unit] = better
                moves += 1
                moved = True
        if not moved:
            return play(times, devices), moves
        if tuple(devices) in seen:
            return None, moves
        seen.add(tuple(devices))
    return None, moves


def _better_device(times: DeviceTimes, devices: Sequence[int], unit: int) -> int | None:
    """Return the device where a unit is done first, if that is not where it is."""
    tried = list(devices)
    now = play(times, tried).ends[unit]
    best, found = now - _LEAST_GAIN, None
    for device in range(len(times.devices)):
        if device == devices[unit] or times.seconds[unit][device] == inf:
            continue
        tried[unit] = device
        if (end := play(times, tried).ends[unit]) < best:
            best, found = end, device
    return found


def is_equilibrium(times: DeviceTimes, devices: Sequence[int]) -> bool:
    return all(_better_device(times, devices, unit) is None for unit in range(len(devices)))


def fastest_devices(times: DeviceTimes) -> list[int]:
    """Return for each unit the device that runs it fastest."""
    return [min(range(len(own)), key=lambda device: own[device]) for own in times.seconds]


def find_equilibria(times: DeviceTimes, seed: int = 0, starts: int = _STARTS) -> Equilibria | None:
    """Return the best and the worst equilibrium from several starts: everything on its fastest device, everything on
    one device, and random ones. None where no start leads to one."""
    generator = Random(seed)
    count = len(times.needs)
    profiles = [fastest_devices(times)]
    for device in range(len(times.devices)):
        if all(own[device] < inf for own in times.seconds):
            profiles.append([device] * count)
    usable = [[d for d, seconds in enumerate(own) if seconds < inf] for own in times.seconds]
    profiles += [[generator.choice(own) for own in usable] for _ in range(starts)]
    found: dict[tuple[int, ...], PlayedSchedule] = {}
    moves = 0
    for profile in profiles:
        reached, made = best_response(times, profile)
        moves += made
        if reached is not None:
            found[reached.devices] = reached
    if not found:
        return None
    ranked = sorted(found.values(), key=lambda one: (one.makespan, one.devices))
    return Equilibria(ranked[0], ranked[-1], len(found), len(profiles), moves)
