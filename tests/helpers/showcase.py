"""A store with everything that pages show: made up, seeded, and quick to make.

Times follow a roofline with launch costs, noise and outliers, so that figures have the shapes that real ones have.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from opmark.plugin.registry import operator
from opmark.schema import EFFORTS, Case, Environment, Measurement, Record, Run, Settings, Task
from opmark.schema.machine import Level, Peaks, findings_key
from opmark.schema.measurement import Caution
from opmark.schema.record import Compilation, Memory, Verification
from opmark.store.sql import open_sql

GPU = Environment.of({"machine": "dgx", "cpu": "Intel Xeon", "gpu": "NVIDIA H200", "device": "cuda", "python": "3.12.3",
                      "backend": "torch-cuda", "torch": "2.11.0", "opmark": "0.8.0", "system": "Linux 6"})  # fmt: skip
CPU = Environment.of({"machine": "box", "cpu": "AMD EPYC", "device": "cpu", "python": "3.11.7", "threads": 2,
                      "backend": "torch-cpu", "torch": "2.13.0", "opmark": "0.8.0", "system": "Linux 6"})  # fmt: skip

GPU_PEAKS = Peaks("NVIDIA H200", "calibrate", {"float16": 7.6e14, "bfloat16": 7.5e14, "float32": 5.1e13},
                  [Level("L2", 6.5e12, 50 << 20), Level("memory", 4.2e12)], launch={"latency": 1.1e-5},
                  backend="torch-cuda")  # fmt: skip
CPU_PEAKS = Peaks("AMD EPYC", "calibrate", {"float32": 1.4e11, "float16": 2e10},
                  [Level("L2", 2e11, 1 << 20), Level("L3", 9e10, 32 << 20), Level("memory", 2.4e10)],
                  launch={"latency": 3e-7}, backend="torch-cpu", threads=2)  # fmt: skip
_OF = {GPU.id: GPU_PEAKS, CPU.id: CPU_PEAKS}
SQUARES = (256, 512, 1024, 2048, 4096, 8192)
LENGTHS = (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24)


class Maker:
    def __init__(self, seed: int = 0) -> None:
        self._chance = random.Random(seed)

    def record(
        self,
        op: str,
        params: dict[str, Any],
        backend: str,
        where: Environment,
        *,
        implementation: str = "",
        threads: int = 2,
        process: int = 0,
        factor: float = 1.0,
        started: str = "2030-01-01T00:00:00.000+00:00",
    ) -> Record:
        """Measured as a backend of that kind measures it: on a GPU what the device did, cold and warm, and the host."""
        known = operator(op)
        whole = {**{p.name: p.default for p in known.params if not p.required}, **params}
        cost, case = known.cost(whole), Case.of(op, whole, "forward", ("showcase",))
        peaks, on_gpu = _OF[where.id], where.id == GPU.id
        memory = cost.bytes_moved / (peaks.memory_bandwidth or 1)
        computing = (cost.flops or 0) / peaks.flops.get(str(whole.get("dtype")), peaks.flops["float32"])
        spread = factor / self._chance.uniform(0.45, 0.9)
        cold = max(memory, computing) * spread + (2e-6 if on_gpu else 4e-7)
        warm = max(memory / 2.5, computing) * spread + (1.5e-6 if on_gpu else 3e-7)
        measured = [self._of("latency", "warm", warm * (2.0 / threads) ** 0.8)]
        if on_gpu:
            measured = [self._of("device_time", "cold", cold), self._of("device_time", "warm", warm),
                        self._of("host_time", "warm", self._chance.uniform(4e-6, 9e-6)),
                        self._of("latency", "warm", warm + 1.2e-5)]  # fmt: skip
        settings = Settings(threads, "standard", EFFORTS["standard"], process=process)
        framework = backend.partition("-")[0]
        return Record(
            Task(case, backend, implementation or framework, settings), "ok", "", tuple(measured), cost,
            Memory(cost.bytes_moved + self._chance.randrange(1 << 20), 0, "allocator"), Verification("full"),
            where.id, started, duration=0.9,
            compilation=Compilation(1.5) if "compile" in backend else None,
        )  # fmt: skip

    def failed(self, op: str, params: dict[str, Any], backend: str, status: Any, reason: str, **task: Any) -> Record:
        known = operator(op)
        whole = {**{p.name: p.default for p in known.params if not p.required}, **params}
        settings = Settings(2, "standard", EFFORTS["standard"])
        case = Case.of(op, whole, "forward")
        return Record(Task(case, backend, backend.partition("-")[0], settings), status, reason, environment=CPU.id,
                      started="2030-01-01T00:00:00.000+00:00", duration=0.1, **task)  # fmt: skip

    def _of(self, quantity: str, cache: Any, centre: float) -> Measurement:
        """Forty samples, some runs of them with a straggler; a caution where it is far off."""
        samples = [centre * self._chance.lognormvariate(0, 0.01) for _ in range(40)]
        cautions: tuple[Caution, ...] = ()
        if self._chance.random() < 0.15:
            samples[self._chance.randrange(40)] *= 3
            cautions = (Caution("interrupted", "one sample took three times as long as the others", "close others"),)
        return Measurement(quantity, cache, "virtual", samples, 10, 1e-9, 5, 0.25, "precise", cautions)


def everything(maker: Maker) -> Iterator[Record]:
    """One run with all that figures are about."""
    for dtype in ("float16", "float32"):
        for n in SQUARES:
            yield maker.record("matmul", {"M": n, "N": n, "K": n, "dtype": dtype}, "torch-cuda", GPU)
    for op in ("add", "exp", "softmax"):
        for n in LENGTHS:
            params = {"shape": [n // 256, 256] if op == "softmax" else [n], "dtype": "float32"}
            yield maker.record(op, params, "torch-cuda", GPU)
            yield maker.record(op, params, "torch-cpu", CPU)
            yield maker.record(op, params, "jax-cpu", CPU, factor=1.3)
    for implementation, factor in (("unfused", 1.0), ("compiled", 0.6)):
        for n in (256, 1024):
            yield maker.record("add_layer_norm", {"shape": [n, 1024]}, "torch-cuda", GPU,
                               implementation=implementation, factor=factor)  # fmt: skip
    for threads in (1, 2, 4, 8):
        yield maker.record("matmul", {"M": 512, "N": 512, "K": 512}, "torch-cpu", CPU, threads=threads)
    for size in (1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26):
        for ranks in (2, 4):
            yield maker.record("all_reduce", {"size": size, "ranks": ranks}, "torch-cpu", CPU)
    yield maker.record("exp", {"shape": [1 << 20]}, "torch-compile-cpu", CPU)
    yield from failures(maker)


def failures(maker: Maker) -> Iterator[Record]:
    shape = {"shape": [64, 64]}
    yield maker.failed("add", shape, "onnxruntime-cpu", "error", "RuntimeError: <b>broken</b> & gone")
    yield maker.failed("exp", shape, "onnxruntime-cpu", "timeout", "not done after 60 s; its process was killed")
    yield maker.failed("softmax", shape, "tvm-cpu", "wrong", "output 0 differs by 0.5 at [3, 7]")
    yield maker.failed("matmul", {"M": 99999, "N": 99999, "K": 99999}, "jax-cpu", "oom", "needs 120 GB, 24 GB free")
    yield maker.failed("add", shape, "openvino-cpu", "skipped", "openvino is not installed")


def several(maker: Maker, factors: dict[str, float], processes: int = 8) -> Iterator[Record]:
    """A few cases in several processes: something to compare. `factors`: what some operators take, as a factor."""
    for op in ("add", "exp", "softmax", "sum", "relu"):
        for n in (1 << 18, 1 << 20):
            params = {"shape": [n // 256, 256], "dtype": "float32"}
            made = Maker(hash_of(op, n)).record(op, params, "torch-cpu", CPU, factor=factors.get(op, 1.0))
            for process in range(processes):
                yield maker.again(made, process) if isinstance(maker, Again) else made


def hash_of(op: str, n: int) -> int:
    """The same everywhere: Python's own differs from process to process."""
    return sum(map(ord, op)) * 1009 + n


