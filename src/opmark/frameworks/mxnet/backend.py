"""MXNet. Calls are queued and return before they are done, as on a device."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import mxnet as mx
import numpy as np

from opmark.errors import Unsupported
from opmark.plugin import BackendInfo, CallCost, Function, HostBackend, Launch
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import is_float


class MxnetBackend(HostBackend):
    """Queues calls to MXNet's engine, which runs them on its own threads. The caller waits for each call in a latency,
    and only after the last call in a throughput, as MXNet's users do. An error inside the engine is raised by the next
    wait, so every task waits before it ends."""

    asynchronous = True
    oom_messages = ("failed to allocate", "out of memory", "std::bad_alloc", "cannot allocate memory")
    unsupported_messages = (
        "not supported", "unsupported", "does not support", "not implemented", "not implmented", "unknown type enum",
        "larger than 2^31 elements", "only supports", "only support float", "only supported by", "natively supported",
        "requires uniform type", "data type do not match", "type inconsistent", "non-differentiable",
        "valid values are",
    )  # fmt: skip

    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        mx.util.set_np_shape(True)  # else a tensor without axes has an unknown shape

    def environment(self) -> dict[str, Any]:
        library = mx.base._LIB
        config = library.openblas_get_config if hasattr(library, "openblas_get_config") else None
        if config is not None:
            config.restype = ctypes.c_char_p
        return {
            "mxnet": mx.__version__,
            "numpy": np.__version__,
            "device": self.info.device,
            "threads": int(library.omp_get_max_threads()),
            "features": ", ".join(sorted(f.name for f in mx.runtime.feature_list() if f.enabled)),
            "mkldnn": mx.runtime.Features().is_enabled("MKLDNN"),
            "blas": config().decode() if config is not None else "unknown",
            "workers": int(os.environ.get("MXNET_CPU_WORKER_NTHREADS", "1")),
            "engine": os.environ.get("MXNET_ENGINE_TYPE", "ThreadedEnginePerDevice"),
        }

    def upload(self, array: Any, dtype: str) -> Any:
        return mx.nd.array(array, dtype=dtype)

    def download(self, tensor: Any) -> Any:
        return tensor.asnumpy()

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        """Wrap a function as a call of it: nothing is compiled."""
        return _MxnetCall(built) if isinstance(built, Function) else super().compile(built, inputs)

    def dtype(self, value: Any) -> str:
        return str(np.dtype(value.dtype))

    def deferred(self, value: Any) -> str | None:
        plain = type(value) in (mx.nd.NDArray, mx.np.ndarray)
        return None if plain else f"a {type(value).__name__}, which is no dense tensor of MXNet"

    def poison(self, value: Any) -> None:
        """Overwrite by an operator: a tensor of oneDNN has a layout of its own, into which nothing can be copied."""
        dtype = np.dtype(value.dtype)
        if dtype.kind == "f":
            value *= np.nan
        else:
            most = np.iinfo(dtype).max if dtype.kind in "iu" else 1
            mx.nd.array(np.full(value.shape, most, dtype), dtype=dtype).copyto(value.as_nd_ndarray())

    def copy_into(self, target: Any, source: Any) -> None:
        # An operator does it: oneDNN may have put a weight into an order of its own, into which nothing can be copied.
        mx.nd.identity(source.as_nd_ndarray(), out=target.as_nd_ndarray())

    def overwrite(self, nbytes: int) -> Launch:
        scratch = mx.nd.zeros((nbytes,), dtype="uint8")
        return partial(scratch.__iadd__, 1)  # read, then written: stores alone may go around the caches

    def synchronize(self) -> None:
        mx.nd.waitall()

    def backward(
        self, launch: Launch, inputs: Sequence[Any], seed: int, *, forward: bool = False, some: bool = False
    ) -> tuple[Launch, Sequence[Any]]:
        """Record one graph and keep it. Each launch walks it back and writes the same gradients anew, as MXNet does, so
        that nothing adds up or grows."""
        launch, gradients = _watched(launch, inputs)
        outputs = _recorded(launch)
        roots = [i for i, out in enumerate(outputs) if is_float(self.dtype(out)) and _is_recorded(out)]
        if not roots:
            raise Unsupported("no output of this implementation has a gradient")
        heads = [self._like(out, seed + i) if i in roots else None for i, out in enumerate(outputs)]
        step = _MxnetStep(launch, outputs, roots, [heads[i] for i in roots], gradients)
        if some:
            step.gradients = [gradient for gradient in gradients if self._written(step, gradient)]
        return (step if forward else step.back), heads

    def _written(self, step: _MxnetStep, gradient: Any) -> bool:
        """Whether the backward pass reaches a tensor at all."""
        self.poison(gradient)
        step.back()
        return not np.isnan(gradient.asnumpy()).all()

    def _like(self, value: Any, seed: int) -> Any:
        return _alike(self.tensor(TensorSpec(tuple(value.shape), self.dtype(value)), seed), value)

    def count(self, launch: Launch, reads: Sequence[Any]) -> CallCost:
        """Count bytes only: MXNet has no counter of operations."""
        found, taken = launch(), {id(tensor): tensor for tensor in reads if isinstance(tensor, mx.nd.NDArray)}
        given = [
            out for out in (found if isinstance(found, list | tuple) else [found]) if isinstance(out, mx.nd.NDArray)
        ]
        places = {_address(tensor) for tensor in taken.values()}
        written = sum(map(_nbytes, (out for out in given if _address(out) not in places)))
        if not written:
            return CallCost(None, view=bool(given))
        return CallCost(Cost(None, sum(map(_nbytes, taken.values())), written))

    def usable(self) -> bool:
        """Always true, after errors were cleared from the queue: they belong to the task that failed, not to the next
        one."""
        try:
            self.synchronize()
        except mx.MXNetError:
            self.synchronize()
        return True


def _nbytes(tensor: Any) -> int:
    return int(tensor.size * np.dtype(tensor.dtype).itemsize)


def _address(tensor: Any) -> int | None:
    """The address of a tensor's data, once it is computed."""
    tensor.wait_to_read()
    place = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(tensor.handle, ctypes.byref(place)))
    return place.value


