"""Tables of configurations on a GPU, in minutes: `python -m benchmarks.tuning tables --device cuda`.

The processes of `Lanes` build and verify side by side; nothing is timed meanwhile. Then each of them times in turn what
it has built, alone on the device, by the clock that opmark measures `device_time` with. So no configuration is loaded
twice, and a hundred of them take seconds. What a configuration breaks is one process: its reason is kept, and another
process takes its place.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from opmark.plugin import Configuration, Launch, Space
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Task
from opmark.tuning.database import with_configuration
from opmark.tuning.search import COMPILE_CACHE
from opmark.tuning.spaces import Tunable, find_tunables
from opmark.worker.measure.instruments import Instruments
from opmark.worker.preparation import bind, make_inputs
from opmark.worker.task_runner import reason_of
from opmark.worker.verify.outputs import verify

CALLS = 8
"""Launches of which the median is taken."""
_WARM = 2
_WAKE = 0.1
"""Seconds of work after which the clocks of an idle device are up."""
_HOLD = 0.02
_SPIN = 0.002
"""Seconds for which the device is held until the launches are queued: at most, or where it cannot be let go before."""
_PATIENCE = 90.0
"""Seconds that building or timing one configuration may take."""
_START = 180.0


class Job(NamedTuple):
    """One case, as the processes get it."""

    task: Task
    most: int | None
    """Configurations of its space that are measured, if not as many as usual."""
    cache: str
    """Folder of what was compiled for it."""


class Built(NamedTuple):
    seconds: float | None
    """What compiling took, with empty caches."""
    reason: str
    """Why it cannot be timed; empty if it can."""


# Inside of a process.


class _Bench:
    """What a process has open for one case: a backend, its clocks, inputs, and a launch for each configuration."""

    def __init__(self, job: Job, part_of: Callable[[Tunable, int | None], Space]) -> None:
        Path(job.cache).mkdir(parents=True, exist_ok=True)
        os.environ[COMPILE_CACHE] = os.environ["TRITON_CACHE_DIR"] = job.cache
        self.job, task = job, job.task
        self.info, self.operator = find_backend(task.backend), find_operator(task.case.op)
        self.params = task.case.params
        (tunable,) = (
            one for one in find_tunables(task.case, self.info) if one.implementation.label == task.implementation
        )
        self.space, self.implementation = part_of(tunable, job.most), tunable.implementation
        self.backend = self.info.load(1)
        if reason := self.backend.why_unavailable():
            raise RuntimeError(f"{self.info.name} cannot run here: {reason}")
        self.instruments = Instruments.of(self.info, self.backend, None)
        self.inputs = make_inputs(self.params, task, self.operator, self.backend)
        self._launches: dict[int, tuple[Launch, float | None]] = {}
        self._awake = False
        if clock := self.instruments.clock:  # the first trace of a process takes seconds: here others do theirs as well
            clock.trace([lambda: None], None, 0.0)

    def close(self) -> None:
        """Take the clock out of the process, where it makes launches slower."""
        if clock := self.instruments.clock:
            clock.detach()

    def task(self, number: int) -> Task:
        return with_configuration(self.job.task, self.space.at(number), self.job.task.implementation)

    def launch(self, number: int) -> tuple[Launch, float | None]:
        """(a launch with that configuration, seconds that compiling it took): built once, over the same inputs."""
        if number not in self._launches:
            prepared = bind(
                self.params, self.task(number), self.operator, self.implementation, self.backend, self.inputs
            )
            cold = prepared.compilation.cold if prepared.compilation else None
            self._launches[number] = (prepared.launch, cold)
        return self._launches[number]

    def plain_launch(self, number: int) -> Launch:
        """A launch that its framework compiles at its first call, without opmark around it."""
        given = self.backend.operands(self.implementation.framework, self.inputs)
        launch: Launch = self.implementation.build(self.params, configuration=self.space.at(number), **given)
        return launch

    def seconds(self, number: int) -> float:
        launch, _ = self.launch(number)
        until = time.perf_counter() + (0.0 if self._awake else _WAKE)
        self._awake = True
        for _ in range(_WARM):
            launch()
        self.backend.synchronize()
        while time.perf_counter() < until:
            launch()
            self.backend.synchronize()
        clock = self.instruments.clock
        if clock is None:
            timer = self.instruments.timers["latency"]
            return median(timer.time(launch, 1) for _ in range(CALLS))
        for _ in range(2):
            trace = clock.trace([launch] * CALLS, None, _HOLD if clock.opens_gate else _SPIN)
            values = [sum(one.end - one.start for one in call) for call in trace.calls if call]
            if len(values) > CALLS // 2:
                return median(values)
        raise RuntimeError(f"{clock.name} has lost the records of {CALLS - len(values)} of {CALLS} calls")


_bench: _Bench | None = None


def _open(job: Job) -> _Bench:
    global _bench
    if _bench is None or _bench.job != job:
        from benchmarks.tuning import part_of

        if _bench:
            _bench.close()
        _bench = None  # the memory of the last case, before that of this one is taken
        _bench = _Bench(job, part_of)
    return _bench


def _fails(error: Exception) -> str:
    """Return the reason of a failure. A process whose device takes no more work ends: nothing after it would run."""
    reason = reason_of(error)
    if _bench and not _bench.backend.usable():
        print(f"the device takes no more work after: {reason}", flush=True)
        os._exit(1)
    return reason


def build(job: Job, number: int) -> Built:
    """Compile a configuration and verify what it computes."""
    try:
        bench = _open(job)
        _, cold = bench.launch(number)
        verify(bench.task(number), bench.operator, bench.implementation, bench.backend)
    except Exception as error:  # noqa: BLE001 - a compiler raises anything, and all of it becomes a reason
        return Built(None, _fails(error))
    return Built(cold, "")


def time_one(job: Job, number: int) -> float | str:
    """Return the seconds of a call, or why there are none."""
    try:
        return _open(job).seconds(number)
    except Exception as error:  # noqa: BLE001 - see `build`
        return _fails(error)


def autotune(job: Job, numbers: Sequence[int]) -> dict[str, Any] | str:
    """Let Triton's own autotuner choose among configurations: (its choice, the seconds that it took). What it would
    compile is found in the folder of the case, if this was built before."""
    try:
        import triton

        bench = _open(job)
        bench.close()
        launches: dict[tuple[Any, ...], Launch] = {}

        class Kernel:
            """What Triton tunes: the arguments are knobs, and a call launches the kernel with these."""

            arg_names: tuple[str, ...] = ()

            @staticmethod
            def fn() -> None: ...

            def run(self, **values: Any) -> Any:
                key = tuple(values[name] for name in names)
                if key not in launches:
                    launches[key] = bench.plain_launch(bench.space.index(dict(zip(names, key, strict=True))))
                return launches[key]()

        names = [knob.name for knob in bench.space.knobs]
        configs = [_triton_config(triton, bench.space.at(number)) for number in numbers]
        since = time.perf_counter()
        tuner = triton.autotune(configs=configs, key=[])(Kernel())
        tuner.run()
        spent = time.perf_counter() - since
        chosen = tuner.best_config.all_kwargs()
        return {
            "choice": bench.space.index({name: chosen[name] for name in names}), "seconds": spent,
            "configurations": len(configs),
        }  # fmt: skip
    except Exception as error:  # noqa: BLE001 - see `build`
        return _fails(error)


def _triton_config(triton: Any, values: Configuration) -> Any:
    own = {name: values[name] for name in ("num_warps", "num_stages") if name in values}
    return triton.Config({name: value for name, value in values.items() if name not in own}, **own)


def _begin(parent: int) -> None:
    """End this process with its parent, even if that is killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _ready(backend: str) -> int | str:
    """Import what is slow to import. Return the id of this process, or why it can do nothing."""
    try:
        loaded = find_backend(backend).load(1)
        if reason := loaded.why_unavailable():
            return reason
        loaded.overwrite(1)
    except Exception as error:  # noqa: BLE001 - see `build`
        return reason_of(error)
    return os.getpid()


