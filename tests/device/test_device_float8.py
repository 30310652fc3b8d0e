"""On a machine with an NVIDIA GPU: products of 8 bits and in TF32, rounding to 8 bits, attention of 8-bit floats.

Each path is verified at sizes where libraries behave differently: few rows, sizes that are no multiples, other results.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from opmark.errors import Unsupported
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import catalogue
from opmark.schema import EFFORTS, Case, Settings, Task
from opmark.schema.tensor import FLOATS8
from opmark.worker.preparation import prepare
from opmark.worker.verify.outputs import recheck, verify

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Specified kernel cache directory"),  # the tests have a home of their own
]
NARROW = ("int8", *FLOATS8)
float8 = pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 9), reason="needs a GPU with float8"
)


@pytest.fixture(scope="module")
def cuda() -> Iterator[Any]:
    yield find_backend("torch-cuda").load(1)
    torch.set_grad_enabled(True)  # which a backend switches off for its process


def check(cuda: Any, name: str, **given: Any) -> None:
    """Verify every torch implementation of a case; one that is unsupported fails the test with its reason."""
    op = catalogue()[name]
    params = op.complete({**op.preset("small"), **given})
    op.check_rules(params)
    for implementation in op.implementations_for("torch"):
        settings = Settings(1, "quick", EFFORTS["quick"])
        task = Task(Case.of(op.name, params, "forward"), "torch-cuda", implementation.label, settings)
        if implementation.name == "matmul" and given["dtype"] in FLOATS8:
            with pytest.raises(Unsupported, match="no batched products of 8-bit floats"):
                prepare(params, task, op, implementation, cuda)
            continue
        verify(task, op, implementation, cuda)
        recheck(task, op, implementation, cuda, prepare(params, task, op, implementation, cuda))


@float8
@pytest.mark.parametrize("rows", [1, 16, 17, 40, 300])
@pytest.mark.parametrize("dtype", NARROW)
def test_products_of_8_bit_numbers(dtype: str, rows: int, cuda: Any) -> None:
    for out in ("bfloat16", "float16", "float32"):
        for bias in (False, True):
            sizes = {"num_tokens": rows, "hidden_size": 272, "new_hidden_size": 144}
            check(cuda, "quant_matmul", **sizes, has_bias=bias, dtype=dtype, out_dtype=out)


@float8
@pytest.mark.parametrize(
    "name",
    [
        "quant_batched_matmul",
        "quant_grouped_gemm",
        "quant_group_gemm_reduce_sum",
        "moe_quant_group_gemm",
        "moe_quant_group_gemm_combine",
    ],
)
@pytest.mark.parametrize("dtype", NARROW)
def test_several_products_of_8_bit_numbers(name: str, dtype: str, cuda: Any) -> None:
    check(cuda, name, dtype=dtype)


@float8
@pytest.mark.parametrize(("dtype", "columns"), [("int8", 12), ("float8_e4m3fn", 24), ("float8_e5m2", 40)])
def test_sizes_that_libraries_do_not_multiply_are_refused_with_the_reason(dtype: str, columns: int, cuda: Any) -> None:
    with pytest.raises(Unsupported, match=r"multiples of 8|divisible by 16"):
        check(cuda, "quant_matmul", num_tokens=64, hidden_size=columns, new_hidden_size=64, dtype=dtype)


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 0), reason="needs a GPU with TF32"
)
@pytest.mark.parametrize("name", ["matmul", "batched_matmul", "grouped_gemm", "linear", "addmm", "baddbmm"])
def test_products_in_tf32_are_right_and_rounded(name: str, cuda: Any) -> None:
    op = catalogue()[name]
    found = {}
    for dtype in ("float32", "tfloat32"):
        check(cuda, name, dtype=dtype)
        params = op.complete({**op.preset("small"), "dtype": dtype})
        settings = Settings(1, "quick", EFFORTS["quick"])
        (implementation,) = op.implementations_for("torch")
        task = Task(Case.of(name, params, "forward"), "torch-cuda", implementation.label, settings)
        result = prepare(params, task, op, implementation, cuda).launch()
        found[dtype] = torch.cat([part.flatten() for part in (result if isinstance(result, tuple) else (result,))])
    assert 1e-5 < (found["float32"] - found["tfloat32"]).abs().max() < 0.1


@pytest.mark.parametrize("name", [name for name in catalogue() if name.endswith("dynamic_quant")])
@pytest.mark.parametrize("kind", NARROW)
def test_rows_are_rounded_to_8_bits(name: str, kind: str, cuda: Any) -> None:
    check(cuda, name, quantized_dtype=kind, dtype="bfloat16")


@pytest.mark.parametrize("name", ["quantize", "dequantize"])
@pytest.mark.parametrize("kind", NARROW)
def test_tensors_are_rounded_to_8_bits_and_back(name: str, kind: str, cuda: Any) -> None:
    check(cuda, name, quantized_dtype=kind, dtype="bfloat16")


ATTENTION = [
    ("scaled_dot_product_attention", {"dtype": "float8_e4m3fn"}),
    ("scaled_dot_product_attention", {"dtype": "float8_e4m3fn", "causal": True, "kv_heads": 2}),
    ("scaled_dot_product_attention", {"dtype": "float8_e5m2", "kv_len": 300, "head_dim": 128}),
    ("flash_attention", {"dtype": "float8_e4m3fn", "cache_len": 32, "block_size": 16}),
    ("flash_decoding", {"dtype": "float8_e4m3fn"}),
]


@float8
@pytest.mark.parametrize(("name", "given"), ATTENTION, ids=str)
def test_attention_of_8_bit_floats(name: str, given: dict[str, Any], cuda: Any) -> None:
    check(cuda, name, **given)
