"""Patterns of operators that frameworks fuse, together with the chain of calls that they replace.

A chain is a function of the inputs that makes eager torch calls. `unfused` launches it as it is, `compiled` passes it
to torch.compile; a native kernel for all of it is an implementation named `fused`. The cost is that of the fused
kernel: fusing saves what the chain writes and reads in between.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

from opmark.catalogue.operators._builders import torch as by_torch
from opmark.errors import Unsupported
from opmark.plugin import Implementation, Launch, Params

Chain = Callable[[Params], Callable[..., Any]]
"""chain(params) returns a function of the inputs in their order; torch is imported inside."""

# Part of torch's message if a backend that compiles whole operators has forbidden further compilation.
_COMPILATION_FORBIDDEN = "stance is 'fail_on_recompile'"


def unfused(chain: Chain) -> Implementation:
    def build(p: Params, **tensors: Any) -> Launch:
        return partial(chain(p), *tensors.values())

    return by_torch(build, name="unfused")


def compiled(chain: Chain) -> Implementation:
    """Make an implementation that is compiled while it is built, for exactly these shapes and types."""

    def build(p: Params, **tensors: Any) -> Launch:
        return partial(compile_for(chain(p), *tensors.values()), *tensors.values())

    return by_torch(build, "torch.compile", name="compiled")


def compile_for(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """Compile a function for arguments like these, and call it once; raise Unsupported if that fails."""
    import torch
    import torch._functorch.config

    # A graph is walked back many times: what it keeps of the forward pass must not be given away.
    torch._functorch.config.donated_buffer = False
    call: Callable[..., Any] = torch.compile(_copy_code(function), dynamic=False, fullgraph=True)
    try:
        call(*arguments)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, OSError, ImportError) as error:
        if _COMPILATION_FORBIDDEN in str(error):
            raise Unsupported(
                "this backend compiles it already: measure it on an eager backend (torch-cpu, torch-cuda)"
            ) from None
        raise Unsupported(f"torch.compile fails here: {_first_line(error)}") from error
    return call


def fused(build: Callable[..., Launch], name: str = "fused", no_gradient: str = "") -> Implementation:
    """Make an implementation of a native kernel. It is called once while it is built, as torch only then reports that a
    device lacks it. `no_gradient` is the reason why a kernel for inference has none."""

    def build_and_try(p: Params, **tensors: Any) -> Launch:
        import torch

        launch = build(p, **tensors)
        try:
            launch()
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, NotImplementedError) as error:
            kind, device = p["dtype"], next(iter(tensors.values())).device.type
            raise Unsupported(f"torch has no fused kernel for {kind} on {device}: {_first_line(error)}") from error
        return _refuse_gradients(launch, tuple(tensors.values()), no_gradient) if no_gradient else launch

    return by_torch(build_and_try, name=name)


def _refuse_gradients(launch: Launch, tensors: tuple[Any, ...], reason: str) -> Launch:
    """Return a launch that raises Unsupported where a backward pass records it for one of these tensors."""
    from torch import is_grad_enabled

    def checked() -> Any:
        if is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise Unsupported(reason)
        return launch()

    return checked


def _copy_code(function: Any) -> Any:
    """Copy a function with its code: torch.compile refuses to compile the same code for more than a few shapes."""
    code = function.__code__.replace()
    return FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def on_cpu(tensor: Any) -> bool:
    return bool(tensor.device.type == "cpu")


def refuse_device(tensor: Any, what: str) -> None:
    """Raise Unsupported on other devices than CPUs and NVIDIA GPUs."""
    if tensor.device.type not in ("cpu", "cuda"):
        raise Unsupported(f"torch has no fused {what} on {tensor.device.type}")
