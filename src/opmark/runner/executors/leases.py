"""The lease book of a fleet: who may measure on which device, and until when. One actor per cluster keeps it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from opmark.schema.fleet import FleetState, Lease, LeaseAnswer, Owner, conflict

TERM = 9.0
"""Seconds that a lease lasts unless it is renewed: as long as a device stays blocked after its holder was killed."""
RENEW_EVERY = TERM / 3


class LeaseBook:
    """Leases on the devices of all nodes. A lease that is not renewed expires, so that nobody has to tidy up."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._began = clock()
        self._leases: dict[str, Lease] = {}
        self._drained: dict[str, str] = {}
        self._used: dict[str, float] = {}
        """By node: when a lease on one of its devices ended last."""

    def acquire(self, devices: Sequence[str], owner: Owner) -> LeaseAnswer:
        """Lease devices of one node, all of them or none."""
        self._drop_expired()
        node = node_of(devices[0])
        if node in self._drained:
            return LeaseAnswer(None, drained=self._drained[node])
        for lease in self._leases.values():
            if any(conflict(one, other) for one in devices for other in lease.devices):
                return LeaseAnswer(None, held_by=lease)
        now = self._clock()
        lease = Lease(secrets.token_hex(8), tuple(devices), owner, now, now + TERM)
        self._leases[lease.token] = lease
        busy = any(node_of(other.devices[0]) == node for other in self._leases.values() if other is not lease)
        return LeaseAnswer(lease, idle=0.0 if busy else now - self._used.get(node, self._began))

    def renew(self, token: str) -> LeaseAnswer:
        """Lease for another term; without a lease in the answer, it has expired, and another may have the device."""
        self._drop_expired()
        lease = self._leases.get(token)
        if lease is None:
            return LeaseAnswer(None)
        self._leases[token] = replace(lease, expires=self._clock() + TERM)
        return LeaseAnswer(self._leases[token], drained=self._drained.get(node_of(lease.devices[0]), ""))

    def release(self, token: str) -> None:
        if lease := self._leases.pop(token, None):
            self._used[node_of(lease.devices[0])] = self._clock()

    def drain(self, node: str, reason: str) -> None:
        """Let a node take no more work, and hand back what it has not begun. Without a reason it takes work again."""
        if reason:
            self._drained[node] = reason
        else:
            self._drained.pop(node, None)

    def state(self) -> FleetState:
        self._drop_expired()
        return FleetState(list(self._leases.values()), dict(self._drained))

    def _drop_expired(self) -> None:
        now = self._clock()
        for lease in [lease for lease in self._leases.values() if lease.expires < now]:
            self.release(lease.token)


def node_of(device: str) -> str:
    return device.rpartition("/")[0]
