"""Live backends; what torch keeps for the whole process is put back after each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from opmark.registry import backend


@pytest.fixture(autouse=True)
def torch_state() -> Iterator[None]:
    grad, threads = torch.is_grad_enabled(), torch.get_num_threads()
    matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    yield
    torch.set_grad_enabled(grad)
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, cudnn


@pytest.fixture
def null() -> Any:
    return backend("null").load(threads=1)


@pytest.fixture
def numpy_cpu() -> Any:
    return backend("numpy-cpu").load(threads=1)


@pytest.fixture
def torch_cpu() -> Any:
    return backend("torch-cpu").load(threads=1)
