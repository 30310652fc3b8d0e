"""Make samples of torch's operator database, enlarged if possible. Only a worker or a child process loads this module.

There are four ways, and the first one that gives enough work is taken. Element-wise, reducing and spectral operators
take any shape and declare their domain. Other samples are made from the sizes S, M, L of torch's test suite, which are
set larger for a moment. For other operators the first axis (usually the batch) is made longer. The rest is measured
with the sample as it is. None of this depends on timing, so a name means the same work in every run.
"""

from __future__ import annotations

import json
import random
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import islice
from math import prod
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch.testing import make_tensor as _make_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from opmark.catalogue.families.callables import FrameworkCall, find_tensors
from opmark.errors import UnknownName, Unsupported
from opmark.plugin.registry import resolve

SHAPE = (1024, 1024)
# Enlarged sizes that samples are made of; samples that multiply four of them only fit with the medium ones.
_LARGE = {"XS": 8, "S": 64, "M": 64, "L": 64}
_MEDIUM = {"XS": 6, "S": 24, "M": 24, "L": 24}
_MOST_SAMPLES = 40
# Elements of arguments: a call with fewer than _ENOUGH is mostly overhead, one with more than the maximum is too slow.
_ENOUGH = 10_000
_MOST_ELEMENTS = 1 << 22
# Largest number of elements that a call may compute in all its steps.
_MOST_WORK = 1 << 24
# The first axis grows by this factor, as work may grow with the square of a length; the length is limited because some
# operators process one element of it after the other.
_GROWTH = 4
_REPEATED = 1 << 18
_LONGEST = _GROWTH**5
# If lengthening an axis does not multiply the work by more than this, the operator ignores the new elements.
_MORE_WORK = 3
# Exceptions by which operators reject arguments.
_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, AssertionError)
_PREFERRED = ("float32", "float64", "complex64", "int64", "int32", "uint8", "bool")


class Arguments(NamedTuple):
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Callable[[Any], Any] = lambda found: found
    """Selects the part of the result that has a meaningful gradient."""

    def tensors(self) -> list[Any]:
        return [t for t in find_tensors([self.args, self.kwargs]) if isinstance(t, torch.Tensor)]

    def elements(self) -> int:
        return sum(tensor.numel() for tensor in self.tensors())


Make = Callable[[Any, str, torch.dtype], Arguments]
"""Makes arguments for an entry on a device in an element type, the same ones each time."""
Find = Callable[[Any, str, torch.dtype], tuple[Arguments, Make] | None]
"""Finds arguments, and how to make the same ones with less work; None if this way does not apply."""


@cache
def database() -> dict[str, Any]:
    """Return the entries by name. Importing them needs expecttest, which only prints test failures, so a stub replaces
    it."""
    try:
        import expecttest  # type: ignore[import-not-found]  # noqa: F401
    except ModuleNotFoundError:
        stub = types.ModuleType("expecttest")
        stub.TestCase = object  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stub
    with torch.backends.__allow_nonbracketed_mutation():  # importing it would forbid later changes of torch's settings
        from torch.testing._internal.common_methods_invocations import op_db

    return {_full_name(entry): entry for entry in op_db}


def _full_name(entry: Any) -> str:
    return f"{entry.name}/{entry.variant_test_name}" if entry.variant_test_name else str(entry.name)


def call(name: str, dtype: str, *, enlarged: bool) -> FrameworkCall:
    """Return a launch of an entry, with its arguments."""
    entry = database().get(name)
    if entry is None:
        raise Unsupported(f"torch {torch.__version__} has no operator `{name}` in its database")
    device = torch.get_default_device().type
    _seed(device, 0)  # samples come from torch's own generator
    chosen = _dtype(entry, device, dtype)
    # Samples expect tensors without a device to be on the CPU.
    with torch.device("cpu"), _seeding(device):
        make = _known.get((name, device, chosen, enlarged))
        found = (make(entry, device, chosen), make) if make else _find(entry, device, chosen, enlarged=enlarged)
    if found is None:
        raise Unsupported("its database entry has no sample for this device and element type")
    arguments, _known[name, device, chosen, enlarged] = found
    return _launch(entry, arguments)


def _seed(device: str, seed: int) -> None:
    """Seed torch's generators of the CPU and of this device. `torch.manual_seed` would also note the whole stack, once
    for each kind of device that is not there."""
    torch.default_generator.manual_seed(seed)
    if device != "cpu":
        torch.get_device_module(device).manual_seed_all(seed)


@contextmanager
def _seeding(device: str) -> Iterator[None]:
    """Let the database, which seeds all generators before each sample, seed only those that it draws from."""
    from torch.testing._internal import common_utils

    def seed_all(seed: int | None = None) -> None:
        chosen = common_utils.SEED if seed is None else seed
        _seed(device, chosen)
        random.seed(chosen)
        np.random.seed(chosen)

    before, common_utils.set_rng_seed = common_utils.set_rng_seed, seed_all
    try:
        yield
    finally:
        common_utils.set_rng_seed = before


