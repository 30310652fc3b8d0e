"""The network interface that an address of this host belongs to: engines want it by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address

import psutil

VARIABLE = "GLOO_SOCKET_IFNAME"


def is_loopback(address: str) -> bool:
    return ip_address(address).is_loopback


def interface_of(address: str) -> str | None:
    """None where no interface has it, as behind an address that a router translates."""
    wanted = ip_address(address)
    for name, addresses in psutil.net_if_addrs().items():
        for one in addresses:
            try:
                there = ip_address(one.address.partition("%")[0])
            except ValueError:  # that of the hardware
                continue
            # Every address that begins with 127 is on the loopback interface, which lists only the first.
            if there == wanted or (there.is_loopback and wanted.is_loopback):
                return name
    return None


def through(environ: Mapping[str, str], address: str) -> dict[str, str]:
    """The variables of a worker, with the interface of this address where they name none.

    Left alone, gloo takes that of the host's name, which may lead to an address that no other host can reach. What the
    user of this host has chosen comes first.
    """
    others = {name: value for name, value in environ.items() if name != VARIABLE}
    if VARIABLE in os.environ:
        return others
    found = environ.get(VARIABLE) or interface_of(address)
    return {**others, VARIABLE: found} if found else others
