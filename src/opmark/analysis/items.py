"""Glances at the records of a run -> its items: processes joined, rates and shares of the hardware's limits told."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from opmark.metrics.bus import bandwidths
from opmark.metrics.doubts import ABOVE_PEAK, IS_ABOVE_PEAK, codes_over_processes, half_width
from opmark.metrics.roofline import attained
from opmark.metrics.throughput import rates
from opmark.registry import parameters_of, way_of
from opmark.schema import QUANTITIES, Case, Cost
from opmark.schema.item import Ceilings, Item, Share, Timing
from opmark.schema.shown import shown
from opmark.schema.task import alike
from opmark.stats import log_interval, median
from opmark.store.glances import Glance

_NO_CEILINGS = Ceilings()
_QUANTITY, _CACHE, _SAMPLES, _MEDIAN, _LOW, _HIGH, _CAUTIONS = 0, 1, 4, 5, 6, 7, 9
"""Places in a row of figures, as `store.tables.RECORD` says."""


class Names:
    """What things are called; each is made up once, and kept for the next run: most runs have the same cases."""

    def __init__(self) -> None:
        self._parameters: dict[tuple[str, str], str] = {}
        self._where: dict[tuple[str, str, int, int], str] = {}

    def parameters(self, case: Case, called: str) -> str:
        key = (case.id, called)
        found = self._parameters.get(key)
        if found is None:
            found = self._parameters[key] = shown(case, parameters_of(case.op), called)
        return found

    def where(self, glance: Glance, processes: int) -> str:
        key = (glance.backend, glance.implementation, glance.threads, processes)
        found = self._where.get(key)
        if found is None:
            several = f" in {processes} processes" if processes > 1 else ""
            way = way_of(glance.backend, glance.implementation)
            found = self._where[key] = f"{glance.backend}{way} ×{glance.threads}{several}"
        return found


def items_of(
    glances: Iterable[Glance],
    cases: Mapping[str, Case],
    ceilings: Mapping[str, Ceilings],
    names: Names | None = None,
) -> tuple[Item, ...]:
    """In the order of the first record of each. `ceilings`: by the id of an environment."""
    groups: dict[tuple[Any, ...], list[Glance]] = {}
    for glance in glances:
        key = alike(glance.case, glance.backend, glance.implementation, glance.body.task.settings)
        groups.setdefault(key, []).append(glance)
    names = names or Names()
    return tuple([_item(group, cases[group[0].case], ceilings, names) for group in groups.values()])


def _item(group: Sequence[Glance], case: Case, ceilings: Mapping[str, Ceilings], names: Names) -> Item:
    first = group[0] if len(group) == 1 else next((glance for glance in group if glance.status != "ok"), group[0])
    body, timings = first.body, timings_of(group)
    settings = body.task.settings
    compiled = [glance.body.compilation.cold for glance in group if glance.body.compilation]
    known = ceilings.get(first.environment, _NO_CEILINGS)
    found = _rates(body.cost, timings[0] if timings else None, case, known)
    return Item(
        group[0].task,
        first.run,
        case.id,
        case.op,
        case.phase,
        case.params,
        names.parameters(case, body.called),
        first.backend,
        first.implementation,
        names.where(first, len(group)),
        first.threads,
        len(group),
        settings.effort,
        settings.mode,
        first.status,
        first.reason,
        _with_peak(timings, found.get("of_peak")),
        first.environment,
        first.started,
        sum([glance.duration for glance in group]),
        body.task.case.tags,
        _once([note for glance in group for note in glance.body.notes]),
        memory=body.memory.peak if body.memory else None,
        memory_source=body.memory.source if body.memory else "",
        memory_resolution=body.memory.resolution if body.memory else 1,
        wrt=case.wrt,
        seed=settings.seed,
        compile_time=median(compiled) if compiled else None,
        verified=body.verification.checked if body.verification else "",
        **found,
    )


def _with_peak(timings: tuple[Timing, ...], share: Share | None) -> tuple[Timing, ...]:
    """The headline is doubtful where it is more than the hardware can do."""
    if share is None or share.share <= ABOVE_PEAK:
        return timings
    first, *others = timings
    return (replace(first, cautions=(*first.cautions, IS_ABOVE_PEAK)), *others)


def _rates(cost: Cost | None, lead: Timing | None, case: Case, known: Ceilings) -> dict[str, Any]:
    """What the headline says of the work, by the names that an item has for it."""
    if cost is None:
        return {}
    moved = cost.traffic
    found: dict[str, Any] = {"bytes": cost.bytes_moved, "flops": cost.flops}
    if moved:
        found |= {"traffic": moved.size, "link": moved.link, "ranks": moved.ranks}
    seconds = lead.median if lead and lead.unit == "s" else None
    if lead is None or not seconds or seconds <= 0:
        return found
    if moved:
        link = bandwidths(cost, seconds)
        return found | {"algorithm_bandwidth": link.algorithm, "bus_bandwidth": link.bus}
    work, dtype = rates(cost, seconds), str(case.params.get("dtype", ""))
    found |= {"bytes_per_second": work.bytes_per_second, "flops_per_second": work.flops_per_second}
    for name, peaks in (("of_peak", known.measured), ("of_datasheet", known.datasheet)):
        reached = attained(cost, seconds, dtype, peaks, cold=lead.cache == "cold") if peaks else None
        found[name] = Share(reached.share, reached.bound) if reached else None
    return found


def timings_of(group: Sequence[Glance]) -> tuple[Timing, ...]:
    """In the order of the first process that measured them."""
    found: dict[tuple[str, Any], list[list[Any]]] = {}
    for glance in group:
        for figure in glance.figures:
            found.setdefault((figure[_QUANTITY], figure[_CACHE]), []).append(figure)
    several = len(group) > 1
    return tuple([_timing(*key, figures, several=several) for key, figures in found.items()])


def seconds_of(figures: Sequence[Sequence[Any]]) -> float | None:
    """As `Item.seconds` of an item that has these of a single record."""
    if not figures:
        return None
    first = figures[0]
    quantity, cache = first[_QUANTITY], first[_CACHE]
    same = [figure for figure in figures if (figure[_QUANTITY], figure[_CACHE]) == (quantity, cache)]
    lead = _timing(quantity, cache, same)
    return lead.median if lead.unit == "s" and lead.median and lead.median > 0 else None


def _timing(quantity: str, cache: Any, figures: Sequence[Sequence[Any]], *, several: bool = False) -> Timing:
    """`several`: the task ran in more than one process, whether or not each of them has a number."""
    unit = QUANTITIES[quantity].unit if quantity in QUANTITIES else "s"
    if not several and len(figures) == 1:
        return _timing_of_one(quantity, cache, unit, figures[0])
    codes = [code for figure in figures for code in figure[_CAUTIONS]]
    medians = [value for figure in figures if (value := figure[_MEDIAN]) is not None and math.isfinite(value)]
    count = sum([figure[_SAMPLES] for figure in figures])
    if not medians:
        told = _once(codes_over_processes(codes, 0, 0.0))
        return Timing(quantity, cache, unit, None, None, None, count, len(figures), told)
    centre, half = median(medians), 0.0
    if len(medians) > 1:
        low, high, _ = log_interval(medians)
        half = half_width(centre, low, high)
    else:
        low, high = next((f[_LOW], f[_HIGH]) for f in figures if f[_MEDIAN] == medians[0])
    told = _once(codes_over_processes(codes, len(medians), half))
    return Timing(quantity, cache, unit, centre, low, high, count, len(figures), told)


def _timing_of_one(quantity: str, cache: Any, unit: str, figure: Sequence[Any]) -> Timing:
    """Of a single process, as most are: what was stored of it."""
    value, low, high = figure[_MEDIAN], figure[_LOW], figure[_HIGH]
    if value is None or not math.isfinite(value):
        value = low = high = None
    return Timing(quantity, cache, unit, value, low, high, figure[_SAMPLES], 1, _once(figure[_CAUTIONS]))


def _once(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values)) if values else ()
