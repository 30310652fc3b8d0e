"""PARAM's lib.timer of 2021, whose timer is a context: `with Timer("cpu") as timer: ...`, then `elapsed_time()`."""

from opmark.interop.param.lib.pytorch.timer import Timer

__all__ = ["Timer"]
