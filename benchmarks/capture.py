"""Cost of a capture: steps of a small training with and without it, in turns, and the size of its files.

`python -m benchmarks.capture` measures in this process and prints its figures as JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.common import Row, Shell

TURNS = 9
STEPS = 5
BATCH, TOKENS, WIDTH, LAYERS = 8, 64, 256, 4


def rows(shell: Shell) -> list[Row]:
    found = json.loads(shell.run(sys.executable, "-m", "benchmarks.capture"))
    model = f"a training step of {LAYERS} transformer layers, {BATCH} x {TOKENS} tokens, width {WIDTH}"
    ratios = ", ".join(f"{name} {found[name]:.2f}x" for name in ("waiting", "recording", "without_ranges"))
    return [
        Row(f"{model}, while a capture waits or records, over the step alone", "",
            f"{ratios} ({found['step'] * 1e3:.1f} ms)", None),
        Row(
            f"files of one such step, {found['operators']} operator calls", "",
            f"{found['trace'] / 1e6:.2f} MB and {found['kineto'] / 1e6:.2f} MB, written in {found['written']:.2f} s",
            None,
        ),
    ]  # fmt: skip


def measure() -> dict[str, float]:
    import torch

    import opmark

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
    model = torch.nn.Sequential(
        torch.nn.Embedding(1000, WIDTH), torch.nn.TransformerEncoder(layer, LAYERS), torch.nn.Linear(WIDTH, 1000)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 1000, (BATCH, TOKENS))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    for _ in range(3):
        step()
    ratios: dict[str, list[float]] = {"waiting": [], "recording": [], "without_ranges": []}
    alone: list[float] = []
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.json"
        for _ in range(TURNS):
            before = _median_step(step)
            for name in ratios:
                waits, ranges = name == "waiting", name != "without_ranges"
                with opmark.capture(path, skip=10**6 if waits else 0, ranges=ranges, overwrite=True) as capture:
                    taken = _median_step(step)
                    if waits:
                        capture.discard()
                    started = time.perf_counter()
                if not waits:
                    found |= {
                        "written": (time.perf_counter() - started) / STEPS,
                        "operators": capture.operators // STEPS,
                    }
                ratios[name].append(taken / before)
            alone.append(before)
        for name, file in (("trace", path), ("kineto", path.with_name("step.kineto.json"))):
            found[name] = file.stat().st_size / STEPS
    return {
        **found,
        **{name: statistics.median(ones) for name, ones in ratios.items()},
        "step": statistics.median(alone),
    }


def _median_step(step: Callable[[], None]) -> float:
    taken = []
    for _ in range(STEPS):
        started = time.perf_counter()
        step()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


if __name__ == "__main__":
    print(json.dumps(measure()))
