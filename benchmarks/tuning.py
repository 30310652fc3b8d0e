"""How good and how fast tuning is: `python -m benchmarks.tuning [--device cuda] [--budget SECONDS] [--out DIR]`.

For each case a part of its space, small enough to be measured whole, is measured whole. Tuners then search the same
space by looking their candidates up in that table, many times with other seeds: the regret is what they lose against
the whole search, and it costs no further measurement. Seconds are those that the candidates took when they were
measured. `--aa N` tunes N times what has nothing to tune: no configuration may win. `--lookup` times the database,
`--simulated` searches made-up spaces.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from math import log2
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any, NamedTuple

from msgspec.structs import replace

from opmark.catalogue.expansion import cases_of
from opmark.plugin import BackendInfo, Configuration, Knob, Space, SpaceRule, splits
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.runner.plan import settings_for
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Entry, Task
from opmark.schema.options import MeasureOptions
from opmark.tuning.database import with_configuration
from opmark.tuning.search import SHORT, Measurer, SearchOptions, candidate_of
from opmark.tuning.spaces import Tunable, find_tunables
from opmark.tuning.tuners import make_tuner
from opmark.units import seconds

KNOBS = Path(__file__).parents[1] / "tests" / "helpers" / "knobs"
CPU = (
    ("onnxruntime-cpu", "matmul", {"M": 128, "N": 128, "K": 128}),
    ("onnxruntime-cpu", "softmax", {"shape": [256, 512]}),
    ("onnxruntime-cpu", "layer_norm", {"shape": [256, 512]}),
    ("onnxruntime-cpu", "conv2d", {}),
    ("openvino-cpu", "matmul", {"M": 128, "N": 128, "K": 128}),
    ("openvino-cpu", "softmax", {"shape": [256, 512]}),
    ("tvm-cpu", "softmax", {"shape": [256, 512]}),
    ("tvm-cpu", "matmul", {"M": 128, "N": 128, "K": 128}),
    ("tvm-cpu", "layer_norm", {"shape": [256, 512]}),
    ("tvm-cpu", "max_pool2d", {}),
    ("tvm-cpu", "matmul", {"M": 32, "N": 256, "K": 256}),
    ("tvm-cpu", "softmax", {"shape": [64, 2048]}),
    ("tvm-cpu", "reduce_sum", {"shape": [512, 512], "axis": [1]}),
    ("tvm-cpu", "conv2d", {}),
)  # fmt: skip
CUDA = (
    *(("triton-cuda", "matmul", {"M": m, "N": n, "K": k, "dtype": "float16"})
      for m, n, k in ((1024, 1024, 1024), (4096, 4096, 1024), (256, 4096, 4096))),
    *(("triton-cuda", "softmax", {"shape": shape}) for shape in ([4096, 1024], [1024, 8192], [16384, 256])),
    *(("triton-cuda", "layer_norm", {"shape": shape}) for shape in ([4096, 1024], [1024, 8192], [16384, 256])),
    ("triton-cuda", "scaled_dot_product_attention", {}), ("triton-cuda", "gelu", {"shape": [4096, 4096]}),
    ("torch-compile-cuda", "softmax", {"shape": [4096, 1024]}),
    ("torch-compile-cuda", "layer_norm", {"shape": [4096, 1024]}),
    ("tvm-cuda", "matmul", {"M": 1024, "N": 1024, "K": 1024}),
)  # fmt: skip
SHARE = 0.1
"""Share of the trials of the whole search that a tuner gets."""
SEEDS = 10
MOST = 120
"""Configurations of a space that is measured whole, if the budget allows."""


class Measured(NamedTuple):
    """The whole space of a case."""

    name: str
    space: Space
    times: dict[int, float | None]
    """Seconds of a call by the number of the configuration; None if it failed."""
    costs: dict[int, float]
    """Seconds that building, verifying and timing it took."""

    @property
    def best(self) -> float:
        return min(value for value in self.times.values() if value is not None)


class Hunt(NamedTuple):
    regret: float
    within: int | None
    """Trials until the best so far was within 5 % of the best of all; None if it never was."""
    cost: float | None
    """Seconds until then."""


def narrow(space: Space, most: int) -> Space:
    """Return a part of a space that has at most so many allowed configurations: every second value of the longest knob
    is left out, again and again; its default stays."""
    while round(space.allowed_share * space.size) > most:
        longest = max(space.knobs, key=lambda knob: len(knob.values))
        kept = tuple(
            value for place, value in enumerate(longest.values) if place % 2 == 0 or value == longest.usual
        )  # fmt: skip
        if len(kept) == len(longest.values):  # two values, and the default is the second
            kept = (longest.usual,)
        changed = Knob(longest.name, kept, longest.kind, longest.usual, longest.summary)
        space = Space(
            tuple(changed if knob is longest else knob for knob in space.knobs), space.rules, space.features
        )  # fmt: skip
    return space


def find_case(backend: str, op: str, params: Mapping[str, Any]) -> Tunable | None:
    info, operator = find_backend(backend), find_operator(op)
    required = any(param.required and param.name in params for param in operator.params)
    (case,) = cases_of(Entry(op, dict(params), [] if required else ["small"]), find_operator)[:1]
    found = find_tunables(case, info)
    return found[0] if found else None


def settings_of(info: BackendInfo, threads: int) -> Any:
    options = MeasureOptions(effort="quick", processes=1, threads=[threads])
    settings = replace(settings_for(options)[0], sampling=SHORT)
    if info.device == "cuda":
        settings = replace(settings, quantities=("device_time",), caches=("warm",))
    return settings


def measure_whole(tunable: Tunable, threads: int, budget: float, most: int, measurer: Measurer) -> Measured | str:
    """Measure every configuration of a part of the space; the fastest ten three times, of which the medians count."""
    label, info = tunable.implementation.label, tunable.backend
    task = Task(tunable.case, info.name, label, settings_of(info, threads))
    space = narrow(tunable.space, 4)
    pace = 0.02
    for place, number in enumerate(space.allowed()):
        began = time.monotonic()
        first = measurer.run(with_configuration(task, space.at(number), label))
        if first.status == "skipped":
            return f"skipped: {first.reason}"
        if place:  # the first one may have started a worker
            pace = max(pace, time.monotonic() - began)
    space = narrow(tunable.space, max(32, min(most, int(budget / pace))))
    found = Measured(_name(tunable), space, {}, {})
    until = time.monotonic() + 3 * budget
    for number in space.allowed():
        since = time.monotonic()
        if since > until:
            return f"{len(found.times)} configurations took {budget * 3:.0f} s: not measured whole"
        record = measurer.run(with_configuration(task, space.at(number), label))
        found.times[number] = candidate_of(record).seconds
        found.costs[number] = time.monotonic() - since
    if not any(found.times.values()):
        return "no configuration could be measured"
    again: dict[int, list[float]] = {}
    fastest = sorted((value, number) for number, value in found.times.items() if value is not None)[:10]
    for _ in range(2):
        for value, number in fastest:
            record = measurer.run(with_configuration(task, space.at(number), label))
            again.setdefault(number, [value]).append(candidate_of(record).seconds or value)
    found.times.update({number: median(values) for number, values in again.items()})
    return found


def _name(tunable: Tunable) -> str:
    params = " ".join(
        f"{name}={'x'.join(map(str, value)) if isinstance(value, list | tuple) else value}"
        for name, value in tunable.case.params.items() if name != "dtype"
    )  # fmt: skip
    return f"{tunable.case.op} {params}".strip()[:60]


def hunt(name: str, measured: Measured, info: BackendInfo, trials: int, seed: int, *, until_near: bool = False) -> Hunt:
    """Let a tuner search the table; `until_near`: only until it is within 5 % of the best."""
    problem = _problem(measured.space, seed)
    tuner = make_tuner(name, problem, info)
    best, tried, within, spent, cost = float("inf"), 0, None, 0.0, None
    while tried < trials:
        asked = tuner.ask(min(4, trials - tried))
        if not asked:
            break
        for configuration in asked:
            number = measured.space.index(configuration)
            value = measured.times[number]
            tuner.tell(configuration, value)
            tried, spent = tried + 1, spent + measured.costs[number]
            best = min(best, value if value is not None else best)
            if within is None and best <= 1.05 * measured.best:
                within, cost = tried, spent
                if until_near:
                    return Hunt(best / measured.best - 1, within, cost)
    return Hunt(best / measured.best - 1, within, cost)


def _problem(space: Space, seed: int) -> Any:
    from opmark.plugin import TuningProblem

    usual = space.default
    starts: tuple[Configuration, ...] = (usual,) if space.why_not(usual) is None else ()
    return TuningProblem("", {}, "", "", space, seed, starts)


def regret_table(
    cases: Sequence[tuple[str, str, Mapping[str, Any]]], threads: int, budget: float, most: int,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:  # fmt: skip
    rows: list[dict[str, Any]] = []
    measurers: dict[str, Measurer] = {}
    options = SearchOptions("", 0, 0, 0.0, WorkerOptions(30.0), {}, lambda record: None)
    until = time.monotonic() + budget
    for place, (backend, op, params) in enumerate(cases):
        left = until - time.monotonic()
        if left < 5:
            say(f"the budget is spent: {len(cases) - place} cases were left out")
            break
        try:
            tunable = find_case(backend, op, params)
        except Exception as error:  # noqa: BLE001 - a case that is not there here is said, and the others go on
            say(f"{backend} {op}: {error}")
            continue
        if tunable is None:
            say(f"{backend} {op}: has no knobs")
            continue
        # Half of the time goes to the table, the rest to measuring the fastest again and to starting workers.
        if backend not in measurers:
            for other in measurers.values():
                other.close()
            measurers = {backend: Measurer(options)}
        found = measure_whole(tunable, threads, 0.5 * left / (len(cases) - place), most, measurers[backend])
        if isinstance(found, str):
            say(f"{backend} {op}: {found}")
            continue
        count = len(found.times)
        trials = max(4, round(SHARE * count))
        row: dict[str, Any] = {
            "case": found.name, "backend": backend, "configurations": count, "trials": trials,
            "failed": sum(value is None for value in found.times.values()), "best": found.best,
            "worst": max(value for value in found.times.values() if value is not None),
            "seconds_whole": sum(found.costs.values()),
        }  # fmt: skip
        default = found.times.get(found.space.index(found.space.default))
        row["default_over_best"] = default / found.best if default else None
        for name in ("guided", "random"):
            some = [hunt(name, found, tunable.backend, trials, seed) for seed in range(SEEDS)]
            long = [hunt(name, found, tunable.backend, count, seed, until_near=True) for seed in range(SEEDS)]
            row[name] = {
                "regret_median": median(one.regret for one in some), "regret_worst": max(one.regret for one in some),
                "trials_to_5%": median(one.within or count for one in long),
                "seconds_to_5%": median(one.cost or sum(found.costs.values()) for one in long),
            }  # fmt: skip
        if tunable.backend.name == "triton-cuda":
            row["triton_autotune_seconds"] = triton_autotune(tunable, found.space)
        rows.append(row)
        say(line(row))
    for other in measurers.values():
        other.close()
    return rows


def triton_autotune(tunable: Tunable, space: Space) -> float | str:
    """Return the seconds in which Triton's own way (do_bench of every configuration, once each) gets through the same
    space, in this process."""
    try:
        import torch
        from triton.testing import do_bench
    except ImportError as error:
        return str(error)
    inputs = {
        name: torch.randn(spec.shape, device="cuda", dtype=getattr(torch, spec.dtype))
        for name, spec in find_operator(tunable.case.op).inputs(tunable.case.params).items()
    }
    since = time.monotonic()
    for number in space.allowed():
        try:
            do_bench(tunable.implementation.build(tunable.case.params, configuration=space.at(number), **inputs))
        except Exception:  # noqa: BLE001 - what a compiler refuses, the autotuner leaves out as well
            continue
    return time.monotonic() - since


def line(row: Mapping[str, Any]) -> str:
    guided, random = row["guided"], row["random"]
    return (
        f"| {row['case']} | {row['backend']} | {row['configurations']} | {seconds(row['best'])} | "
        f"{row['default_over_best'] or float('nan'):.2f} | {row['trials']} | {100 * guided['regret_median']:.1f} % | "
        f"{100 * random['regret_median']:.1f} % | {guided['trials_to_5%']:.0f} | {random['trials_to_5%']:.0f} | "
        f"{guided['seconds_to_5%']:.1f} | {random['seconds_to_5%']:.1f} |"
    )


HEAD = (
    "| case | backend | configurations | best | default over best | trials | regret, guided | regret, random "
    "| trials to 5 %, guided | random | seconds to 5 %, guided | random |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def simulated(say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Search two made-up spaces with a tenth of their configurations: a smooth one, and one in which knobs depend on
    each other and every configuration is up to 20 % slower at random. Measuring adds noise of 1 %."""
    smooth = Space(
        (
            Knob("m", splits(64, 2), "split"), Knob("n", splits(64, 2), "split"), Knob("unroll", (1, 2, 4, 8)),
            Knob("order", ("ij", "ji")), Knob("vector", (False, True), "flag"),
        ),
        (SpaceRule("have a tile of at most 1024", lambda c: c["m"][1] * c["n"][1] <= 1024),),  # type: ignore[index, operator]
    )  # fmt: skip
    sizes, few = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8)
    rugged = Space((Knob("a", sizes), Knob("b", (16, 32, 64, 128)), Knob("w", few), Knob("s", (1, 2, 3, 4))))

    def smooth_time(c: Any) -> float:
        away = 0.1 * (log2(c["m"][1]) - 3) ** 2 + 0.15 * (log2(c["n"][1]) - 4) ** 2 + 0.05 * abs(log2(c["unroll"]) - 2)
        return float(1 + away + 0.5 * (not c["vector"]) + 0.2 * (c["order"] == "ji"))

    def rugged_time(c: Any) -> float:
        tile = c["a"] * c["b"]
        away = 0.3 * abs(log2(tile) - 9) + 1.5 * (tile * c["s"] > 8192)
        away += 0.2 * abs(log2(c["w"]) - log2(max(1, tile / 128))) + 0.2 * Random(rugged.index(c)).random()
        return float(1 + away)

    rows = []
    for name, space, time_of in (("smooth", smooth, smooth_time), ("rugged", rugged, rugged_time)):
        times = {number: time_of(space.at(number)) for number in space.allowed()}
        for tuner in ("guided", "random", "ga", "xgb", "xgb-rank"):
            regrets = []
            for seed in range(SEEDS):
                noise = Random(seed)
                noisy = {number: value * (1 + 0.01 * abs(noise.gauss(0, 1))) for number, value in times.items()}
                found = Measured(name, space, dict(noisy), dict.fromkeys(times, 0.0))
                regrets.append(hunt(tuner, found, find_backend("null"), len(times) // 10, seed).regret)
            row = {"space": name, "configurations": len(times), "tuner": tuner, "regrets": regrets}
            rows.append(row)
            say(
                f"| {name} | {len(times)} | {tuner} | {100 * median(regrets):.1f} % | {100 * max(regrets):.1f} % | "
                f"{sum(value <= 0.01 for value in regrets)} of {SEEDS} |"
            )
    return rows


def aa(count: int, budget: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Tune what has nothing to tune, by the machine's own clock."""
    sys.path.insert(0, str(KNOBS))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(KNOBS), os.environ.get("PYTHONPATH", "")]))
    os.environ["OPMARK_KNOBS"] = "real"
    from opmark.api.tune import tune

    verdicts: dict[str, int] = {}
    until = time.monotonic() + budget
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            if time.monotonic() > until:
                break
            (one,) = tune(
                ["exp"], params={"shape": [[64, 256]]}, backend="knobs-cpu", db=Path(folder) / "aa.db", trials=6,
                library="none", threads=1, seed=number, processes=5, say=lambda text: None,
            ).cases  # fmt: skip
            name = "winner" if not one.entry.default_stays else one.entry.verdict or "the default was the best"
            verdicts[name] = verdicts.get(name, 0) + 1
            say(f"A/A {number + 1} of {count}: {verdicts}")
    return verdicts


