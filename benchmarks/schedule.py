"""How well makespans are predicted, and what schedules gain:
`python -m benchmarks.schedule [--models A,B] [--limit S] [--method equilibrium --on cpu:1,cpu:1]`.

For each model with branches, a schedule in stages is predicted from measured stages, then it and the sequential one are
measured in turns, in fresh processes. The table has predicted over measured time of both, and the verdict. No model is
begun after `--limit` seconds, so that six models take about six minutes on a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import opmark
from opmark.api.schedule import Scheduling
from opmark.errors import UserError
from opmark.units import percent, seconds, significant

MODELS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("model:two-towers", "typical", {"batch": 64}),
    ("model:mixture-of-experts", "typical", {}),
    ("model:multi-head", "typical", {}),
    ("model:dlrm", "typical", {"batch": 256}),
    ("model:inception_v3", "small", {}),
    ("model:nasnetalarge", "small", {}),
)
"""Name, preset, and parameters beside it."""
GOAL = 0.10
HEADS = ("model", "method", "predicted", "measured", "error", "sequential: predicted", "measured", "error",
         "within 10 %", "schedule over sequential", "verdict", "at best, by a model")  # fmt: skip


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="", help="names, separated by commas")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which no further model is begun")
    parser.add_argument("--search", default="10s", help="time for the stages of a model")
    parser.add_argument("--processes", type=int, default=4, help="processes of each side")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--method", default="stages", help="as of `opmark schedule` [default: stages]")
    parser.add_argument("--on", default="cpu", help="as of `opmark schedule`: lanes of one core each are cpu:1,cpu:1")
    options = parser.parse_args(list(arguments))
    wanted = [name for name in options.models.split(",") if name]
    chosen = [one for one in MODELS if not wanted or one[0].removeprefix("model:") in wanted]
    began, rows = time.monotonic(), []
    print(f"cores: {os.cpu_count()}, load before: {os.getloadavg()[0]:.1f}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for name, size, params in chosen:
            if time.monotonic() - began > options.limit:
                print(f"{name}: not begun, {options.limit:.0f} s are over", file=sys.stderr)
                continue
            try:
                found = opmark.schedule(
                    name, params=params, size=size, on=options.on, method=options.method, search=options.search,
                    processes=options.processes, threads=options.threads, budget=60.0, db=Path(folder) / "schedule.db",
                    say=lambda text: print(text, file=sys.stderr),
                )  # fmt: skip
            except UserError as error:
                rows.append([name.removeprefix("model:"), error.message.replace("|", "/"), *[""] * (len(HEADS) - 2)])
                continue
            rows.append(row(found))
            print(f"{name}: {time.monotonic() - began:.0f} s so far", file=sys.stderr)
    print("| " + " | ".join(HEADS) + " |")
    print("|" + "---|" * len(HEADS))
    for one in rows:
        print("| " + " | ".join(one) + " |")
    print(f"\nload after: {os.getloadavg()[0]:.1f}; {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


def row(found: Scheduling) -> list[str]:
    pair, plain = found.compared, found.sequential
    assert plain is not None
    optimum = next((one for one in found.predictions if one.method == "optimum"), None)
    width = found.chosen.schedule.width if found.chosen.schedule else 1
    measured = [(found.chosen.seconds, pair.b if pair else None), (plain.seconds, pair.a if pair else None)]
    cells = [found.program.removeprefix("model:"), f"{found.chosen.method}, at most {width} lanes"]
    for predicted, real in measured:
        cells += [seconds(predicted), seconds(real) if real else "", percent(predicted / real - 1) if real else ""]
    errors = [abs(predicted / real - 1) for predicted, real in measured if real]
    cells.append("" if len(errors) < 2 else "both" if max(errors) <= GOAL else "yes" if errors[0] <= GOAL else "**no**")
    if pair is None or pair.ratio is None:
        cells += ["", (pair.note if pair else "not compared").replace("|", "/")]
    else:
        interval = f" ({significant(pair.low, 3)} to {significant(pair.high, 3)})" if pair.low and pair.high else ""
        cells += [f"{significant(pair.ratio, 3)}{interval}", str(pair.verdict)]
    return [*cells, seconds(optimum.seconds) if optimum else ""]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
