"""The part of opmark that Ray loads on a node: thin actors around `seat`, `leases` and `node`. All arguments and
results are bytes that msgspec has encoded, texts and numbers.

Ray sends these classes by value. They import the rest where they run, so that a node runs its own opmark, whose version
the driver compares with its own.
"""

from __future__ import annotations

from typing import Any

import ray

NAMESPACE = "opmark"
BOOK = "opmark-leases"


@ray.remote(num_cpus=0, max_retries=0)
def describe(request: bytes) -> bytes:
    from opmark.runner.executors.node import describe_node

    return describe_node(request)


@ray.remote(num_cpus=0)
class LeaseActor:
    """Keeps the lease book of a cluster. It is detached: it outlives the driver that has made it."""

    def __init__(self) -> None:
        from opmark.runner.executors.leases import LeaseBook

        self._book = LeaseBook()

    def acquire(self, devices: list[str], owner: bytes) -> bytes:
        import msgspec

        from opmark.schema.fleet import Owner, encode

        return encode(self._book.acquire(devices, msgspec.json.decode(owner, type=Owner)))

    def renew(self, token: str) -> bytes:
        from opmark.schema.fleet import encode

        return encode(self._book.renew(token))

    def release(self, token: str) -> None:
        self._book.release(token)

    def drain(self, node: str, reason: str) -> None:
        self._book.drain(node, reason)

    def state(self) -> bytes:
        from opmark.schema.fleet import encode

        return encode(self._book.state())


class BookClient:
    """The lease book as plain Python, for whoever holds a handle of its actor."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def acquire(self, devices: Any, owner: Any) -> Any:
        from opmark.schema.fleet import LeaseAnswer, encode

        return self._ask(LeaseAnswer, self._actor.acquire, list(devices), encode(owner))

    def renew(self, token: str) -> Any:
        from opmark.schema.fleet import LeaseAnswer

        return self._ask(LeaseAnswer, self._actor.renew, token)

    def release(self, token: str) -> None:
        ray.get(self._actor.release.remote(token))

    def drain(self, node: str, reason: str) -> None:
        ray.get(self._actor.drain.remote(node, reason))

    def state(self) -> Any:
        from opmark.schema.fleet import FleetState

        return self._ask(FleetState, self._actor.state)

    def _ask(self, kind: Any, method: Any, *arguments: Any) -> Any:
        import msgspec

        return msgspec.json.decode(ray.get(method.remote(*arguments)), type=kind)


def lease_book() -> BookClient:
    """Return the lease book of the cluster that this process belongs to; make it if nobody has."""
    options = {"name": BOOK, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
    # On the head, without which there is no cluster: on another node it would forget all leases when that one leaves.
    head = {"node:__internal_head__": 0.001}
    return BookClient(LeaseActor.options(**options, max_restarts=-1, resources=head).remote())  # type: ignore[attr-defined]


@ray.remote(max_restarts=0, max_task_retries=0)
class SeatActor:
    """A seat on a node. Answering runs beside measuring, which other threads do."""

    def __init__(self, options: bytes) -> None:
        from opmark.runner.executors.seat import Seat

        given = ray.get_runtime_context().get_accelerator_ids()
        ids = [str(one) for found in given.values() for one in found]
        self._seat = Seat(options, ids, lease_book())

    def open(self) -> bytes:
        return self._seat.open()

    def submit(self, unit: bytes) -> None:
        self._seat.submit(unit)

    def news(self, after: int) -> bytes:
        return self._seat.news(after)

    def stop(self, reason: str) -> None:
        self._seat.stop(reason)

    def close(self) -> None:
        self._seat.close()
