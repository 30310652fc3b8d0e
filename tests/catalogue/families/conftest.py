"""Torch's operator database, read once: importing it takes seconds."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def frozen() -> bool:
    """Allow changes of torch's settings again, which reading the database forbids."""
    import torch

    from opmark.catalogue.families.opinfo_samples import database

    with torch.backends.__allow_nonbracketed_mutation():  # type: ignore[attr-defined]
        database()
        return bool(torch.backends.flags_frozen())
