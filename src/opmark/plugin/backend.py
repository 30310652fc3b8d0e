"""One framework on one kind of device: what is known of it beforehand, and what it does in a worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from opmark.errors import Unsupported
from opmark.plugin.instruments import DeviceClock, MemoryProbe, Sensors, Timer
from opmark.plugin.operator import Launch
from opmark.plugin.process_group import Announce, ProcessGroup, World
from opmark.schema import Cost, Status, TensorSpec
from opmark.schema.tensor import DTYPES

# The values of an input as NumPy draws them, for frameworks whose tensors are made from arrays.

BLOCK = 4_194_301
"""Random elements that a large tensor on the host repeats: drawing each would take longer than what is measured.

A prime, so that rows and blocks never fall together."""
_FLOATS = frozenset(name for name, dtype in DTYPES.items() if dtype.kind == "float")


def make_values(spec: TensorSpec, seed: int) -> Any:
    """The NumPy array of a spec that makes its own values: the same on every backend."""
    import numpy as np

    assert spec.make is not None
    array = np.ascontiguousarray(spec.make(np.random.default_rng(seed)))
    if array.shape != spec.shape:
        raise ValueError(f"an input was made with shape {array.shape}, its operator says {spec.shape}")
    return array


def draw_values(spec: TensorSpec, seed: int) -> Any:
    """A C-contiguous array that nobody else holds: the same values for the same seed, whoever asks.

    Its element type is the spec's where NumPy has that, and float32 for floats that NumPy lacks or draws only by
    rounding (float16, bfloat16, 8 bits): the caller casts. A spec that makes its own values gives them as they are
    made, so that also there the caller casts.
    """
    if spec.make:
        return make_values(spec, seed)
    import numpy as np

    generator, kind = np.random.default_rng(seed), DTYPES[spec.dtype].kind
    wide = spec.dtype in ("float64", "complex128")
    real: Any = "float64" if wide else "float32"
    own = {"float": real, "complex": "complex128" if wide else "complex64"}
    flat = np.empty(spec.elements, own.get(kind, spec.dtype))
    # The block is drawn where it belongs, so that nothing but the tensor itself takes memory.
    block = flat[:BLOCK]
    if kind in own:
        values = block.view(real)
        generator.random(out=values, dtype=real)
        values *= spec.high - spec.low
        values += spec.low
    else:
        block[...] = generator.integers(int(spec.low), int(spec.high), block.shape, dtype=spec.dtype)
    for start in range(BLOCK, flat.size, BLOCK):
        flat[start : start + BLOCK] = block[: flat.size - start]
    return flat.reshape(spec.shape)


def cast(array: Any, dtype: str) -> Any:
    """The array in this element type where NumPy has it; a float that NumPy lacks stays as it is."""
    import numpy as np

    try:
        return array.astype(np.dtype(dtype), order="C", copy=False)
    except TypeError:  # bfloat16 and 8-bit floats, unless a package has added them
        return array


def widen(array: Any) -> Any:
    """A copy that the reference can be compared with: float64 for floating-point types."""
    import numpy as np

    array = np.asarray(array)
    floating = array.dtype.kind == "f" or str(array.dtype) in _FLOATS
    return np.array(array, np.float64 if floating else None)


def poison_values(array: Any) -> Any:
    """An array of the same shape and type, filled with what no operator would leave there."""
    import numpy as np

    if array.dtype == bool:
        return np.full_like(array, 1)
    return np.full_like(array, np.iinfo(array.dtype).max if array.dtype.kind in "iu" else np.nan)


# Every math library that a framework may bring reads its own variable, once, when it starts.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BackendInfo:
    """What is known of a backend without importing its framework. Entry-point group `opmark.backends`."""

    name: str
    framework: str
    """Implementations of this framework run on it."""
    device: str
    """`cpu`, `cuda`, or what its makers call it."""
    loads: str
    """`module:Class`, a class derived from Backend. It is imported in the worker only, and called with this
    description and the number of threads."""
    summary: str = ""
    """A line for `opmark list backends`."""
    dtypes: frozenset[str] = frozenset({"float32"})
    """Element types that it has. A plan refuses all others."""
    requires: str | None = None
    """The module that must be installed."""
    install: str = ""
    """The command that installs it, or a word about how to get it."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Further variables for the worker, beside those that set the number of threads of math libraries; `{threads}` is
    filled in. They are set before the framework starts."""
    differentiates: bool = False
    """Whether it can run a backward phase."""
    computes: bool = True
    """False for a backend whose outputs mean nothing, so that there is nothing to verify."""
    compiles: bool = False
    """Whether what an implementation builds is compiled before it is launched. Compiling has a time and a time-out of
    its own."""
    also: tuple[str, ...] = ()
    """Frameworks whose implementations it takes where its own has none, in this order. See Backend.operands."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Operators that its framework's table has for other engines, and that this one is known not to take: why."""
    views: bool = True
    """Whether what the catalogue marks as a view is one; a framework that never shares memory copies."""
    callables: bool = True
    """Whether any function of its framework can be called on its tensors; False for one that takes graphs."""
    guest: str = ""
    """The environment that has its framework where this interpreter has not: `opmark env create NAME`."""
    variants: tuple[str, ...] = ()
    """Ways to prepare the same thing, as in `NAME/max-autotune`; the first is what the plain name stands for."""
    variant: str = ""
    """The variant that is meant. The registry fills it in."""
    python: str = ""
    """The interpreter that its worker runs in, as in `NAME@PATH`; empty: this one, or that of its guest. The registry
    fills it in."""
    outdated: str = ""
    """Why its package does not fit this version of opmark. The registry fills it in."""

    @property
    def frameworks(self) -> tuple[str, ...]:
        """Where its implementations are looked for: under its own name, then its framework's, then those of `also`."""
        return tuple(dict.fromkeys((self.name.partition("@")[0].partition("/")[0], self.framework, *self.also)))

    @property
    def way(self) -> str:
        """The variant that is meant, named or not."""
        return self.variant or next(iter(self.variants), "")

    @property
    def variables(self) -> dict[str, str]:
        """The variables that its worker starts with; `{threads}` stands for the number of threads."""
        return {**dict.fromkeys(_THREAD_VARIABLES, "{threads}"), **self.environ}

    def why_missing(self) -> str | None:
        """Why it certainly cannot run in this interpreter, as far as that can be told without an import."""
        if self.outdated or self.requires is None or _is_installed(self.requires):
            return self.outdated or None
        return f"{self.requires} is not installed" + (f" ({self.install})" if self.install else "")

    def load(self, threads: int) -> Backend:
        """Its class, made. A class for an older opmark is replaced by one that says so."""
        if self.outdated:
            return OutdatedBackend(self, threads, self.outdated)
        module, _, name = self.loads.partition(":")
        try:
            made = getattr(import_module(module), name)
        except ImportError as error:
            reason = why_outdated(error)
            if reason is None:
                raise
        else:
            reason = _why_no_backend(made)
        if reason:
            return OutdatedBackend(self, threads, f"{self.loads} {reason}; {WRITE_NOW}")
        backend: Backend = made(self, threads)
        return backend


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be a part of is missing
        return False