# In the parent.


class LaneDied(Exception):
    """A process ended, or was ended, while it had something to do."""


class _Lane:
    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._start()

    def _start(self) -> None:
        self._pool = ProcessPoolExecutor(
            1, mp_context=get_context("spawn"), initializer=_begin, initargs=(os.getpid(),)
        )
        self._process: int | None = None
        ready = self._call(_START, _ready, self._backend)
        if isinstance(ready, str):
            raise RuntimeError(f"{self._backend} cannot run here: {ready}")
        self._process = ready

    def call(self, patience: float, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in the process. Raise LaneDied if that ends it; there is a new one then."""
        try:
            return self._call(patience, function, *arguments)
        except LaneDied:
            self.close()
            self._start()
            raise

    def _call(self, patience: float, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return self._pool.submit(function, *arguments).result(patience)
        except FutureTimeout:
            raise LaneDied(f"it took more than {patience:.0f} s") from None
        except BrokenProcessPool:
            raise LaneDied("its process died") from None

    def close(self) -> None:
        if self._process:
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGKILL)
        self._pool.shutdown(wait=False, cancel_futures=True)


class Lanes:
    """Processes with a backend of one device. A configuration of a case always goes to the same of them."""

    def __init__(self, backend: str, count: int) -> None:
        # Every thread of a library beside as many processes as there are cores would only be in their way.
        os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
        with ThreadPoolExecutor(count) as pool:
            self._lanes = list(pool.map(lambda _: _Lane(backend), range(count)))
        self.count = count
        self._places: dict[tuple[str, int], int] = {}

    def _place(self, job: Job, number: int) -> int:
        return self._places.setdefault((job.cache, number), len(self._places) % len(self._lanes))

    def build(self, job: Job, numbers: Iterable[int], until: float) -> dict[int, Built]:
        """Build side by side, until a moment."""
        shares: list[list[int]] = [[] for _ in self._lanes]
        for number in numbers:
            shares[self._place(job, number)].append(number)
        found: dict[int, Built] = {}

        def build_share(place: int) -> None:
            for number in shares[place]:
                if time.monotonic() > until:
                    return
                try:
                    found[number] = self._lanes[place].call(_PATIENCE, build, job, number)
                except LaneDied as death:
                    found[number] = Built(None, str(death))

        with ThreadPoolExecutor(len(shares)) as pool:
            list(pool.map(build_share, range(len(shares))))
        return found

    def time(self, job: Job, number: int) -> float | str:
        """Time one configuration, while nothing else runs."""
        try:
            found: float | str = self._lanes[self._place(job, number)].call(_PATIENCE, time_one, job, number)
        except LaneDied as death:
            return str(death)
        return found

    def autotune(self, job: Job, numbers: Sequence[int], patience: float) -> Mapping[str, Any] | str:
        try:
            found: Mapping[str, Any] | str = self._lanes[0].call(patience, autotune, job, numbers)
        except LaneDied as death:
            return str(death)
        return found

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()
