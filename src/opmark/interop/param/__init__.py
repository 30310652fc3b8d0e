"""PARAM in opmark: its command line (`opmark param`), and its configs as a library.

from opmark.interop.param import run_config

for result in run_config({"torch.add": {...}}, warmup=5, iteration=50):
    print(result.op_run_id, result.forward_ms)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opmark.interop.param.library import (
        create_bench_config,
        create_op_args,
        create_op_info,
        create_type,
        run_config,
    )
    from opmark.interop.param.options import ParamOptions
    from opmark.interop.param.results import CaseResult

_MODULES = {
    "run_config": "library",
    "create_bench_config": "library",
    "create_op_args": "library",
    "create_op_info": "library",
    "create_type": "library",
    "ParamOptions": "options",
    "CaseResult": "results",
}


def __dir__() -> list[str]:
    return [*globals(), *__all__]


def __getattr__(name: str) -> Any:
    """Load names on their first use, because `opmark param -h` needs none of them."""
    name = "ParamOptions" if name == "Options" else name  # its name in 0.8
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "CaseResult",
    "ParamOptions",
    "create_bench_config",
    "create_op_args",
    "create_op_info",
    "create_type",
    "run_config",
]
