"""Which of the vendor's kernels computes which operator. The library is imported in a worker only."""

from typing import Any

from opmark.errors import Unsupported
from opmark.plugin import Function, Implementation, Params


def _softmax(p: Params, x: Any) -> Function:
    if p["axis"] not in (-1, len(p["shape"]) - 1):
        raise Unsupported("npu_softmax works along the last axis")
    return Function.at("opmark_example_npu.library:npu_softmax", x)


IMPLEMENTATIONS = {
    # By the backend's own name: for this board alone, before anything that others have for it.
    "softmax": Implementation("npu-sim", _softmax, name="npu_softmax"),
    # By the framework: for every backend of this runtime.
    "matmul": Implementation("npu", lambda p, a, b: Function.at("opmark_example_npu.library:npu_matmul", a, b)),
    "relu": Implementation("npu", lambda p, x: Function.at("opmark_example_npu.library:npu_relu", x)),
}
