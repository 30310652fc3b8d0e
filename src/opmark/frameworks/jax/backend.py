"""JAX on a CPU or a GPU: functions compiled ahead of time, callables one after the other as they are called."""

from __future__ import annotations

import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from hashlib import sha256
from importlib.metadata import version
from operator import methodcaller
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from msgspec.structs import replace

from opmark.errors import Unsupported
from opmark.plugin import BackendInfo, CallCost, Function, HostBackend, Launch, TensorSlot
from opmark.schema import Compilation, Cost, TensorSpec
from opmark.schema.record import GraphCoverage

# One task needs few programs at a time; those of earlier tasks only take memory.
_KEPT = 64
# Instructions of an optimised program that do no work.
_NO_WORK = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast"})
_INSTRUCTION = re.compile(
    r'^\s*(?:ROOT )?%(?P<name>[\w.\-]+) = .*?[\]})] (?P<what>[\w\-]+)\((?:.*custom_call_target="(?P<target>[^"]+)")?',
    re.MULTILINE,
)
# Calls of functions within functions: what they hold is looked at, and not they themselves.
_WRAPPERS = frozenset({"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat"})


class Programs:
    """Compiled programs, by the text that they were compiled from: the same text is the same program."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[Any, Compilation]] = OrderedDict()

    def compiled(self, function: Callable[..., Any], given: Sequence[Any]) -> tuple[Any, Compilation]:
        """(the compiled program, how long compiling took). Inputs that it does not use stay inputs, so that the text
        shows them all."""
        start = time.perf_counter()
        traced, lowered = _lowered(function, given)
        key = sha256(f"{lowered.as_text()}\n{lowered.out_tree}".encode()).hexdigest()
        if key not in self._kept:
            run = lowered.compile()
            cold = time.perf_counter() - start
            start = time.perf_counter()
            _lowered(function, given)[1].compile()  # out of what JAX has kept
            self._kept[key] = run, _compilation(cold, time.perf_counter() - start, traced, run)
        self._kept.move_to_end(key)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]


def _lowered(function: Callable[..., Any], given: Sequence[Any]) -> tuple[Any, Any]:
    traced = jax.jit(function, keep_unused=True).trace(*given)
    return traced, traced.lower()


class CompiledProgram:
    """A launch of a compiled program, which takes the values anew at every call."""

    def __init__(
        self, run: Any, places: tuple[TensorSlot, ...], finish: Callable[[Any], Any], compilation: Compilation,
        function: Function,
    ) -> None:  # fmt: skip
        self.run = run
        self._finish = finish
        self.places = places
        self.compilation = compilation
        self.function = function
        """The function that it was made of."""

    def __call__(self) -> Any:
        return self._finish(self.run(*[place.value for place in self.places]))


class FinishedCall:
    """A launch of a callable or of a loaded executable, whose result is waited for or kept."""

    __slots__ = ("_call", "_finish", "compilation", "leaves")

    def __init__(self, call: Launch, finish: Callable[[Any], Any]) -> None:
        self._call = call
        self._finish = finish
        self.leaves = getattr(call, "leaves", ())
        self.compilation = getattr(call, "compilation", None)

    def __call__(self) -> Any:
        return self._finish(self._call())


class LastResult:
    """Keeps what the last call on a GPU returned: calls are done in order, so whoever waits for it waits for all."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: Any = None

    def keep(self, found: Any) -> Any:
        self._kept = found
        return found

    def wait(self) -> None:
        kept, self._kept = self._kept, None
        jax.block_until_ready(kept)  # type: ignore[no-untyped-call]


def values(places: Sequence[TensorSlot]) -> list[Any]:
    return [place.value for place in places]


