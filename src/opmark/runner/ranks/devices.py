"""Who computes where: ranks of an engine that needs a device each must not share one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opmark.interfaces import BackendInfo
from opmark.units import counted


def shared_device(info: BackendInfo, facts: Sequence[Mapping[str, Any]]) -> str | None:
    """Why these ranks cannot be one world: more of them than devices; None where each has its own, or needs none."""
    if info.device == "cpu":
        return None
    holders: dict[tuple[Any, Any], list[int]] = {}
    for rank, one in enumerate(facts):
        if "gpu_uuid" in one:
            holders.setdefault((one.get("machine"), one["gpu_uuid"]), []).append(rank)
    for (_, device), ranks in holders.items():
        if len(ranks) > 1:
            named = " and ".join(map(str, ranks))
            there = f"{counted(len(holders), 'device')} {'is' if len(holders) == 1 else 'are'} there"
            return f"{counted(len(facts), 'rank')} need a device each, {there}: ranks {named} would share {device}"
    return None
