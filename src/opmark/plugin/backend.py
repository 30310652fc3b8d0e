"""The interface of a backend, one framework on one kind of device: its description, and its methods in a worker."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from opmark.errors import TimerFailed, Unsupported
from opmark.plugin.instruments import DeviceClock, MemoryProbe, Sensors, Timer
from opmark.plugin.operator import Launch, Operator
from opmark.plugin.param import Params
from opmark.plugin.process_group import Announce, ProcessGroup, World
from opmark.plugin.shared_memory import Arena
from opmark.plugin.space import THREADS, Configuration, Space
from opmark.schema import Cost, Status, TensorSpec
from opmark.schema.tensor import DTYPES, STORED_AS

# The values of an input as NumPy draws them, for frameworks whose tensors are made from arrays.

BLOCK = 4_194_301
"""Number of random elements that a large tensor on the host repeats: drawing all of them would take longer than the
measurement. It is a prime, so that rows and blocks do not repeat alike."""
_FLOATS = frozenset(name for name, dtype in DTYPES.items() if dtype.kind == "float")


def make_values(spec: TensorSpec, seed: int) -> Any:
    """Return the NumPy array of a spec that makes its own values: the same on every backend."""
    import numpy as np

    assert spec.make is not None
    array = np.ascontiguousarray(spec.make(np.random.default_rng(seed)))
    if array.shape != spec.shape:
        raise ValueError(f"an input was made with shape {array.shape}, its operator says {spec.shape}")
    return array


def draw_values(spec: TensorSpec, seed: int, block: int = BLOCK) -> Any:
    """Return a new C-contiguous array with the values of a spec; equal seeds give equal values. An array of more than
    `block` elements repeats them.

    Its element type is that of the spec if NumPy has it, and float32 for floats that NumPy lacks or draws only by
    rounding (float16, bfloat16, 8 bits). The caller has to cast these, and also the values of a spec with `make`, which
    are returned unchanged.
    """
    if spec.make:
        return make_values(spec, seed)
    import numpy as np

    generator, kind = np.random.default_rng(seed), DTYPES[spec.dtype].kind
    wide = spec.dtype in ("float64", "complex128")
    real: Any = "float64" if wide else "float32"
    own = {"float": real, "complex": "complex128" if wide else "complex64"}
    flat = np.empty(spec.shape, own.get(kind, spec.dtype)).reshape(-1)
    # The values are drawn where they belong, so that nothing but the tensor itself takes memory.
    drawn = flat[:block]
    if kind in own:
        values = drawn.view(real)
        generator.random(out=values, dtype=real)
        values *= spec.high - spec.low
        values += spec.low
    else:
        drawn[...] = generator.integers(int(spec.low), int(spec.high), drawn.shape, dtype=spec.dtype)
    for start in range(block, flat.size, block):
        flat[start : start + block] = drawn[: flat.size - start]
    return flat.reshape(spec.shape)


def cast(array: Any, dtype: str) -> Any:
    """Cast an array to this element type if NumPy has it; a float type that NumPy lacks leaves it unchanged."""
    import numpy as np

    try:
        return array.astype(np.dtype(dtype), order="C", copy=False)
    except TypeError:  # bfloat16 and 8-bit floats, unless a package has added them
        return array


def widen(array: Any) -> Any:
    """Return a copy for the comparison with the reference: float64 for floating-point types."""
    import numpy as np

    array = np.asarray(array)
    floating = array.dtype.kind == "f" or str(array.dtype) in _FLOATS
    # Memory that was not written may hold any bits, signalling NaNs among them, which a cast warns about.
    with np.errstate(invalid="ignore"):
        return np.array(array, np.float64 if floating else None)


def sample_stride(size: int, most: int) -> int:
    """Return the distance between elements of which at most that many are taken. It is odd, so that in a matrix they
    are not all from the same few columns."""
    return ceil(size / most) | 1


def poison_values(array: Any) -> Any:
    """Return an array of the same shape and type with values that no operator would produce."""
    import numpy as np

    if array.dtype == bool:
        return np.full_like(array, 1)
    return np.full_like(array, np.iinfo(array.dtype).max if array.dtype.kind in "iu" else np.nan)


# Every math library that a framework may bring reads its own variable, once, when it starts.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip


def find_module(name: str) -> ModuleSpec | None:
    """Return the place of a module; None if it is not installed. Nothing is imported: importlib's `find_spec` would
    import the packages that a module is a part of."""
    top, *parts = name.split(".")
    found = find_spec(top)
    for part in parts:
        if found is None or found.submodule_search_locations is None:
            return None
        found = PathFinder.find_spec(f"{found.name}.{part}", found.submodule_search_locations)
    return found


class Installation(NamedTuple):
    """An installed framework, of which nothing is imported."""

    folder: Path
    """Folder of the module that the backend requires."""
    packages: Mapping[str, str]
    """Versions of the packages that its interpreter has, by their names in small letters, with hyphens."""


class Build(NamedTuple):
    """What the files of an installed framework tell about it."""

    facts: Mapping[str, str] = {}
    """Such as versions of what it was built for."""
    unfit: str | None = None
    """Why it cannot use the device of the backend; None if nothing speaks against it."""


@dataclass(frozen=True, kw_only=True)
class BackendInfo:
    """The description of a backend, without importing its framework. Entry-point group `opmark.backends`."""

    name: str
    framework: str
    """Implementations of this framework run on it."""
    device: str
    """`cpu`, `cuda`, or the vendor's name of the device."""
    loads: str
    """`module:Class`, a class derived from Backend. It is imported in the worker only, and called with this
    description and the number of threads."""
    summary: str = ""
    """Summary for `opmark list backends`."""
    dtypes: frozenset[str] = frozenset({"float32"})
    """Element types that it supports. A plan refuses all others."""
    requires: str | None = None
    """The module that must be installed."""
    install: str = ""
    """Command that installs it, or a hint how to get it."""
    read_build: Callable[[Installation], Build] | None = None
    """Reads from the files of an installation, without an import, what it was built for: `opmark list backends`."""
    device_variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables by which the user names a device that is no part of this machine: an example for each fact
    of it, as in `{"chip": "BOARD=10.0.0.7:9090"}`. Without them the backend cannot run. Configurations are tuned for
    the device that they name."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Further environment variables of the worker, besides those that set the number of threads of math libraries;
    `{threads}` is replaced. They are set before the framework starts."""
    differentiates: bool = False
    """Whether it can run a backward phase."""
    computes: bool = True
    """False for a backend whose outputs mean nothing, so that there is nothing to verify."""
    compiles: bool = False
    """Whether the result of an implementation is compiled before it is launched. Compiling is timed separately, with
    its own time-out."""
    also: tuple[str, ...] = ()
    """Frameworks whose implementations it uses if its own has none, in this order. See Backend.operands."""
    models: str = ""
    """The form in which it takes whole models, if its framework has none: `onnx`, a graph (Backend.compile then gets
    an object whose method `model` returns an onnx.ModelProto). Empty: none."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Reasons by operator why this engine cannot run it, although its framework has an implementation."""
    shares: str = ""
    """`module:Class`, a class derived from SharedTensors, with which a process takes its tensors from memory that it
    shares with the judge; empty if candidates cannot be judged on this backend."""
    views: bool = True
    """Whether operators that the catalogue marks as views return views; a framework that never shares memory copies."""
    callables: bool = True
    """Whether any function of its framework can be called on its tensors; False for one that takes graphs."""
    guest: str = ""
    """Environment with its framework, if this interpreter lacks it: `opmark env create NAME`."""
    variants: tuple[str, ...] = ()
    """Ways to prepare a launch, as in `NAME/max-autotune`; the plain name means the first."""
    variant: str = ""
    """The chosen variant. The registry fills it in."""
    streams: bool = False
    """Whether one process can run several launches at the same time, each on a stream of its own: Backend.streams."""
    space: str = ""
    """`module:function`, which returns the knobs of the backend itself for an operator and its parameters, whatever the
    implementation is: a Space, or None. It imports no framework. See Backend.configure."""
    shares_builds: bool = False
    """Whether a worker finds what another one has compiled, in the folder that OPMARK_COMPILE_CACHE names: then
    candidates of a tuning are built side by side before they are timed."""
    tuners: Mapping[str, str] = field(default_factory=dict)
    """Tuners that it brings, for spaces that it alone knows: `module:Class` by name, a class derived from Tuner. The
    parent loads it, so that its module imports no framework; a child process may."""
    takes_tuned_operators: bool = False
    """Whether `Backend.configure` takes TUNED_OPERATORS: the tuned operators of a model, which it then applies when it
    compiles the model."""
    tuned: bool = False
    """Whether tuned configurations are applied, as in `NAME/tuned`. The registry fills it in."""
    python: str = ""
    """Interpreter of its worker, as in `NAME@PATH`; empty: this one, or that of its guest. The registry fills it in."""
    outdated: str = ""
    """Why its package does not fit this version of opmark. The registry fills it in."""

    @property
    def frameworks(self) -> tuple[str, ...]:
        """Names under which its implementations are searched: its own, its framework, then those of `also`."""
        return tuple(dict.fromkeys((self.name.partition("@")[0].partition("/")[0], self.framework, *self.also)))

    @property
    def way(self) -> str:
        """The chosen variant, or the default one."""
        return self.variant or next(iter(self.variants), "")

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables of its worker, with `{threads}` replaced."""
        return {**dict.fromkeys(_THREAD_VARIABLES, "{threads}"), **self.environ}

    def why_missing(self) -> str | None:
        """Return why it cannot run in this interpreter, as far as known without an import; else None."""
        if self.outdated:
            return self.outdated
        if self.requires is not None and find_module(self.requires) is None:
            return f"{self.requires} is not installed" + (f" ({self.install})" if self.install else "")
        unset = next(
            (example for fact, example in self.device_variables.items() if not self.device_facts()[fact]), None
        )
        return f"{unset.partition('=')[0]} is not set, as in {unset}" if unset else None

    def device_facts(self) -> dict[str, str]:
        """Return the facts that `device_variables` hold; one whose variable is not set is empty."""
        return {fact: os.environ.get(example.partition("=")[0], "") for fact, example in self.device_variables.items()}

    def find_space(self, operator: Operator, params: Params) -> Space | None:
        """Return the knobs of the backend itself for a case; None if it has none."""
        if not self.space:
            return None
        module, _, name = self.space.partition(":")
        found: Space | None = getattr(import_module(module), name)(operator, params)
        return found

    def load(self, threads: int) -> Backend:
        """Create the backend. A class for an older opmark is replaced by one that reports this."""
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
            reason = None
            if not (isinstance(made, type) and issubclass(made, Backend)):
                reason = (
                    "was made for another version of opmark: since 0.9 a backend is derived from opmark.plugin.Backend"
                )
            elif missing := sorted(made.__abstractmethods__):
                reason = f"lacks {', '.join(missing)}, which every backend has since opmark 0.9"
        if reason:
            return OutdatedBackend(self, threads, f"{self.loads} {reason}; {WRITE_NOW}")
        backend: Backend = made(self, threads)
        return backend


class CallCost(NamedTuple):
    """What a backend finds out about one call."""

    cost: Cost | None
    """None if unknown."""
    view: bool = False
    """Whether the output shares its memory with an input."""


class MemoryLayout(NamedTuple):
    """Where the elements of a tensor lie in memory."""

    address: int
    """Address of the first element."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes from one element to the next, along each axis."""
    itemsize: int

    @classmethod
    def of_array(cls, array: Any) -> MemoryLayout:
        return cls(array.__array_interface__["data"][0], array.shape, array.strides, array.itemsize)


