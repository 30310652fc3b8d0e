"""mxnet_benchmarks.custom_operations: an operator of one's own."""

from __future__ import annotations

from typing import Any

from opmark.interop.opperf.classes import member, members


def __getattr__(name: str) -> Any:
    return member("custom_operations", name)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = members("custom_operations")
