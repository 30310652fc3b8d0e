"""benchmark.opperf.utils.ndarray_utils: tensors and calls of MXNet, which have no counterpart."""

from __future__ import annotations

from typing import NoReturn

from opmark.interop.opperf.utils import refuse_import

_CALLED = "a worker calls operators, with their inputs in place of tensors"
_REFUSED = {
    "get_mx_ndarray": "a worker makes the tensors; give their shapes as inputs",
    "nd_forward_and_profile": f"{_CALLED}, and run_backward=False",
    "nd_forward_backward_and_profile": f"{_CALLED}, and run_backward=True",
    "nd_forward_and_time": f"{_CALLED}, run_backward=False and profiler='python'",
    "nd_forward_backward_and_time": f"{_CALLED}, run_backward=True and profiler='python'",
}


def __getattr__(name: str) -> NoReturn:
    refuse_import(__name__, name, _REFUSED)