class CallCost(NamedTuple):
    """What a backend finds out about a call."""

    cost: Cost | None
    """None where it cannot be told, or where there is nothing to tell."""
    view: bool = False
    """Whether the output shares its memory with an input."""


class Backend(ABC):
    """One framework on one kind of device, alive in a worker process. It supplies tensors, launches and clocks, and
    never takes the time itself.

    Four methods are needed: `upload`, `download`, `compile`, `synchronize`. Everything else has a default that is
    right for a device of which nothing more is known: what cannot be had is left out, with a reason, and nothing of
    the host is taken for the device's.
    """

    asynchronous = True
    """Whether a call may return before its work is done, so that `synchronize` belongs to its time."""
    oom_errors: tuple[type[Exception], ...] = (MemoryError,)
    """Errors that mean that memory has run out."""
    oom_messages: tuple[str, ...] = ()
    """Parts of messages, in small letters, that mean the same."""
    unsupported_errors: tuple[type[Exception], ...] = ()
    """Errors that mean that the framework has no kernel for what was asked."""
    unsupported_messages: tuple[str, ...] = ()
    """Parts of messages, in small letters, that mean the same."""

    def __init__(self, info: BackendInfo, threads: int) -> None:
        self.info = info
        self.threads = threads
        self._tensor_type: type[Any] | None = None

    # What every backend has.

    @abstractmethod
    def upload(self, array: Any, dtype: str) -> Any:
        """A new tensor on the device with these values.

        The array has that element type where NumPy knows it, and a wider one where not (bfloat16, 8-bit floats): the
        values are then rounded here.
        """

    @abstractmethod
    def download(self, tensor: Any) -> Any:
        """The values of a tensor as a NumPy array, once they are computed. It may be the tensor's own memory.

        A type that NumPy lacks becomes a wider one; such a backend overrides `dtype` too.
        """

    @abstractmethod
    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        """What an implementation has built, as a launch over these inputs: a call without arguments that returns its
        outputs, a tensor or a tuple of them.

        Whatever has to be compiled, loaded or bound is done here, in full. A launch that was compiled has an attribute
        `compilation` (schema.Compilation) that says what it took.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until everything that was launched is done, and raise what has failed since the last time."""

    # What is known of it.

    def why_unavailable(self) -> str | None:
        """Why it cannot run on this machine, or None."""
        return None

    def environment(self) -> dict[str, Any]:
        """Versions, device, driver, clocks, threads: what may explain a number. `chip` names the hardware file."""
        return {"device": self.info.device, "threads": self.threads}

    def classify(self, error: Exception) -> Status | None:
        """`oom` or `skipped` where the framework's error says so; None for an ordinary error."""
        text = str(error).lower()
        if isinstance(error, self.oom_errors) or any(part in text for part in self.oom_messages):
            return "oom"
        if isinstance(error, self.unsupported_errors) or any(part in text for part in self.unsupported_messages):
            return "skipped"
        return None

    def usable(self) -> bool:
        """Whether it can go on in this process, asked after every task: after an error a device may refuse all."""
        try:
            self.synchronize()
        except Exception:  # noqa: BLE001 - a runtime raises anything; a new process is then the safe answer
            return False
        return True

    # Tensors.

    def tensor(self, spec: TensorSpec, seed: int) -> Any:
        """A native tensor on the device, filled as the spec says."""
        if spec.place != "device":
            raise Unsupported(f"{self.info.name} has no tensors in {spec.place} memory")
        made = self.upload(cast(draw_values(spec, seed), spec.dtype), spec.dtype)
        self._tensor_type = type(made)
        return made

    def to_numpy(self, value: Any) -> Any:
        """A copy of a tensor's values as a NumPy array: float64 for floating-point types."""
        return widen(self.download(value))

    def sample(self, value: Any, most: int) -> Any:
        """At most so many elements of a tensor, spread evenly, as `to_numpy` gives them; the same ones every time."""
        flat = self.download(value).reshape(-1)
        return widen(flat[:: max(1, ceil(flat.size / most))])

    def dtype(self, value: Any) -> str:
        """The element type of a tensor, as opmark spells it."""
        return str(self.download(value).dtype)

    def deferred(self, value: Any) -> str | None:
        """Why a value that a launch returned may not have been computed yet, or None for an ordinary tensor."""
        if self._tensor_type is None or type(value) is self._tensor_type:
            return None
        return f"a {type(value).__name__}, and tensors of {self.info.name} are of type {self._tensor_type.__name__}"

    def copy_into(self, target: Any, source: Any) -> None:
        """Put other values into the same tensor. Without it a launch is not checked again after timing."""
        raise Unsupported(f"{self.info.name} cannot put other data into a tensor")

    def poison(self, value: Any) -> None:
        """Overwrite a tensor with what no operator would leave there."""
        self.copy_into(value, self.upload(poison_values(self.download(value)), self.dtype(value)))

    # Launches.

    def placing(self) -> AbstractContextManager[Any]:
        """While an implementation is built: what it makes of its own accord is made on this device."""
        return nullcontext()

    def operands(self, framework: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs as implementations of a framework in `also` take them: the same memory, since other data is put
        there later."""
        if framework in self.info.also:
            raise Unsupported(f"{self.info.name} does not say how {framework} takes its tensors")
        return inputs

    def backward(
        self, launch: Launch, inputs: Sequence[Any], seed: int, *, forward: bool = False, some: bool = False
    ) -> tuple[Launch, Sequence[Any]]:
        """(launch of the backward pass, which returns one gradient for each input; the gradients of its outputs).

        With `forward`, each launch computes the outputs anew and then goes back, as a step of training does. With
        `some`, inputs that the outputs do not depend on are left out.
        """
        raise Unsupported(f"{self.info.name} has no automatic differentiation")

    def count(self, launch: Launch, reads: Sequence[Any]) -> CallCost:
        """What one call of a function costs that no operator describes, as far as the framework can count it:
        bytes of the tensors that it takes and gives, floating-point operations."""
        return CallCost(None)

    def overwrite(self, nbytes: int) -> Launch | None:
        """A launch that writes that many bytes of its own, on all cores, so that they fill the caches before a cold
        call. None where there is no such launch: cold calls then go over several copies of the data."""
        return None

    # Clocks, sensors, memory.

    def timers(self) -> Mapping[str, Timer] | None:
        """Clocks of its own by quantity; None for the host's monotonic clock around `synchronize`."""
        return None

    def device_clock(self) -> DeviceClock | None:
        """The device's own account of what it did; None where there is none, so that there is no device_time."""
        return None

    def sensors(self) -> Sensors | None:
        """Clock, power and temperature of what computes; None where nobody tells."""
        return None

    def cache_bytes(self) -> int | None:
        """Size of the largest cache between the device and its memory; None if unknown."""
        return None

    def memory(self) -> MemoryProbe | None:
        """The counter of its memory. None: that of a CPU is the resident pages of the process, that of any other
        device stays unknown."""
        return None

    def available_bytes(self) -> int | None:
        """Memory that is free on the device; None if unknown."""
        return None

    # Several processes, and profilers.

    def join(self, world: World, announce: Announce) -> ProcessGroup:
        """Become one of several processes, for a framework that has implementations of communication."""
        raise Unsupported(f"{self.info.name} has no way to join several processes")

    def annotated(self, name: str) -> AbstractContextManager[Any]:
        """A range of this name that the device's profilers see, around what runs inside."""
        return nullcontext()

    def traced(self, path: Path) -> AbstractContextManager[Any] | None:
        """Write a Chrome trace of what runs inside; None where it can tell no more than the host's clock."""
        return None


class HostBackend(Backend):
    """A backend whose calls are done when they return; where its device is the CPU, its memory is that of the host."""

    asynchronous = False

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        """An eager framework's launch is what the implementation has built."""
        launch: Launch = built
        return launch

    def synchronize(self) -> None:
        return None

    def overwrite(self, nbytes: int) -> Launch | None:
        import numpy as np

        if self.info.device != "cpu":
            return None
        scratch = np.zeros(nbytes, np.uint8)
        return partial(np.add, scratch, 1, out=scratch)  # read, then written: stores alone may go around the caches

    def available_bytes(self) -> int | None:
        import psutil

        return int(psutil.virtual_memory().available) if self.info.device == "cpu" else None


class OutdatedBackend(HostBackend):
    """Stands in for a backend that this version of opmark cannot load, and says why."""

    def __init__(self, info: BackendInfo, threads: int, reason: str) -> None:
        super().__init__(info, threads)
        self._reason = reason

    def why_unavailable(self) -> str:
        return self._reason

    def upload(self, array: Any, dtype: str) -> Any:
        raise Unsupported(self._reason)

    def download(self, tensor: Any) -> Any:
        raise Unsupported(self._reason)


# Packages that were made for another version of opmark, as 0.8 and its plug-ins.

WRITE_NOW = (
    "write `class MyBackend(Backend)` with upload, download, compile and synchronize (docs/add-a-backend.md, "
    '"From 0.8 to 0.9")'
)
"""What the author of a backend for 0.8 has to do."""


def why_outdated(error: Exception) -> str | None:
    """Why code that raised this does not fit this version of opmark, as the end of a sentence, or None."""
    if isinstance(error, ImportError) and str(error.name or "").startswith("opmark."):
        return f"was made for another version of opmark ({error}): since 0.9 a plug-in imports from opmark.plugin"
    if isinstance(error, TypeError) and "BackendInfo" in str(error):
        return f"was made for another version of opmark ({error}): since 0.9 BackendInfo takes its fields by name"
    return None


def _why_no_backend(made: Any) -> str | None:
    """Why a class is no backend: it is not derived from Backend, or lacks methods that every backend has."""
    if not (isinstance(made, type) and issubclass(made, Backend)):
        return "was made for another version of opmark: since 0.9 a backend is derived from opmark.plugin.Backend"
    missing = sorted(made.__abstractmethods__)
    return f"lacks {', '.join(missing)}, which every backend has since opmark 0.9" if missing else None


# Function: what an implementation builds for a framework that compiles or differentiates it before it is called.


@dataclass(frozen=True)
class Function:
    call: Callable[..., Any]
    """A function of tensors by position; everything else is bound. It has no hidden state and changes nothing."""
    arguments: tuple[Any, ...]
    """The tensors that it is applied to, as the backend makes them."""
    state: tuple[TensorSlot, ...] = ()
    """Values that it carries from call to call, such as the key of random numbers in a framework that has no hidden
    one: it takes these values behind its arguments, and then returns (its result, the next values)."""

    @classmethod
    def at(cls, path: str, *arguments: Any, **settings: Any) -> Function:
        """The function `module:name` on these tensors, with settings bound by name. It is imported only now, so that
        a table of implementations is read where its library is not installed."""
        module, _, name = path.partition(":")
        call = getattr(import_module(module), name)
        return cls(partial(call, **settings) if settings else call, arguments)


class TensorSlot:
    """A place that holds a tensor of a framework whose tensors cannot be changed: other data goes into the same place.

    A backend that makes these takes them apart at every call, so that a launch never holds on to old data.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value
