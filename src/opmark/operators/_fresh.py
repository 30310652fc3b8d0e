"""Keywords of new torch tensors, for launches without inputs."""

from __future__ import annotations

from typing import Any

from opmark.schema import Params


def fresh(p: Params) -> dict[str, Any]:
    """Return element type and device of a new tensor: torch's default device at the time of building the launch."""
    import torch

    return {"dtype": getattr(torch, p["dtype"]), "device": torch.get_default_device()}
