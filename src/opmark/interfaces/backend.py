"""One framework on one kind of device: what is known of it beforehand, and what it does in a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from opmark.interfaces.clocks import DeviceClock, MemoryProbe, Sensors, Timer
from opmark.interfaces.peers import Announce, Team, World
from opmark.schema import (
    Cost,
    Launch,
    Status,
    TensorSpec,
)

BLOCK = 4_194_301
"""Random elements that a large tensor on the host repeats: drawing each would take longer than what is measured.

A prime, so that rows and blocks never fall together."""


def made(spec: TensorSpec, seed: int) -> Any:
    """The NumPy array of a spec that makes its own values: the same on every backend."""
    import numpy as np

    assert spec.make is not None
    array = np.ascontiguousarray(spec.make(np.random.default_rng(seed)))
    if array.shape != spec.shape:
        raise ValueError(f"an input was made with shape {array.shape}, its operator says {spec.shape}")
    return array


@dataclass(frozen=True)
class BackendInfo:
    """What is known of a backend without importing its framework. Entry-point group `opmark.backends`."""

    name: str
    framework: str
    """Implementations of this framework run on it."""
    device: str
    summary: str
    dtypes: frozenset[str]
    loads: str
    """`module:Class`, imported in the worker only; called with this description and the number of threads."""
    requires: str | None = None
    """The module that must be installed."""
    install: str = ""
    """How to get it."""
    environ: Mapping[str, str] | None = None
    """Variables for the worker; `{threads}` is filled in. They must be set before the framework starts."""
    differentiates: bool = True
    """Whether it can run a backward phase."""
    computes: bool = True
    """False for a backend whose outputs mean nothing, so that there is nothing to verify."""
    compiles: bool = False
    """What an implementation builds is compiled before it is launched: that has a time and a time-out of its own."""
    also: tuple[str, ...] = ()
    """Frameworks whose implementations it takes where its own has none, in this order."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Operators that its framework's table has, for other engines, and that this one is known not to take: why."""
    views: bool = True
    """Whether what the catalogue marks as a view is one; a framework that never shares memory copies."""
    callables: bool = True
    """Whether any function of its framework can be called on its tensors; not so of one that takes graphs."""
    guest: str = ""
    """The environment that has its framework where this interpreter has not: `opmark env create NAME`."""
    variants: tuple[str, ...] = ()
    """Ways to prepare the same thing, as in `NAME/max-autotune`; the first is what the plain name stands for."""
    variant: str = ""
    """The one of them that is meant."""
    python: str = ""
    """The interpreter that its worker runs in, as in `NAME@PATH`; none: this one, or that of its guest."""

    @property
    def frameworks(self) -> tuple[str, ...]:
        """Whose implementations it takes, the first that has any: those made for it alone, then its framework's."""
        return tuple(dict.fromkeys((self.name.partition("@")[0].partition("/")[0], self.framework, *self.also)))

    @property
    def way(self) -> str:
        """The variant that is meant, named or not."""
        return self.variant or next(iter(self.variants), "")

    def why_missing(self) -> str | None:
        """Why it certainly cannot run in this interpreter, as far as that can be told without an import."""
        if self.requires is None or _installed(self.requires):
            return None
        return f"{self.requires} is not installed" + (f" ({self.install})" if self.install else "")

    def load(self, threads: int) -> Backend:
        module, _, name = self.loads.partition(":")
        backend: Backend = getattr(import_module(module), name)(self, threads)
        return backend


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be a part of is missing
        return False


class Counted(NamedTuple):
    """What a backend finds out about a call."""

    cost: Cost | None
    """None where it cannot be told, or where there is nothing to tell."""
    view: bool = False
    """Whether what comes out is another look at what went in."""


