"""Code for any target of TVM, also for machines that are not this one: `llvm -mtriple=aarch64-linux-gnu`,
`opencl -device=mali`, `rocm`, `cuda -arch=sm_90`.

An operator with a schedule is compiled with a configuration; any other one, and any ONNX model, with TVM's own passes
for the kind of target."""

from __future__ import annotations

import json
import shlex
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opmark.errors import Unsupported, UserError
from opmark.frameworks.tvm.library import (
    codegen,
    first_line,
    from_onnx,
    legalize_passes,
    library_dispatch_passes,
    relax,
    tvm,
)
from opmark.frameworks.tvm.operators import SCHEDULED, kind_of
from opmark.plugin import Configuration, Params
from opmark.plugin.registry import backend, implementations
from opmark.plugin.registry import operator as find_operator

_FPGAS = frozenset({"pynq", "vta", "fpga", "ultra96", "de10nano", "sdaccel", "aocl", "aocl_sw_emu", "intelfocl"})
_GPU_LIMITS = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152, "thread_warp_size": 32}
_LIMITED = frozenset({"cuda", "rocm"})
"""Targets whose limits are those of a data-centre GPU where the text names none."""


def read_target(text: str) -> Any:
    """Return the tvm.target.Target of a text: a kind, options as older versions of TVM had them
    (`llvm -mtriple=aarch64-linux-gnu`), or JSON. UserError for what TVM does not have, FPGAs among them."""
    text = text.strip()
    kind = text.split()[0] if text and not text.startswith("{") else ""
    if kind.lower() in _FPGAS:
        raise UserError(
            f"target `{kind}`: TVM has no FPGAs any more (it removed VTA in February 2025)",
            "a vendor's package adds a device of its own as a backend: docs/add-a-backend.md",
        )
    if text.startswith("{"):
        fields = _read_json(text)
    else:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UserError(f"target `{text}`: {error}", "as in `llvm -mtriple=aarch64-linux-gnu`") from None
        fields = {"kind": kind, **dict(_read_option(word) for word in words[1:])}
    known = sorted(tvm.target.Target.list_kinds())
    if fields.get("kind") not in known:
        raise UserError(f"target `{text}`: TVM {tvm.__version__} has no kind `{fields.get('kind', '')}`",
                        f"it has {', '.join(known)}")  # fmt: skip
    if tvm.get_global_func(f"target.build.{fields['kind']}", allow_missing=True) is None:
        raise UserError(
            f"target `{text}`: this build of TVM {tvm.__version__} has no code generator for {fields['kind']}",
            "a TVM that was built with it is needed; the package on PyPI has no Vulkan",
        )
    if fields["kind"] in _LIMITED:
        fields = {**_GPU_LIMITS, **fields}
    try:
        if kind_of(fields["kind"]) == "cpu":
            return tvm.target.Target(fields)
        return tvm.target.Target(fields, host={"kind": "llvm"})
    except (ValueError, TypeError, RuntimeError) as error:
        raise UserError(f"target `{text}`: {first_line(error)}", "as in `llvm -mtriple=aarch64-linux-gnu`") from None