_known: dict[tuple[str, str, torch.dtype, bool], Make] = {}
"""What was found for an entry on a device in an element type, enlarged or not: finding it makes many samples and runs
the operator several times."""


def _find(entry: Any, device: str, dtype: torch.dtype, *, enlarged: bool) -> tuple[Arguments, Make] | None:
    for find in (_by_class, _by_sizes(_LARGE), _by_sizes(_MEDIUM), _by_repeating) if enlarged else ():
        _seed(device, 0)  # each way draws the same, tried first or not
        try:
            found = find(entry, device, dtype)
            if found and found[0].elements() >= _ENOUGH and _work(entry, found[0]) <= _MOST_WORK:
                return found
        except _REFUSALS:
            continue  # the operator rejects these arguments: try the next way
    return _largest_sample(entry, device, dtype)


def _launch(entry: Any, arguments: Arguments) -> FrameworkCall:
    found = FrameworkCall(entry.op, *arguments.args, **arguments.kwargs)
    found.reads = arguments.tensors()
    if entry.supports_autograd:
        found.leaves = [tensor for tensor in found.reads if tensor.requires_grad]
    found.outputs = arguments.outputs
    found.described = ", ".join(_describe(value) for value in [*arguments.args, *arguments.kwargs.items()])
    return found


def _describe(value: Any) -> str:
    """Describe an argument briefly: tensors by shape and type, as in a workload."""
    if isinstance(value, torch.Tensor):
        return f"{'x'.join(map(str, value.shape)) or '()'} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return f"{value[0]}={_describe(value[1])}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_describe, value))}]"
    return str(value)


def _dtype(entry: Any, device: str, asked: str) -> torch.dtype:
    names = [str(dtype).removeprefix("torch.") for dtype in entry.supported_dtypes(device)]
    if not names:
        raise Unsupported(f"it has no element type on {device}")
    if asked not in ("auto", *names):
        raise Unsupported(f"it has no {asked} on {device}: {', '.join(sorted(names))}")
    name = next((name for name in _PREFERRED if name in names), sorted(names)[0]) if asked == "auto" else asked
    found = getattr(torch, name)
    assert isinstance(found, torch.dtype)
    return found


class _WorkCounter(TorchDispatchMode):  # type: ignore[misc]  # torch does not declare its type
    """Counts the elements of everything that is computed, and raises ValueError if they are too many."""

    elements = 0

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.elements += sum(t.numel() for t in find_tensors(found) if isinstance(t, torch.Tensor))
        if self.elements > _MOST_WORK:
            raise ValueError("this is too much work")
        return found


def _work(entry: Any, arguments: Arguments) -> int:
    """Return the elements computed by one call; ValueError if they are too many."""
    with _WorkCounter() as counted:
        entry.op(*arguments.args, **arguments.kwargs)
    return int(counted.elements)


def _by_class(entry: Any, device: str, dtype: torch.dtype) -> tuple[Arguments, Make] | None:
    found = _of_class(entry, device, dtype)
    return (found, cast(Make, _of_class)) if found else None


def _of_class(entry: Any, device: str, dtype: torch.dtype) -> Arguments | None:
    from torch.testing._internal.opinfo import core

    if isinstance(entry, core.UnaryUfuncInfo):
        low, high = entry.domain
        x = _tensor(entry, device, dtype, low=low, high=high)
        kwargs, _ = entry.sample_kwargs(device, dtype, x)
        return Arguments((x,), kwargs)
    if isinstance(entry, core.BinaryUfuncInfo):
        left = _tensor(entry, device, dtype, **entry.lhs_make_tensor_kwargs)
        return Arguments((left, _tensor(entry, device, dtype, **entry.rhs_make_tensor_kwargs)), {})
    if isinstance(entry, core.ReductionOpInfo):
        x = _tensor(entry, device, dtype)
        found: tuple[Any, dict[str, Any]] = next(iter(entry.generate_args_kwargs(x, dim=-1)), ((), {}))
        return Arguments((x, *found[0]), {"dim": -1, **found[1]})
    if isinstance(entry, core.SpectralFuncInfo):
        return Arguments((_tensor(entry, device, dtype),), {})
    return None


def _tensor(entry: Any, device: str, dtype: torch.dtype, **domain: Any) -> torch.Tensor:
    grad = bool(entry.supports_autograd) and (dtype.is_floating_point or dtype.is_complex)
    return _make_tensor(SHAPE, device=device, dtype=dtype, requires_grad=grad, **domain)


def _by_sizes(sizes: dict[str, int]) -> Find:
    """Find the largest of the enlarged samples that is not too large."""
    return partial(_largest_sample, sizes=sizes, most=_MOST_ELEMENTS)


