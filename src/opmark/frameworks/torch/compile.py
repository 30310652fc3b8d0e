"""PyTorch with torch.compile: the launches of the eager backends, each compiled as a whole."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from types import BuiltinMethodType
from typing import Any

import torch

from opmark.errors import Unsupported
from opmark.frameworks.torch import inductor
from opmark.frameworks.torch.backend import TorchBackend, why_too_old_for_triton
from opmark.frameworks.torch.launch_key import launch_key
from opmark.plugin import BackendInfo, CallCost, Configuration, Launch
from opmark.plugin.space import THREADS
from opmark.schema import Compilation

# Number of cases whose compiled code is kept; it takes memory.
_MOST = 32
# A graph of the device is recorded at the second call, after one that only allocates.
_CALLS_TO_RECORD = 3
_GRAPHS = "triton.cudagraphs"
_ZERO_IS_NONE = frozenset({"cpp.simdlen", "triton.max_tiles"})
"""Options whose 0 in a configuration means that inductor decides."""
# Attributes of a launch of a framework's own function.
_OF_A_FOREIGN_CALL = ("reads", "leaves", "weights", "described", "outputs")


class Compiled(partial[Any]):
    """A compiled launch, called like an eager one."""

    compilation: Compilation | None = None
    eager: Launch
    """The launch that was compiled."""
    make_eager: Callable[[], Launch] | None = None
    """Makes the same backward pass without a compiler."""


@dataclass(frozen=True)
class _CompiledLaunch:
    """The compiled code of launches that differ in their data only."""

    call: Callable[..., Any]
    compilation: Compilation
    changes: tuple[str, ...]
    """Inputs that a call writes to."""


class TorchCompileBackend(TorchBackend):
    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        self._mode = info.way
        self._options: dict[str, Any] = {}
        self._made: dict[Any, _CompiledLaunch] = {}
        inductor.set_up()

    def configure(self, configuration: Configuration) -> None:
        """Take options of inductor, by their names there."""
        self.refuse_other_threads(configuration)
        options: dict[str, Any] = {name: value for name, value in configuration.items() if name != THREADS}
        unset = {name: None for name in _ZERO_IS_NONE if options.get(name) == 0}
        self._options = {**options, **unset}

    def why_unavailable(self) -> str | None:
        if reason := super().why_unavailable():
            return reason
        if self._device == "cpu" and not shutil.which(_cxx()):
            return f"torch.compile needs a C++ compiler, and there is no {_cxx()} here"
        if self._device == "cuda" and find_spec("triton") is None:
            return "torch.compile needs Triton on a GPU, and that is not installed"
        return why_too_old_for_triton() if self._device == "cuda" else None

    def environment(self) -> dict[str, Any]:
        facts = {
            "mode": self._mode,
            "compile_threads": torch._inductor.config.compile_threads,
            "variables_of_the_compiler": inductor.variables(),
        }
        if self._device == "cpu":
            facts["cxx"] = _version_of_cxx()
        else:
            facts["cudagraphs"] = [p for p in ("forward", "backward", "both") if self._graphs_of_the_device(p)]
        return super().environment() | facts

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        launch, key = _plain(built), ("forward", launch_key(built))
        if self._graphs_of_the_device("forward"):
            for tensor in inputs.values():  # or each call would copy them to where the graph has its own
                torch._dynamo.mark_static_address(tensor)

        def run(call: Any) -> Any:
            return call(launch)

        made = self._found(key, run, "forward", inputs)
        compiled = Compiled(made.call, launch)
        compiled.eager, compiled.compilation = built, made.compilation
        for name in _OF_A_FOREIGN_CALL:
            if hasattr(built, name):
                setattr(compiled, name, getattr(built, name))
        if hasattr(built, "flat"):
            compiled.flat = partial(type(built).flat, compiled)  # type: ignore[attr-defined]
        return compiled

    def backward(
        self, launch: Launch, inputs: Sequence[Any], seed: int, *, forward: bool = False, some: bool = False
    ) -> tuple[Launch, Sequence[Any]]:
        """Compile the launch again, with gradients: saving values for the backward pass changes the forward pass."""
        phase, of = "both" if forward else "backward", _Parts.of(launch)
        walk = partial(super().backward, inputs=inputs, seed=seed, forward=forward, some=some)
        steps = self._graphs_of_the_device(phase)

        def run(call: Any) -> Any:
            return walk(of.through(call, steps=steps))[0]()

        for tensor in inputs:
            tensor.requires_grad_(True)
        made = self._found((phase, launch_key(of.one.eager)), run, phase, {})
        with inductor.compiling():
            back, seeds = walk(of.through(made.call, steps=steps))
        compiled_back = Compiled(back)
        compiled_back.compilation = made.compilation
        compiled_back.make_eager = lambda: walk(of.eager())[0]
        return compiled_back, seeds

    def clients(
        self, launch: Launch, others: Sequence[Mapping[str, Any]], rebuild: Callable[[Mapping[str, Any]], Launch]
    ) -> Sequence[Launch]:
        if self._device == "cuda" and self._mode == "max-autotune":
            raise Unsupported("torch replays a graph of the device from the thread that has recorded it, and no other")
        return super().clients(launch, others, rebuild)

    def count(self, launch: Launch, reads: Sequence[Any]) -> CallCost:
        """Count the eager launch: torch counts calls of operators, and compiled code makes none."""
        assert isinstance(launch, Compiled)
        return super().count(launch.make_eager() if launch.make_eager else launch.eager, reads)

    def _graphs_of_the_device(self, phase: str) -> bool:
        records = self._mode == "max-autotune" or bool(self._options.get(_GRAPHS))
        return self._device == "cuda" and records and phase != "backward"

    def _found(self, key: Any, run: inductor.Run, phase: str, inputs: Mapping[str, Any]) -> _CompiledLaunch:
        """The compiled code for launches of this kind, compiled now or before. This launch has been called, and needs
        nothing more."""
        calls = _CALLS_TO_RECORD if self._graphs_of_the_device(phase) else 1
        key = (key, tuple(self._options.items()))
        made = self._made.get(key)
        if made is not None:
            kept = self._copies({name: inputs[name] for name in made.changes})
            try:
                with torch._dynamo.config.patch(error_on_recompile=True), inductor.compiling():
                    for _ in range(calls):
                        run(made.call)
            except torch._dynamo.exc.RecompileError:
                made = None  # not of the same kind after all
            self._restore(inputs, kept)
        return made or self._make(key, run, phase, inputs, calls)

    def _make(self, key: Any, run: inductor.Run, phase: str, inputs: Mapping[str, Any], calls: int) -> _CompiledLaunch:
        if len(self._made) >= _MOST:
            self._made.clear()
            inductor.forget()
        # A graph of the device is for one walk back after each walk there.
        mode = self._mode + ("-no-cudagraphs" if phase == "backward" and self._mode == "max-autotune" else "")
        kept = self._copies(inputs)
        options = {**self._options, _GRAPHS: False} if phase == "backward" and self._options else self._options
        call, compilation = inductor.compiled(
            mode, self._device, run, self.synchronize, calls, forward=phase == "forward", options=options
        )
        changes = self._changes(partial(run, call), inputs, kept)
        self._made[key] = _CompiledLaunch(call, compilation, changes)
        return self._made[key]

    def _changes(self, launch: Launch, inputs: Mapping[str, Any], kept: Mapping[str, Any]) -> tuple[str, ...]:
        """The inputs that one call writes to, found by comparing them: not every function that changes a tensor reports
        it."""
        self._restore(inputs, kept)
        with inductor.compiling():
            launch()
        found = tuple(name for name, copy in kept.items() if not _same(copy, inputs[name]))
        self._restore(inputs, {name: kept[name] for name in found})
        return found

    def _copies(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Copies of the inputs, where there is room: compiling calls the launch, which may change them."""
        need, free = sum(tensor.nbytes for tensor in inputs.values()), self.available_bytes()
        if free is not None and need > free // 2:
            return {}
        return {name: tensor.detach().clone() for name, tensor in inputs.items()}

    def _restore(self, inputs: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
        for name, copy in kept.items():
            self.copy_into(inputs[name], copy)


def _plain(built: Any) -> Any:
    """The launch in a form that torch.compile can look into: neither a subclass of `partial` nor a bound method of a
    tensor, whose function takes the tensor instead."""
    function, *owner = _unbound(built.func if isinstance(built, partial) else built)
    if isinstance(built, partial):
        return partial(function, *owner, *built.args, **built.keywords)
    return partial(function, *owner) if owner else built


def _unbound(function: Any) -> tuple[Any, ...]:
    owner = getattr(function, "__self__", None)
    bound = isinstance(function, BuiltinMethodType) and isinstance(owner, torch.Tensor)
    return (getattr(type(owner), function.__name__), owner) if bound else (function,)


@dataclass(frozen=True)
class _Parts:
    """A compiled launch whose result is processed further."""

    one: Compiled
    flat: Callable[[Any], Any] | None

    @classmethod
    def of(cls, launch: Any) -> _Parts:
        return cls(launch, None) if isinstance(launch, Compiled) else cls(launch.args[0], launch.func)

    def eager(self) -> Launch:
        return partial(self.flat, self.one.eager) if self.flat else self.one.eager

    def through(self, call: Any, *, steps: bool) -> Launch:
        """The same launch by another compiled function. `steps`: each call begins a step of training."""
        other = Compiled(_step, call, *self.one.args) if steps else Compiled(call, *self.one.args)
        other.__dict__.update(self.one.__dict__)
        return partial(self.flat, other) if self.flat else other


def _step(call: Any, launch: Any) -> Any:
    """Begin a step of training: a graph of the device may then reuse the memory of the step before."""
    torch.compiler.cudagraph_mark_step_begin()
    return call(launch)


def _same(one: Any, other: Any) -> bool:
    """Whether two tensors are equal to the last bit, NaN or not."""
    bits = (tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other))
    return bool(torch.equal(*bits))


def _cxx() -> str:
    return os.environ.get("CXX", "g++")


def _version_of_cxx() -> str:
    found = subprocess.run([_cxx(), "--version"], capture_output=True, text=True, check=False)
    return found.stdout.partition("\n")[0]