def cpu_target(threads: int) -> Any:
    """Return this processor, with so many threads."""
    return tvm.target.Target({"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu(), "num-cores": threads})


def _read_json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UserError(f"target `{text}` is no JSON: {error}", 'as in \'{"kind": "cuda", "arch": "sm_90"}\'') from None
    return dict(found)


def _read_option(word: str) -> tuple[str, Any]:
    name, _, value = word.lstrip("-").partition("=")
    if not word.startswith("-") or not value:
        raise UserError(f"`{word}` is no option of a target", "options look like -mcpu=cortex-a72")
    listed = name in ("mattr", "libs", "keys")
    return name, value.split(",") if listed else int(value) if value.isdecimal() else value


@dataclass(frozen=True)
class TargetCode:
    """What was compiled for a target."""

    kind: str
    """`llvm`, `cuda`, `opencl`, ...: that of the part that computes."""
    text: str
    """LLVM's assembly language, or the source of the kernels."""
    linked: bool = True
    """False if the vendor's linker is missing here: the code was generated, and cannot be loaded."""

    @property
    def size(self) -> int:
        return len(self.text)


def build_for(target: str, operator: str, params: Params, configuration: Configuration | None = None) -> TargetCode:
    """Compile an operator of the catalogue for a target. Parameters that are missing have their defaults; so has a
    configuration, of which None means all defaults."""
    known = find_operator(operator)
    params, where = known.complete(params), read_target(target)
    if operator not in SCHEDULED:
        if configuration:
            raise UserError(f"`{operator}` has no schedule with knobs", f"these have one: {', '.join(SCHEDULED)}")
        return build_graph_for(target, operator_graph(operator, params))
    row, kind = SCHEDULED[operator], kind_of(where.kind.name)
    checked = row.space(kind, params).check(configuration or {})
    return _compile(row.module(kind, params, checked), where)


def operator_graph(operator: str, params: Params) -> Any:
    """Return the ONNX model of an operator of the catalogue."""
    known = find_operator(operator)
    found = implementations(known, backend("tvm-cpu"))
    if not found:
        raise Unsupported(f"`{operator}` has no ONNX graph")
    inputs = {name: (spec.shape, spec.dtype) for name, spec in known.inputs(params).items()}
    return found[0].build(params, **dict.fromkeys(inputs)).model(inputs)


def build_graph_for(target: str, model: Any) -> TargetCode:
    """Compile an ONNX model for a target, with TVM's own schedules for it."""
    where = read_target(target)
    return _compile(lower_graph(model, where), where)


def lower_graph(model: Any, target: Any) -> Any:
    """Return the module with a kernel for everything that is computed: imported, made legal, fused, and on a GPU with
    DLight's schedules. These are the first steps of TVM's pipeline for its target, done here to be looked at."""
    with warnings.catch_warnings(), target:
        warnings.simplefilter("ignore")  # its checker wants the shapes of outputs, which are inferred anyway
        module = from_onnx(model)
        passes = library_dispatch_passes(target) + legalize_passes(target)
        return tvm.transform.Sequential(passes)(module)


def _compile(module: Any, target: Any) -> TargetCode:
    with _without_rocm(target) as linked, target:
        try:
            executable = tvm.compile(module, target=target)
        except Exception as error:  # noqa: BLE001 - TVM raises anything where it lacks a part of a target
            raise Unsupported(f"TVM {tvm.__version__} for {target.kind.name}: {first_line(error)}") from None
        library = _library(executable)
        device = next((one for one in library.imports if one.kind not in ("llvm", "c", "relax.VMExecutable")), None)
        part = device or library
        return TargetCode(part.kind, part.inspect_source(), linked)


def output_of(module: Any) -> tuple[tuple[int, ...], str] | None:
    """Return shape and element type of the last argument of a function `main`; None for a graph, which returns its
    results."""
    main = module["main"]
    if not isinstance(main, tvm.tirx.PrimFunc):
        return None
    last = main.params[-1]
    return tuple(int(n) for n in last.shape), str(last.dtype)


def _library(executable: Any) -> Any:
    """Return the module with the compiled functions, which that of a graph imports."""
    if not isinstance(executable, relax.VMExecutable):
        return executable.mod
    queue = [executable.mod]
    while queue:
        one = queue.pop(0)
        if one.kind in ("llvm", "c"):
            return one
        queue += list(one.imports)
    return executable.mod


@contextmanager
def _without_rocm(target: Any) -> Iterator[bool]:
    """Generate code for AMD's GPUs where ROCm is not installed: its libraries and its linker are left out. The yielded
    value tells whether the code is linked."""
    replaced: Mapping[str, Any] = {}
    if target.kind.name == "rocm":
        try:
            tvm.get_global_func("tvm_callback_rocm_bitcode_path")()
        except RuntimeError:
            replaced = {"tvm_callback_rocm_bitcode_path": lambda *_: [], "tvm_callback_rocm_link": lambda code: code}
    before = {name: tvm.get_global_func(name) for name in replaced}
    for name, function in replaced.items():
        tvm.register_global_func(name, function, override=True)
    try:
        yield not replaced
    finally:
        for name, function in before.items():
            tvm.register_global_func(name, function, override=True)
