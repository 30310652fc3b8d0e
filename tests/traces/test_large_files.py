"""Memory that reading a large trace takes, measured in a process of its own."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.trace_files import FLIPPED, MATRIX, PRODUCT, call

SIZE = 10_000_000
PROGRAM = """
import sys
from opmark.traces.reading import read_trace

def most():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024

before = most()
trace = read_trace(sys.argv[1])
print(len(trace.nodes), most() - before)
"""


def items(kind: str) -> Any:
    number = 10
    while True:
        number += 5
        if kind == "nodes":
            tensors = [[number + i, number + i + 1, 0, 8, 4, "cpu"] for i in (1, 3)]
            yield PRODUCT | {"id": number, "inputs": PRODUCT["inputs"] | {"values": tensors}}
        else:
            yield call("aten::mm", 10.5 * number, 10.25, MATRIX, FLIPPED, External_id=number, Record_function_id=number)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel does not say what memory was used")
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize(("kind", "head"), [("nodes", '"schema": "1.1.1", '), ("traceEvents", "")])
def test_reading_takes_at_most_three_times_the_file(tmp_path: Path, kind: str, head: str, packed: bool) -> None:
    path = tmp_path / "large.json"
    count = 0
    with path.open("w") as file:
        file.write(f'{{{head}"{kind}": [')
        for item in items(kind):
            file.write((", " if count else "") + json.dumps(item))
            count += 1
            if file.tell() > SIZE:
                break
        file.write("]}")
    size = path.stat().st_size
    if packed:
        path = shutil.move(path, tmp_path / "unpacked.json")
        with path.open("rb") as plain, gzip.open(tmp_path / "large.json.gz", "wb", compresslevel=1) as file:
            shutil.copyfileobj(plain, file)
        path = tmp_path / "large.json.gz"
    found = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=True)
    nodes, used = map(int, found.stdout.split())
    assert nodes == count
    assert used < 3 * size
