"""PARAM's library under its own module paths: `param_bench.train.compute.python` becomes `opmark.interop.param`."""

from opmark.version import VERSION as __version__

__all__ = ["__version__"]
