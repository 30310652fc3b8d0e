"""How good and how fast tuning is: `python -m benchmarks.tuning PART... --out DIR [--budget SECONDS]`.

tables        for each case a part of its space, whole: every configuration once, then in turns what is near the best
regret        tuners search these tables: regret, trials and seconds to within 5 % of the best
metaschedule  `guided` and MetaSchedule tune for the same seconds, then both winners are measured in turns
aa            tunings of what has nothing to tune: no configuration may win
lookup        time that the database takes
model         ResNet-18 on tvm-cpu: default, tuned and torch in turns
simulated     searches of made-up spaces

Every part goes on where it was interrupted: what is in DIR (tables/CASE.json, PART.json) is not measured again.
`--device cuda` takes the cases of a GPU for `tables` and `regret`. There `tables` builds in a process per core, times
each configuration alone by eight launches, and lets Triton's own autotuner choose among the same configurations.

A tuner that searches a table is told what was measured first, once. The best of what it has tried then go through the
race of a real search: the first half of the turns chooses among them. The second half of the turns says how good the
choice is, so that nothing is judged by the numbers that it was chosen by. A choice that is not surely slower than the
best of all is a tie with it, and has lost nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from math import exp, log, log2
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import fmean, mean, median, pstdev
from typing import Any, NamedTuple

from msgspec.structs import replace

from benchmarks.tuning_device import Job, Lanes
from opmark.catalogue.expansion import cases_of
from opmark.hardware.host import affinity
from opmark.plugin import BackendInfo, Configuration, Knob, Space, SpaceRule, TuningProblem, splits
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.plugin.space import format_configuration
from opmark.runner.plan import settings_for
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Entry, Task
from opmark.schema.options import MeasureOptions
from opmark.scratch import ScratchFolder
from opmark.stats.verdict import ALPHA, compare_pairs
from opmark.tuning.database import with_configuration
from opmark.tuning.search import (
    FINALISTS,
    SHORT,
    Builders,
    Measurer,
    SearchOptions,
    TuningCandidate,
    candidate_of,
    search,
    shared_cache,
)
from opmark.tuning.spaces import Tunable, find_tunables
from opmark.tuning.tuners import make_tuner
from opmark.units import seconds

KNOBS = Path(__file__).parents[1] / "tests" / "helpers" / "knobs"
CPU = (
    ("tvm-cpu", "matmul", {"M": 128, "N": 128, "K": 128}),
    ("tvm-cpu", "matmul", {"M": 32, "N": 256, "K": 256}),
    ("tvm-cpu", "batched_matmul", {}),
    ("tvm-cpu", "conv2d", {}),
    ("tvm-cpu", "depthwise_conv2d", {}),
    ("tvm-cpu", "pointwise_conv2d", {}),
    ("tvm-cpu", "softmax", {"shape": [256, 512]}),
    ("tvm-cpu", "softmax", {"shape": [64, 2048]}),
    ("tvm-cpu", "layer_norm", {"shape": [256, 512]}),
    ("tvm-cpu", "reduce_sum", {"shape": [512, 512], "axis": [1]}),
    ("tvm-cpu", "max_pool2d", {}),
    ("onnxruntime-cpu", "conv2d", {}),
    ("onnxruntime-cpu", "softmax", {"shape": [256, 512]}),
    ("openvino-cpu", "matmul", {"M": 128, "N": 128, "K": 128}),
)  # fmt: skip
_ATTENTION = {"batch": 4, "heads": 16, "q_len": 1024, "kv_len": 1024, "head_dim": 64, "dtype": "float16"}
CUDA = (
    ("triton-cuda", "matmul", {"M": 1024, "N": 1024, "K": 1024, "dtype": "float16"}),
    ("triton-cuda", "softmax", {"shape": [4096, 1024]}),
    ("triton-cuda", "layer_norm", {"shape": [4096, 1024]}),
    ("triton-cuda", "scaled_dot_product_attention", _ATTENTION),
    ("triton-cuda", "gelu", {"shape": [4096, 4096]}),
    ("triton-cuda", "matmul", {"M": 4096, "N": 4096, "K": 1024, "dtype": "float16"}),
    ("torch-compile-cuda", "softmax", {"shape": [4096, 1024]}),
    ("torch-compile-cuda", "layer_norm", {"shape": [4096, 1024]}),
    ("triton-cuda", "softmax", {"shape": [1024, 8192]}),
    ("triton-cuda", "matmul", {"M": 256, "N": 4096, "K": 4096, "dtype": "float16"}),
    ("triton-cuda", "layer_norm", {"shape": [1024, 8192]}),
    ("triton-cuda", "addcmul", {"shape": [4096, 4096]}),
)
WITHIN: Mapping[tuple[str, str], Mapping[str, tuple[Any, ...]]] = {
    ("triton-cuda", "matmul"): {
        "TILE_M": (64, 128, 256), "TILE_N": (64, 128, 256), "TILE_K": (32, 64), "GROUP": (8,), "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    },
    **{("torch-compile-cuda", op): {
        "epilogue_fusion": (True,), "max_fusion_size": (64,), "aggressive_fusion": (False,), "shape_padding": (True,),
        "triton.cudagraphs": (False,), "triton.prefer_nd_tiling": (False,), "triton.max_tiles": (0, 2),
    } for op in ("softmax", "layer_norm")},
}  # fmt: skip
"""Values that are measured of a space that is too large: what is usual, or can matter for a single kernel."""
BESIDE_METASCHEDULE = (
    ("matmul", {"M": 256, "N": 256, "K": 256}),
    ("conv2d", {}),
    ("softmax", {"shape": [256, 512]}),
    ("layer_norm", {"shape": [256, 512]}),
)
PARTS = ("tables", "regret", "metaschedule", "aa", "lookup", "model", "simulated")
BUDGETS = {"tables": 780.0, "metaschedule": 360.0, "aa": 360.0, "model": 240.0}
"""Seconds of a part. What is left out for want of time is said, and measured by the next call."""
SHARE = 0.1
"""Share of the trials of the whole search that a tuner gets."""
SEEDS = 20
MOST = {"cpu": 240, "cuda": 160}
"""Configurations of a space that is measured whole."""
NEAR = 0.10
"""What is slower than the best by less, measured once, is measured again in turns."""
MOST_AGAIN = 24
TURNS = 6
"""Fresh processes in which it is measured again: the first half chooses, the second half judges."""
BATCH = 8
DEVICE_BATCH = 8
"""Configurations that each process on a GPU builds before they are timed."""
SEARCHING = 30.0
"""Seconds of a call that are left for `regret`, on a GPU."""
DO_BENCH = 0.2
"""Seconds that Triton's autotuner takes for a configuration, about."""


