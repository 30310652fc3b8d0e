"""The clock of an NVIDIA GPU: CUPTI's records of every kernel, copy and fill, whatever framework has launched them."""

from __future__ import annotations

import ctypes
import time
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from opmark.errors import TimerFailed
from opmark.plugin import Activity, DeviceClock, Launch, Trace
from opmark.worker.measure.gate import DeviceGate

_BUFFER = 1 << 20
"""Bytes of a buffer for records, about 5,000 of them; CUPTI asks for as many buffers as it needs."""
_SECOND = 1_000_000_000
_FORCED = 1
"""Flag of a flush: hand out buffers that are not full, too."""


class _DeviceRecord(NamedTuple):
    """Something that the device did. The driver numbers its calls in order, and a record has the number of its call."""

    call: int
    name: str
    start: int
    """Nanoseconds."""
    end: int


class CuptiClock(DeviceClock):
    """Reads CUPTI's activity records. Calls are parted by marks, which are calls of the driver that have records too:
    what was launched between two of them, by whatever thread, has a number between theirs."""

    name = "cupti"
    opens_gate = True

    def __init__(self, cupti: Any, driver: Any, synchronize: Callable[[], object], other: DeviceClock | None) -> None:
        """`synchronize` waits for the framework; `other` is its own clock, which has events and graphs."""
        self._cupti = cupti
        self._synchronize = synchronize
        self._other = other
        self._gate = DeviceGate(driver)
        self._driver = driver
        self._idle = self._gate.new_stream()
        """A stream without work. Waiting for it takes no time and leaves a record, which is a mark."""
        self._attached = False
        self._marks: list[int] = []
        self._records: list[_DeviceRecord] = []
        kind = cupti.ActivityKind
        self._kinds = (kind.CONCURRENT_KERNEL, kind.MEMCPY, kind.MEMCPY2, kind.MEMSET, kind.SYNCHRONIZATION)
        self._copies = {int(one): one.name.replace("TO", "to") for one in cupti.ActivityMemcpyKind}
        self._mark_stream = 0

    def trace(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> Trace:
        began = time.time_ns()
        queued = self._record(launches, before, hold)
        if not self._in_nanoseconds(began):
            # torch's profiler lets CUPTI count in cycles of the processor, and leaves it so.
            self.detach()
            queued = self._record(launches, before, hold)
            if not self._in_nanoseconds(began):
                raise TimerFailed("another profiler in this process has changed the clock that CUPTI counts by")
        trace = assign_records(self._records, sorted(self._marks), len(launches), harness=before is not None)
        return trace._replace(queued=queued)

    def _record(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> bool:
        """Record these launches; return whether the device was held until the last of them."""
        self._synchronize()
        with self._recording():
            with self._gate.closed(hold) as is_closed:
                if not before:
                    self._mark()
                for launch in launches:
                    if before:
                        before()
                        self._mark()
                    launch()
                    self._mark()
                queued = is_closed()
            self._synchronize()
            self._gate.wait()
        return queued

    def _in_nanoseconds(self, began: int) -> bool:
        """Whether the records are of the time since then, as the system counts it."""
        known = [record.start for record in self._records if record.start]
        return not known or began - _SECOND <= min(known) <= max(known) <= time.time_ns() + _SECOND

    def queued(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> list[float]:
        return self._other.queued(launches, before, hold) if self._other else super().queued(launches, before, hold)

    def capture(self, launches: Sequence[Launch]) -> Callable[[], float]:
        return self._other.capture(launches) if self._other else super().capture(launches)

    def find(self, timer: str) -> DeviceClock | None:
        return super().find(timer) or (self._other.find(timer) if self._other else None)

    def detach(self) -> None:
        """Take CUPTI out of the process: with it, every launch takes about a microsecond longer, recorded or not."""
        if self._attached:
            self._attached = False
            self._ask("finalize")

    def _mark(self) -> None:
        self._driver.cuStreamSynchronize(self._idle)

    @contextmanager
    def _recording(self) -> Iterator[None]:
        self._marks, self._records = [], []
        # Whoever registers last gets the records: a profiler that was used meanwhile would get these.
        self._ask("activity_register_callbacks", lambda: (_BUFFER, 0), self._collect)
        if not self._attached:
            self._attached = True
            self._mark_stream = self._ask("get_stream_id_ex", int(self._gate.context), int(self._idle), 0)
        self._count_dropped()  # those of another profiler do not count
        enabled = []
        try:
            for kind in self._kinds:
                self._ask("activity_enable", int(kind))
                enabled.append(kind)
            yield
        finally:  # also after a call that failed: its records would be taken for those of the next one
            self._ask("activity_flush_all", _FORCED)
            for kind in enabled:
                self._ask("activity_disable", int(kind))
        if dropped := self._count_dropped():
            raise TimerFailed(f"CUPTI dropped {dropped} records")

    def _count_dropped(self) -> int:
        """Return how many records there was no room for since the last time that this was asked."""
        dropped = ctypes.c_size_t()
        self._ask("activity_get_num_dropped_records", 0, 0, ctypes.addressof(dropped))
        return dropped.value

    def _collect(self, activities: Iterable[Any]) -> None:
        """Keep what matters of a buffer, which is gone afterwards."""
        kernel, copy, peer_copy, fill, wait = map(int, self._kinds)
        for one in activities:
            if one.kind == kernel:
                name = demangle(one.name)
            elif one.kind == wait:
                if one.stream_id == self._mark_stream:
                    self._marks.append(one.correlation_id)
                continue
            elif one.kind in (copy, peer_copy):
                name = f"Memcpy {self._copies.get(one.copy_kind, one.copy_kind)}"
            elif one.kind == fill:
                name = "Memset"
            else:
                continue
            self._records.append(_DeviceRecord(one.correlation_id, name, one.start, one.end))

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Call a function of CUPTI. Raise TimerFailed where it refuses."""
        try:
            return getattr(self._cupti, function)(*arguments)
        except (self._cupti.cuptiError, RuntimeError) as error:  # the latter where a library or function is missing
            raise TimerFailed(f"CUPTI refuses {function}: {error}") from None


def assign_records(records: Sequence[_DeviceRecord], marks: Sequence[int], calls: int, *, harness: bool) -> Trace:
    """Assign records to the calls during which they were launched. What was launched before the first call is the
    harness's own, and what came after the last is stray. Where the `harness` runs something before each call, a call
    lies between two marks of its own; else one mark parts it from the next. The harness does the same before each call:
    what is more than it does elsewhere was left behind by a call, and is stray too."""
    due = 2 * calls if harness else calls + 1
    if len(marks) != due:
        raise TimerFailed(f"CUPTI recorded {len(marks)} of {due} marks of calls")
    if not any(record.call < marks[0] for record in records):
        raise TimerFailed(
            "CUPTI recorded nothing of the device: another tool may be using it, or this user may not (NVIDIA's driver "
            "allows it to everybody with NVreg_RestrictProfilingToAdminUsers=0)"
        )
    found: list[list[Activity]] = [[] for _ in range(calls)]
    lost, stray, own = set[int](), 0, [0] * (calls if harness else 1)
    origin = min((record.start for record in records if record.start), default=0)
    for record in sorted(records, key=lambda record: record.start):
        place = bisect(marks, record.call)
        if place == due:
            stray += 1
            continue
        if not place or (harness and place % 2 == 0):
            own[place // 2] += 1
            continue
        call = place // 2 if harness else place - 1
        if 0 < record.start <= record.end:
            start, end = ((moment - origin) * 1e-9 for moment in (record.start, record.end))
            found[call].append(Activity(record.name, start, end))
        else:  # CUPTI could not tell when it ran
            lost.add(call)
    own[0] -= 1  # the gate
    stray += sum(own) - min(own) * len(own)
    return Trace([[] if i in lost else call for i, call in enumerate(found)], len(lost), stray)


def open_cupti(synchronize: Callable[[], object], other: DeviceClock | None) -> tuple[CuptiClock | None, str]:
    """Return (the clock, the reason if it cannot be read). One trial shows whether it can."""
    try:
        from cuda.bindings import driver
        from cupti import cupti
    except ModuleNotFoundError:
        return None, "cupti-python is not installed (pip install 'opmark[nvidia]')"
    except ImportError as error:
        return None, f"cupti-python cannot be imported: {error}"
    try:
        clock = CuptiClock(cupti, driver, synchronize, other)
        try:
            clock.trace([lambda: None], None, 0.0)
        finally:
            clock.detach()
    except TimerFailed as failure:
        return None, failure.message
    return clock, ""


@lru_cache(maxsize=4096)
def demangle(name: str) -> str:
    """Return the name of a C++ function as it stands in its source; other names are returned unchanged."""
    if not name.startswith("_Z"):
        return name
    try:
        function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return name
    function.restype = ctypes.c_void_p
    status = ctypes.c_int()
    found = function(name.encode(), None, None, ctypes.byref(status))
    if not found:
        return name
    try:
        return ctypes.string_at(found).decode()
    finally:
        free = ctypes.CDLL(None).free
        free.argtypes = [ctypes.c_void_p]
        free(found)
