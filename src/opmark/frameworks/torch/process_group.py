"""Joins several processes to one world by torch.distributed, with the engine that torch has for their device."""

from __future__ import annotations

import datetime
import socket
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from opmark.errors import Unsupported
from opmark.plugin import Announce, Peers, World

_KEY = "opmark"
# The name before torch 2.12 or so warns in later ones.
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def make_store(world: World) -> dist.TCPStore:
    """The store by which the ranks find each other. torch's own listens on all addresses, and asks nobody who they are:
    on one host it is given a socket that listens on the loopback address alone."""
    port, listener = world.port, None
    if world.rank == 0 and world.on_one_host:
        listening = socket.create_server((world.host, 0))
        port, listener = listening.getsockname()[1], listening.detach()  # torch closes it
    return dist.TCPStore(
        world.host,
        port,
        world.size,
        world.rank == 0,
        timeout=datetime.timedelta(seconds=world.timeout),
        wait_for_workers=False,
        master_listen_fd=listener,
    )


class TorchTeam:
    """A process group. Data goes through the engine of the device; messages about it go through a group on the host, so
    that they never wait behind data."""

    def __init__(self, device: str, world: World, announce: Announce) -> None:
        if not dist.is_available():
            raise Unsupported(f"torch {torch.__version__} is a build without torch.distributed")
        self.engine = str(dist.get_default_backend_for_device(device))
        self._world = world
        within = self._within = datetime.timedelta(seconds=world.timeout)
        store = make_store(world)
        if world.rank == 0:
            announce(int(store.port))
        # Named by device, so that an engine which needs one (NCCL) does not guess it.
        place = torch.device(device, torch.get_device_module(device).current_device()) if device != "cpu" else None
        dist.init_process_group(
            self.engine,
            store=dist.PrefixStore(_KEY, store),
            rank=world.rank,
            world_size=world.size,
            timeout=within,
            device_id=place,
        )
        self._talk: Any = dist.new_group(backend="gloo", timeout=within)
        self._groups: dict[int, Peers] = {}

    def peers(self, size: int) -> Peers:
        if size not in self._groups:
            self._groups[size] = self._divided(size)
        return self._groups[size]

    def barrier(self) -> None:
        dist.barrier(self._talk)

    def gathered(self, values: Sequence[float]) -> list[list[float]]:
        mine = torch.tensor(list(values), dtype=torch.float64)
        every = torch.empty(self._world.size, len(values), dtype=torch.float64)
        _gather(every.view(-1), mine, group=self._talk)
        found: list[list[float]] = every.tolist()
        return found

    def leave(self) -> None:
        dist.destroy_process_group()

    def _divided(self, size: int) -> Peers:
        """Make all subgroups: torch wants every rank to make every group, its own or not."""
        world = self._world
        if size == world.size:
            return Peers(world.rank, size, 0, dist.group.WORLD)
        mine = None
        for first in range(0, world.size, size):
            group = dist.new_group(range(first, first + size), timeout=self._within)
            if first <= world.rank < first + size:
                mine = Peers(world.rank - first, size, first, group)
        assert mine is not None
        return mine
