"""Which of the vendor's kernels computes which operator. The library is imported in a worker only."""

from __future__ import annotations

from functools import partial, update_wrapper
from typing import Any

from opmark.errors import Unsupported
from opmark.interfaces import Function
from opmark.schema import Implementation, Params


def _softmax(p: Params, x: Any) -> Function:
    from opmark_example_npu.library import npu_softmax

    if p["axis"] not in (-1, len(p["shape"]) - 1):
        raise Unsupported("npu_softmax works along the last axis")
    return Function(npu_softmax, (x,))


def _scale_add_relu(p: Params, x: Any, residual: Any) -> Function:
    from opmark_example_npu.library import npu_scale_add_relu

    call = partial(npu_scale_add_relu, scale=p["scale"])
    return Function(update_wrapper(call, npu_scale_add_relu), (x, residual))


IMPLEMENTATIONS = {
    # By the backend's own name: for this board alone, before anything that others have for it.
    "softmax": Implementation("npu-sim", _softmax, name="npu_softmax"),
    # By the framework: for every backend of this runtime.
    "npu_scale_add_relu": Implementation("npu", _scale_add_relu, name="npu_scale_add_relu"),
}
