"""Measures the quantities of a task that were asked for; notes say which ones cannot be measured here, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from msgspec.structs import replace

from opmark.errors import TimerFailed, Unsupported
from opmark.plugin import Backend, DeviceClock, Implementation, Launch, Operator
from opmark.schema import CACHES, MODES, QUANTITIES, Cache, Caution, Measurement, Sampling, Settings, Task
from opmark.schema.load import Load
from opmark.units import seconds
from opmark.worker.measure import sampler
from opmark.worker.measure.cache import CacheRoom, LaunchSource, flush, rotation, warm
from opmark.worker.measure.engine import measure
from opmark.worker.measure.instruments import Instruments
from opmark.worker.measure.load import measure_load
from opmark.worker.measure.sampler import EventSampler, GraphSampler, HostSampler, Sampler, TraceSampler, measure_energy
from opmark.worker.preparation import PreparedLaunch, bind, case_bytes, make_inputs, prepare, refuse_if_too_large

_ON_DEVICE = ("device_time", "device_span", "latency", "host_time", "throughput")
_SHORT_FOR_EVENTS = 20e-6
"""Seconds below which the cost of an event itself is too much of what is measured."""
_CHECK_EVERY = 8
_OTHER_TIMERS = ("events", "graph")
_HOST_SHARE = 0.25
_FEWEST_HOST_SAMPLES = 8
"""Samples of a quantity of the host beside those of the device: enough for an interval of 95 %."""


@dataclass
class TaskMeasurement:
    """Measures one task that is prepared on its backend."""

    task: Task
    operator: Operator
    implementation: Implementation
    backend: Backend
    instruments: Instruments
    prepared: PreparedLaunch
    notes: list[str] = field(default_factory=list)
    """Quantities that were asked for and cannot be measured, with the reason."""
    _settled: bool = False
    """Whether a quantity of the device has been sampled after a warm-up that settled."""

    def run(self) -> tuple[Measurement, ...]:
        """The measurements in the order of the quantities. Raise Unsupported where there is none of them."""
        if self.task.settings.load:
            self._detach_clock()
            return (self._measure_load(self.task.settings.load),)
        chosen = self._choose_quantities()
        found: list[Measurement] = []
        for cache in CACHES:
            on_device = [quantity for quantity, c in chosen if c == cache and self._needs_clock(quantity)]
            if on_device:
                # The device's clock has to recover from the load before; long loads come last.
                self.instruments.watch.recover()
                found += self._measure_on_device(on_device, cache)
        self._detach_clock()
        for quantity, cache in chosen:
            if not self._needs_clock(quantity):
                found += self._measure_on_host(quantity, cache)
        if not found:
            raise Unsupported("; ".join(self.notes) or "there is nothing to measure")
        order = list(QUANTITIES)
        return tuple(sorted(found, key=lambda m: (order.index(m.quantity), CACHES.index(m.cache))))

    def _detach_clock(self) -> None:
        """Take what slows launches down out of the process; a task that failed before may have left it there."""
        if self.instruments.clock:
            self.instruments.clock.detach()

    def _measure_load(self, load: Load) -> Measurement:
        """Measure requests of clients to the one model that is loaded, each with inputs of its own."""
        task, params, settings = self.task, self.task.case.params, self.task.settings
        refuse_if_too_large(params, self.operator, self.backend, clients=load.clients)
        others = [make_inputs(params, task, self.operator, self.backend, one) for one in range(1, load.clients)]

        def rebuild(inputs: Mapping[str, Any]) -> Launch:
            return bind(params, task, self.operator, self.implementation, self.backend, dict(inputs)).launch

        launches = self.backend.clients(self.prepared.launch, others, rebuild)
        self.backend.synchronize()  # the inputs are there before the first client begins
        seed = f"{settings.seed} {settings.process}"
        return measure_load(launches, load, settings.sampling, seed, self.instruments.watch)

    def _choose_quantities(self) -> list[tuple[str, Cache]]:
        """Choose which quantities are measured with which caches; a note says why one is left out."""
        settings = self.task.settings
        chosen: list[tuple[str, Cache]] = []
        if settings.timer and self.instruments.clock is None:
            self.notes.append(f"timer {settings.timer}: {self._why_no_clock}")
        elif self.instruments.why_no_cupti and self.instruments.clock is not None:
            self.notes.append(f"timed by {self.instruments.clock.name}: {self.instruments.why_no_cupti}")
        usual = ("latency",) if "latency" in self.instruments.timers else tuple(self.instruments.timers)
        in_loops = {"energy", *(one for one in self.instruments.timers if QUANTITIES[one].on == "device")}
        for quantity in quantities_for(settings, has_clock=self.instruments.clock is not None, usual=usual):
            if reason := self._why_not(quantity):
                self.notes.append(f"{quantity}: {reason}")
                continue
            device = self._needs_clock(quantity) and not settings.mode
            for cache in settings.caches or (("cold", "warm") if device else ("warm",)):
                if quantity in in_loops and cache != "warm":
                    self.notes.append(f"{quantity} {cache}: it is that of a loop, which leaves its data in the caches")
                else:
                    chosen.append((quantity, cache))
        return chosen

    def _needs_clock(self, quantity: str) -> bool:
        """Whether a quantity is read from the clock of the device, and not by a timer around calls."""
        return QUANTITIES[quantity].on == "device" and quantity not in self.instruments.timers

    def _why_not(self, quantity: str) -> str | None:
        if self._needs_clock(quantity) and self.instruments.clock is None:
            return self._why_no_clock
        if quantity in ("latency", "throughput") and quantity not in self.instruments.timers:
            return f"{self.task.backend} times calls by {', '.join(self.instruments.timers)} alone"
        if quantity == "host_time" and not self.backend.asynchronous:
            return "a call of this backend is done when it returns: that is its latency"
        if quantity == "energy" and self.instruments.watch.energy() is None:
            return "nothing here counts energy (neither NVML nor RAPL answers)"
        return None

    @property
    def _why_no_clock(self) -> str:
        reason = self.instruments.why_no_cupti
        return f"{self.task.backend} has no clock of its own on a device" + (f": {reason}" if reason else "")

    def _measure_on_host(self, quantity: str, cache: Cache) -> list[Measurement]:
        if quantity == "energy":
            return [measure_energy(self.prepared.launch, self.backend.synchronize, self.instruments.watch)]
        supply = self._launch_source(cache, between=quantity != "throughput", what=quantity)
        if supply is None:
            return []
        # Calls that are waited for one by one are also sampled one by one.
        batches = quantity == "throughput" or not (self.backend.asynchronous or self.task.settings.mode)
        sampler = HostSampler(quantity, self.instruments.timers[quantity], supply, batches=batches)
        # Lasting load has a warm-up of its own: the clocks go down under it.
        settled = self._settled and quantity != "throughput"
        return measure(sampler, self._host_sampling(), self.instruments.watch, settled=settled)

    def _host_sampling(self) -> Sampling:
        """How long to sample on the host: a part of the time, unless the user chose the quantities, since quantities of
        the device come first."""
        settings = self.task.settings
        if self.instruments.clock is None or settings.quantities or settings.mode:
            return settings.sampling
        rule = settings.sampling
        return replace(
            rule,
            warmup_min=_HOST_SHARE * rule.warmup_min,
            warmup_max=_HOST_SHARE * rule.warmup_max,
            min_time=_HOST_SHARE * rule.min_time,
            max_time=_HOST_SHARE * rule.max_time,
            min_samples=max(_FEWEST_HOST_SAMPLES, round(_HOST_SHARE * rule.min_samples)),
            rel_ci=rule.rel_ci / _HOST_SHARE,
        )

    def _measure_on_device(self, quantities: list[str], cache: Cache) -> list[Measurement]:
        clock, found = self.instruments.clock, list[Measurement]()
        assert clock is not None
        if "event_time" in quantities:
            supply = self._launch_source(cache, between=True, what="event_time")
            found += self._measure_by_events("event_time", clock, supply) if supply else []
        if "unqueued_time" in quantities:
            supply = self._launch_source(cache, between=True, what="unqueued_time")
            found += self._measure_unqueued(clock, supply) if supply else []
        if {"device_time", "device_span"} & set(quantities):
            found += [
                m for m in self._measure_kernels(clock, cache) if m.quantity in quantities or not clock.find(m.timer)
            ]
        return found

    def _measure_kernels(self, clock: DeviceClock, cache: Cache) -> list[Measurement]:
        """Measure by the profiler; where that fails, device_span alone, by events or, if short, by a captured graph."""
        supply = self._launch_source(cache, between=True, what="device_time")
        if supply is None:
            return []
        timer = self.task.settings.timer
        if chosen := clock.find(timer):
            try:
                ahead = self.backend.calls_ahead if self.backend.asynchronous else 0
                traced = TraceSampler(chosen, supply, ahead=ahead)
                found = self._sample(traced)
            except TimerFailed as failure:
                self.notes.append(
                    f"device_time {cache}: {failure.message}; device_span then comes from events or a graph"
                )
            else:
                found = found if traced.queues else _mark_launch_gaps(found)
                return self._cross_check(clock, found) if cache == "warm" and self._needs_cross_check(found) else found
        elif "device_time" in self.task.settings.quantities or timer not in _OTHER_TIMERS:
            has = "tells only device_span" if timer in _OTHER_TIMERS else f"is not what this device has ({clock.name})"
            self.notes.append(f"device_time {cache}: {timer} {has}")
        return self._measure_without_profiler(clock, supply, timer)

    def _measure_unqueued(self, clock: DeviceClock, supply: LaunchSource) -> list[Measurement]:
        timer = self.task.settings.timer
        chosen = clock.find(timer)
        if chosen is None:
            self.notes.append(f"unqueued_time {supply.cache}: {timer} does not tell it")
            return []
        try:
            return self._sample(TraceSampler(chosen, supply, wait=self.backend.synchronize))
        except TimerFailed as failure:
            self.notes.append(f"unqueued_time {supply.cache}: {failure.message}")
            return []

    def _measure_without_profiler(self, clock: DeviceClock, supply: LaunchSource, timer: str) -> list[Measurement]:
        cache = supply.cache
        found = [] if timer == "graph" else self._measure_by_events("device_span", clock, supply)
        if found and min(found[0].samples) >= _SHORT_FOR_EVENTS:
            return found
        if timer == "events":
            return [_mark_coarse(m) for m in found]
        unflushed = self._launch_source(cache, between=False, what="device_span by a captured graph")
        if unflushed is None:
            return [_mark_coarse(m) for m in found]
        try:
            return self._sample(GraphSampler(clock, unflushed))
        except TimerFailed as failure:
            self.notes.append(f"device_span by a captured graph {cache}: {failure.message}")
            return [_mark_coarse(m) for m in found]

    def _measure_by_events(self, quantity: str, clock: DeviceClock, supply: LaunchSource) -> list[Measurement]:
        """Measure by events around each call. Where the clock has none, a note says so."""
        try:
            return self._sample(EventSampler(quantity, clock, supply))
        except TimerFailed as failure:
            self.notes.append(f"{quantity} {supply.cache} by events: {failure.message}")
            return []

    def _sample(self, sampler: Sampler) -> list[Measurement]:
        """Sample quantities of the device. A warm-up that has settled serves all later quantities but throughput."""
        found = measure(sampler, self.task.settings.sampling, self.instruments.watch, settled=self._settled)
        self._settled = not any(caution.code == "unsettled" for one in found for caution in one.cautions)
        return found

    def _needs_cross_check(self, found: list[Measurement]) -> bool:
        """Whether events check these numbers: they do for the first and then every eighth task that is long enough."""
        if min(found[0].samples) < _SHORT_FOR_EVENTS:
            return False
        self.instruments.long_tasks += 1
        return self.instruments.long_tasks % _CHECK_EVERY == 1

    def _cross_check(self, clock: DeviceClock, found: list[Measurement]) -> list[Measurement]:
        second = EventSampler("device_span", clock, warm(self.prepared.launch))
        try:
            return [sampler.cross_check(m, second) if m.quantity == "device_span" else m for m in found]
        except TimerFailed:  # there is no second timer to compare with
            return found

    def _launch_source(self, cache: Cache, *, between: bool, what: str) -> LaunchSource | None:
        """The launches to time for a state of the caches; None, with a note, where that state cannot be reached.

        `between`: whether something may run between two calls without being timed.
        """
        launch = self.prepared.launch
        if cache == "warm":
            return warm(launch)
        params, operator = self.task.case.params, self.operator
        room = CacheRoom(case_bytes(params, operator), self.instruments.cache_bytes, self.backend.available_bytes())
        if cache == "rotated":
            return rotation(launch, self._prepare_other_data, room, cache)
        # Overwriting the cache costs a device microseconds and a CPU milliseconds: there, rotating is better.
        flushes = between and self.backend.asynchronous and self.instruments.overwrites
        why = None if flushes else room.why_no_rotation()
        if why is None and not flushes:
            return rotation(launch, self._prepare_other_data, room)
        if not between or not self.instruments.overwrites:
            self.notes.append(f"{what} cold: {why}")
            return None
        if room.free_bytes is not None and room.flush_bytes > room.free_bytes:
            self.notes.append(f"{what} cold: too little memory is free to overwrite the caches")
            return None
        return flush(launch, lambda n: self.instruments.overwrite(self.backend, n), room, why)

    def _prepare_other_data(self, variant: int) -> Launch:
        """A launch of the same work on other data at other addresses."""
        return prepare(
            self.task.case.params, self.task, self.operator, self.implementation, self.backend, variant
        ).launch


def _mark_coarse(measurement: Measurement) -> Measurement:
    caution = Caution(
        "coarse",
        f"events cost a device some microseconds themselves, and this is less than {seconds(_SHORT_FOR_EVENTS)}",
        "take it for an upper bound; the profiler would tell it exactly",
    )
    return replace(measurement, cautions=(*measurement.cautions, caution))


def _mark_launch_gaps(found: list[Measurement]) -> list[Measurement]:
    """Return the measurements with a caution for a span that is longer than the work in it, of calls that could not be
    queued."""
    medians = {m.quantity: median(m.samples) for m in found}
    if medians["device_span"] <= (1 + sampler.AGREE) * medians["device_time"]:
        return found
    caution = Caution(
        "launch-gaps",
        f"the call waits for the device, so that calls could not be queued: of {seconds(medians['device_span'])} the "
        f"device works {seconds(medians['device_time'])}, and may have waited for launches in the rest",
        "device_time has no gaps",
    )
    return [replace(m, cautions=(*m.cautions, caution)) if m.quantity == "device_span" else m for m in found]


def quantities_for(
    settings: Settings, *, has_clock: bool = False, usual: tuple[str, ...] = ("latency",)
) -> tuple[str, ...]:
    """The quantities that are asked for; else those of a device that `has_clock` of its own, else the `usual` ones."""
    if settings.mode:
        return (MODES[settings.mode],)
    return settings.quantities or (_ON_DEVICE if has_clock else usual)
