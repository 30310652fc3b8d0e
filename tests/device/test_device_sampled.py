"""On a machine with an NVIDIA GPU: what is wrong at large sizes only is wrong there too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from opmark.errors import WrongResult
from opmark.plugin import Implementation
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator
from opmark.schema import EFFORTS, Case, Phase, Settings, Task, Verification
from opmark.worker.verify.outputs import verify

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # The first product in torch's thread for gradients finds no context there, sets it and says so.
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS, but there was no current CUDA context"),
]

SETTINGS = Settings(1, "quick", EFFORTS["quick"])
PRODUCT = {"M": 4096, "N": 4097, "K": 2048}


@pytest.fixture(scope="module")
def cuda() -> Iterator[Any]:
    yield find_backend("torch-cuda").load(1)
    torch.set_grad_enabled(True)  # which a backend switches off for its process


def _check(name: str, given: dict[str, Any], live: Any, build: Any = None, phase: Phase = "forward") -> Verification:
    op = operator(name)
    implementation = Implementation("torch", build) if build else op.implementations_for("torch")[0]
    return verify(Task(Case.of(name, op.complete(given), phase), "", "", SETTINGS), op, implementation, live)


@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("matmul", PRODUCT),
        ("softmax", {"shape": [8192, 4097]}),
        ("conv2d", {**operator("conv2d").preset("large")}),
        ("scaled_dot_product_attention", {**operator("scaled_dot_product_attention").preset("large"), "causal": True}),
    ],
)
def test_an_honest_large_case_passes(name: str, given: dict[str, Any], dtype: str, phase: Phase, cuda: Any) -> None:
    assert _check(name, {**given, "dtype": dtype}, cuda, phase=phase).checked == "sampled"


WRONG: dict[str, Callable[[Any, Any], Any]] = {
    "zeros": lambda a, b: torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device),
    "uninitialised": lambda a, b: torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device),
    "half of K": lambda a, b: a[:, : a.shape[1] // 2] @ b[: a.shape[1] // 2],
    "the last column": lambda a, b: torch.nn.functional.pad((a @ b)[:, :-1], (0, 1)),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("what", WRONG)
def test_a_product_that_is_wrong_at_large_sizes_is_wrong(what: str, dtype: str, cuda: Any) -> None:
    wrong = WRONG[what]
    with pytest.raises(WrongResult):
        _check("matmul", {**PRODUCT, "dtype": dtype}, cuda, lambda p, a, b: lambda: wrong(a, b))
