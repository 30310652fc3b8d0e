"""benchmark.opperf.utils.profiler_utils: opperf's profilers, which have no counterpart."""

from __future__ import annotations

from typing import NoReturn

from opmark.interop.opperf.utils import refuse_import

_REFUSED = {
    "cpp_profile": "a worker times operators; profiler='native' returns what it does",
    "python_profile": "a worker times operators; profiler='python' returns what it does",
    "profile": "a worker times operators; profiler='native' returns what it does",
    "parse_profiler_dump": "MXNet's profiler is not used, so that there is nothing to parse",
}


def __getattr__(name: str) -> NoReturn:
    refuse_import(__name__, name, _REFUSED)
