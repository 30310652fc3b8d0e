"""Load: requests of several clients to one loaded model, and what a load generator saw of them."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

Arrival = Literal["closed", "constant", "poisson"]
ARRIVALS: tuple[Arrival, ...] = get_args(Arrival)
"""`closed`: each client sends its next request when it has the answer to the last. `constant` and `poisson`: requests
are due at times that do not depend on answers, evenly spaced or at random."""


class Load(Struct, frozen=True):
    clients: int
    """Number of clients. In an open loop, the number of requests that can be in work at the same time."""
    requests: int = 100
    """Requests of each client."""
    arrival: Arrival = "closed"
    rate: float = 0.0
    """Requests per second of all clients together; 0 in a closed loop."""
    request_timeout: float = 30.0
    """Seconds after which a request counts as hanging."""

    @property
    def total(self) -> int:
        """Requests of all clients together."""
        return self.clients * self.requests

    @property
    def text(self) -> str:
        """The load as tables name it, without what only decides how long it lasts: `4 clients`, `4 clients, poisson
        500/s`. Figures are compared only where this is the same."""
        clients = "1 client" if self.clients == 1 else f"{self.clients} clients"
        return clients if self.arrival == "closed" else f"{clients}, {self.arrival} {self.rate:g}/s"


def parse_load_text(text: str) -> tuple[int, Arrival, float]:
    """Return clients, arrival and rate of a load that is written as `Load.text` writes it."""
    clients, _, rest = text.partition(", ")
    arrival, _, rate = rest.partition(" ")
    known: Arrival = next((one for one in ARRIVALS if one == arrival), "closed")
    return int(clients.partition(" ")[0]), known, float(rate.removesuffix("/s") or 0)


class LoadFacts(Struct, frozen=True):
    """What was seen of a load beside the latencies of its requests, which are the samples of the measurement. Samples,
    `due` and `late` have the order in which the requests were due."""

    load: Load
    window: float
    """Seconds from the moment that the first request was due to the last answer."""
    in_flight: float
    """Mean number of requests in flight over the window, from a counter of its own: Little's law says that it equals
    the throughput times the mean latency."""
    due: tuple[float, ...] = ()
    """Seconds after the beginning of the window at which each request was due."""
    late: tuple[float, ...] = ()
    """Seconds by which the generator itself began each request too late, although a client was free; open loop
    only."""
    overhead: float = 0.0
    """Seconds that the generator adds to a request, measured with a model that does nothing."""
