"""The same cheats before three harnesses and before `opmark judge`; and how often an honest kernel is refused.

    python -m benchmarks.judge cheats      # writes the table of benchmarks/judge.md
    python -m benchmarks.judge honest 5    # each of 200 implementations of the catalogue, so many times;
                                           # `honest 5 0 2` and `honest 5 1 2` are the halves of it

The harnesses are written here after what their projects publish, for the CPU and NumPy, so that they can run where the
cheats run: a fixed way to check, then a fixed way to time, all in the process of the candidate.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

CHEATS = Path(__file__).parents[1] / "tests" / "judge" / "cheats.py"
SHAPE = (32, 256)
HARNESSES = ("do_bench", "KernelBench", "BackendBench")
_TIMEOUT = 30.0
_IMPLEMENTATIONS = 200
_AIMED = "_frame("
"""Cheats that reach for the program of opmark's judge itself have nothing to reach for elsewhere."""


def run_harness(name: str, cheat: str) -> None:
    """Check and time one cheat in this process, as a harness does; print what the harness would say."""
    import numpy as np

    module = _load(CHEATS)
    function, right = getattr(module, cheat), module.right
    clock, close = time.perf_counter, np.allclose
    make = np.random.default_rng
    if name == "KernelBench":  # five random inputs from known seeds, float32 at 1e-4; then one input, 100 times
        drawn = [make(seed).uniform(-1, 1, SHAPE).astype(np.float32) for seed in range(5)]
        tolerance = {"rtol": 1e-4, "atol": 1e-4}
    elif name == "BackendBench":  # one set of inputs for both, compared at 1e-2
        drawn, tolerance = [make(0).uniform(-1, 1, SHAPE).astype(np.float32)], {"rtol": 1e-2, "atol": 1e-2}
    else:  # torch.testing.assert_close with its own tolerance for float32, then triton.testing.do_bench
        drawn, tolerance = [make(0).uniform(-1, 1, SHAPE).astype(np.float32)], {"rtol": 1.3e-6, "atol": 1e-5}
    expected = [right(x) for x in drawn]
    correct = all(close(function(x), due, **tolerance) for x, due in zip(drawn, expected, strict=True))
    x, times = drawn[0], []
    flush = np.zeros(1 << 20, np.uint8)
    for _ in range(100 if name == "KernelBench" else 30):
        flush.fill(0)
        start = getattr(time, clock.__name__)()  # a harness looks its clock up when it needs it
        function(x)
        times.append(getattr(time, clock.__name__)() - start)
    sys.stdout.write(json.dumps({"correct": bool(correct), "seconds": sorted(times)[len(times) // 2]}) + "\n")


def ask_harness(name: str, cheat: str, *, useless: bool, pause: float) -> str:
    """Return `accepted`, or why not, for one cheat before one harness, in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.judge", "harness", name, cheat]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT, check=False, start_new_session=True
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"correct"')]
    if not lines:
        return "failed"
    said = json.loads(lines[-1])
    if useless:  # correct, but it takes the pause: the harness is fooled if it does not see that
        return "accepted" if said["correct"] and said["seconds"] < pause / 2 else "time seen"
    return "accepted" if said["correct"] else "wrong"


def ask_judge(bench: Any, cheat: str, *, useless: bool, pause: float) -> str:
    from judged import run_turn

    from opmark.worker.judge.process import Refused

    try:
        seconds = run_turn(bench, f"{CHEATS}:{cheat}").result().seconds
    except Refused as refused:
        return str(refused.refusal)
    return "time seen" if useless and seconds > pause else "accepted"


def compare_cheats() -> None:
    """Print a table of all cheats before all harnesses."""
    from judged import bench_for

    import opmark

    module = _load(CHEATS)
    bench = bench_for("softmax", "numpy-cpu", "numpy", shape=list(SHAPE))
    counts: Counter[str] = Counter()
    print(f"| cheat | {' | '.join(HARNESSES)} | opmark judge |\n|---|{'---|' * (len(HARNESSES) + 1)}")
    for useless, functions in ((False, module.REFUSED), (True, module.USELESS)):
        for function in functions:
            name = function.__name__
            cells = []
            for harness in HARNESSES:
                aimed = _AIMED in _source(function) or name in _DANGEROUS
                cell = "–" if aimed else ask_harness(harness, name, useless=useless, pause=module.PAUSE)
                counts[harness] += cell == "accepted"
                cells.append(f"**{cell}**" if cell == "accepted" else cell)
            verdict = ask_judge(bench, name, useless=useless, pause=module.PAUSE)
            counts["opmark judge"] += verdict == "accepted"
            counts["given"] += cells[0] != "–"
            counts["all"] += 1
            print(f"| `{name}` | {' | '.join(cells)} | {verdict} |", flush=True)
    for left in (Path(opmark.__file__).with_name("cheat.tmp"), CHEATS.with_name("cheat.tmp"), _TEMPORARY):
        left.unlink(missing_ok=True)
    accepted = " | ".join(f"{counts[name]} of {counts['given']}" for name in HARNESSES)
    print(f"| accepted | {accepted} | {counts['opmark judge']} of {counts['all']} |")


_TEMPORARY = Path("/tmp/opmark-cheat.tmp")
_DANGEROUS = frozenset({"stops_everybody", "stops_the_judge", "traces_the_judge", "slows_the_judge"})
"""Cheats that would stop whoever runs the harness, or the whole machine, because nothing holds them there."""


def count_honest_refusals(tries: int, part: int, parts: int) -> None:
    """Judge implementations of the catalogue as candidates; print how many were refused so far, and why."""
    from judged import bench_for, run_turn

    from opmark.errors import TaskError
    from opmark.plugin.registry import backend as find_backend
    from opmark.plugin.registry import catalogue, implementations
    from opmark.worker.judge.process import Refused

    info = find_backend("numpy-cpu")
    fitting = {
        name: implementations(operator, info)[0].label
        for name, operator in catalogue().items()
        if not (operator.ranks or operator.device_only or operator.result == "random" or operator.view)
        and operator.category != "diagnostics" and "small" in operator.presets and implementations(operator, info)
    }  # fmt: skip
    judged = refused = 0
    for number, (name, label) in enumerate(list(fitting.items())[:_IMPLEMENTATIONS][part::parts], start=1):
        try:
            bench = bench_for(name, info.name, label, **catalogue()[name].presets["small"])
        except (TaskError, Refused) as error:
            print(f"{name}: not judged: {error}", flush=True)
            continue
        for _ in range(tries):
            judged += 1
            try:
                run_turn(bench, label)
            except Refused as error:
                refused += 1
                print(f"{name}: {error.refusal}: {error.reason}", flush=True)
        print(f"{number} implementations, {judged} tries, {refused} refused; last {name}", flush=True)


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _source(function: Any) -> str:
    import inspect

    return inspect.getsource(function)


def main(arguments: list[str]) -> None:
    sys.path.insert(0, str(CHEATS.parents[1] / "helpers"))
    if arguments[:1] == ["harness"]:
        run_harness(*arguments[1:])
    elif arguments[:1] == ["honest"]:
        tries, part, parts = map(int, (*arguments[1:], *("5", "0", "1")[len(arguments) - 1 :]))
        count_honest_refusals(tries, part, parts)
    else:
        compare_cheats()


if __name__ == "__main__":
    main(sys.argv[1:])
