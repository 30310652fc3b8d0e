"""Records what torch.compile does: the graphs that it gets, the kernels that it makes, and the time with empty and with
filled caches. Its caches belong to this process alone."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from types import FunctionType
from typing import Any
from unittest.mock import patch

import torch
import torch._dynamo
import torch._inductor.compile_fx as compile_fx
from torch._dynamo.exc import BackendCompilerFailed, TorchRuntimeError
from torch._dynamo.utils import counters
from torch._guards import detect_fake_mode
from torch._inductor.cpu_vec_isa import pick_vec_isa
from torch._inductor.exc import InductorError
from torch._inductor.graph import GraphLowering
from torch._inductor.utils import clear_caches
from torch.overrides import _pop_mode_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from opmark.errors import TaskError, Unsupported
from opmark.frameworks import cache_folder
from opmark.schema import Compilation
from opmark.schema.record import GraphCoverage

_KERNELS = re.compile(
    r"^(\w+) = async_compile\.|\bextern_kernels\.(\w+)\(|"
    r"= (?:torch\.ops\.)?((?:aten|mkldnn|quantized|onednn)\.[\w.]+)\(",
    re.MULTILINE,
)
_GLUE = re.compile(r"^with_effects|^<|_tokens?\.")
_EXPLAINS = "Explanation:"
_LONGEST = 400
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
# One piece of code may be compiled for so many cases before torch refuses; they are forgotten long before that.
_RECOMPILE_LIMIT = 256
_CACHES = "TORCHINDUCTOR_CACHE_DIR"

Run = Callable[[Callable[..., Any]], Any]
"""Calls everything that is to be compiled: run(compiled)."""


def set_up() -> None:
    """Configure torch.compile: recompilation and fallback to eager raise an error."""
    # Inductor compiles in this process: others that it starts would still be there while something is measured.
    torch._inductor.config.compile_threads = 1
    torch._dynamo.config.recompile_limit = _RECOMPILE_LIMIT
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    torch._dynamo.config.suppress_errors = False
    torch._dynamo.config.allow_rnn = True
    # A graph that is walked back many times has to keep its saved tensors.
    torch._functorch.config.donated_buffer = False
    torch.compiler.set_stance("fail_on_recompile")


def variables() -> dict[str, str]:
    """Variables of the user that change compilation, without those that are set here."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(("TORCHINDUCTOR_", "TORCH_COMPILE")) and name != _CACHES
    }


def compiled(
    mode: str,
    device: str,
    run: Run,
    synchronize: Callable[[], Any],
    calls: int,
    *,
    forward: bool = True,
    options: Mapping[str, Any] | None = None,
) -> tuple[Any, Compilation]:
    """(the compiled function of a launch, how long compiling took): once with empty caches, once more with those that
    the first time has filled.

    Everything is compiled after `calls` calls. `forward`: the calls are of a forward pass alone. `options`: those of
    inductor, besides the mode.
    """
    _warm_up(device)
    _fresh_caches()
    recording = Recording(mode, options)
    with recording.listening():
        cold = _seconds(recording, run, synchronize, calls)[1]
    if not recording.graphs:
        raise Unsupported(f"torch.compile left it to eager: {recording.why_not()}")
    coverage = recording.cover(run) if forward or not recording.breaks else None
    again = Recording(mode, options)
    with again.listening():
        call, cached = _seconds(again, run, synchronize, calls)
    recording.given.clear()
    again.given.clear()  # torch keeps the recording with the compiled function
    return call, Compilation(
        cold,
        cached,
        graphs=recording.graphs,
        breaks=tuple(recording.breaks),
        operators=tuple(recording.operators),
        kernels=tuple(recording.kernels),
        cache=again.cache(),
        coverage=coverage,
    )


def _seconds(recording: Recording, run: Run, synchronize: Callable[[], Any], calls: int) -> tuple[Any, float]:
    """(the compiled function, seconds that the first calls took more than later ones)."""
    call, taken = recording.function(), []
    for _ in range(calls + 2):
        started = time.perf_counter()
        run(call)
        synchronize()
        taken.append(time.perf_counter() - started)
    return call, max(0.0, sum(taken[:calls]) - calls * min(taken[calls:]))


