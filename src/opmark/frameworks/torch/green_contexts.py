"""Keeps the calls of a thread to some of the multiprocessors of an NVIDIA GPU: they go to a stream of a green context.

The primary context stays the current one. So waiting for the device waits for the stream too, and libraries that keep
a context of their own find the one that they expect.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

_SM = 1
_COUNT_AT = 24
"""Place of the count in the driver's description of multiprocessors, in words of 4 bytes: 96 bytes come before it."""
_kept: list[Any] = []
"""Green contexts, which have to live as long as their streams: until the end of the process."""


def enter(count: int) -> str | None:
    """Make a stream that has so many multiprocessors the current one of this thread; return why it cannot be had."""
    try:
        from torch.cuda.green_contexts import SUPPORTED, GreenContext
    except ModuleNotFoundError:
        return f"torch {torch.__version__} has no green contexts; 2.11 has"
    if not SUPPORTED:
        return f"torch {torch.__version__} was built without green contexts, which need CUDA 12.8"
    torch.cuda.synchronize()  # the first call on a device makes the primary context, which has to be there
    try:
        context: Any = GreenContext.create(num_sms=count, device_id=torch.cuda.current_device())
        if not hasattr(context, "Stream"):
            return f"green contexts of torch {torch.__version__} have no streams; those of 2.11 have"
        stream = context.Stream()
    except RuntimeError as error:
        return f"there is no green context of {count} multiprocessors: {str(error).partition(chr(10))[0]}"
    _kept.append(context)
    before = torch.cuda.current_stream()
    torch.cuda.set_stream(stream)
    try:
        given = _multiprocessors_of(torch.cuda.current_stream().cuda_stream)
    except OSError as error:
        reason = f"nobody can tell how many multiprocessors the green context has: {error}"
    else:
        if given == count:
            return None
        reason = f"the driver gives {given} multiprocessors where {count} are asked for"
    torch.cuda.set_stream(before)
    return reason


def _multiprocessors_of(stream: int) -> int:
    """Ask the driver how many multiprocessors a stream has. Raise OSError if it does not tell."""
    driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    resource = (ctypes.c_uint * 64)()  # longer than the description is in any version
    for function, arguments in (
        ("cuStreamGetGreenCtx", (ctypes.c_void_p(stream), ctypes.byref(context))),
        ("cuGreenCtxGetDevResource", (context, resource, _SM)),
    ):
        if code := getattr(driver, function)(*arguments):
            raise OSError(f"{function} of NVIDIA's driver fails with error {code}")
    return int(resource[_COUNT_AT])
