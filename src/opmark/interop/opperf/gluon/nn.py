"""mxnet_benchmarks.gluon.nn: layers. Classes, and the functions that run all classes of a kind."""

from __future__ import annotations

from typing import Any

from opmark.interop.opperf.classes import member, members


def __getattr__(name: str) -> Any:
    return member("gluon.nn", name)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = members("gluon.nn")
