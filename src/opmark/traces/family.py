"""The family `trace:`: a recorded program as an operator, which one launch replays as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from opmark.errors import UserError
from opmark.plugin import Exchange, Implementation, Launch, Operator, Param, Params, Peers
from opmark.plugin.param import choice, integer
from opmark.schema import Cost
from opmark.schema.case import TRACE_PREFIX
from opmark.schema.schedule import SCHEDULE, SCHEDULED
from opmark.traces.reading import find_ranks

_CHUNK = 2**22
_HINT = "name the file of a trace, a folder with one file per rank, or NAME.json for NAME.rank-0.json, NAME.rank-1.json"


@dataclass(frozen=True)
class TraceFiles:
    """The files of a recorded program."""

    files: tuple[Path, ...]
    """One for each rank; a single one for a program of one process."""
    ranks: bool

    @property
    def content(self) -> str:
        """A hash of the files, and of the profiler's files beside them."""
        found = blake2b(digest_size=8)
        for file in self.files:
            found.update(_digest(file, file.stat().st_mtime_ns))
        return found.hexdigest()


@cache
def _digest(file: Path, changed: int) -> bytes:
    found = blake2b(digest_size=16)
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK):
            found.update(chunk)
    return found.digest()


def find_files(name: str) -> TraceFiles:
    """Return the files that a name stands for; UserError if there are none."""
    path = Path(name).expanduser()
    if path.is_file():
        return TraceFiles((path,), ranks=False)
    if "*" in path.name:  # NAME.rank-*.json
        path = path.with_name(path.name.partition(".rank")[0] + ".json")
    if not path.is_dir() and not path.parent.is_dir():
        raise UserError(f"there is no trace {name}", _HINT)
    return TraceFiles(tuple(find_ranks(path).values()), ranks=True)


def trace_operator(name: str) -> Operator:
    """Return the operator `trace:FILE`."""
    found = find_files(name)
    ranks = (integer("ranks", "processes; with fewer than recorded, missing ones are simulated by shape",
                     len(found.files), kind="rank"),) if found.ranks else ()  # fmt: skip
    return Operator(
        name=TRACE_PREFIX + name,
        summary="a recorded program, replayed call by call",
        category="trace",
        params=(
            Param("step", "choice", "last complete step that the profiler marked, all, or the number of one", "last"),
            Param("subgraph", "choice", "only the calls below this label", ""),
            choice("only", "computation, communication, or both", ("all", "compute", "comms"), "all"),
            Param("skip", "choice", "patterns of operators that are left out, as in aten::copy_*", ""),
            Param("scale", "choice", "recorded sizes to change, as in 32=64", ""),
            *ranks,
            Param("content", "choice", "hash of the files, so that another trace is another case", found.content),
        ),
        inputs=lambda p: {},
        cost=lambda p: Cost(None, 0, 0),
        reference=_no_reference,
        presets={},
        implementations=_rank_implementations(found) if found.ranks else _implementations(found),
        foreign=True,
        recorded=True,
        ranks=found.ranks,
    )  # fmt: skip


def _implementations(files: TraceFiles) -> tuple[Implementation, ...]:
    scheduled = partial(_build_scheduled, files)
    return (
        Implementation("torch", partial(_build, files)),
        Implementation("torch", scheduled, SCHEDULED, on_request=True, takes=(SCHEDULE,)),
    )


def _rank_implementations(files: TraceFiles) -> tuple[Implementation, ...]:
    return (Implementation("torch", partial(_build_rank, files)),)


def _no_reference(p: Params, **inputs: Any) -> Any:
    from opmark.errors import Unsupported

    raise Unsupported("a recorded program has no reference")


def _build(files: TraceFiles, params: Params) -> Launch:
    from opmark.traces.replay_case import build_replay

    return build_replay(files, params)


def _build_scheduled(files: TraceFiles, params: Params, configuration: Mapping[str, Any]) -> Launch:
    from opmark.traces.scheduled import build_scheduled

    launch: Launch = build_scheduled(files, params, dict(configuration))
    return launch


def _build_rank(files: TraceFiles, params: Params, peers: Peers) -> Exchange:
    from opmark.traces.replay_case import build_replay

    replay = build_replay(files, params, peers.world_rank(peers.rank), int(params["ranks"]))
    return Exchange(replay)


class _Traces:
    last = False

    def operator(self, name: str) -> Operator | None:
        return trace_operator(name.removeprefix(TRACE_PREFIX)) if name.startswith(TRACE_PREFIX) else None

    def names(self, pattern: str) -> Sequence[str] | None:
        if not pattern.startswith(TRACE_PREFIX):
            return None
        wanted = pattern.removeprefix(TRACE_PREFIX)
        if ".rank-*" in wanted:
            return [pattern]
        path = Path(wanted)
        files = sorted(path.parent.glob(path.name)) if path.parent.is_dir() else []
        return [f"{TRACE_PREFIX}{file}" for file in files if ".kineto." not in file.name]


TRACES = _Traces()
