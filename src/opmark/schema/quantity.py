"""Quantity: what can be measured of a call. A number without its quantity means nothing."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Cache = Literal["cold", "warm"]
CACHES: tuple[Cache, ...] = ("cold", "warm")
"""`cold`: inputs and outputs are in no cache when the call begins. `warm`: they are where the last call left them."""


class Quantity(Struct, frozen=True):
    name: str
    meaning: str
    use: str
    """When to look at this quantity."""
    on: Literal["device", "host", "any"]
    """Where it exists: on a device with its own clock, on a host that launches asynchronously, or anywhere."""
    unit: Literal["s", "J"] = "s"


_ALL = (
    Quantity(
        "device_time",
        "time that the device worked for the call: the sum over its kernels, copies and fills",
        "how good are the kernels; to hold against a profiler, the roofline and another chip",
        "device",
    ),
    Quantity(
        "device_span",
        "from the start of the call's first kernel to the end of its last, with launches out of the way",
        "what a call costs inside a captured graph or a full queue: gaps between its kernels count",
        "device",
    ),
    Quantity(
        "latency",
        "from the call until its work is done, waiting included",
        "what one caller waits for; on a CPU the time of the operator",
        "any",
    ),
    Quantity(
        "host_time",
        "from the call until it returns, even if its work is not done yet",
        "launch cost: where it exceeds device_time, the framework and not the device is the limit",
        "host",
    ),
    Quantity(
        "throughput",
        "time per call of many back-to-back calls with one wait at the end",
        "sustained speed, with launches overlapping work and clocks under lasting load",
        "any",
    ),
    Quantity(
        "event_time",
        "between two events recorded around the call, gaps between launches included",
        "to compare with tools that time this way (PARAM's continuous_events); device_time is the truer one",
        "device",
    ),
    Quantity(
        "energy",
        "energy per call of a loop that is long compared with the sensor's step, idle power included",
        "joules per call and flops per joule; only where the device or the processor counts its energy",
        "any",
        "J",
    ),
)

QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for quantity in _ALL}
