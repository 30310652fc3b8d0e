"""Reads a trace of any format, with the times of the profiler's file beside it, and traces of several ranks."""

from __future__ import annotations

import re
from pathlib import Path

from opmark.errors import InvalidFile
from opmark.schema.codec import gc_disabled
from opmark.traces.chakra import is_chakra, read_chakra
from opmark.traces.chrome import check_shapes, merge_times, read_chrome_trace
from opmark.traces.execution_trace import read_execution_trace
from opmark.traces.json_lists import GZIP, decompress_head, read_content
from opmark.traces.nvtx import SQLITE, has_ranges, read_nvtx
from opmark.traces.trace import ProgramTrace

_RANK = re.compile(r"(?:^|[-_.])rank[-_.]?(\d+)(?=[-_.])")
_ENDINGS = (".json", ".json.gz")
_TRACES = (*_ENDINGS, ".et")
_KINETO = ".kineto"
_LOOKED_AT = 2**20
"""Bytes at the beginning of a file among which the name of its list stands."""
_LISTS = re.compile(rb'"(nodes|traceEvents)"\s*:\s*\[|\A(?:\xef\xbb\xbf)?\s*(\[)')
_EXECUTION = re.compile(rb'"schema"\s*:\s*"|"ctrl_deps"|"op_schema"')
_EVENT = re.compile(rb'\[\s*\{[^{}]*"ph"\s*:')
_KINETO_HEAD = re.compile(rb'\{\s*"(schemaVersion|deviceProperties|distributedInfo|displayTimeUnit|record_shapes)"')
_DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)')
_KNOWN = "execution traces of PyTorch and Chakra, Chrome traces of torch's profiler and nsys' SQLite are read, .gz too"


def read_trace(path: str | Path) -> ProgramTrace:
    """Read a trace. An execution trace gets the times of the profiler's file beside it: NAME.kineto.json.

    InvalidFile if it is none or ends too early; parts of it that cannot be read are its problems.
    """
    path = Path(path)
    with gc_disabled():
        trace = _read_file(path)
        if (times := _times_beside(path)) is not None:
            merge_times(trace, read_chrome_trace(times, read_content(times), keep_ids=True))
    if trace.rank is None and (found := _RANK.search(path.name)):
        trace.rank = int(found[1])
    return trace


def trace_format(path: Path, head: bytes) -> str:
    """Return what a file is, by its first bytes: `execution-trace`, `chrome-trace`, `chakra`, `nvtx`; or empty."""
    if has_ranges(path, head):
        return "nvtx"
    if head.startswith(GZIP):
        head = decompress_head(head)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    found = _LISTS.search(head)
    if not text.startswith((b"{", b"[")):
        return "chakra" if is_chakra(path, head) else ""
    if found is not None and found[1] == b"nodes":
        return "execution-trace" if _EXECUTION.search(head) else ""
    if found is not None and found[1] == b"traceEvents":
        return "chrome-trace"
    if text.startswith(b"["):
        return "chrome-trace" if _EVENT.match(text) else ""
    return "chrome-trace" if _KINETO_HEAD.match(text) else ""


def times_of(path: Path) -> Path | None:
    """Return the execution trace that a profiler's file beside it has the times of; None if there is none."""
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    beside = (path.with_name(f"{stem.removesuffix(_KINETO)}{ending}") for ending in _ENDINGS)
    return next((file for file in beside if file.is_file()), None) if stem.endswith(_KINETO) else None


def _read_file(path: Path) -> ProgramTrace:
    content = read_content(path)
    if content[: len(SQLITE)] == SQLITE:
        return read_nvtx(path)
    found = _LISTS.search(content[:_LOOKED_AT])
    if found is None and is_chakra(path, bytes(content[:_LOOKED_AT])):
        return read_chakra(path, content)
    if found is None:
        raise InvalidFile(f"{path}: is no trace that is known here", _KNOWN)
    if found[1] == b"nodes":
        return read_execution_trace(path, content)
    trace = read_chrome_trace(path, content)
    check_shapes(trace)
    return trace


def _times_beside(path: Path) -> Path | None:
    """Return the profiler's file beside an execution trace, if there is one: NAME.kineto.json, also compressed."""
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    if stem.endswith(_KINETO):
        return None
    beside = (path.with_name(f"{stem}{_KINETO}{ending}") for ending in _ENDINGS)
    return next((file for file in beside if file.is_file()), None)


def read_ranks(path: str | Path) -> list[ProgramTrace]:
    """Read the traces of all ranks, in the order of their ranks. A trace of one process is a list of one."""
    path = Path(path)
    if path.is_file():
        return [read_trace(path)]
    files = find_ranks(path)
    traces = []
    for rank, file in files.items():
        trace = read_trace(file)
        trace.rank = rank
        trace.world_size = max(trace.world_size or 0, len(files))
        traces.append(trace)
    return traces


def find_ranks(path: Path) -> dict[int, Path]:
    """Return the files of the ranks by rank: those of a folder, or NAME.rank-0.json, NAME.rank-1.json and so on for
    NAME.json."""
    if path.is_dir():
        candidates = list(path.iterdir())
    else:
        stem = path.name.removesuffix(".gz").removesuffix(".json")
        candidates = list(path.parent.glob("*")) if path.parent.is_dir() else []
        candidates = [file for file in candidates if file.name.startswith(f"{stem}.rank")]
    files = {rank: file for file in sorted(candidates) if (rank := _rank(file)) is not None}
    if not files:
        what = (
            "is a folder without traces of ranks" if path.is_dir() else "there is no such file, and none of its ranks"
        )
        raise InvalidFile(
            f"{path}: {what}",
            "traces of ranks are called NAME.rank-0.json, NAME.rank-1.json and so on, or have the profiler's own rank",
        )
    return dict(sorted(files.items()))


def _rank(path: Path) -> int | None:
    """Return the rank that a file is named after, or that a profiler's file has in it; None for what is no trace of a
    rank."""
    if _KINETO in path.name or not path.name.endswith(_TRACES) or not path.is_file():
        return None
    if found := _RANK.search(path.name):
        return int(found[1])
    with path.open("rb") as file:
        head = file.read(_LOOKED_AT)
    written = _DISTRIBUTED.search(decompress_head(head) if head.startswith(GZIP) else head)
    return int(written[1]) if written else None
