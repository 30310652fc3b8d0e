"""`opmark general-perf` beside ByteMLPerf's own loop, written from its description: a process that loads the model, and
for each batch size calls it 30 times to warm up and then as often as the workload says, with one client."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.common import OPMARK, Row, Shell

TASK = "resnet50-torch-fp32"
ITERATIONS = 100
BATCH_SIZES = (4, 8)
_LOOP = """
import sys, time
import numpy as np, torch
from opmark.models.family import source_of
iterations, *sizes = map(int, sys.argv[1:])
source = source_of("resnet50")
module = source.module({"size": "full", "batch": 1, "image": 224, "dtype": "float32"})
began = time.time()
for size in sizes:
    feeds = np.random.random((size, 3, 224, 224)).astype(np.float32)
    times = []
    for i in range(30 + iterations):
        start = time.time()
        with torch.no_grad():
            module(torch.from_numpy(feeds)).numpy()
        if i >= 30:
            times.append(time.time() - start)
    times.sort()
    average = round(sum(times) / len(times) * 1000, 2)
    print(size, int(1000 * size / average), average, round(times[int(len(times) * 0.99)] * 1000, 2), file=sys.stderr)
print(time.time() - began)
"""


def rows(shell: Shell, iterations: int = ITERATIONS, sizes: tuple[int, ...] = BATCH_SIZES) -> list[Row]:
    """Return the time of the command and of the loop for the same requests, from the shell to the end, one after the
    other, and the part of each that measures."""
    workload = shell.folder / f"{TASK}.json"
    asked = {"model": TASK, "test_perf": True, "test_accuracy": False, "test_numeric": True, "clients": 1,
             "iterations": iterations, "batch_sizes": sizes, "data_percent": 100, "compile_only": False}  # fmt: skip
    workload.write_text(json.dumps(asked))
    reports = shell.folder / "reports"
    start = time.perf_counter()
    loop = float(shell.run(sys.executable, "-c", _LOOP, str(iterations), *map(str, sizes)).split()[-1])
    loop_whole = time.perf_counter() - start
    ours_whole = shell.time(
        OPMARK, "general-perf", "--workload", str(workload), "--hardware_type", "CPU", "--report_dir", str(reports),
        "--db", str(shell.db),
    )  # fmt: skip
    lines = json.loads((reports / "CPU" / TASK / "result-fp32.json").read_text())["Performance"]
    ours = sum(line["Requests"] * line["BS"] / line["QPS"] for line in lines)
    what = f"`general-perf --task {TASK}`, {iterations} requests of one client at batch {', '.join(map(str, sizes))}"
    return [
        Row(f"{what}: measuring, over the loop", "at most 1", f"{ours / loop:.2f} ({ours:.1f} s, {loop:.1f} s)",
            ours <= loop),
        Row("the same from the shell to the report (verified, PDF and PNG), over the loop from the shell",
            "at most 1", f"{ours_whole / loop_whole:.2f} ({ours_whole:.1f} s, {loop_whole:.1f} s)",
            ours_whole <= loop_whole),
    ]  # fmt: skip


def main() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for row in rows(
            Shell(Path(folder)), *([int(sys.argv[1]), tuple(map(int, sys.argv[2:]))] if sys.argv[2:] else [])
        ):
            print(row)


if __name__ == "__main__":
    main()
