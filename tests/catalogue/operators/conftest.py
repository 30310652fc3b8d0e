"""For tests of costs: find what an operator really reads by changing one element after the other. For verification: a
process that does it, and what a file verified before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from verifier import Unchanged, Verifier

from opmark.plugin import Operator
from opmark.schema.tensor import is_float, sizeof


def _outputs(op: Operator, params: Any, arrays: dict[str, Any]) -> list[Any]:
    outputs = op.reference(params, **arrays)
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def _matters(op: Operator, params: Any, arrays: dict[str, Any], name: str, at: int, before: list[Any]) -> bool:
    """Return whether changing one element changes the result; NaN spreads to wherever the element is used."""
    flat = arrays[name].reshape(-1)
    kept, flat[at] = flat[at], np.nan if flat.dtype.kind == "f" else flat[at] + 1
    after = _outputs(op, params, arrays)
    flat[at] = kept
    return any(not np.array_equal(one, other) for one, other in zip(before, after, strict=True))


@pytest.fixture
def bytes_read(numpy_cpu: Any) -> Callable[..., int]:
    """bytes_read(op, params, *names) returns the bytes of these inputs (by default all floats) that the reference's
    result depends on. For tiny parameters only: the reference is computed once for each element."""

    def count(op: Operator, params: Any, *names: str) -> int:
        specs = op.inputs(params)
        arrays = {n: np.array(numpy_cpu.to_numpy(numpy_cpu.tensor(s, i))) for i, (n, s) in enumerate(specs.items())}
        before = _outputs(op, params, arrays)
        total = 0
        for name in names or [name for name, spec in specs.items() if is_float(spec.dtype)]:
            read = [_matters(op, params, arrays, name, at, before) for at in range(arrays[name].size)]
            total += sum(read) * sizeof(specs[name].dtype)
        return total

    return count


@pytest.fixture(scope="session")
def verifier() -> Iterator[Verifier]:
    with closing(Verifier()) as started:
        yield started


@pytest.fixture(scope="module")
def unchanged(request: pytest.FixtureRequest) -> Unchanged:
    """Each file has its own: two of them verify parts of the same operators."""
    cached = getattr(request.config, "cache", None)  # there is none with `-p no:cacheprovider`
    return Unchanged(cached.mkdir(request.path.stem) if cached else None)
