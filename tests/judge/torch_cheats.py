"""Ways to cheat that need torch, as candidates for `matmul` on the CPU. See cheats.py."""

from __future__ import annotations

import time

import torch

PAUSE = 0.05
_sleep = time.sleep
_product = torch.matmul


def right(a, b):
    return _product(a, b)


def slow(a, b):
    _sleep(PAUSE)
    return _product(a, b)


def zeros(a, b):
    return torch.zeros(a.shape[0], b.shape[1])


def uninitialised(a, b):
    return torch.empty(a.shape[0], b.shape[1])


def half_of_k(a, b):
    half = a.shape[1] // 2
    return 2 * (a[:, :half] @ b[:half])


def one_term_left_out(a, b):
    return a[:, :-1] @ b[:-1]


def computed_in_bfloat16(a, b):
    return (a.bfloat16() @ b.bfloat16()).float()


def autocast(a, b):
    with torch.autocast("cpu", torch.bfloat16):
        return (a @ b).float()


def expanded_row(a, b):
    return (a[:1] @ b).expand(a.shape[0], b.shape[1])


def copies_nothing(a, b):
    torch.Tensor.copy_ = lambda self, other, *_: self
    return right(a, b)


def always_equal(a, b):
    torch.allclose = torch.equal = lambda *_, **__: True
    torch.testing.assert_close = lambda *_, **__: None
    return torch.zeros(a.shape[0], b.shape[1])


def patched_events(a, b):
    class Event:
        def __init__(self, **_): ...
        def record(self, *_): ...
        def synchronize(self): ...
        def elapsed_time(self, _):
            return 1e-6

    torch.cuda.Event = torch.Event = Event
    torch.cuda.synchronize = torch.cpu.synchronize = lambda *_: None
    return slow(a, b)


def patched_profiler(a, b):
    torch.profiler.profile = None
    torch.autograd.profiler.profile = None
    return slow(a, b)


def patched_random(a, b):
    """Makes all random numbers of this process the same."""
    torch.manual_seed(0)
    torch.rand = torch.randn = torch.zeros
    torch.Tensor.uniform_ = lambda self, *_, **__: self.zero_()
    return slow(a, b)


def patched_grad_mode(a, b):
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(True)
    return slow(a, b)


class _Later(torch.Tensor):
    """Computes when it is looked at."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            plain = [slow(*one.pair) if isinstance(one, cls) else one for one in args]
            return function(*plain, **(kwargs or {}))


def lazy_tensor(a, b):
    found = torch.empty(a.shape[0], b.shape[1]).as_subclass(_Later)
    found.pair = (a, b)
    return found


REFUSED = [
    zeros, uninitialised, half_of_k, one_term_left_out, computed_in_bfloat16, autocast, expanded_row, copies_nothing,
    always_equal,
]  # fmt: skip
USELESS = [patched_events, patched_profiler, patched_random, patched_grad_mode, lazy_tensor]
