"""What the tests of TVM share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from opmark.plugin.registry import backend
from opmark.worker.task_runner import TaskRunner


@pytest.fixture(scope="module")
def runner() -> Iterator[TaskRunner]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_BIND_THREADS", "0")
        patch.setenv("TVM_NUM_THREADS", "1")
        info = backend("tvm-cpu")
        yield TaskRunner(info, info.load(threads=1))
