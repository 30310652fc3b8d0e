"""On a machine with an NVIDIA GPU: every operator of the catalogue, verified in every element type that it claims."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from opmark.errors import InvalidParameter, OpmarkError, Unsupported
from opmark.plugin import Implementation, Operator
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import catalogue
from opmark.schema import EFFORTS, PHASES, Case, Phase, Settings, Task
from opmark.worker.preparation import prepare
from opmark.worker.verify.outputs import recheck, verify

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Specified kernel cache directory"),  # the tests have a home of their own
]

OPERATORS = [op for op in catalogue().values() if op.category != "diagnostics" and not op.ranks]
# Float64 with the digits of float32 only, as torch 2.11 computes it on a GPU: found here, and to be found in use.
COARSE = {"hard_sigmoid", "hardswish", "weight_norm"}
# What a GPU does not compute is said so, and never wrong.
LACKING = ("not implemented", "not support", "only supported", "unsupported")


@pytest.fixture(scope="module")
def cuda() -> Iterator[Any]:
    yield find_backend("torch-cuda").load(1)
    torch.set_grad_enabled(True)  # which a backend switches off for its process


def variants(op: Operator, phase: Phase) -> Iterator[dict[str, Any]]:
    dtypes = [param for param in op.params if param.kind == "dtype"]
    for chosen in product(*(param.choices for param in dtypes)):
        params = op.complete({**op.preset("small"), **{p.name: n for p, n in zip(dtypes, chosen, strict=True)}})
        try:
            op.check_rules(params)
        except InvalidParameter:
            continue
        if op.why_no_phase(params, phase) is None:
            yield params


def judged(op: Operator, implementation: Implementation, phase: Phase, params: dict[str, Any], cuda: Any) -> str:
    settings = Settings(1, "quick", EFFORTS["quick"])
    task = Task(Case.of(op.name, params, phase), "torch-cuda", implementation.label, settings)
    try:
        verify(task, op, implementation, cuda)
        recheck(task, op, implementation, cuda, prepare(params, task, op, implementation, cuda))
    except Unsupported:
        return ""
    except OpmarkError as error:
        return f"{error.message}"
    except (RuntimeError, NotImplementedError) as error:
        lacking = cuda.classify(error) == "skipped" or any(word in str(error).lower() for word in LACKING)
        return "" if lacking else f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_an_operator_is_right_on_a_gpu(op: Operator, cuda: Any) -> None:
    wrong = [
        f"{implementation.label} {phase} {params}: {said}"
        for phase, implementation in product(PHASES, op.implementations_for("torch"))
        for params in variants(op, phase)
        if implementation.name != "compiled" or params["dtype"] == "float32"
        if not (op.name in COARSE and params["dtype"] == "float64")
        if (said := judged(op, implementation, phase, params, cuda))
    ]
    assert not wrong, "\n".join(wrong)
