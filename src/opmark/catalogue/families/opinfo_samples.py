"""Make samples of torch's operator database, enlarged if possible. Only a worker or a child process loads this module.

There are four ways, and the first one that gives enough work is taken. Element-wise, reducing and spectral operators
take any shape and declare their domain. Other samples are made from the sizes S, M, L of torch's test suite, which are
set larger for a moment. For other operators the first axis (usually the batch) is made longer. The rest is measured
with the sample as it is. None of this depends on timing, so a name means the same work in every run.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from math import prod
from typing import Any, NamedTuple

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


Make = Callable[[Any, str, torch.dtype], Arguments | None]
"""Makes arguments for an entry on a device in an element type; None if this way does not apply."""


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
    torch.manual_seed(0)  # samples come from torch's own generator
    device = torch.get_default_device().type
    chosen = _dtype(entry, device, dtype)
    with torch.device("cpu"):  # samples expect tensors without a device to be on the CPU
        larger = _enlarge(entry, device, chosen) if enlarged else None
        arguments = larger or _largest_sample(entry, device, chosen)
    if arguments is None:
        raise Unsupported("its database entry has no sample for this device and element type")
    return _launch(entry, arguments)


_ways: dict[tuple[str, str, torch.dtype], Make | None] = {}
"""The way that fits an entry on a device in an element type: finding it runs the operator several times."""


def _enlarge(entry: Any, device: str, dtype: torch.dtype) -> Arguments | None:
    key = _full_name(entry), device, dtype
    if key in _ways:
        known = _ways[key]
        return known(entry, device, dtype) if known else None
    for make in (_by_class, _by_sizes(_LARGE), _by_sizes(_MEDIUM), _by_repeating):
        torch.manual_seed(0)  # each way draws the same, tried first or not
        try:
            found = make(entry, device, dtype)
            if found is not None and found.elements() >= _ENOUGH and _work(entry, found) <= _MOST_WORK:
                _ways[key] = make
                return found
        except _REFUSALS:
            continue  # the operator rejects these arguments: try the next way
    _ways[key] = None
    return None


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


def _by_class(entry: Any, device: str, dtype: torch.dtype) -> Arguments | None:
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


def _by_sizes(sizes: dict[str, int]) -> Make:
    def make(entry: Any, device: str, dtype: torch.dtype) -> Arguments | None:
        """Return the largest of the enlarged samples that is not too large."""
        with _set_sizes(sizes):
            fitting = [sample for sample in _samples(entry, device, dtype) if sample.elements() <= _MOST_ELEMENTS]
        return max(fitting, key=Arguments.elements, default=None)

    return make


def _by_repeating(entry: Any, device: str, dtype: torch.dtype) -> Arguments | None:
    """Lengthen the first axis of the first argument, alone or with all tensors of that length; None if work does not
    grow."""
    own = _largest_sample(entry, device, dtype)
    first = own.args[0] if own and own.args else None
    if own is None or not isinstance(first, torch.Tensor) or first.dim() < 2 or not first.numel():
        return None
    before = _work(entry, own)
    for chosen in (lambda t: t is first, lambda t: t.dim() > 0 and len(t) == len(first)):
        longer, work = _grow(entry, own, chosen, min(_LONGEST, _REPEATED // first.numel()))
        if longer and work > _MORE_WORK * before:
            return longer
    return None


def _grow(entry: Any, own: Arguments, chosen: Callable[[Any], bool], most: int) -> tuple[Arguments | None, int]:
    """Return (the longest arguments that are not too much work, their work)."""
    found, work, times = None, 0, _GROWTH
    while times <= most and _GROWTH**2 * work < _MOST_WORK:
        longer = Arguments(*_repeat(own, chosen, times), own.outputs)
        try:
            found, work, times = longer, _work(entry, longer), times * _GROWTH
        except _REFUSALS:
            break
    return found, work


def _repeat(own: Arguments, chosen: Callable[[Any], bool], times: int) -> tuple[Any, Any]:
    def repeated(value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.layout == torch.strided and chosen(value)):
            return value
        longer = value.detach().repeat(times, *[1] * (value.dim() - 1))
        return longer.requires_grad_(value.requires_grad)

    return tuple(map(repeated, own.args)), {name: repeated(value) for name, value in own.kwargs.items()}


def _largest_sample(entry: Any, device: str, dtype: torch.dtype) -> Arguments | None:
    return max(_samples(entry, device, dtype), key=Arguments.elements, default=None)


def _samples(entry: Any, device: str, dtype: torch.dtype) -> Iterator[Arguments]:
    """Yield the first samples of an entry: making all of them would take longer than measuring."""
    grad = bool(entry.supports_autograd) and (dtype.is_floating_point or dtype.is_complex)
    for sample in islice(entry.sample_inputs(device, dtype, requires_grad=grad), _MOST_SAMPLES):
        yield Arguments((sample.input, *sample.args), sample.kwargs, sample.output_process_fn_grad)


@contextmanager
def _set_sizes(sizes: dict[str, int]) -> Iterator[None]:
    """Set the sizes and `make_tensor`, which are constants of several modules, and restore them afterwards."""
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
