"""Cost of reading a large file of another system: 10,000 cases, about 5 MB, of PARAM and of ByteMicroPerf."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from benchmarks.common import OPMARK, Row, Shell
from opmark.api.import_ import read_workload

CASES = 10_000
TARGET = 1.0
REPEATS = 3


def rows(shell: Shell) -> list[Row]:
    return [row for name, content in (("PARAM", _param), ("ByteMicroPerf", _bytemicroperf))
            for row in _import_rows(shell, name, content)]  # fmt: skip


def _import_rows(shell: Shell, name: str, content: Callable[[], Any]) -> list[Row]:
    path = shell.folder / f"{name.lower()}.json"
    path.write_text(json.dumps(content(), indent=2))
    took = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        workload = read_workload(path)
        took.append(time.perf_counter() - started)
        assert len(workload.cases) == CASES, workload.problems[:1]
    whole = min(shell.time(OPMARK, "import", str(path), "-o", str(shell.folder / "o.json")) for _ in range(REPEATS))
    what = f"importing {path.stat().st_size / 1e6:.1f} MB of {name}, {CASES:,} cases"
    target = f"less than {TARGET:g} s"
    return [
        Row(what, target, f"{min(took):.2f} s", min(took) < TARGET),
        Row(
            f"the same from the shell, written as a workload of ours ({name})", target, f"{whole:.2f} s", whole < TARGET
        ),
    ]


def _param() -> dict[str, Any]:
    def tensor(*shape: int) -> dict[str, Any]:
        return {"type": "tensor", "dtype": "float", "shape": list(shape)}

    specs = [{"args": [tensor(16 + i, 64), tensor(64, 256)]} for i in range(CASES)]
    return {"torch.mm": {"input_data_generator": "PyTorch:DefaultDataGenerator", "config": [{"input": specs}]}}


def _bytemicroperf() -> dict[str, Any]:
    dtypes = ("float32", "bfloat16")
    return {
        "gemm": [
            {
                "arg_type": "llm",
                "dtype": dtype,
                "sp_size": 1,
                "num_tokens": 16 + i,
                "hidden_size": 64,
                "new_hidden_size": 256,
            }
            for i in range(CASES // 2)
            for dtype in dtypes
        ]
    }
