"""Cases with tensors of at least 2**32 elements, which an index of 32 bits cannot address."""

from __future__ import annotations

import os

from msgspec.structs import replace

from opmark.registry import operator as find_operator
from opmark.schema import Case, Entry, Operator
from opmark.schema.cost import nbytes
from opmark.schema.scaling import elements, of_elements
from opmark.units import count_bytes

LEAST = 2**32
_STEPS = 4


def enlarge(case: Case, entry: Entry) -> tuple[Entry, str, str]:
    """Return an entry with one large case, and status and reason if it cannot be measured."""
    operator = find_operator(case.op)
    params = _grow(operator, case)
    if params is None:
        return entry, "skipped", f"`{case.op}` cannot have 2**32 elements"
    need = nbytes(operator.inputs(params).values()) + operator.cost(params).bytes_written
    need *= 2 if set(entry.phases) - {"forward"} else 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = replace(entry, params=params, sizes=[])
    if need > memory:
        return found, "oom", f"it needs {count_bytes(need)}, and this machine has {count_bytes(memory)}"
    return found, "", ""


def _grow(operator: Operator, case: Case) -> dict[str, object] | None:
    params = dict(case.params)
    for _ in range(_STEPS):
        largest = _largest(operator, params)
        if largest >= LEAST:
            return params
        found = of_elements(operator, params, int(1.4 * LEAST * elements(operator, params) / max(1, largest)))
        if found is None or found == params:
            return None
        params = found
    return None


def _largest(operator: Operator, params: dict[str, object]) -> int:
    specs = operator.inputs(params)
    largest_input = max((spec.elements for spec in specs.values()), default=0)
    return max(largest_input, elements(operator, params) - sum(spec.elements for spec in specs.values()))
