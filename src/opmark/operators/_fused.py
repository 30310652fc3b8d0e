"""Patterns of operators that frameworks fuse, with the chain that they replace beside them.

A chain is a function of the inputs, in eager torch calls. `unfused` launches it as it is, `compiled` hands it to
torch.compile; a native kernel for all of it is an implementation named `fused`. The cost is that of the fused work:
what the chain writes and reads in between is what fusing saves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

from opmark.errors import Unsupported
from opmark.operators._build import torch as by_torch
from opmark.schema import Implementation, Launch, Params

Chain = Callable[[Params], Callable[..., Any]]
"""chain(params) -> a function of the inputs, in their order; torch is imported inside."""

# What torch says where a backend that compiles everything itself has set it to compile nothing else.
_COMPILING_IS_LEFT_TO_THE_BACKEND = "stance is 'fail_on_recompile'"


def unfused(chain: Chain) -> Implementation:
    def build(p: Params, **tensors: Any) -> Launch:
        return partial(chain(p), *tensors.values())

    return by_torch(build, name="unfused")


def compiled(chain: Chain) -> Implementation:
    """Compiled while it is built, for exactly these shapes and types."""

    def build(p: Params, **tensors: Any) -> Launch:
        import torch

        call = torch.compile(_with_code_of_its_own(chain(p)), dynamic=False, fullgraph=True)
        try:
            call(*tensors.values())
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, OSError, ImportError) as error:
            if _COMPILING_IS_LEFT_TO_THE_BACKEND in str(error):
                raise Unsupported(
                    "it is compiled already: measure it on an eager backend (torch-cpu, torch-cuda)"
                ) from None
            raise Unsupported(f"torch.compile fails here: {_first_line(error)}") from error
        return partial(call, *tensors.values())

    return by_torch(build, "torch.compile", name="compiled")


def fused(build: Callable[..., Launch], name: str = "fused") -> Implementation:
    """A native kernel, tried once while it is built: what a device does not have, torch tells only then."""

    def tried(p: Params, **tensors: Any) -> Launch:
        import torch

        launch = build(p, **tensors)
        try:
            launch()
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, NotImplementedError) as error:
            kind, device = p["dtype"], next(iter(tensors.values())).device.type
            raise Unsupported(f"torch has no fused kernel for {kind} on {device}: {_first_line(error)}") from error
        return launch

    return by_torch(tried, name=name)


def _with_code_of_its_own(function: Any) -> Any:
    """torch.compile counts how often it has compiled a piece of code, and after a few shapes it refuses; a worker
    measures many."""
    code = function.__code__.replace()
    return FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def on_cpu(tensor: Any) -> bool:
    return bool(tensor.device.type == "cpu")


def refuse_device(tensor: Any, what: str) -> None:
    """For kernels that are there for CPUs and for NVIDIA GPUs only."""
    if tensor.device.type not in ("cpu", "cuda"):
        raise Unsupported(f"torch has no fused {what} on {tensor.device.type}")
