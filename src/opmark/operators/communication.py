"""Names of communication operators, which take several processes: asked for, they say so instead of being unknown."""

from __future__ import annotations

from opmark.errors import UserError

NAMES = frozenset({
    "all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter", "reducescatter", "all_to_all", "alltoall",
    "broadcast", "reduce", "p2p", "barrier", "host2device", "device2host", "all_reduce_h2d", "moe_dispatch_tokens",
})  # fmt: skip


class _Communication:
    last = False

    def operator(self, name: str) -> None:
        if name in NAMES:
            raise UserError(
                f"`{name}` moves data between processes or devices, and this version of opmark measures one of them",
                "`opmark run copy` measures how fast a device moves data of its own",
            )

    def names(self, pattern: str) -> None:
        return None


COMMUNICATION = _Communication()
