"""Live backends for the tests of operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from opmark.registry import backend


@pytest.fixture
def numpy_cpu() -> Any:
    return backend("numpy-cpu").load(threads=1)


@pytest.fixture
def torch_cpu() -> Iterator[Any]:
    """The torch backend; what it sets for the whole process is put back."""
    grad, threads = torch.is_grad_enabled(), torch.get_num_threads()
    yield backend("torch-cpu").load(threads=1)
    torch.set_grad_enabled(grad)
    torch.set_num_threads(threads)