def lookup(entries: int = 200) -> dict[str, float]:
    """Time the choice of an entry among many, and the whole planning of a run that applies it."""
    from opmark.api.run import plan
    from opmark.schema.tuned import TunedEntry
    from opmark.store.sql import open_sql
    from opmark.tuning.database import choose_entry
    from opmark.tuning.target import read_target

    tunable = find_case("tvm-cpu", "matmul", {"M": 128, "N": 128, "K": 128})
    assert tunable is not None
    info, operator = tunable.backend, find_operator("matmul")
    with tempfile.TemporaryDirectory() as folder, closing(open_sql(Path(folder) / "t.db", create=True)) as store:
        made = []
        for number in range(entries):
            (case,) = cases_of(Entry("matmul", {"M": 16 + number, "N": 128, "K": 128}), find_operator)
            entry = TunedEntry(
                operator.name, case.params, case.id, info.name, tunable.implementation.label,
                dict(tunable.space.default), read_target(info, 1), made=f"2026-01-01T{number:04}",
            )  # fmt: skip
            made.append(entry)
        store.add_tuned(made)
        times = []
        for _ in range(21):
            since = time.perf_counter()
            assert choose_entry(store, tunable.case, info, 1) is not None
            times.append(time.perf_counter() - since)
        since = time.perf_counter()
        plan(["matmul"], params={"M": [128], "N": [128], "K": [128]}, backend="tvm-cpu", threads=1)
        plain = time.perf_counter() - since
    return {"lookup_median": median(times), "lookup_least": min(times), "plan_without": plain, "entries": entries}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--budget", type=float, default=1200.0, help="seconds for all cases together")
    parser.add_argument("--most", type=int, default=MOST, help="configurations that are measured whole, at most")
    parser.add_argument("--out", type=Path, help="folder for tuning.json")
    parser.add_argument("--aa", type=int, default=0, help="number of tunings of what has nothing to tune")
    parser.add_argument("--lookup", action="store_true")
    parser.add_argument("--simulated", action="store_true")
    given = parser.parse_args()
    results: dict[str, Any] = {}

    def say(text: str) -> None:
        print(text, flush=True)

    if given.aa:
        results["aa"] = aa(given.aa, given.budget, say)
    elif given.simulated:
        results["simulated"] = simulated(say)
    elif given.lookup:
        results["lookup"] = lookup()
        say(json.dumps(results["lookup"]))
    else:
        say(HEAD)
        rows = regret_table(CUDA if given.device == "cuda" else CPU, 1, given.budget, given.most, say)
        results["regret"] = rows
        for name in ("guided", "random"):
            if rows:
                share = mean(row[name]["regret_median"] <= 0.01 for row in rows)
                to = median(row[name]["trials_to_5%"] / row["configurations"] for row in rows)
                say(
                    f"{name}: regret of at most 1 % in {100 * share:.0f} % of {len(rows)} cases with a tenth of the "
                    f"trials; within 5 % after {100 * to:.0f} % of the configurations (median)"
                )
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "tuning.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
