"""Kernels with knobs and options of inductor, on a GPU: `python -m pytest tests/device`."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from spaces import SMALL, configured_task

from opmark.plugin import Space
from opmark.plugin.registry import backend, implementations, operator
from opmark.schema import Record
from opmark.worker.task_runner import TaskRunner

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

DRAWN = 8
KERNELS = (
    "add", "addcmul", "silu", "gelu", "softmax", "layer_norm", "rms_norm", "matmul", "scaled_dot_product_attention",
)  # fmt: skip
LACKS = ("out of resource", "OutOfResources", "shared memory", "registers")
"""What a device says that a configuration takes too much of."""


def _outcomes(name: str, label: str, op: str, params: dict[str, Any], space: Space, drawn: int = DRAWN) -> list[Record]:
    info = backend(name)
    runner = TaskRunner(info, info.load(1))
    chosen = [space.default, *(space.at(i) for i in space.draw(Random(op), drawn))]
    return [runner.run(configured_task(op, params, name, label, one)) for one in chosen]


def _all_well(records: list[Record]) -> None:
    """The default runs; another one may take more than the device has, and says so."""
    bad = [r for r in records if r.status != "ok" and not any(word in r.reason for word in LACKS)]
    assert [(r.status, r.reason, r.task.settings.configuration) for r in bad] == []
    assert records[0].status == "ok"
    assert sum(r.status == "ok" for r in records) > len(records) // 2


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", KERNELS)
def test_triton_kernels_with_knobs(op: str, dtype: str) -> None:
    pytest.importorskip("triton")
    known, info = operator(op), backend("triton-cuda")
    params = known.complete({**known.preset("small"), "dtype": dtype})
    (one,) = (i for i in implementations(known, info, every=True) if i.on_request)
    assert one.space is not None
    _all_well(_outcomes("triton-cuda", one.label, op, params, one.space(params)))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_fewer_keys_than_queries_have_heads(causal: bool) -> None:
    pytest.importorskip("triton")
    sizes = {"batch": 2, "heads": 8, "q_len": 200, "kv_len": 200, "head_dim": 64, "kv_heads": 2, "causal": causal}
    known = operator("scaled_dot_product_attention")
    params = known.complete({**sizes, "dtype": "float16"})
    (one,) = (i for i in implementations(known, backend("triton-cuda"), every=True) if i.on_request)
    assert one.space is not None
    _all_well(_outcomes("triton-cuda", one.label, known.name, params, one.space(params)))


@pytest.mark.parametrize("op", ["matmul", "softmax", "conv2d"])
@pytest.mark.parametrize("name", ["torch-cuda", "torch-compile-cuda"])
def test_options_of_torch(name: str, op: str) -> None:
    known, info = operator(op), backend(name)
    params = known.complete(known.preset("small"))
    space = info.find_space(known, params)
    assert space is not None
    _all_well(_outcomes(name, "torch", op, params, space, drawn=4))


@pytest.mark.parametrize(("op", "params"), [(op, several[0]) for op, several in SMALL.items()])
def test_tvm_schedules(op: str, params: dict[str, Any]) -> None:
    pytest.importorskip("tvm")
    known, info = operator(op), backend("tvm-cuda")
    full = known.complete(params)
    (one,) = (i for i in implementations(known, info, every=True) if i.on_request)
    assert one.space is not None
    _all_well(_outcomes("tvm-cuda", "schedule", op, full, one.space(full)))
