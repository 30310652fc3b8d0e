"""opperf and DL Operator Benchmarks in Python: `mxnet_benchmarks` becomes `opmark.compat.opperf`, the rest stays.

    from opmark.compat.opperf.nd import Add
    add = Add(inputs={"dtype": "float64"})
    add.run_benchmark()
    add.print_benchmark_results()

Everything runs in a worker process and is stored as a run, as if `opmark run` had made it; `db=":memory:"` keeps
nothing. `framework="torch"` is the default.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Every class and every function, loaded when it is asked for."""
    from opmark.compat.opperf.classes import FUNCTIONS, class_named, function_named
    from opmark.compat.opperf.performance import CALLS, CATEGORY_FUNCTIONS, category_function
    from opmark.importers.opperf.classes import CLASSES

    if name in CALLS:
        return CALLS[name]
    for known, made in ((CATEGORY_FUNCTIONS, category_function), (FUNCTIONS, function_named), (CLASSES, class_named)):
        if name in known:
            return made(name)
    if name == "__all__":
        return __dir__()
    raise AttributeError(f"module 'opmark.compat.opperf' has no attribute {name!r}")


def __dir__() -> list[str]:
    from opmark.compat.opperf.classes import FUNCTIONS
    from opmark.compat.opperf.performance import CALLS, CATEGORY_FUNCTIONS
    from opmark.importers.opperf.classes import CLASSES

    return sorted([*CALLS, *CATEGORY_FUNCTIONS, *FUNCTIONS, *CLASSES])