class Again(Maker):
    """The same case in another process: half a percent apart."""

    def again(self, made: Record, process: int) -> Record:
        from msgspec.structs import replace

        factor = self._chance.lognormvariate(0, 0.005)
        measured = tuple(replace(m, samples=[value * factor for value in m.samples]) for m in made.measurements)
        settings = replace(made.task.settings, process=process)
        return replace(made, measurements=measured, task=replace(made.task, settings=settings))


def run(number: int, label: str, records: Iterable[Record], **fields: Any) -> tuple[Run, list[Record]]:
    """The number is the day of 2030 from its first on."""
    found = list(records)
    day = f"2030-{number // 28 + 1:02}-{number % 28 + 1:02}T03:00:00.000+00:00"
    made = Run(f"{day[:10].replace('-', '')}-030000-{number:08x}", day, f"plan-{label}"[:16], len(found), label,
               **{"version": "0.8.0", "revision": f"{number:040x}", **fields})  # fmt: skip
    return made, found


def nights(count: int = 30, step: int = 20) -> Iterator[tuple[Run, list[Record]]]:
    """The same two cases every night; from night `step` on, `add` takes a tenth more."""
    for night in range(count):
        chance, factor = Again(night), 1.1 if night >= step else 1.0
        cases = [Maker(1).record("add", {"shape": [1 << 20]}, "torch-cpu", CPU, factor=factor),
                 Maker(2).record("exp", {"shape": [1 << 20]}, "torch-cpu", CPU)]  # fmt: skip
        yield run(night, "nightly", [chance.again(made, process) for made in cases for process in range(3)])


def fill(db: str | Path, runs: Iterable[tuple[Run, Sequence[Record]]]) -> list[Run]:
    """Written as a run writes them, but at once."""
    made = []
    with closing(open_sql(db, create=True)) as store:
        for environment in (GPU, CPU):
            store.add_environment(environment)
            peaks = _OF[environment.id]
            store.keep("peaks", findings_key(environment.facts), "2030-01-01T00:00:00.000+00:00", peaks)
        for one, records in runs:
            store.begin(one)
            store.extend(one.id, records)
            made.append(one)
    return made


def showcase(db: str | Path) -> list[Run]:
    """30 nights labelled `nightly`, then `base`, `new` (two operators slower, one faster), `failures`, `one`,
    and `showcase` with all figures, which is the last one."""
    slower = {"add": 1.08, "softmax": 1.2, "exp": 0.9}
    return fill(
        db,
        [
            *nights(),
            run(40, "base", several(Again(1), {})),
            run(41, "new", several(Again(2), slower)),
            run(42, "failures", failures(Maker(3))),
            run(43, "one", [Maker(4).record("add", {"shape": [1024]}, "torch-cpu", CPU)]),
            run(44, "showcase", everything(Maker(5)), command="opmark run --suite showcase"),
        ],
    )
