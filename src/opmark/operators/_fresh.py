"""For launches that make torch tensors without an input to go by."""

from __future__ import annotations

from typing import Any

from opmark.schema import Params


def fresh(p: Params) -> dict[str, Any]:
    """Element type and device of a new tensor: the device is torch's default one while the launch is being built."""
    import torch

    return {"dtype": getattr(torch, p["dtype"]), "device": torch.get_default_device()}
