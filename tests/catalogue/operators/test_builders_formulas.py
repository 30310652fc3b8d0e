"""Formulas that several families share, against torch's functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from opmark.catalogue.operators import _builders as formulas

X = torch.linspace(-6, 6, 40, dtype=torch.float64).reshape(4, 10)
WEIGHT, BIAS = torch.linspace(1, 2, 10, dtype=torch.float64), torch.linspace(-1, 1, 10, dtype=torch.float64)
EPS = {"eps": 0.25}


def torch_swiglu(x: Any) -> Any:
    gate, value = x.chunk(2, -1)
    return functional.silu(gate) * value


SAME = {
    "sigmoid": (formulas.sigmoid, torch.sigmoid),
    "silu": (formulas.silu, functional.silu),
    "gelu": (formulas.gelu, functional.gelu),
    "gelu by tanh": (lambda x: formulas.gelu(x, "tanh"), lambda x: functional.gelu(x, approximate="tanh")),
    "swiglu": (formulas.swiglu, torch_swiglu),
    "softmax": (formulas.softmax, lambda x: torch.softmax(x, -1)),
    "softmax of columns": (lambda x: formulas.softmax(x, 0), lambda x: torch.softmax(x, 0)),
    "rms": (lambda x: formulas.rms(EPS, x), lambda x: functional.rms_norm(x, (10,), eps=0.25)),
    "layer_norm": (
        lambda x: formulas.layer_norm(EPS, x, WEIGHT.numpy(), BIAS.numpy()),
        lambda x: functional.layer_norm(x, (10,), WEIGHT, BIAS, 0.25),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_a_formula_is_torchs_function(name: str) -> None:
    ours, theirs = SAME[name]
    np.testing.assert_allclose(ours(X.numpy()), theirs(X).numpy(), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", SAME)
def test_a_formula_keeps_the_type_of_its_input(name: str) -> None:
    if name != "layer_norm":  # its weights are float64 here
        assert SAME[name][0](X.numpy().astype(np.float32)).dtype == np.float32


def test_a_softmax_of_many_16_bit_values_adds_up_to_one() -> None:
    """In float16, a sum of exponentials would stop growing at 2048."""
    assert formulas.softmax(np.zeros(2**14, np.float16)).astype(float).sum() == 1


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_heads_that_share_their_keys(kv_heads: int, causal: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.rand(2, 4, 5, 3, generator=generator, dtype=torch.float64)
    k, v = torch.rand(2, 2, kv_heads, 5, 3, generator=generator, dtype=torch.float64)
    seen = np.tri(5, dtype=bool) if causal else None
    found = formulas.attention(q.numpy(), k.numpy(), v.numpy(), 3**-0.5, seen)
    expected = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12)