class Streams(ABC):
    """Launches on one device, each on a stream of its own."""

    @abstractmethod
    def run(self, calls: Sequence[int]) -> list[float]:
        """Call each launch so many times, one stream beside the other, and wait for all. Return for each the device's
        seconds from the common start until the last of its calls is done; 0 for one that is not called.

        All streams begin together: the device is held until the calls are queued, as far as its queue takes them."""

    @abstractmethod
    def start(self, calls: Sequence[int]) -> None:
        """Queue the same without waiting for it."""

    def capture(self, calls: Sequence[int]) -> Callable[[], float]:
        """Capture the same in one graph whose branches are the streams. Return a function that replays it, and returns
        the device's seconds. Raise TimerFailed where the device has no graphs, or cannot capture these calls."""
        raise TimerFailed("this device has no graphs")


class Backend(ABC):
    """One framework on one kind of device, in a worker process. It supplies tensors, launches and clocks, but does not
    measure.

    Four methods are required: `upload`, `download`, `compile`, `synchronize`. All others have defaults that are correct
    for an unknown device: what it cannot do is left out, with a reason, and properties of the host are never taken for
    those of the device.
    """

    asynchronous = True
    """Whether a call may return before its work is done, so that its time includes `synchronize`."""
    calls_ahead = 900
    """Number of calls that can be launched before the first of them is done; one more would wait."""
    oom_errors: tuple[type[Exception], ...] = (MemoryError,)
    """Exceptions of the framework for lack of memory."""
    oom_messages: tuple[str, ...] = ()
    """Parts of messages, in small letters, that mean the same."""
    unsupported_errors: tuple[type[Exception], ...] = ()
    """Exceptions of the framework for operations without a kernel."""
    unsupported_messages: tuple[str, ...] = ()
    """Parts of messages, in small letters, that mean the same."""
    index_dtypes: tuple[str, ...] = ("int64", "int32")
    """Element types of places of elements that it returns beside their values, as top-k does."""

    def __init__(self, info: BackendInfo, threads: int) -> None:
        self.info = info
        self.threads = threads
        self._tensor_type: type[Any] | None = None

    # What every backend has.

    @abstractmethod
    def upload(self, array: Any, dtype: str) -> Any:
        """Return a new tensor on the device with these values.

        The array has that element type if NumPy knows it, else a wider one (bfloat16, 8-bit floats): then this method
        rounds the values.
        """

    @abstractmethod
    def download(self, tensor: Any) -> Any:
        """Wait for a tensor and return its values as a NumPy array, which may share memory with it.

        A type that NumPy lacks becomes a wider one; such a backend overrides `dtype` too.
        """

    @abstractmethod
    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        """Turn the result of an implementation into a launch over these inputs: a function without arguments that
        returns a tensor or a tuple of tensors.

        All compiling, loading and binding happens here. A compiled launch has an attribute `compilation`
        (schema.Compilation).
        """

    def save(self, launch: Launch, path: Path) -> None:
        """Write what was compiled to a file, from which it can be loaded without compiling again."""
        raise Unsupported(f"{self.info.name} writes no compiled artefacts")

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all launched work is done, and raise errors that occurred since the last call."""

    # What is known of it.

    def why_unavailable(self) -> str | None:
        """Return why it cannot run on this machine, or None."""
        return None

    def environment(self) -> dict[str, Any]:
        """Return facts that may explain a number: versions, device, driver, clocks, threads. `chip` names the
        datasheet."""
        return {"device": self.info.device, "threads": self.threads}

    def classify(self, error: Exception) -> Status | None:
        """Classify an error of the framework: `oom`, `skipped`, or None for an ordinary error."""
        text = str(error).lower()
        if isinstance(error, self.oom_errors) or any(part in text for part in self.oom_messages):
            return "oom"
        if isinstance(error, self.unsupported_errors) or any(part in text for part in self.unsupported_messages):
            return "skipped"
        return None

    def usable(self) -> bool:
        """Return whether this process can go on. It is called after every task, because a device may refuse all work
        after an error."""
        try:
            self.synchronize()
        except Exception:  # noqa: BLE001 - a runtime raises anything; a new process is then the safe answer
            return False
        return True

    # Tensors.

    def tensor(self, spec: TensorSpec, seed: int) -> Any:
        """Return a native tensor on the device with the values of the spec."""
        if spec.place != "device":
            raise Unsupported(f"{self.info.name} has no tensors in {spec.place} memory")
        if spec.strides:
            raise Unsupported(f"{self.info.name} has no tensors with strides, only contiguous ones")
        made = self.upload(cast(draw_values(spec, seed), spec.dtype), spec.dtype)
        self._tensor_type = type(made)
        return made

    def to_numpy(self, value: Any) -> Any:
        """Return a copy of the values as a NumPy array: float64 for floating-point types."""
        return widen(self.download(value))

    def sample(self, value: Any, most: int) -> Any:
        """Return at most that many elements of a tensor, evenly spread, as `to_numpy` does; the same ones every
        time."""
        flat = self.download(value).reshape(-1)
        return widen(flat[:: sample_stride(flat.size, most)])

    def shape(self, value: Any) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(self.download(value).shape)

    def take(self, value: Any, positions: Mapping[int, Any]) -> Any:
        """Return the elements at these positions along axes, as `to_numpy` does; an axis that is not named is taken as
        a whole. A large tensor should not be copied for a small part of it."""
        array = self.download(value)
        for axis, at in positions.items():
            array = array.take(at, axis)
        return widen(array)

    def contract(self, value: Any, axis: int, weights: Any) -> Any:
        """Return the weighted sums along an axis, in float64, as an array in which that axis has length 1."""
        import numpy as np

        rows = np.moveaxis(self.download(value), axis, -1)
        flat = rows.reshape(-1, rows.shape[-1])
        step = max(1, BLOCK // rows.shape[-1])  # a copy in float64 of all of it would be large
        sums = [widen(flat[start : start + step]) @ weights for start in range(0, len(flat), step)]
        return np.expand_dims(np.concatenate(sums).reshape(rows.shape[:-1]), axis)

    def keep_only(self, value: Any, positions: Mapping[int, Any], where: Any = True) -> None:
        """Set all elements of a tensor to zero except those at these positions along axes; of these, only the elements
        `where` is true are kept."""
        import numpy as np

        array = self.download(value)
        kept = np.zeros_like(array)
        at = np.ix_(*(positions.get(axis, np.arange(n)) for axis, n in enumerate(array.shape)))
        kept[at] = np.where(where, array[at], kept[at])
        self.copy_into(value, self.upload(kept, self.dtype(value)))

    def dtype(self, value: Any) -> str:
        """Return the element type of a tensor, as opmark spells it."""
        return str(self.download(value).dtype)

    def deferred(self, value: Any) -> str | None:
        """Return why a value that a launch returned may not be computed yet; None for an ordinary tensor."""
        if self._tensor_type is None or type(value) is self._tensor_type:
            return None
        return f"a {type(value).__name__}, and tensors of {self.info.name} are of type {self._tensor_type.__name__}"

    def layout(self, value: Any) -> MemoryLayout | None:
        """Return where the elements of a tensor lie, so that outputs are found that are only views of inputs; None if
        unknown."""
        return None

    def copy_into(self, target: Any, source: Any) -> None:
        """Replace the values of a tensor in place. Without this method a launch is not verified again after timing."""
        raise Unsupported(f"{self.info.name} cannot put other data into a tensor")

    def splice(self, target: Any, source: Any, start: int, stop: int) -> None:
        """Replace the elements `start` to `stop` of a tensor in place, in the order of memory, by those of another."""
        mixed = cast(self.download(target), self.dtype(target)).copy()
        mixed.reshape(-1)[start:stop] = self.download(source).reshape(-1)[start:stop]
        self.copy_into(target, self.upload(mixed, self.dtype(target)))

    def poison(self, value: Any) -> None:
        """Overwrite a tensor with values that no operator would produce."""
        self.copy_into(value, self.upload(poison_values(self.download(value)), self.dtype(value)))

    # Launches.

    def placing(self) -> AbstractContextManager[Any]:
        """Return a context for building an implementation, in which new tensors are created on this device."""
        return nullcontext()

    def compute_in(self, dtype: str) -> None:
        """Let products of launches that are built from now on be computed in this element type. It is called before
        every build; a device whose matrix units have a type of their own (`tfloat32`) switches it on and off here."""
        if dtype in STORED_AS:
            raise Unsupported(f"{self.info.name} does not say how to compute in {dtype}")

    def coarsest(self, dtype: str) -> str:
        """Return the element type in which a case of this type is really computed, for a backend that takes a coarser
        one of its own accord (OpenVINO's default is bfloat16 on some processors); else the type itself."""
        return dtype

    def configure(self, configuration: Configuration) -> None:
        """Use these values of the backend's own knobs for launches that are built from now on. It is called before
        every build; an empty configuration is the default."""
        if configuration:
            raise Unsupported(f"{self.info.name} has no knobs")

    def refuse_other_threads(self, configuration: Configuration) -> None:
        """Raise Unsupported if a configuration has another number of threads than this worker was started with."""
        threads = configuration.get(THREADS, self.threads)
        if threads != self.threads:
            raise Unsupported(f"this worker has {self.threads} threads, the configuration {threads}")

    def operands(self, framework: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the inputs for an implementation of a framework in `also`. They share memory with the originals,
        because other data is written there later."""
        if framework in self.info.also:
            raise Unsupported(f"{self.info.name} does not say how {framework} takes its tensors")
        return inputs

    def backward(
        self, launch: Launch, inputs: Sequence[Any], seed: int, *, forward: bool = False, some: bool = False
    ) -> tuple[Launch, Sequence[Any]]:
        """Return the launch of the backward pass, which returns one gradient per input, and the gradients of the
        outputs.

        With `forward`, each launch also computes the outputs, as a training step does. With `some`, inputs on which the
        outputs do not depend are left out.
        """
        raise Unsupported(f"{self.info.name} has no automatic differentiation")

    def limit_multiprocessors(self, count: int) -> str | None:
        """Run what this thread calls from now on on so many multiprocessors of a GPU, and report `sms` in the
        environment. Return why that cannot be had."""
        return f"{self.info.name} cannot keep to a part of the multiprocessors"

    def streams(self, launches: Sequence[Launch]) -> Streams:
        """Return these launches, each on a stream of its own; only if its BackendInfo says that it has `streams`."""
        raise Unsupported(f"{self.info.name} does not say how several launches run at the same time")

    def clients(
        self, launch: Launch, others: Sequence[Mapping[str, Any]], rebuild: Callable[[Mapping[str, Any]], Launch]
    ) -> Sequence[Launch]:
        """Return one launch per client of the model that `launch` has loaded: the first over its own inputs, and one
        for each of the `others`, which are inputs of the same kind.

        Each is called from a thread of its own while the others run, and returns when its outputs are computed. The
        model is not loaded a second time. `rebuild` makes a launch over other inputs as `launch` was made, through
        `compile`: it is for a framework that keeps what it has loaded. Without this method there is one client at most,
        because nobody knows whether launches may run at the same time; a lock around them would make clients wait for
        each other and call that the model's latency.
        """
        if others:
            raise Unsupported(f"{self.info.name} does not say how several clients share one loaded model")
        return [WaitingLaunch(launch, self.synchronize) if self.asynchronous else launch]

    def count(self, launch: Launch, reads: Sequence[Any]) -> CallCost:
        """Return the cost of one call of a function that is not in the catalogue, as far as the framework can count it:
        bytes of its inputs and outputs, and floating-point operations."""
        return CallCost(None)

    def overwrite(self, nbytes: int) -> Launch | None:
        """Return a launch that writes that many bytes on all cores, which fills the caches before a cold call. None:
        cold calls rotate over several copies of the data instead."""
        return None

    # Clocks, sensors, memory.

    def timers(self) -> Mapping[str, Timer] | None:
        """Return timers by quantity; None for the monotonic clock of the host around `synchronize`."""
        return None

    def device_clock(self) -> DeviceClock | None:
        """Return the clock of the device; None if it has none, so that there is no device_time."""
        return None

    def sensors(self) -> Sensors | None:
        """Return the sensors of the device for clock, power and temperature; None if there are none."""
        return None

    def cache_bytes(self) -> int | None:
        """Return the bytes of the largest cache of the device; None if unknown."""
        return None

    def memory(self) -> MemoryProbe | None:
        """Return the counter of its memory. None: on a CPU the resident pages of the process are counted; on other
        devices the use is unknown."""
        return None

    def available_bytes(self) -> int | None:
        """Return the free memory of the device in bytes; None if unknown."""
        return None

    # Several processes, and profilers.

    def arena(self, nbytes: int) -> Arena | None:
        """Return memory of the device that another process can open; None if that is the memory of the host."""
        return None

    def join(self, world: World, announce: Announce) -> ProcessGroup:
        """Join a process group, for a framework with communication operators."""
        raise Unsupported(f"{self.info.name} has no way to join several processes")

    def annotated(self, name: str) -> AbstractContextManager[Any]:
        """Return a context that marks a range of this name for the profilers of the device."""
        return nullcontext()

    def traced(self, path: Path) -> AbstractContextManager[Any] | None:
        """Return a context that writes a Chrome trace; None if it would show no more than the clock of the host."""
        return None


class WaitingLaunch:
    """A launch that returns when its work is done."""

    __slots__ = ("_launch", "_wait")

    def __init__(self, launch: Launch, wait: Callable[[], None]) -> None:
        self._launch = launch
        self._wait = wait

    def __call__(self) -> Any:
        outputs = self._launch()
        self._wait()
        return outputs


class HostBackend(Backend):
    """A backend whose calls are complete when they return. If its device is the CPU, its memory is that of the host."""

    asynchronous = False

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        """Return the result of the implementation, which is a launch already."""
        launch: Launch = built
        return launch

    def layout(self, value: Any) -> MemoryLayout | None:
        """Return where the array lies that shows the tensor's own memory; None where reading copies, which two reads
        show."""
        import numpy as np

        # Both are kept: a number that is no array would be written to the same place twice.
        one, other = np.asarray(self.download(value)), np.asarray(self.download(value))
        layouts = MemoryLayout.of_array(one), MemoryLayout.of_array(other)
        return layouts[0] if layouts[0].address == layouts[1].address else None

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
    """Replaces a backend that this version of opmark cannot load, and reports why."""

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
"""Hint for the author of a backend for 0.8."""


def why_outdated(error: Exception) -> str | None:
    """Return why code that raised this error does not fit this version of opmark, as the end of a sentence; else
    None."""
    if isinstance(error, ImportError) and str(error.name or "").startswith("opmark."):
        return f"was made for another version of opmark ({error}): since 0.9 a plug-in imports from opmark.plugin"
    if isinstance(error, TypeError) and "BackendInfo" in str(error):
        return f"was made for another version of opmark ({error}): since 0.9 BackendInfo takes its fields by name"
    return None


# Function: what an implementation builds for a framework that compiles or differentiates it before it is called.


@dataclass(frozen=True)
class Function:
    call: Callable[..., Any]
    """A pure function of tensors by position; all other arguments are bound."""
    arguments: tuple[Any, ...]
    """Tensors of the backend to which it is applied."""
    state: tuple[TensorSlot, ...] = ()
    """Values that it carries from call to call, such as the random key in a framework without hidden state. It takes
    them after its arguments, and returns (result, next values)."""
    operators: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Number of operators by name, where it is a graph that was made elsewhere."""
    export: float | None = None
    """Seconds that making this graph took."""

    @classmethod
    def at(cls, path: str, *arguments: Any, **settings: Any) -> Function:
        """Return the function `module:name` on these tensors, with settings bound by name. It is imported on first use,
        so that tables of implementations can be read without its library."""
        module, _, name = path.partition(":")
        call = getattr(import_module(module), name)
        return cls(partial(call, **settings) if settings else call, arguments)


class TensorSlot:
    """A mutable container for an immutable tensor of a framework, so that other data can be put into the same place.

    The backend unwraps it at every call, so that a launch never keeps old data.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class LaidOutSlot(TensorSlot):
    """A tensor in the layout of its framework, where that is not the catalogue's. It is converted again only if its
    source holds other data, not in every call."""

    __slots__ = ("_laid", "_seen", "lay", "source")

    def __init__(self, source: TensorSlot, lay: Callable[[Any], Any]) -> None:
        self.source = source
        self.lay = lay
        self._seen = source.value
        self._laid = lay(source.value)

    @property
    def value(self) -> Any:
        if self.source.value is not self._seen:
            self._seen = self.source.value
            self._laid = self.lay(self._seen)
        return self._laid
