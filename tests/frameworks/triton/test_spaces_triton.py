"""The spaces of Triton kernels, which need no Triton."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from random import Random

import pytest

from opmark.errors import Unsupported
from opmark.plugin import Implementation
from opmark.plugin.registry import backend, implementations, operator

INFO = backend("triton-cuda")
NAMES = (
    "add", "addcmul", "silu", "gelu", "softmax", "layer_norm", "rms_norm", "matmul", "scaled_dot_product_attention",
)  # fmt: skip


def _with_knobs(name: str) -> Implementation:
    (found,) = (one for one in implementations(operator(name), INFO, every=True) if one.on_request)
    return found


@pytest.mark.parametrize("size", ["small", "typical", "large"])
@pytest.mark.parametrize("name", NAMES)
def test_the_default_is_allowed_and_numbers_are_configurations(name: str, size: str) -> None:
    known, one = operator(name), _with_knobs(name)
    assert one.space is not None
    space = one.space(known.complete(known.preset(size)))
    assert space.why_not(space.default) is None
    drawn = space.draw(Random(0), 20)
    assert len(drawn) >= 10
    assert all(space.index(space.at(i)) == i and space.why_not(space.at(i)) is None for i in drawn)


def test_what_the_kernels_do_not_take_is_said() -> None:
    softmax, attention = _with_knobs("softmax").space, _with_knobs("scaled_dot_product_attention").space
    assert softmax is not None
    assert attention is not None
    with pytest.raises(Unsupported, match="last axis"):
        softmax(operator("softmax").complete({"shape": [4, 8], "axis": 0}))
    sizes = {"batch": 1, "heads": 2, "q_len": 8, "kv_len": 8, "head_dim": 48}
    with pytest.raises(Unsupported, match="heads of 16"):
        attention(operator("scaled_dot_product_attention").complete(sizes))


def test_tiles_fit_into_shared_memory_and_registers() -> None:
    space = _with_knobs("matmul").space
    assert space is not None
    found = space(operator("matmul").complete({"M": 64, "N": 64, "K": 64, "dtype": "float32"}))
    large = {"TILE_M": 256, "TILE_N": 256, "TILE_K": 128, "num_warps": 16, "num_stages": 5}
    assert "shared memory" in (found.why_not({**found.default, **large}) or "")
    assert "sums in a thread" in (found.why_not({**found.default, "TILE_M": 16, "TILE_N": 16, "num_warps": 16}) or "")


INTERPRETED = """
from random import Random
import torch
from opmark.plugin.registry import candidates, operator

F = torch.nn.functional

def check(name, params, expected, **inputs):
    p = operator(name).complete(params)
    (found,) = (one for one in candidates(operator(name)) if one.framework == "triton" and one.on_request)
    space = found.space(p)
    for index in {space.index(space.default), *space.draw(Random(0), 3)}:
        got = found.build(p, configuration=space.at(index), **inputs)()
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-4)

x, y, z = torch.randn(5, 70), torch.randn(5, 70), torch.randn(5, 70)
w, b, shape = torch.rand(70), torch.rand(70), {"shape": [5, 70]}
check("softmax", shape, torch.softmax(x.double(), -1), x=x)
check("layer_norm", shape, F.layer_norm(x.double(), (70,), w.double(), b.double()), x=x, weight=w, bias=b)
check("rms_norm", shape, F.rms_norm(x.double(), (70,), w.double(), 1e-5), x=x, weight=w)
check("add", shape, x.double() + y.double(), x=x, y=y)
check("addcmul", shape, x.double() + 0.5 * y.double() * z.double(), x=x, y=y, z=z)
check("silu", shape, F.silu(x.double()), x=x)
check("gelu", shape, F.gelu(x.double()), x=x)
m, n = torch.randn(70, 40), torch.randn(40, 50)
check("matmul", {"M": 70, "N": 50, "K": 40}, m.double() @ n.double(), a=m, b=n)
for causal in (False, True):
    for heads in (4, 2):
        sizes = {"batch": 2, "heads": 4, "q_len": 37, "kv_len": 37, "head_dim": 32, "kv_heads": heads, "causal": causal}
        q, k, v = (torch.randn(2, h, 37, 32) for h in (4, heads, heads))
        wide = (one.double().repeat_interleave(4 // one.shape[1], 1) for one in (q, k, v))
        expected = F.scaled_dot_product_attention(*wide, is_causal=causal)
        check("scaled_dot_product_attention", sizes, expected, q=q, k=k, v=v)
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_configurations_compute_in_the_interpreter() -> None:
    environ = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", INTERPRETED], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