class Table(NamedTuple):
    """A part of the space of a case that was measured whole."""

    case: str
    backend: str
    space: Space
    times: dict[int, float | None]
    """Seconds of a call by the number of the configuration, measured once; None if it failed."""
    costs: dict[int, float]
    """Seconds that building, verifying and timing it took."""
    turns: dict[int, list[float]]
    """Seconds of the fastest in each turn."""
    compiling: dict[int, float]
    """Seconds of compiling, on a GPU."""
    reasons: dict[int, str]
    """Why a configuration failed."""
    autotune: dict[str, Any]
    """What Triton's own autotuner chose among the same configurations, and its seconds."""

    @property
    def quickest(self) -> float:
        return min(value for value in self.times.values() if value is not None)

    def middle(self, number: int, *, judged: bool) -> float:
        """Return the geometric mean of the turns that judge, or of those that choose."""
        return exp(fmean(map(log, self._half(number, judged=judged))))

    def _half(self, number: int, *, judged: bool) -> list[float]:
        values = self.turns[number]
        return values[len(values) // 2 :] if judged else values[: len(values) // 2]

    def best(self) -> int:
        """Return the number of the best configuration, by all turns."""
        return min(self.turns, key=lambda number: fmean(map(log, self.turns[number])))

    def choose(self, tried: Sequence[int]) -> int:
        """Return what the race of a search makes of the configurations that a tuner has tried."""
        timed = sorted((value, number) for number in tried if (value := self.times[number]) is not None)
        finalists = [number for _, number in timed[:FINALISTS] if number in self.turns]
        if not finalists:
            return timed[0][1]
        return min(finalists, key=lambda number: self.middle(number, judged=False))

    def regret(self, number: int) -> tuple[float, bool]:
        """Return by which share a configuration is slower than the best, and whether that is sure. Of one that was
        measured in a single process it is sure only if that process is slower by more than processes differ."""
        best = self.best()
        if number not in self.turns:
            lost = (self.times[number] or float("inf")) / self.middle(best, judged=True) - 1
            return max(0.0, lost), lost > 0 and log(1 + lost) > 2 * self._spread * (1 + 2 / TURNS) ** 0.5
        lost = self.middle(number, judged=True) / self.middle(best, judged=True) - 1
        if number == best:
            return 0.0, False
        pair = compare_pairs(self._half(best, judged=True), self._half(number, judged=True), alpha=ALPHA)
        return max(0.0, lost), pair.low > 1.0

    @property
    def _spread(self) -> float:
        """Standard deviation of the logarithms of the times of one configuration between processes."""
        deviations = [pstdev(map(log, values)) ** 2 * TURNS / (TURNS - 1) for values in self.turns.values()]
        return fmean(deviations) ** 0.5


class Hunt(NamedTuple):
    """One search of a table."""

    lost: float
    """Share by which what it found is slower than the best."""
    sure: bool
    """Whether it is surely slower, and no tie."""
    within: int | None
    """Trials until what it had tried was within 5 % of the best; None if that never was."""
    cost: float | None
    """Seconds until then."""

    @property
    def regret(self) -> float:
        return self.lost if self.sure else 0.0


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


def part_of(tunable: Tunable, most: int | None) -> Space:
    """Return the part of a space that is measured whole; `most`: its size, if not the usual one."""
    space, device = tunable.space, tunable.backend.device
    values = WITHIN.get((tunable.backend.name, tunable.case.op), {})
    knobs = []
    for one in space.knobs:
        kept = values.get(one.name, one.values)
        usual = one.usual if one.usual in kept else None
        knobs.append(Knob(one.name, kept, one.kind, usual, one.summary))
    most = most or MOST["cuda" if device == "cuda" else "cpu"]
    return narrow(Space(tuple(knobs), space.rules, space.features), most)


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


# Tables.


def measure_table(tunable: Tunable, threads: int, most: int | None, file: Path, until: float) -> Table | str:
    """Measure every configuration of a part of the space once, and what is near the best in turns. What the file has is
    kept; a text says why the table is not complete."""
    info, label = tunable.backend, tunable.implementation.label
    space = part_of(tunable, most)
    task = Task(tunable.case, info.name, label, settings_of(info, threads))
    table = _read_table(file, tunable, space)
    options = SearchOptions("", 0, 0, 0.0, WorkerOptions(30.0), {}, lambda record: None)
    with shared_cache(task) as environ:
        left = [number for number in space.allowed() if number not in table.times]
        Random(0).shuffle(left)  # a machine that gets slower is no property of a knob
        with closing(Measurer(options, environ)) as measurer, closing(Builders(options, environ)) as builders:
            for begin in range(0, len(left), BATCH):
                if time.monotonic() > until:
                    return f"{len(left) - begin} of {len(table.times) + len(left) - begin} configurations are left"
                since, batch = time.monotonic(), left[begin : begin + BATCH]
                tasks = [with_configuration(task, space.at(number), label) for number in batch]
                built = builders.build(tasks)
                for number, one in zip(batch, tasks, strict=True):
                    before = built.get(one.id)
                    record = before if before and before.failed else measurer.run(one)
                    if record.status == "skipped":
                        return f"skipped: {record.reason}"
                    table.times[number] = candidate_of(record).seconds
                table.costs.update(dict.fromkeys(batch, (time.monotonic() - since) / len(batch)))
                _write_table(file, table)
        if not any(table.times.values()):
            return "no configuration could be measured"
        near = _begin_turns(table)
        while (place := len(table.turns[near[0]])) < TURNS:
            if time.monotonic() > until:
                return f"{TURNS - place} of {TURNS} turns are left"
            found = _measure_turn(task, space, label, near[:: -1 if place % 2 else 1], Measurer(options, environ))
            for number in near:
                # What failed in a turn is as slow there as the slowest: no turn is left out for one side alone.
                table.turns[number].append(found[number] or max(value for value in found.values() if value))
            _write_table(file, table)
    return table


def _begin_turns(table: Table) -> list[int]:
    """Return what is near the best, the fastest first. Turns of something else are forgotten."""
    timed = sorted((value, number) for number, value in table.times.items() if value is not None)
    near = [number for value, number in timed if value <= (1 + NEAR) * timed[0][0]][:MOST_AGAIN]
    near += [number for _, number in timed[:FINALISTS] if number not in near]
    if set(near) != set(table.turns):
        table.turns.clear()
        table.turns.update({number: [] for number in near})
    return near


def measure_device_table(
    tunable: Tunable, most: int | None, file: Path, lanes: Lanes, cache: Path, until: float
) -> str:
    """Measure a table on a GPU, as `measure_table` does; a turn is another eight launches in the same process, because
    the time of a kernel hardly depends on the process. Return why the table is not complete; nothing if it is."""
    info, label = tunable.backend, tunable.implementation.label
    task = Task(tunable.case, info.name, label, settings_of(info, 1))
    table = _read_table(file, tunable, part_of(tunable, most))
    job = Job(task, most, str(cache / f"{info.name}-{tunable.case.id}"))
    left = [number for number in table.space.allowed() if number not in table.times]
    Random(0).shuffle(left)
    while left:
        if time.monotonic() > until:
            return f"{len(left)} of {len(table.times) + len(left)} configurations are left"
        since, batch = time.monotonic(), left[: DEVICE_BATCH * lanes.count]
        built = lanes.build(job, batch, until)
        each = (time.monotonic() - since) / max(1, len(built))
        for number, one in built.items():
            since = time.monotonic()
            found = one.reason or lanes.time(job, number)
            table.times[number] = None if isinstance(found, str) else found
            if isinstance(found, str):
                table.reasons[number] = found
            if one.seconds is not None:
                table.compiling[number] = one.seconds
            table.costs[number] = each + time.monotonic() - since
        _write_table(file, table)
        left = [number for number in left if number not in built]
    if not any(table.times.values()):  # not one: it is not the configurations, and may work the next time
        file.unlink(missing_ok=True)
        return f"no configuration could be measured: {next(iter(table.reasons.values()), 'there is none')}"
    near = _begin_turns(table)
    while (place := len(table.turns[near[0]])) < TURNS:
        if time.monotonic() > until:
            return f"{TURNS - place} of {TURNS} turns are left"
        values = {number: lanes.time(job, number) for number in near[:: -1 if place % 2 else 1]}
        slowest = max((value for value in values.values() if not isinstance(value, str)), default=None)
        if slowest is None:
            return f"nothing could be measured again: {values[near[0]]}"
        for number, value in values.items():
            table.turns[number].append(slowest if isinstance(value, str) else value)
        _write_table(file, table)
    return ""


def autotune_table(tunable: Tunable, most: int | None, file: Path, lanes: Lanes, cache: Path, until: float) -> str:
    """Let Triton's own autotuner choose among the configurations of a whole table. What it needs is compiled before,
    side by side: its own seconds are those of measuring, and what compiling would add is known from the table."""
    info = tunable.backend
    table = _read_table(file, tunable, part_of(tunable, most))
    task = Task(tunable.case, info.name, tunable.implementation.label, settings_of(info, 1))
    job = Job(task, most, str(cache / f"{info.name}-{tunable.case.id}"))
    numbers = [number for number, value in sorted(table.times.items()) if value is not None]
    if "choice" in table.autotune:
        return ""
    table.autotune.clear()  # a failure may have been one of time
    needs = len(numbers) * DO_BENCH
    if time.monotonic() + needs > until:
        return f"the autotuner is left, which needs about {needs:.0f} s"
    if not Path(job.cache).is_dir():  # the table is of an earlier call
        lanes.build(job, numbers, until)
    found = lanes.autotune(job, numbers, until - time.monotonic() + needs)
    if isinstance(found, str):
        table.autotune["reason"] = found
    else:
        table.autotune.update(found)
    _write_table(file, table)
    return table.autotune.get("reason", "")


def _measure_turn(
    task: Task, space: Space, label: str, numbers: Sequence[int], measurer: Measurer
) -> dict[int, float | None]:
    with closing(measurer):
        return {
            number: candidate_of(measurer.run(with_configuration(task, space.at(number), label))).seconds
            for number in numbers
        }


_BY_NUMBER = ("times", "costs", "turns", "compiling", "reasons")


def _read_table(file: Path, tunable: Tunable, space: Space) -> Table:
    """Return what a file has of a table; an empty one if it is of another space."""
    empty = Table(_name(tunable), tunable.backend.name, space, {}, {}, {}, {}, {}, {})
    if not file.is_file():
        return empty
    kept = json.loads(file.read_text())
    if kept["knobs"] != _knobs(space):
        return empty
    by_number = {
        name: {int(number): value for number, value in kept.get(name, {}).items()} for name in _BY_NUMBER
    }  # fmt: skip
    return empty._replace(**by_number, autotune=kept.get("autotune", {}))


def _write_table(file: Path, table: Table) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    kept = {"knobs": _knobs(table.space), "autotune": table.autotune}
    kept |= {name: getattr(table, name) for name in _BY_NUMBER}
    written = file.with_suffix(".part")
    written.write_text(json.dumps(kept))
    written.replace(file)


def _knobs(space: Space) -> list[Any]:
    found: list[Any] = json.loads(json.dumps([[knob.name, knob.values] for knob in space.knobs]))
    return found


def _name(tunable: Tunable) -> str:
    params = " ".join(
        f"{name}={'x'.join(map(str, value)) if isinstance(value, list | tuple) else value}"
        for name, value in tunable.case.params.items() if name != "dtype"
    )  # fmt: skip
    return f"{tunable.case.op} {params}".strip()[:60]


def _table_file(folder: Path, tunable: Tunable) -> Path:
    return folder / "tables" / f"{tunable.backend.name}-{tunable.case.op}-{tunable.case.id[:8]}.json"


def tunables_of(device: str, ops: Sequence[str], say: Callable[[str], None]) -> Iterator[Tunable]:
    for backend, op, params in CUDA if device == "cuda" else CPU:
        if ops and op not in ops:
            continue
        tunable = find_case(backend, op, params)
        if tunable is None:
            say(f"{backend} {op}: has no knobs")
        else:
            yield tunable


def tables(given: argparse.Namespace, say: Callable[[str], None]) -> dict[str, str] | None:
    cases = list(tunables_of(given.device, given.ops, say))
    until = time.monotonic() + given.budget
    if given.device == "cuda" and cases:
        return device_tables(cases, given, until, say)
    for place, tunable in enumerate(cases):
        since = time.monotonic()
        # What a case does not need is for those after it.
        own = since + max(0.0, until - since) / (len(cases) - place)
        file = _table_file(given.out, tunable)
        found = measure_table(tunable, 1, given.most, file, own)
        what = _case_name(tunable)
        if isinstance(found, str):
            say(f"{what}: {found}; `tables` again goes on")
        else:
            say(f"{what}: {len(found.times)} configurations, {len(found.turns)} of them in turns; "
                f"{time.monotonic() - since:.0f} s")  # fmt: skip
    return None


def device_tables(
    cases: Sequence[Tunable], given: argparse.Namespace, until: float, say: Callable[[str], None]
) -> dict[str, str]:
    """Measure the tables of a GPU, then let Triton's autotuner loose on the same configurations, while their compiled
    code is still there. Return for each case why it is not complete: nothing if it is."""
    began, outcomes = time.monotonic(), dict[str, str]()
    folder = ScratchFolder("tables")
    with closing(Lanes(cases[0].backend.name, given.processes)) as lanes:
        say(f"{lanes.count} processes are ready after {time.monotonic() - began:.0f} s")

        def go_on(what: str, measure: Callable[..., str], some: Sequence[Tunable]) -> None:
            for place, tunable in enumerate(some):
                since, name = time.monotonic(), _case_name(tunable)
                # One case may not take the time of all others.
                own = since + max(0.0, until - since) / min(3, len(some) - place)
                file, count = _table_file(given.out, tunable), ""
                try:
                    why = measure(tunable, given.most, file, lanes, Path(folder.name), own)
                    times = _read_table(file, tunable, part_of(tunable, given.most)).times
                    count = f"; {len(times)} configurations, {list(times.values()).count(None)} of them failed"
                except Exception as error:  # noqa: BLE001 - the other cases are measured all the same
                    why = f"{type(error).__name__}: {error}"
                outcomes[f"{what} {name}"] = why
                now = time.monotonic()
                say(f"[{now - began:3.0f} s] {what} {name}: {why or 'complete'}{count}; {now - since:.1f} s")

        go_on("table", measure_device_table, cases)
        whole = [one for one in cases if one.backend.framework == "triton" and not outcomes[f"table {_case_name(one)}"]]
        go_on("autotune", autotune_table, whole)
    folder.cleanup()
    if left := sum(bool(why) for why in outcomes.values()):
        say(f"{left} of {len(outcomes)} are not complete: the same command goes on")
    return outcomes


def _case_name(tunable: Tunable) -> str:
    return f"{tunable.backend.name} {_name(tunable)}"


# Searches of tables.


def hunt(name: str, table: Table, info: BackendInfo, trials: int, seed: int, *, until_near: bool = False) -> Hunt:
    """Let a tuner search a table; `until_near`: only until it is within 5 % of the best."""
    usual = table.space.default
    starts: tuple[Configuration, ...] = (usual,) if table.space.why_not(usual) is None else ()
    tuner = make_tuner(name, TuningProblem("", {}, "", "", table.space, seed, starts), info)
    tried: list[int] = []
    within, spent, cost = None, 0.0, None
    while len(tried) < trials:
        asked = tuner.ask(min(4, trials - len(tried)))
        if not asked:
            break
        for configuration in asked:
            number = table.space.index(configuration)
            tuner.tell(configuration, table.times[number])
            tried.append(number)
            spent += table.costs[number]
            if within is None and table.times[number] is not None and table.regret(number)[0] <= 0.05:
                within, cost = len(tried), spent
                if until_near:
                    return Hunt(0.0, False, within, cost)
    if all(table.times[number] is None for number in tried):
        return Hunt(float("inf"), True, None, None)
    return Hunt(*table.regret(table.choose(tried)), within, cost)


def regret(given: argparse.Namespace, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Search all tables, side by side: nothing is measured, so that any machine can do it."""
    rows: list[dict[str, Any]] = []
    say(HEAD)
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    places = range(len(CUDA if given.device == "cuda" else CPU))
    with ProcessPoolExecutor(min(len(places), len(affinity())), mp_context=get_context("spawn")) as pool:
        asked = [pool.submit(_regret_of, given, place) for place in places]
        for one in asked:
            try:
                row = one.result()
            except Exception as error:  # noqa: BLE001 - the other tables are searched all the same
                row = f"{type(error).__name__}: {error}"
            if isinstance(row, str):
                say(row)
            elif row:
                rows.append(row)
                for name in given.tuners:
                    say(line(row, name))
    for row in rows:
        if own := row.get("triton_autotune"):
            say(f"{row['case']}: Triton's autotuner: {describe_autotune(own)}")
    for name in given.tuners if rows else ():
        good = sum(row[name]["regret_median"] <= 0.01 for row in rows)
        share = median(row[name]["trials_to_5%"] / row["configurations"] for row in rows)
        say(f"{name}: median regret of at most 1 % in {good} of {len(rows)} cases with a tenth of the trials, in "
            f"{100 * mean(row[name]['within_1%'] for row in rows):.0f} % of all searches; within 5 % after "
            f"{100 * share:.1f} % of the configurations (median)")  # fmt: skip
    return rows


def _regret_of(given: argparse.Namespace, place: int) -> dict[str, Any] | str | None:
    """Return a row of what tuners make of one table, or why there is none; None for a case that was not asked for."""
    backend, op, params = (CUDA if given.device == "cuda" else CPU)[place]
    tunable = find_case(backend, op, params) if not given.ops or op in given.ops else None
    if tunable is None:
        return None
    file = _table_file(given.out, tunable)
    table = _read_table(file, tunable, part_of(tunable, given.most))
    if not table.turns or len(next(iter(table.turns.values()))) < TURNS:
        return f"{_case_name(tunable)}: the table is not complete: `tables` goes on with it"
    count, best = len(table.times), table.best()
    trials = max(4, round(SHARE * count))
    default = table.times.get(table.space.index(table.space.default))
    row: dict[str, Any] = {
        "case": table.case, "backend": table.backend, "configurations": count, "trials": trials,
        "failed": sum(value is None for value in table.times.values()),
        "best": table.middle(best, judged=True), "worst": max(value for value in table.times.values() if value),
        "seconds_whole": sum(table.costs.values()), "default_over_best": default and default / table.quickest,
        "tied_with_best": sum(not table.regret(number)[1] for number in table.turns),
    }  # fmt: skip
    for name in given.tuners:
        some = [hunt(name, table, tunable.backend, trials, seed) for seed in range(SEEDS)]
        long = [hunt(name, table, tunable.backend, count, seed, until_near=True) for seed in range(SEEDS)]
        row[name] = {
            "regret_median": median(one.regret for one in some), "regret_worst": max(one.regret for one in some),
            "lost_median": median(one.lost for one in some),
            "within_1%": sum(one.regret <= 0.01 for one in some) / SEEDS,
            "trials_to_5%": median(one.within or count for one in long),
            "seconds_to_5%": median(one.cost or sum(table.costs.values()) for one in long),
        }  # fmt: skip
    if own := table.autotune:
        row["triton_autotune"] = dict(own)
        if "choice" in own:
            lost, sure = table.regret(own["choice"])
            row["triton_autotune"] |= {
                "configuration": table.space.at(own["choice"]), "lost": lost, "sure": sure,
                "compiling": sum(table.compiling.values()),
            }  # fmt: skip
    return row


def describe_autotune(own: Mapping[str, Any]) -> str:
    if "choice" not in own:
        return str(own["reason"])
    slower = "surely slower" if own["sure"] else "a tie"
    return (
        f"{own['seconds']:.1f} s of measuring {own['configurations']} configurations, after {own['compiling']:.1f} s "
        f"of compiling them one after the other; its choice loses {own['lost']:.1%} to the best ({slower}): "
        f"{format_configuration(own['configuration'])}"
    )


def line(row: Mapping[str, Any], name: str) -> str:
    own = row[name]
    return (
        f"| {row['case']} | {row['backend']} | {row['configurations']} | {seconds(row['best'])} | "
        f"{row['default_over_best'] or float('nan'):.2f} | {row['tied_with_best']} | {name} | {row['trials']} | "
        f"{100 * own['regret_median']:.1f} % | {100 * own['regret_worst']:.1f} % | {100 * own['lost_median']:.1f} % | "
        f"{100 * own['within_1%']:.0f} % | {own['trials_to_5%']:.0f} | {own['seconds_to_5%']:.1f} |"
    )


HEAD = (
    "| case | backend | configurations | best | default over best | tied with the best | tuner | trials "
    "| regret, median | worst | the same without ties | searches within 1 % | trials to 5 % | seconds to 5 % |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)


# Beside MetaSchedule.


def metaschedule(given: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Search with `guided` among schedules with knobs, and with MetaSchedule in its own space, for the same number of
    seconds on one thread, then measure the default and both winners in turns."""
    rows = _load(given.out / "metaschedule.json", {})
    left = [one for one in BESIDE_METASCHEDULE if json.dumps(one) not in rows]
    until = time.monotonic() + given.budget
    for place, (op, params) in enumerate(left):
        share = (until - time.monotonic()) / (len(left) - place)
        if share < 20:
            say(f"the budget is spent: {len(left) - place} cases are left; the same command goes on")
            break
        row: dict[str, Any] = {}
        winners: dict[str, tuple[Task, TuningCandidate]] = {}
        for name in ("guided", "evolutionary"):
            tunable = _for_tuner(op, params, name)
            task = Task(tunable.case, "tvm-cpu", "onnx", settings_of(tunable.backend, 1))
            curve: list[tuple[float, float | None]] = []
            until_then = time.monotonic() + 0.35 * share
            options = SearchOptions(
                name, 100_000, 0, until_then, WorkerOptions(30.0), {}, lambda record: None,
                lambda trial, curve=curve: curve.append(  # type: ignore[misc]
                    (trial.elapsed, trial.best.seconds if trial.best else None)
                ),
            )  # fmt: skip
            since = time.monotonic()
            found = search([tunable], task, options)
            row[name] = {"seconds": time.monotonic() - since, "candidates": len(found.candidates), "curve": curve}
            if found.best:
                winners[name] = (task, found.best)
            else:
                say(f"{op} {params}: {name} found nothing: {found.stopped}")
        if len(winners) < 2:
            continue
        row["turns"] = _winners_in_turns(winners)
        rows[json.dumps([op, params])] = row
        _save(given.out / "metaschedule.json", rows)
        say(f"{op} {params}: " + "; ".join(_describe_winner(row, name) for name in winners))
    return rows


def _for_tuner(op: str, params: Mapping[str, Any], name: str) -> Tunable:
    tunable = find_case("tvm-cpu", op, params)
    assert tunable is not None
    return find_tunables(tunable.case, tunable.backend, tuner=name)[0] if name == "evolutionary" else tunable


def _winners_in_turns(winners: Mapping[str, tuple[Task, TuningCandidate]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in winners}
    options = SearchOptions("", 0, 0, 0.0, WorkerOptions(60.0), {}, lambda record: None)
    for turn in range(TURNS):
        with closing(Measurer(options)) as measurer:
            for name in list(winners)[:: -1 if turn % 2 else 1]:
                task, best = winners[name]
                record = measurer.run(with_configuration(task, best.configuration, best.implementation))
                found[name].append(candidate_of(record).seconds or float("nan"))
    return found


def _describe_winner(row: Mapping[str, Any], name: str) -> str:
    value = exp(fmean(map(log, row["turns"][name])))
    best = min(exp(fmean(map(log, values))) for values in row["turns"].values())
    near = next((spent for spent, so_far in row[name]["curve"] if so_far and so_far <= 1.05 * best), None)
    when = "never within 5 %" if near is None else f"within 5 % after {near:.1f} s"
    return f"{name} {seconds(value)} ({value / best - 1:.1%} over the best, {when})"


def simulated(given: argparse.Namespace, say: Callable[[str], None]) -> list[dict[str, Any]]:
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
        fastest = min(times.values())
        for tuner in given.tuners:
            regrets = []
            for seed in range(SEEDS):
                noise = Random(seed)
                noisy = {number: value * (1 + 0.01 * abs(noise.gauss(0, 1))) for number, value in times.items()}
                table = Table(name, "null", space, dict(noisy), dict.fromkeys(times, 0.0), {
                    number: [value] * TURNS for number, value in times.items() if value <= (1 + NEAR) * fastest
                }, {}, {}, {})  # fmt: skip
                regrets.append(hunt(tuner, table, find_backend("null"), len(times) // 10, seed).lost)
            rows.append({"space": name, "configurations": len(times), "tuner": tuner, "regrets": regrets})
            say(
                f"| {name} | {len(times)} | {tuner} | {100 * median(regrets):.1f} % | {100 * max(regrets):.1f} % | "
                f"{sum(value <= 0.01 for value in regrets)} of {SEEDS} |"
            )
    return rows


def aa(given: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Tune what has nothing to tune, by the machine's own clock. Tunings that are done are not repeated."""
    from opmark.api.tune import tune

    done: dict[str, str] = _load(given.out / "aa.json", {})
    until = time.monotonic() + given.budget
    for number in range(given.tunings):
        if str(number) in done or time.monotonic() > until:
            continue
        with tempfile.TemporaryDirectory() as folder:
            (one,) = tune(
                ["exp"], params={"shape": [[64, 256]]}, backend="knobs-cpu", db=Path(folder) / "aa.db", trials=6,
                library="none", threads=1, seed=number, processes=5, say=lambda text: None,
            ).cases  # fmt: skip
        won = not one.entry.default_stays
        done[str(number)] = "winner" if won else one.entry.verdict or "the default was the best"
        _save(given.out / "aa.json", done)
    verdicts = {word: list(done.values()).count(word) for word in sorted(set(done.values()))}
    say(f"A/A: {len(done)} of {given.tunings} tunings, {verdicts.get('winner', 0)} winners: {verdicts}")
    return done


def lookup(given: argparse.Namespace, say: Callable[[str], None], entries: int = 200) -> dict[str, float]:
    """Time the choice of an entry among many, and the whole planning of a run that applies it."""
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
        for _ in range(101):
            since = time.perf_counter()
            assert choose_entry(store, tunable.case, info, 1) is not None
            times.append(time.perf_counter() - since)
    found = {"median": median(times), "least": min(times), "worst": max(times), "entries": entries}
    say(f"lookup among {entries} entries: median {seconds(found['median'])}, worst {seconds(found['worst'])}")
    return found


def model(given: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Tune ResNet-18 on tvm-cpu: its operators, then the model in turns against its default and torch."""
    from opmark.api.tune import tune, tuning_view

    db = given.out / "model.db"
    since = time.monotonic()
    found = tune(
        [f"model:{given.model}"], params={"size": ["small"]} if given.small else {}, backend="tvm-cpu", db=db,
        trials=given.trials, budget=f"{given.budget:.0f}s", processes=5, resume=db.is_file(), say=say,
        on_case=lambda name, place, count: say(f"{place + 1} of {count}: {name}"),
    )  # fmt: skip
    view = {**tuning_view(found), "seconds": time.monotonic() - since}
    for one in view["cases"]:
        entry = one["entry"]
        times = [seconds(entry[name]) if entry[name] else "unknown" for name in
                 ("default_seconds", "tuned_seconds", "library_seconds")]  # fmt: skip
        say(f"{one['case']}: default {times[0]}, tuned {times[1]} ({entry['verdict'] or 'nothing to judge'}), "
            f"{view['library']} {times[2]} ({entry['library_verdict'] or 'not compared'})")  # fmt: skip
    return view


def _load(file: Path, empty: Any) -> Any:
    return json.loads(file.read_text()) if file.is_file() else empty


def _save(file: Path, found: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--out", type=Path, required=True, help="folder of the results, and of what is done already")
    parser.add_argument("--budget", type=float, help="seconds of each part [default: of each part its own]")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--ops", type=lambda text: text.split(","), default=[], help="only the cases of these operators"
    )
    parser.add_argument("--most", type=int, help="configurations of a table, at most")
    parser.add_argument("--processes", type=int, default=len(affinity()), help="that build, on a GPU")
    parser.add_argument("--tuners", type=lambda text: text.split(","), default=["guided", "random"])
    parser.add_argument("--tunings", type=int, default=50, help="of what has nothing to tune")
    parser.add_argument("--model", default="resnet-18")
    parser.add_argument("--trials", type=int, default=32, help="of each operator of the model")
    parser.add_argument("--small", action="store_true", help="a small model of the same structure")
    given = parser.parse_args()
    # The backend of `aa`: in place before anything looks for backends.
    sys.path.insert(0, str(KNOBS))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(KNOBS), os.environ.get("PYTHONPATH", "")]))
    os.environ["OPMARK_KNOBS"] = "real"
    measure = {
        "tables": tables, "regret": regret, "metaschedule": metaschedule, "aa": aa, "lookup": lookup, "model": model,
        "simulated": simulated,
    }  # fmt: skip
    own = given.budget
    for part in given.parts:
        since = time.monotonic()
        given.budget = own or BUDGETS.get(part, 0.0)
        if part == "tables" and given.device == "cuda" and "regret" in given.parts:
            given.budget -= SEARCHING
        found = measure[part](given, lambda text: print(text, flush=True))
        if found is not None:
            _save(given.out / f"{part}.json", found)
        print(f"{part}: {time.monotonic() - since:.0f} s", flush=True)


if __name__ == "__main__":
    main()