def parted(function: Function, found: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Split the result of a function into (outputs, next state)."""
    result, state = found if function.state else (found, ())
    return tuple(result) if isinstance(result, list | tuple) else (result,), tuple(state)


def differentiable(value: Any) -> bool:
    return bool(jax.numpy.issubdtype(value.dtype, jax.numpy.inexact))


def pulled(function: Function, wanted: Sequence[TensorSlot]) -> Callable[..., Any]:
    """A function of the same values that returns (outputs with a gradient, pullback to the `wanted` inputs, the
    rest)."""
    places = [*function.arguments]
    if any(sum(place is one for place in places) != 1 for one in wanted):
        raise Unsupported("the function does not take each input whose gradient is wanted exactly once")
    positions = [next(i for i, place in enumerate(places) if place is one) for one in wanted]

    def call(*given: Any) -> Any:
        def of_inputs(*changed: Any) -> Any:
            arguments = list(given)
            for position, value in zip(positions, changed, strict=True):
                arguments[position] = value
            outputs, state = parted(function, function.call(*arguments))
            others = tuple(out for out in outputs if not differentiable(out))
            return tuple(out for out in outputs if differentiable(out)), (others, state)

        return jax.vjp(of_inputs, *(given[position] for position in positions), has_aux=True)

    return call


def _compilation(cold: float, cached: float, traced: Any, run: Any) -> Compilation:
    operators = tuple(dict.fromkeys(_primitives(traced.jaxpr.jaxpr)))
    if callbacks := [name for name in operators if "callback" in name]:
        raise Unsupported(f"JAX leaves a part of this to Python ({callbacks[0]}): it would not be XLA that is timed")
    kernels = _kernels(run.as_text())
    return Compilation(cold, cached, graphs=1, operators=operators, kernels=kernels, cache="in-memory")


def _primitives(jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        if equation.primitive.name not in _WRAPPERS:
            yield equation.primitive.name
        for value in equation.params.values():
            for inner in value if isinstance(value, list | tuple) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from _primitives(inner)


def _kernels(text: str | None) -> tuple[str, ...]:
    """The instructions of the optimised program that do something; first `constant` where no input has a part in it."""
    if not text or "ENTRY" not in text:
        return ()
    entry = text[text.index("ENTRY") :]
    found = [*_INSTRUCTION.finditer(entry)]
    working = [one["target"] or one["name"] for one in found if one["what"] not in _NO_WORK]
    names = [re.escape(one["name"]) for one in found if one["what"] == "parameter"]
    used = any(len(re.findall(rf"%{name}(?![\w.\-])", entry)) > 1 for name in names)
    return (*(() if used else ("constant",)), *dict.fromkeys(working))


_PRECISION = "jax_default_matmul_precision"
# Major number of the compute capability of NVIDIA's first GPUs with TF32 (Ampere).
_FIRST_WITH_TF32 = 8
# Settings of jax.config. A version that lacks one of them has no need of it.
_CONFIG = {
    # float64 and int64 mean what they say: without this they quietly become 32 bits.
    "jax_enable_x64": True,
    # float32 means float32: on a GPU, products would quietly keep 10 bits of 23.
    _PRECISION: "float32",
    # Cold means cold, whatever the user keeps on disk.
    "jax_enable_compilation_cache": False,
    # Constants stand in the program's text, by which it is known.
    "jax_use_simplified_jaxpr_constants": False,
}


def configure(threads: int) -> None:
    """Set what has to be set before the first array is made."""
    # XLA takes the size of its pool of threads from this variable, once, when its client starts.
    os.environ["NPROC"] = str(threads)
    for name, value in _CONFIG.items():
        if hasattr(jax.config, name):
            jax.config.update(name, value)  # type: ignore[no-untyped-call]


class JaxBackend(HostBackend):
    """Waits for every call on a CPU, where JAX may return before its work is done. On a GPU calls are launched, and
    `synchronize` waits for them.

    A tensor is a box that holds an array, since an array of JAX never changes.
    """

    calls_ahead = 30
    """JAX has at most 32 programs on a device at a time."""

    oom_messages = ("resource_exhausted", "out of memory", "failed to allocate")
    unsupported_errors = (NotImplementedError,)
    unsupported_messages = (
        "unimplemented", "not implemented", "does not accept dtype", "unsupported dtype", "not supported",
    )  # fmt: skip

    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        configure(threads)
        self._programs = Programs()
        self._last = LastResult()
        self.asynchronous = info.device != "cpu"

    @cached_property
    def _device(self) -> Any:
        return jax.devices(self.info.device)[0]

    def why_unavailable(self) -> str | None:
        try:
            found = jax.devices(self.info.device)
        except (RuntimeError, AssertionError) as error:  # an assertion where its build has no such platform at all
            lines = str(error).splitlines()
            return f"jax {jax.__version__} has no {self.info.device} device here" + (f": {lines[0]}" if lines else "")
        return None if found else f"jax {jax.__version__} has no {self.info.device} device here"

    def environment(self) -> dict[str, Any]:
        return {
            "jax": jax.__version__,
            "jaxlib": version("jaxlib"),
            "device": self.info.device,
            "device_kind": self._device.device_kind,
            "platform": str(self._device.client.platform_version),
            "threads": self._pool() or self.threads,
            "config": {name: getattr(jax.config, name) for name in _CONFIG if hasattr(jax.config, name)},
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
        }

    def _pool(self) -> int | None:
        """Number of threads that XLA computes with, counted by their name; None where it is not known."""
        if self._device.platform != "cpu":
            return None
        names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
        return names.count("tf_XLAEigen") or None

    def upload(self, array: Any, dtype: str) -> Any:
        return TensorSlot(jax.device_put(array.astype(jnp.dtype(dtype), copy=False), self._device))

    def download(self, tensor: Any) -> Any:
        return np.asarray(_open(tensor))

    def placing(self) -> AbstractContextManager[Any]:
        place: AbstractContextManager[Any] = jax.default_device(self._device)
        return place

    def compute_in(self, dtype: str) -> None:
        rounds = dtype == "tfloat32"
        if rounds and _major_capability(self._device) < _FIRST_WITH_TF32:
            raise Unsupported(f"JAX has no products in tfloat32 on {self._device.device_kind}")
        precision = "tensorfloat32" if rounds else _CONFIG[_PRECISION]
        if getattr(jax.config, _PRECISION, precision) != precision:
            jax.config.update(_PRECISION, precision)  # type: ignore[no-untyped-call]

    def synchronize(self) -> None:
        self._last.wait()

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        if not isinstance(built, Function):
            return FinishedCall(built, self._finishing())
        for place in built.state:
            place.value = jax.device_put(place.value, self._device)
        places = (*built.arguments, *built.state)
        run, compilation = self._programs.compiled(built.call, values(places))
        self._refuse_elsewhere(run)
        if built.operators:
            count = sum(built.operators.values())
            coverage = GraphCoverage(count, count, note="XLA takes all of a module or nothing")
            compilation = replace(compilation, operators=tuple(built.operators), coverage=coverage)
        compilation = replace(compilation, export=built.export)
        finish = self._carrying(built.state) if built.state else self._finishing(run)
        return CompiledProgram(run, places, finish, compilation, built)

    def _finishing(self, run: Any = None) -> Callable[[Any], Any]:
        """Return a function for what a call returns: on a CPU it waits, for the single output of a program `run`
        without a walk through a tree."""
        if self.asynchronous:
            return self._last.keep
        single = run is not None and jax.tree_util.treedef_is_leaf(run.out_tree)
        wait: Callable[[Any], Any] = methodcaller("block_until_ready") if single else jax.block_until_ready
        return wait

    def _carrying(self, state: Sequence[TensorSlot]) -> Callable[[Any], Any]:
        """Return a function that takes (result, next state), keeps the state and returns the result."""
        finish = self._finishing()

        def carry(found: Any) -> Any:
            result, following = finish(found)
            for place, value in zip(state, following, strict=True):
                place.value = value
            return result

        return carry

    def save(self, launch: Launch, path: Path) -> None:
        """Write the executable of a module of StableHLO; nothing else says by itself what it takes and returns."""
        save = getattr(launch.function, "save", None) if isinstance(launch, CompiledProgram) else None
        if save is None or not isinstance(launch, CompiledProgram):
            raise Unsupported("JAX writes artefacts of StableHLO modules only: model:NAME-mhlo, or model:FILE.mlir")
        save(launch.run.runtime_executable(), launch.compilation, path)

    def _refuse_elsewhere(self, run: Any) -> None:
        for sharding in jax.tree.leaves(run.output_shardings):
            if sharding.device_set != {self._device}:
                raise Unsupported(f"JAX computes this on {sharding.device_set}, not on {self._device}")

    def dtype(self, value: Any) -> str:
        return str(_open(value).dtype)

    def deferred(self, value: Any) -> str | None:
        return None if isinstance(value, jax.Array) else f"a {type(value).__name__}, which is no array of JAX"

    def poison(self, value: Any) -> None:
        """Do nothing: every call makes new arrays, and none can be changed."""

    def copy_into(self, target: Any, source: Any) -> None:
        target.value = _open(source)

    def overwrite(self, nbytes: int) -> Launch:
        finish = self._finishing()
        if self.asynchronous:

            def overwrite() -> Any:
                return jnp.zeros((nbytes + 3) // 4, jnp.float32)

            fill = jax.jit(overwrite).lower().compile()
            return lambda: finish(fill())
        scratch = self.tensor(TensorSpec((nbytes,), "uint8", 0, 100), 0).value
        return lambda: finish(scratch + 1)

    def clients(
        self, launch: Launch, others: Sequence[Mapping[str, Any]], rebuild: Callable[[Mapping[str, Any]], Launch]
    ) -> Sequence[Launch]:
        """Return launches of one compiled program: its text is known, so that it is not compiled again, and the arrays
        of a model's weights are the same ones."""
        launches = [launch, *map(rebuild, others)]
        return [partial(_call_and_wait, one) for one in launches] if self.asynchronous else launches

    def count(self, launch: Launch, reads: Sequence[Any]) -> CallCost:
        """Count bytes only. An array of JAX is never a view of another, and never changed in place."""
        given = [leaf for leaf in jax.tree.leaves(launch()) if hasattr(leaf, "nbytes")]
        read = sum({id(array): array.nbytes for array in map(_open, reads)}.values())
        return CallCost(Cost(None, int(read), int(sum(array.nbytes for array in given))))

    def backward(
        self, launch: Launch, inputs: Sequence[Any], seed: int, *, forward: bool = False, some: bool = False
    ) -> tuple[Launch, Sequence[Any]]:
        """Compile the pullback of the function, with the values that it needs of the forward pass as its inputs. With
        `forward`, compile both into one program, which returns the outputs too, so that none of the work is left
        out."""
        if not isinstance(launch, CompiledProgram):
            raise Unsupported("JAX differentiates functions, not calls: a callable has no backward phase here")
        function = launch.function
        outputs, _ = parted(function, jax.eval_shape(function.call, *values(launch.places)))
        seeds = [self._like(out, seed + i) if differentiable(out) else None for i, out in enumerate(outputs)]
        given = tuple(place for place in seeds if place is not None)
        if not given:
            raise Unsupported("no output of this implementation has a gradient")
        make = self._step if forward else self._pullback
        return make(pulled(function, inputs), launch, given), seeds

    def _step(self, pull_back: Any, launch: CompiledProgram, seeds: tuple[TensorSlot, ...]) -> CompiledProgram:
        count, state = len(launch.places), launch.function.state

        def step(*given: Any) -> Any:
            outputs, pull, (others, following) = pull_back(*given[:count])
            return (pull(given[count:]), outputs, others), following

        places = (*launch.places, *seeds)
        run, compilation = self._programs.compiled(step, values(places))
        keep = self._carrying(state)
        return CompiledProgram(run, places, lambda found: keep(found)[0], compilation, launch.function)

    def _pullback(self, pull_back: Any, launch: CompiledProgram, seeds: tuple[TensorSlot, ...]) -> CompiledProgram:
        run, before = self._programs.compiled(pull_back, values(launch.places))
        _, pull, _ = run(*values(launch.places))
        kept, shape = jax.tree.flatten(pull)
        places, count = (*map(TensorSlot, kept), *seeds), len(kept)

        def back(*given: Any) -> Any:
            return jax.tree.unflatten(shape, given[:count])(given[count:])

        run, after = self._programs.compiled(back, values(places))
        whole = replace(after, cold=before.cold + after.cold, cached=(before.cached or 0) + (after.cached or 0))
        return CompiledProgram(run, places, self._finishing(run), whole, launch.function)

    def _like(self, value: Any, seed: int) -> Any:
        return self.tensor(TensorSpec(tuple(value.shape), str(value.dtype)), seed)

    def available_bytes(self) -> int | None:
        if self.info.device == "cpu":
            return super().available_bytes()
        stats = {} if self.why_unavailable() else self._device.memory_stats() or {}
        return int(stats["bytes_limit"] - stats["bytes_in_use"]) if "bytes_limit" in stats else None


def _call_and_wait(launch: Launch) -> Any:
    return jax.block_until_ready(launch())  # type: ignore[no-untyped-call]


def _major_capability(device: Any) -> int:
    """The major number of the compute capability of an NVIDIA GPU; 0 for other devices."""
    found = str(getattr(device, "compute_capability", "")).partition(".")[0]
    return int(found) if found.isdecimal() else 0


def _open(value: Any) -> Any:
    return value.value if isinstance(value, TensorSlot) else value
