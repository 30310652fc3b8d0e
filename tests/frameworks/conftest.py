"""Torch's operator database, read once: importing it takes seconds."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def frozen() -> bool:
    """Whether torch's settings cannot be changed once the database was read; here they can, for the tests that do."""
    import torch

    from opmark.frameworks.opinfo_samples import database

    with torch.backends.__allow_nonbracketed_mutation():  # type: ignore[attr-defined]
        database()
        return bool(torch.backends.flags_frozen())
