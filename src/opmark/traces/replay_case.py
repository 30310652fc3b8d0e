"""Builds the replay of a case in a worker: reads the trace, chooses its part, and compiles it for the device."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch

from opmark.errors import TaskError
from opmark.plugin import Params
from opmark.traces.family import TraceFiles
from opmark.traces.reading import read_trace
from opmark.traces.replay import Replay, compile_replay
from opmark.traces.replay_collectives import ReplayGroups
from opmark.traces.replay_part import ReplayPart, parse_sizes
from opmark.traces.replay_scale import SizeChange
from opmark.traces.trace import ProgramTrace


@lru_cache(maxsize=1)
def _read(file: Path, changed: int) -> ProgramTrace:
    """Read a trace once: a task is prepared more than once."""
    return read_trace(file)


def build_replay(files: TraceFiles, params: Params, rank: int = 0, world: int = 1) -> Replay:
    """Return the compiled replay of a case on torch's default device; of one rank, if there are several."""
    if files.content != params.get("content", files.content):
        raise TaskError("the file of the trace has changed since the run was planned")
    file = files.files[rank % len(files.files)]
    trace = _read(file, file.stat().st_mtime_ns)
    recorded = max(len(files.files), trace.world_size or 1, *(group.size or 1 for group in trace.groups.values()))
    part = ReplayPart(params["step"], params["subgraph"], params["only"], params["skip"])
    change = SizeChange(parse_sizes(params["scale"]))
    return compile_replay(
        trace,
        part,
        str(torch.get_default_device()),
        groups=ReplayGroups(rank, world, recorded, trace.groups),
        rewrite=change.rewrite if change.sizes else None,
    )
