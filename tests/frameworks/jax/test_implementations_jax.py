"""Every operator of JAX's tables, run and verified in a worker; and what an implementation cannot do."""

from __future__ import annotations

import pytest
from outcomes import covered, outcomes

from opmark.api.run import run
from opmark.plugin.registry import catalogue
from opmark.schema import Record

pytestmark = pytest.mark.frameworks

pytest.importorskip("jax")

BACKEND = "jax-cpu"
# One operator for each way to write a function, and for each way to differentiate it.
DIFFERENTIATED = (
    "add", "tanh", "where", "gelu", "swiglu", "softmax", "reduce_sum", "reduce_max", "cumsum", "sort", "topk", "matmul",
    "einsum", "solve", "conv2d", "conv_transpose2d", "max_pool2d", "adaptive_avg_pool2d", "layer_norm", "batch_norm",
    "cross_entropy", "concat", "split", "pad", "embedding", "scatter_add", "masked_select", "dropout", "lstm",
    "scaled_dot_product_attention", "upsample_bilinear2d", "grid_sample",
)  # fmt: skip
NARROW = ("exp", "mul", "softmax", "layer_norm", "matmul", "conv2d", "max_pool2d", "reduce_sum", "cast", "concat",
          "random_normal", "logspace", "adam_update")  # fmt: skip


def _failed(records: list[Record]) -> dict[str, str]:
    """Return the reasons of failures by operator."""
    return {
        record.task.case.op: f"{record.status}: {record.reason or (record.verification and record.verification.after)}"
        for record in records
        if record.status != "ok" or record.verification is None or record.verification.after != "same"
    }


@pytest.fixture(scope="module")
def forward() -> dict[str, list[Record]]:
    return outcomes(BACKEND)


@pytest.mark.timeout(1800)
def test_every_row_computes_what_the_reference_says_also_after_timing(forward: dict[str, list[Record]]) -> None:
    assert sorted(forward) == sorted(covered(BACKEND))
    assert _failed([record for records in forward.values() for record in records]) == {}


def test_most_of_the_catalogue_is_there() -> None:
    assert len(covered(BACKEND)) >= 400


def test_every_row_says_what_was_compiled(forward: dict[str, list[Record]]) -> None:
    for name, (record, *_) in forward.items():
        compilation = record.compilation
        assert compilation is not None, name
        assert compilation.cold > 0, name
        assert compilation.cached is not None, name
        # An operator without inputs may be a constant without any operation in JAX's program.
        assert compilation.operators or catalogue()[name].result == "constant", name
        assert compilation.kernels, name


@pytest.mark.timeout(900)
@pytest.mark.parametrize("phase", ["backward", "both"])
def test_gradients_are_those_of_the_reference(phase: str) -> None:
    names = DIFFERENTIATED if phase == "backward" else DIFFERENTIATED[::3]
    found = outcomes(BACKEND, names, phase)
    assert sorted(found) == sorted(names)
    assert _failed([record for records in found.values() for record in records]) == {}


@pytest.mark.timeout(900)
def test_shorter_types_are_computed_in_their_own() -> None:
    found = run(NARROW, backend=BACKEND, size="small", samples=1, warmup=0, processes=1, threads=2, db=":memory:",
                    params={"dtype": ["float16", "bfloat16"]}, say=lambda _: None)  # fmt: skip
    assert _failed(list(found.records)) == {}
    assert len(found.records) == 2 * len(NARROW)


def test_products_of_8_bit_numbers_are_computed() -> None:
    found = run(["quant_matmul"], backend=BACKEND, size="small", samples=1, warmup=0, processes=1, threads=2,
                    db=":memory:", params={"dtype": ["int8", "float8_e4m3fn"]}, say=lambda _: None)  # fmt: skip
    assert _failed(list(found.records)) == {}


def test_what_jax_cannot_is_skipped_with_the_reason() -> None:
    (record,) = run(["scaled_dot_product_attention"], backend=BACKEND, size="small", db=":memory:", processes=1,
                        params={"dtype": ["float64"]}, say=lambda _: None).records  # fmt: skip
    assert record.status == "skipped"
    assert "computes in float32 or 16 bits, not in float64" in record.reason
