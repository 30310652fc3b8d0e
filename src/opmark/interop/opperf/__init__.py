"""opperf and DL Operator Benchmarks in Python: `mxnet_benchmarks` becomes `opmark.interop.opperf`, the rest stays.

    from opmark.interop.opperf.nd import Add
    add = Add(inputs={"dtype": "float64"})
    add.run_benchmark()
    add.print_benchmark_results()

Everything runs in a worker process and is stored as a run, as by `opmark run`; `db=":memory:"` stores nothing.
`framework="torch"` is the default.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any


def __getattr__(name: str) -> Any:
    """Load every class and every function on its first use."""
    if find_spec(f"{__name__}.{name}"):
        raise AttributeError(f"{name!r} is a module that is not imported yet")
    from opmark.interop.opperf.class_inputs import CLASSES
    from opmark.interop.opperf.classes import FUNCTIONS, make_class, make_function
    from opmark.interop.opperf.performance import CALLS, CATEGORY_FUNCTIONS, category_function

    if name in CALLS:
        return CALLS[name]
    makers = ((CATEGORY_FUNCTIONS, category_function), (FUNCTIONS, make_function), (CLASSES, make_class))
    for known, make in makers:
        if name in known:
            return make(name)
    if name == "__all__":
        return __dir__()
    raise AttributeError(f"module 'opmark.interop.opperf' has no attribute {name!r}")


def __dir__() -> list[str]:
    from opmark.interop.opperf.class_inputs import CLASSES
    from opmark.interop.opperf.classes import FUNCTIONS
    from opmark.interop.opperf.performance import CALLS, CATEGORY_FUNCTIONS

    return sorted([*CALLS, *CATEGORY_FUNCTIONS, *FUNCTIONS, *CLASSES])