class Backend(Protocol):
    """One framework on one kind of device, alive in a worker process. It supplies clocks; it never times."""

    def why_unavailable(self) -> str | None:
        """Why it cannot run on this machine, or None."""

    def environment(self) -> dict[str, Any]:
        """Versions, device, driver, clocks, threads: what may explain a number."""

    def tensor(self, spec: TensorSpec, seed: int) -> Any:
        """A native tensor on the device, filled as the spec says."""

    def placing(self) -> AbstractContextManager[Any]:
        """While an implementation is built: what it makes of its own accord is made on this device."""

    def operands(self, framework: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs as implementations of that framework take them: other than they are only where `also` names one
        whose tensors are not this backend's. They have to be the same memory, since other data is put there later."""

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        """What an implementation has built, as a launch over these inputs.

        An eager framework returns it as it is. One that compiles does so here, in full: the launch is not to compile
        anything when it is called, and has a `compilation` (schema.Compilation) that says what it took.
        """

    def dtype(self, value: Any) -> str:
        """The element type of a tensor, as opmark spells it."""

    def to_numpy(self, value: Any) -> Any:
        """A NumPy array of the same values: float64 for floating-point types."""

    def deferred(self, value: Any) -> str | None:
        """Why a value that a launch returned may not have been computed yet, or None for an ordinary tensor."""

    def thin(self, value: Any, most: int) -> Any:
        """At most so many elements of a tensor, spread evenly, as a tensor; the same ones every time."""

    def poison(self, value: Any) -> None:
        """Overwrite a tensor with what no operator would leave there."""

    def copy_into(self, target: Any, source: Any) -> None:
        """Other values at the same address."""

    def backward(
        self, launch: Launch, inputs: Sequence[Any], seed: int, *, forward: bool = False, some: bool = False
    ) -> tuple[Launch, Sequence[Any]]:
        """(launch of the backward pass, returning a gradient an input; the gradients of its outputs).

        With `forward`, each launch computes the outputs anew and then goes back, as a step of training does. With
        `some`, inputs that the outputs do not depend on are left out.
        """

    def count(self, launch: Launch, reads: Sequence[Any]) -> Counted:
        """What one call of a function costs that no operator describes, as far as the framework can count it:
        bytes of the tensors that it takes and gives, floating-point operations."""

    def timers(self) -> Mapping[str, Timer] | None:
        """Clocks of its own by quantity; None for the host's monotonic clock around `synchronize`."""

    def device_clock(self) -> DeviceClock | None:
        """The device's own account of what it did; None where there is none."""

    def sensors(self) -> Sensors | None:
        """Clock, power and temperature of what computes; None where nobody tells."""

    def cache_bytes(self) -> int | None:
        """Size of the largest cache between the device and its memory; None if unknown."""

    def overwrite(self, nbytes: int) -> Launch:
        """A launch that writes that many bytes of its own, on all threads, so that they fill the caches."""

    def synchronize(self) -> Any:
        """Wait until everything that was launched is done."""

    asynchronous: bool
    """Whether a call may return before its work is done."""

    def memory(self) -> MemoryProbe | None:
        """How its memory is counted; None for the resident pages of the process."""

    def available_bytes(self) -> int | None:
        """Memory that is free on the device; None if unknown."""

    def classify(self, error: Exception) -> Status | None:
        """`oom` or `skipped` where the framework's error says so; None for an ordinary error."""

    def usable(self) -> bool:
        """Whether it can go on in this process, asked after an error: a device may refuse everything from then on."""

    def join(self, world: World, announce: Announce) -> Team:
        """Become one of several processes. Only of a backend whose framework has implementations of communication;
        others may lack this."""

    # The last two are for profilers only. A backend that lacks them is measured like any other.

    def annotated(self, name: str) -> AbstractContextManager[Any]:
        """A range of this name in the eyes of the device's profilers, around what runs inside."""

    def traced(self, path: Path) -> AbstractContextManager[Any] | None:
        """Writes a Chrome trace of what runs inside; None where it can tell no more than the host's clock."""


class HostBackend:
    """What backends have in common whose calls are done when they return, on the host's processor and memory.

    A device of its own overrides what it has: a queue, a memory, clocks, sensors.
    """

    asynchronous = False

    def __init__(self, info: BackendInfo, threads: int) -> None:
        self._info = info
        self._threads = threads

    def why_unavailable(self) -> str | None:
        return None

    def placing(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def operands(self, framework: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return inputs

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        launch: Launch = built
        return launch

    def deferred(self, value: Any) -> str | None:
        return None

    def count(self, launch: Launch, reads: Sequence[Any]) -> Counted:
        return Counted(None)

    def timers(self) -> Mapping[str, Timer] | None:
        return None

    def device_clock(self) -> DeviceClock | None:
        return None

    def sensors(self) -> Sensors | None:
        return None

    def cache_bytes(self) -> int | None:
        return None

    def synchronize(self) -> None:
        return None

    def memory(self) -> MemoryProbe | None:
        return None

    def available_bytes(self) -> int | None:
        return None

    def classify(self, error: Exception) -> Status | None:
        return "oom" if isinstance(error, MemoryError) else None

    def usable(self) -> bool:
        return True

    def annotated(self, name: str) -> AbstractContextManager[Any]:
        return nullcontext()

    def traced(self, path: Path) -> AbstractContextManager[Any] | None:
        return None
