"""Finds what a recorded call calls here: an operator of this torch, a substitute on the host, a kernel of a compiler.

Only workers import this.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from opmark.models.calls import OverloadQuestion
from opmark.models.overloads import find_schema
from opmark.traces.calls import argument_kind
from opmark.traces.replay_host import HOST_FUNCTIONS, HostFunction
from opmark.traces.trace import TraceNode, Value

_GRID = re.compile(r"^(?:grid)?\(.*\)$")
_FILES = frozenset({"filename", "path", "file"})
"""Names of arguments of operators that read or write a file."""
_HOST_KEYS = (
    "CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional",
    "SparseCPU", "SparseCsrCPU", "NestedTensorCPU", "QuantizedCPU", "MkldnnCPU",
)  # fmt: skip
"""Where torch's dispatcher finds what runs on the host."""
_REFUSED_SPACES = frozenset({"prim", "debugprims", "profiler"})


class Gap(Exception):
    """The reason why a call cannot be replayed."""


def find_overload(node: TraceNode) -> tuple[Any, Any]:
    """Return (operator, schema) of a call. Raise Gap if this torch has none."""
    if not (text := node.schema):  # some files have names alone
        kinds = [argument_kind(value) for value in node.inputs]
        text = find_schema(OverloadQuestion(node.name, kinds)) if "::" in node.name else ""
        if not text:
            raise Gap("this torch has no such operator that takes the recorded arguments")
    try:
        schema = torch._C.parse_schema(text)
    except RuntimeError:
        raise Gap(f"its schema cannot be read: {text[:80]}") from None
    return _overload(schema.name, schema.overload_name)


def _overload(name: str, overload: str) -> tuple[Any, Any]:
    space, _, function = name.partition("::")
    if space in _REFUSED_SPACES:
        raise Gap(f"operators of `{space}` are not computations")
    packet = getattr(getattr(torch.ops, space, None), function, None) if space.isidentifier() else None
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        raise Gap(f"torch {torch.__version__} has no operator {name}" + _library_hint(space))
    found = getattr(packet, overload or "default", None)
    if not isinstance(found, torch._ops.OpOverload):
        raise Gap(f"torch {torch.__version__} has no variant `{overload}` of {name}")
    if any(argument.name in _FILES for argument in found._schema.arguments):
        raise Gap("it reads or writes a file, which a trace may not ask for")
    return found, found._schema


def _library_hint(space: str) -> str:
    return "" if space == "aten" else f"; it belongs to the library `{space}`, which is not loaded"


def find_substitute(operator: Any, device: torch.device) -> HostFunction | None:
    """Return what computes the same on the host, if the device is the host and it has no such operator. Raise Gap if
    nothing does."""
    schema = operator._schema
    name = schema.name.partition("::")[2] + (f".{schema.overload_name}" if schema.overload_name else "")
    if device.type != "cpu":
        return None
    if schema.name.startswith("aten::") and (found := HOST_FUNCTIONS.get(name)) is not None:
        return found
    if not any(_has_kernel(operator.name(), key) for key in _HOST_KEYS):
        raise Gap(f"torch {torch.__version__} has it on accelerators only, and nothing here stands for it on the host")
    return None


def _has_kernel(name: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


# Kernels of inductor.


def load_kernel(node: TraceNode, trace: Path) -> Any:
    """Return the Triton kernel of a call. A trace is not trusted with paths: its file has to lie beside the trace, or
    in the folder NAME_resources, where captures put it."""
    recorded = str(node.attributes.get("kernel_file", ""))
    if not recorded:
        raise Gap("the trace does not name the file of the kernel")
    stem = trace.name.removesuffix(".gz").removesuffix(".json").removesuffix(".kineto")
    folders = (trace.parent, trace.with_name(f"{stem}_resources"))
    file = next((one for folder in folders if (one := folder / Path(recorded).name).is_file()), None)
    if file is None:
        raise Gap(f"the file of the kernel, {Path(recorded).name}, does not lie beside the trace")
    if importlib.util.find_spec("triton") is None:
        raise Gap("Triton is not installed, and it is a kernel of Triton")
    spec = importlib.util.spec_from_file_location(f"opmark_kernel_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # noqa: BLE001 - a file of another version of torch may do anything
        raise Gap(f"{file.name} cannot be loaded: {type(error).__name__}: {error}") from None
    candidates = [getattr(module, node.name, None), getattr(module, "triton_", None)]
    candidates += [value for value in vars(module).values() if hasattr(value, "run") and hasattr(value, "fn")]
    kernel = next((one for one in candidates if hasattr(one, "run")), None)
    if kernel is None:
        raise Gap(f"{file.name} contains no kernel of inductor")
    return kernel


def kernel_arguments(inputs: Sequence[Value]) -> tuple[list[Value], str]:
    """Return what a kernel was called with, and its grid: torch's observer adds the grid (before 2.7) and the stream
    behind the arguments. An empty grid is one that the kernel works out itself."""
    given = list(inputs)
    if given and type(given[-1]) is int:
        given.pop()
    grid = given.pop() if given and isinstance(given[-1], str) and _GRID.search(given[-1]) else ""
    return given, grid


def call_kernel(kernel: Any, grid: str, device: torch.device) -> Callable[..., Any]:
    options: dict[str, Any] = {}
    if "grid" in inspect.signature(kernel.run).parameters:  # torch before 2.7
        sizes = tuple(int(one) for one in re.findall(r"\d+", grid))
        heuristics: Any = importlib.import_module("torch._inductor.runtime.triton_heuristics")
        options["grid"] = heuristics.grid(*sizes) if grid.startswith("grid") else sizes

    def call(*args: Any) -> None:
        kernel.run(*args, stream=torch.get_device_module(device).current_stream().cuda_stream, **options)

    return call
