"""mxnet_benchmarks.nd: tensors. Classes, and the functions that run all classes of a kind."""

from __future__ import annotations

from typing import Any

from opmark.interop.opperf.classes import member, members


def __getattr__(name: str) -> Any:
    return member("nd", name)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = members("nd")