class Recording(torch._TorchCompileInductorWrapper):  # type: ignore[misc]
    """Compiles with Inductor in a mode of its own, and records the operators that it gets and the kernels that it
    makes."""

    def __init__(self, mode: str, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(mode, dict(options or {}), False)
        self.graphs = 0
        self.hits = 0
        self.nodes = 0
        self.given: list[tuple[Any, Any]] = []
        """The graphs with their inputs, which have shapes and no data."""
        self.operators: dict[str, None] = {}
        self.kernels: dict[str, None] = {}
        self.breaks: list[str] = []

    def __call__(self, model: Any, inputs: Any, **options: Any) -> Any:
        if any(node.op.startswith("call") for node in model.graph.nodes):
            self.graphs += 1
            self.given.append((model, inputs))
        return super().__call__(model, inputs, **options)

    def function(self) -> Any:
        """A function that calls a launch, with a code object of its own: torch counts and forgets by code object."""
        own = FunctionType(_call.__code__.replace(), globals(), "call")
        return torch._dynamo.optimize(backend=self, dynamic=False)(own)

    def cover(self, run: Run) -> GraphCoverage | None:
        """How much of what a call does is in the graphs; None if unknown. Without a break that is everything. With one,
        the operators that an eager call runs are compared with those of the graphs, both as torch dispatches them."""
        if not self.breaks:
            return GraphCoverage(self.nodes, self.nodes, 1.0)
        every = CallCounter()
        with every:
            run(_call)
        inside = CallCounter()
        try:
            for model, inputs in self.given:
                with detect_fake_mode(inputs) or nullcontext(), inside, torch.no_grad():
                    model(*inputs)
        except Exception:  # noqa: BLE001 - a compiler may have changed its graph, and torch raises anything then
            return None
        outside = every.calls - inside.calls
        total = sum(every.calls.values())
        share = min(1.0, inside.flops / every.flops) if every.flops else None
        return GraphCoverage(total, total - sum(outside.values()), share, dict(outside))

    def cache(self) -> str:
        """The cache that makes a second compilation short, or why there is none."""
        if not self.graphs:  # behind a graph break, functions are compiled by themselves, and found again
            return "code in memory"
        return "FX graph cache" if self.hits else "none: the FX graph cache does not take it"

    def why_not(self) -> str:
        return "; ".join(self.breaks) or "it found nothing to compile"

    @contextmanager
    def listening(self) -> Iterator[None]:
        counters.clear()
        inner = compile_fx._compile_fx_inner

        def lower(model: Any, *arguments: Any, **options: Any) -> Any:
            names = [*_operators(model)]
            self.operators.update(dict.fromkeys(names))
            self.nodes += len(names)
            return inner(model, *arguments, **options)

        def made(code: str) -> None:
            self.kernels.update(dict.fromkeys(next(filter(None, found)) for found in _KERNELS.findall(code)))

        with (
            patch.object(compile_fx, "_compile_fx_inner", lower),
            patch.object(GraphLowering, "save_output_code", made),
            compiling(),
            _translate_errors(),
        ):
            yield
        self.hits = counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]
        # A break is counted once for each function around it; by its reason it is there once.
        self.breaks = [_reason(why) for why in counters["graph_break"]]


class CallCounter(TorchDispatchMode):  # type: ignore[misc]
    """Counts the operators that are called, and the operations of products, convolutions and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = Counter[str]()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func is not torch.ops.aten.detach.default:  # autograd adds these
            self.calls[str(func)] += 1
        if func.overloadpacket in flop_registry:
            self.flops += int(flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=found))
        return found


@contextmanager
def compiling() -> Iterator[None]:
    """Allow compiling inside, and leave the mode that places new tensors, in which no launch is called."""
    with torch.compiler.set_stance("default"):
        if torch._C._len_torch_function_stack():
            with _pop_mode_temporarily():
                yield
        else:
            yield


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise the compiler's failures with their reason, which stands on a later line."""
    try:
        yield
    except InductorError as error:
        lines = [line.strip() for line in str(error).splitlines()]
        about = next((line.removeprefix("target:").strip() for line in lines if line.startswith("target:")), "")
        if about:
            raise Unsupported(f"inductor cannot lower {about}: {lines[0]}") from error
        raise TaskError(f"inductor fails: {lines[0]}") from error
    except (BackendCompilerFailed, TorchRuntimeError) as error:
        raise TaskError(f"torch.compile fails: {_reason(str(error))}") from error


def forget() -> None:
    """Forget everything that was compiled: later calls are compiled anew."""
    torch._dynamo.reset()


def _call(launch: Any) -> Any:
    return launch()


def _operators(model: Any) -> Iterator[str]:
    """Names of the operators of a graph before it was decomposed, without those that only hold it together."""
    for node in model.graph.nodes:
        name = str(node.meta.get("original_aten") or node.target)
        if node.op == "call_function" and not _GLUE.search(name):
            yield name


def _reason(text: str) -> str:
    """The first line of a long message, and the one that explains it; without addresses."""
    lines = [_ADDRESS.sub("", line.strip()) for line in text.strip().splitlines()] or ["no reason given"]
    if lines[0].endswith(":"):  # what it is stands on the next one
        lines[0] = " ".join(lines[:2])
    explained = next((line for line in lines[1:] if line.startswith(_EXPLAINS)), "")
    return (lines[0] + (f": {explained.removeprefix(_EXPLAINS).strip()}" if explained else ""))[:_LONGEST]


@cache
def _warm_up(device: str) -> None:
    """Compile something first: the first compilation of a process also finds out which instructions there are, reads
    headers and loads modules late, which is no part of any operator. torch keeps some of it in a folder of the
    machine."""
    if device == "cpu":
        pick_vec_isa()
    _fresh_caches()
    with compiling():
        Recording("default").function()(partial(torch.neg, torch.zeros(64, device=device)))


def _fresh_caches() -> None:
    folder = cache_folder.fresh()
    os.environ[_CACHES] = str(folder)
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    clear_caches()