class _MxnetCall:
    """A call of a function on existing tensors."""

    def __init__(self, function: Function) -> None:
        self.function: Callable[..., Any] = function.call
        self.arguments = function.arguments

    def __call__(self) -> Any:
        found = self.function(*self.arguments)
        return tuple(found) if isinstance(found, list) else found


def _watched(launch: Launch, inputs: Sequence[Any]) -> tuple[Launch, list[Any]]:
    """The same call on other handles of the same memory, marked as variables; and where their gradients go.

    Marking the inputs themselves would tear them out of the graph that an earlier call has recorded. An argument may be
    an input, or the array of `mxnet.np` over its memory.
    """
    whole = isinstance(launch, _MxnetCall)
    arguments = list(launch.arguments) if isinstance(launch, _MxnetCall) else list(inputs)
    places = [
        i for tensor in inputs for i, a in enumerate(arguments) if a is tensor or getattr(a, "face_of", None) is tensor
    ]
    variables = [_handle(arguments[i]) if whole else arguments[i] for i in places]
    gradients = [mx.nd.zeros_like(v.as_nd_ndarray()) for v in variables]
    mx.autograd.mark_variables(variables, [_alike(g, v) for g, v in zip(gradients, variables, strict=True)])
    if isinstance(launch, _MxnetCall):
        taken = dict(zip(places, variables, strict=True))
        launch = _MxnetCall(Function(launch.function, tuple(taken.get(i, a) for i, a in enumerate(arguments))))
    return launch, gradients


def _handle(tensor: Any) -> Any:
    return _alike(tensor.as_nd_ndarray().detach(), tensor)


def _alike(tensor: Any, other: Any) -> Any:
    return tensor.as_np_ndarray() if isinstance(other, mx.np.ndarray) else tensor


def _recorded(launch: Launch) -> tuple[Any, ...]:
    with mx.autograd.record():
        outputs = launch()
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _is_recorded(output: Any) -> bool:
    """Whether a backward pass can start from an output, which MXNet tells only by refusing."""
    try:
        mx.autograd.backward([output], retain_graph=True)
    except mx.MXNetError as error:
        if any(part in str(error) for part in ("not in a computational graph", "no inputs in computation graph")):
            return False
        raise
    return True


class _MxnetStep:
    """Forward and backward pass, as in a training step; `back` is the second half, over the recorded graph."""

    def __init__(
        self, launch: Launch, outputs: tuple[Any, ...], roots: list[int], seeds: list[Any], gradients: list[Any]
    ) -> None:
        self._launch = launch
        self._roots = roots
        self._outputs = [outputs[i] for i in roots]
        self._seeds = seeds
        self.gradients = gradients

    def __call__(self) -> tuple[Any, ...]:
        outputs = _recorded(self._launch)
        mx.autograd.backward([outputs[i] for i in self._roots], self._seeds)
        return tuple(self.gradients)

    def back(self) -> tuple[Any, ...]:
        mx.autograd.backward(self._outputs, self._seeds, retain_graph=True)
        return tuple(self.gradients)
