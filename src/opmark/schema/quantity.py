"""Quantity: what can be measured of a call. Stored by name; a number without its quantity means nothing."""

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
    """When this is the one to look at."""
    on: Literal["device", "host", "any"]
    """Where there is such a thing: on a device with a clock of its own, for an asynchronous caller, or anywhere."""
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
        "from the call until it returns, its work perhaps still to be done",
        "launch cost: where it exceeds device_time, the framework and not the device is the limit",
        "host",
    ),
    Quantity(
        "throughput",
        "time a call of many back-to-back calls, waited for once",
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
        "energy a call of a loop that is long against the steps of the sensor, idle power included",
        "joules a call and, over the flops, a joule; only where the device or the processor counts its energy",
        "any",
        "J",
    ),
)

QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for quantity in _ALL}