def _by_repeating(entry: Any, device: str, dtype: torch.dtype) -> tuple[Arguments, Make] | None:
    """Lengthen the first axis of the first argument, alone or with all tensors of that length; None if work does not
    grow."""
    found = _largest_sample(entry, device, dtype)
    if found is None:
        return None
    own, make = found
    first = own.args[0] if own.args else None
    if not isinstance(first, torch.Tensor) or first.dim() < 2 or not first.numel():
        return None
    before = _work(entry, own)
    for everywhere in (False, True):
        longer, work, times = _grow(entry, own, min(_LONGEST, _REPEATED // first.numel()), everywhere=everywhere)
        if longer and work > _MORE_WORK * before:
            return longer, partial(_make_longer, make, times, everywhere)
    return None


def _make_longer(make: Make, times: int, everywhere: bool, entry: Any, device: str, dtype: torch.dtype) -> Arguments:
    return _repeat(make(entry, device, dtype), times, everywhere=everywhere)


def _grow(entry: Any, own: Arguments, most: int, *, everywhere: bool) -> tuple[Arguments | None, int, int]:
    """Return (the longest arguments that are not too much work, their work, how many times as long they are)."""
    found, work, reached, times = None, 0, 1, _GROWTH
    while times <= most and _GROWTH**2 * work < _MOST_WORK:
        longer = _repeat(own, times, everywhere=everywhere)
        try:
            found, work, reached, times = longer, _work(entry, longer), times, times * _GROWTH
        except _REFUSALS:
            break
    return found, work, reached


def _repeat(own: Arguments, times: int, *, everywhere: bool) -> Arguments:
    """Repeat the first argument along its first axis; `everywhere`, all tensors that are as long there."""
    first = own.args[0]

    def repeated(value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.layout == torch.strided):
            return value
        if not (value.dim() > 0 and len(value) == len(first) if everywhere else value is first):
            return value
        longer = value.detach().repeat(times, *[1] * (value.dim() - 1))
        return longer.requires_grad_(value.requires_grad)

    args, kwargs = tuple(map(repeated, own.args)), {name: repeated(value) for name, value in own.kwargs.items()}
    return Arguments(args, kwargs, own.outputs)


def _largest_sample(
    entry: Any, device: str, dtype: torch.dtype, sizes: dict[str, int] | None = None, most: int = sys.maxsize
) -> tuple[Arguments, Make] | None:
    """Find the largest sample of at most that many elements, made from these sizes if they are given."""
    with _set_sizes(sizes):
        samples = enumerate(_samples(entry, device, dtype))
        fitting = [(number, sample) for number, sample in samples if sample.elements() <= most]
    if not fitting:
        return None
    number, largest = max(fitting, key=lambda one: one[1].elements())

    def make_again(entry: Any, device: str, dtype: torch.dtype) -> Arguments:
        """Make the samples up to this one: each is drawn with the same seed, and none depends on a later one."""
        with _set_sizes(sizes):
            return next(islice(_samples(entry, device, dtype), number, None))

    return largest, make_again


def _samples(entry: Any, device: str, dtype: torch.dtype) -> Iterator[Arguments]:
    """Yield the first samples of an entry: making all of them would take longer than measuring."""
    grad = bool(entry.supports_autograd) and (dtype.is_floating_point or dtype.is_complex)
    for sample in islice(entry.sample_inputs(device, dtype, requires_grad=grad), _MOST_SAMPLES):
        yield Arguments((sample.input, *sample.args), sample.kwargs, sample.output_process_fn_grad)


@contextmanager
def _set_sizes(sizes: dict[str, int] | None) -> Iterator[None]:
    """Set the sizes and `make_tensor`, which are constants of several modules, and restore them afterwards. Without
    sizes nothing is changed."""
    if sizes is None:
        yield
        return
    changed: list[tuple[dict[str, Any], str, Any]] = []
    for names in [vars(module) for name, module in sys.modules.items() if name.startswith("torch.testing._internal")]:
        changed += [(names, name, names[name]) for name in sizes if isinstance(names.get(name), int)]
        changed += [(names, "make_tensor", _make_tensor)] if names.get("make_tensor") is _make_tensor else []
    try:
        for names, name, _ in changed:
            names[name] = sizes.get(name, _make_bounded_tensor)
        yield
    finally:
        for names, name, before in changed:
            names[name] = before


def _make_bounded_tensor(*shape: Any, **options: Any) -> torch.Tensor:
    """Make a tensor, unless it is so large that it may not fit into memory."""
    sizes = shape[0] if shape and isinstance(shape[0], tuple | list) else shape
    if prod(sizes) > _MOST_ELEMENTS:
        raise ValueError(f"a sample of shape {tuple(sizes)} is too large")
    return _make_tensor(*shape, **options)


def _list_entries(device: str = "cpu") -> list[tuple[str, str, str, list[str], bool]]:
    return [
        (
            name,
            entry.name,
            _path(entry.name),
            sorted(str(dtype).removeprefix("torch.") for dtype in entry.supported_dtypes(device)),
            bool(entry.supports_autograd),
        )
        for name, entry in database().items()
    ]


def _path(name: str) -> str:
    """Return the path of a function in torch or of a method of its tensors; empty if there is neither."""
    plain = name.removeprefix("torch.")
    return next((path for path in (f"torch.{plain}", f"torch.Tensor.{plain}") if _is_callable(path)), "")


def _is_callable(path: str) -> bool:
    try:
        return callable(resolve(path))
    except UnknownName:
        return False


if __name__ == "__main__":
    print(json.dumps(_list_entries()))
