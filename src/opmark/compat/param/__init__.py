"""PARAM in opmark: its command line (`opmark param`), and its configs as a library.

from opmark.compat.param import run_config

for result in run_config({"torch.add": {...}}, warmup=5, iteration=50):
    print(result.op_run_id, result.forward_ms)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opmark.compat.param.configs import create_bench_config, create_op_args, create_op_info, create_type
    from opmark.compat.param.library import run_config
    from opmark.compat.param.options import Options
    from opmark.compat.param.result import CaseResult

_MODULES = {
    "run_config": "library",
    "Options": "options",
    "CaseResult": "result",
    "create_bench_config": "configs",
    "create_op_info": "configs",
    "create_op_args": "configs",
    "create_type": "configs",
}
__all__ = [
    "CaseResult", "Options", "create_bench_config", "create_op_args", "create_op_info", "create_type", "run_config",
]  # fmt: skip


def __dir__() -> list[str]:
    return [*globals(), *__all__]


def __getattr__(name: str) -> Any:
    """Load names on their first use, because `opmark param -h` needs none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
