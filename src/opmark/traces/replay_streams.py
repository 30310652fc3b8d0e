"""Puts the calls of a replay on the streams of a device. Only workers import this."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from opmark.traces.replay_values import ReplayStorage

if TYPE_CHECKING:
    from opmark.traces.replay import ReplayStep


class StreamPlan:
    """Puts calls on as many streams as were recorded, with an event where one stream needs what another one wrote."""

    def __init__(
        self, steps: list[ReplayStep], device: torch.device, names: dict[str, Any], module: Any = None
    ) -> None:
        """`module`: torch's module of the device, or one like it."""
        self._before: dict[int, list[str]] = defaultdict(list)
        self._after: dict[int, list[str]] = defaultdict(list)
        self._finish: list[str] = []
        recorded = list(dict.fromkeys(step.node.stream for step in steps if step.node.stream is not None))
        if module is None and device.type != "cpu":
            module = torch.get_device_module(device)
        if len(recorded) < 2 or module is None or not hasattr(module, "Stream"):
            return
        usual, *others = recorded
        names["set_stream"] = module.set_stream
        names[f"s{usual}"] = module.current_stream()
        for stream in others:
            names[f"s{stream}"] = module.Stream()
        events = 0
        wrote: dict[ReplayStorage, tuple[int, str]] = {}
        touched: dict[ReplayStorage, dict[int, str]] = defaultdict(dict)
        current = usual
        crossing = _crossing(steps, usual)
        self._before[0] += [f"s{stream}.wait_stream(s{usual})" for stream in others]
        for number, step in enumerate(steps):
            stream = usual if step.node.stream is None else step.node.stream
            if stream != current:
                self._before[number].append(f"set_stream(s{stream})")
                current = stream
            storages = {one.storage for one in (*step.variables(), *step.results())} & crossing
            writes = step.writes | {one.storage for one in step.results()}
            waits: dict[str, None] = {}
            for storage in storages:
                if storage in writes:
                    waits |= {event: None for other, event in touched[storage].items() if other != stream}
                elif storage in wrote and wrote[storage][0] != stream:
                    waits[wrote[storage][1]] = None
            self._before[number] += [f"s{stream}.wait_event({event})" for event in waits]
            if waits:  # the allocator has to know that another stream uses the memory
                self._before[number] += [
                    f"{one.name}.record_stream(s{stream})" for one in step.variables() if one.storage in crossing
                ]
            if storages:
                event = f"e{events}"
                events += 1
                names[event] = module.Event()
                self._after[number].append(f"{event}.record(s{stream})")
                for storage in storages:
                    touched[storage][stream] = event
                    if storage in writes:
                        wrote[storage] = stream, event
        self._finish = [f"set_stream(s{usual})"] + [f"s{usual}.wait_stream(s{stream})" for stream in others]

    def before(self, number: int) -> list[str]:
        return self._before.get(number, [])

    def after(self, number: int) -> list[str]:
        return self._after.get(number, [])

    def finish(self) -> list[str]:
        return self._finish


def _crossing(steps: Iterable[ReplayStep], usual: int) -> set[ReplayStorage]:
    """Return the memory that more than one stream touches."""
    streams: dict[ReplayStorage, set[int]] = defaultdict(set)
    for step in steps:
        stream = usual if step.node.stream is None else step.node.stream
        for one in (*step.variables(), *step.results()):
            streams[one.storage].add(stream)
    return {storage for storage, found in streams.items() if len(found) > 1}
