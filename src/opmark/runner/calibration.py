"""Measures the real peaks of this machine: what copies, triads and matrix products reach at best."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from opmark.hardware.sensors import CacheLevel, caches, last_level_bytes
from opmark.plugin import BackendInfo
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.runner.plan import Plan, make_plan, settings_for
from opmark.runner.session import run_plan
from opmark.runner.supervisor import Say, WorkerOptions
from opmark.schema import Case, Environment, Record
from opmark.schema.machine import MEMORY, Level, Peaks, chip
from opmark.schema.options import MeasureOptions
from opmark.schema.progress import OnStep, ignore_step
from opmark.schema.tensor import sizeof
from opmark.stats.measurement import summarize

DTYPES = ("float32", "tfloat32", "bfloat16", "float16", "float64")
# Matrix products large enough to keep every unit busy; a size is tried where the one before promises to end soon.
_PRODUCTS = {"cpu": (512, 1024, 2048), "device": (4096, 8192)}
_LONGEST_PRODUCT = 1.0
_VECTORS = {"copy": 2, "triad": 3}
# Bytes that a call moves at least where a cache is measured, so that the call itself does not matter.
_PER_CALL = 8 << 20
# Vectors for memory are this many times the last-level cache, so that nothing of them is found there again.
_BEYOND_CACHE = 8
_LEAST_MEMORY = 256 << 20
# Bytes of vectors for the cache of a device; a smaller cache is not measured.
_CACHED = 16 << 20


@dataclass
class Calibration:
    """Measures the peaks of one backend, and keeps every record and every environment."""

    info: BackendInfo
    threads: int
    timeout: float
    say: Say
    on_step: OnStep = ignore_step
    records: list[Record] = field(default_factory=list)
    environments: dict[str, Environment] = field(default_factory=dict)

    def run(self, source: str) -> Peaks:
        on_cpu = self.info.device == "cpu"
        # First: whether the backend can run at all.
        (launch,) = self._measure(
            [_launch()], quantities=("latency",) if on_cpu else ("latency", "host_time"), fresh=True
        )
        if not launch.measurements:
            self._say_why_missing("the time of the smallest call", [launch])
        levels = list(self._measure_caches()) if on_cpu else []
        vectors = self._measure(self._memory_cases(levels))
        cache, memory = self._split_levels(vectors)
        if memory is None:
            self._say_why_missing("the bandwidth of the memory", vectors[-len(_VECTORS) :])
        found = [*levels, *(level for level in (cache, memory) if level)]
        return Peaks(
            chip=chip(self.facts()),
            source=source,
            flops=self._measure_flops("cpu" if on_cpu else "device"),
            levels=_drop_implausible(found),
            launch={m.quantity: summarize([m]).median for m in launch.measurements if _is_launch(m.quantity)},
            backend=self.info.name,
            threads=self.threads if on_cpu else None,
        )

    def facts(self) -> dict[str, Any]:
        own = (e.facts for e in self.environments.values() if e.facts.get("backend") == self.info.name)
        return next(own, {})

    def _measure_caches(self) -> Iterator[Level]:
        """Measure caches with one core, in NumPy, which passes over the same data many times in one call."""
        known = caches()
        cases = [_vector(op, level.nbytes // 2, many=True) for level in known for op in _VECTORS]
        records = self._measure(cases, backend="numpy-cpu", threads=1)
        for i, level in enumerate(known):
            nbytes, instances = self._total_cache(level)
            found = {op: instances * rate for op, rate in _bandwidths(records[2 * i : 2 * i + 2]).items()}
            if level.shared_by > 1 and self.threads > 1:  # one core does not fill a cache that several share
                every = _bandwidths(self._measure([_vector(op, level.nbytes // 2) for op in _VECTORS]))
                found = {op: max(found.get(op, 0.0), every.get(op, 0.0)) for op in {**found, **every}}
            if found:
                yield _level(f"L{level.level}", found, nbytes)

    def _total_cache(self, cache: CacheLevel) -> tuple[int, int]:
        """(bytes, caches) that all threads have together, where each core has such a cache of its own."""
        instances = max(1, self.threads // cache.shared_by)
        return instances * cache.nbytes, instances

    def _memory_cases(self, levels: Sequence[Level]) -> list[Case]:
        """Sizes for memory; on a device also for its cache, whose size only the worker knows."""
        last = last_level_bytes() or 0
        beyond = max(_LEAST_MEMORY, _BEYOND_CACHE * last if levels else 0)
        small = [] if self.info.device == "cpu" else [_vector(op, _CACHED) for op in _VECTORS]
        return [*small, *(_vector(op, beyond if levels else 2 << 30) for op in _VECTORS)]

    def _split_levels(self, vectors: Sequence[Record]) -> tuple[Level | None, Level | None]:
        on_device = self.info.device != "cpu"
        small, large = (_bandwidths(vectors[:2]), _bandwidths(vectors[2:])) if on_device else ({}, _bandwidths(vectors))
        size = self.facts().get("gpu_l2")
        cache = _level("L2", small, int(size)) if small and size and int(size) >= _CACHED else None
        return cache, _level(MEMORY, large, None) if large else None

    def _measure_flops(self, kind: str) -> dict[str, float]:
        best: dict[str, float] = {}
        tried: list[Record] = []
        dtypes: Iterable[str] = [dtype for dtype in DTYPES if dtype in self.info.dtypes]
        for size in _PRODUCTS[kind]:
            records = self._measure([_product(size, dtype) for dtype in dtypes])
            tried += records
            soon = []
            for record in records:
                seconds = _fastest_seconds(record)
                dtype = record.task.case.params["dtype"]
                if seconds is not None and record.cost and record.cost.flops:
                    best[dtype] = max(best.get(dtype, 0.0), record.cost.flops / seconds)
                    soon += [dtype] if 8 * seconds < _LONGEST_PRODUCT else []
            dtypes = soon
        if not best:
            self._say_why_missing("the rate of matrix products", tried)
        return best

    def _say_why_missing(self, what: str, records: Sequence[Record]) -> None:
        reasons = dict.fromkeys(f"{record.task.case.op}: {record.reason or record.status}" for record in records)
        self.say(f"{what} was not measured: {'; '.join(reasons) or 'the backend has none of the element types'}")

    def _measure(
        self,
        cases: Sequence[Case],
        backend: str | None = None,
        threads: int | None = None,
        quantities: Sequence[str] | None = None,
        *,
        fresh: bool = False,
    ) -> list[Record]:
        """One record per case, in the order of the cases; all are kept. Device time goes before what a caller sees."""
        if not cases:
            return []
        options = MeasureOptions(
            threads=threads or self.threads,
            effort="quick",
            cache="warm",
            quantity=self._quantities() if quantities is None else quantities,
        )
        plan: Plan = make_plan(cases, [backend or self.info.name], settings_for(options), may_be_empty=True)
        workers = WorkerOptions(self.timeout, say=self.say, keep=self._keep)
        found = []
        for record in run_plan(plan, workers, fresh=fresh):
            found.append(record)
            self.records.append(record)
            size = " ".join(str(value) for value in record.task.case.params.values())
            self.on_step(
                len(self.records), max(len(self.records), self._most_records()), f"{record.task.case.op} {size}"
            )
        by_case = {record.task.case.id: record for record in found}
        return [by_case[case.id] for case in cases]

    def _most_records(self) -> int:
        """Number of records at most: large products are left out where smaller ones take long."""
        on_cpu = self.info.device == "cpu"
        shared = [level for level in caches() if level.shared_by > 1 and self.threads > 1]
        levels = len(caches()) + len(shared) + 1 if on_cpu else 2
        products = len(_PRODUCTS["cpu" if on_cpu else "device"])
        return 1 + len(_VECTORS) * levels + products * len([dtype for dtype in DTYPES if dtype in self.info.dtypes])

    def _quantities(self) -> tuple[str, ...]:
        return ("latency",) if self.info.device == "cpu" else ("device_time", "latency")

    def _keep(self, environment: Environment) -> None:
        self.environments[environment.id] = environment


def calibration(backend: str, threads: int, timeout: float, say: Say, on_step: OnStep = ignore_step) -> Calibration:
    return Calibration(find_backend(backend), threads, timeout, say, on_step)


def _case(op: str, **params: Any) -> Case:
    return Case.of(op, find_operator(op).complete(params), "forward", ("calibrate",))


def _launch() -> Case:
    return _case("add", shape=[1])


def _is_launch(quantity: str) -> bool:
    return quantity in ("latency", "host_time")


def _product(size: int, dtype: str) -> Case:
    return _case("matmul", M=size, N=size, K=size, dtype=dtype)


def _vector(op: str, nbytes: int, *, many: bool = False) -> Case:
    """Vectors that take that many bytes together."""
    n = max(16, nbytes // _VECTORS[op] // sizeof("float32"))
    return _case(op, n=n, repeats=max(1, _PER_CALL // nbytes) if many else 1)


def _bandwidths(records: Sequence[Record]) -> dict[str, float]:
    found = {}
    for record in records:
        seconds = _fastest_seconds(record)
        if seconds and record.cost:
            found[record.task.case.op] = record.cost.bytes_moved / seconds
    return found


def _level(name: str, by: dict[str, float], nbytes: int | None) -> Level:
    return Level(name, max(by.values()), nbytes, by)


def _drop_implausible(levels: Sequence[Level]) -> list[Level]:
    """The levels without bandwidths below those of a larger level: there, the calls themselves were the limit."""
    kept: list[Level] = []
    for level in reversed(levels):
        by = {op: rate for op, rate in level.by.items() if all(rate >= far.by.get(op, 0.0) for far in kept)}
        if by:
            kept.append(_level(level.name, by, level.nbytes))
    return kept[::-1]


def _fastest_seconds(record: Record) -> float | None:
    """Seconds of the fastest sample: a peak is the best that was reached."""
    measurement = record.measurement()
    return summarize([measurement]).fastest if measurement else None
