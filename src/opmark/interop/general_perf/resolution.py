"""Resolves a task: which model runs, from which file, on which backend, and how it differs from what its name says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from opmark.catalogue.workload_file import read_plain
from opmark.errors import UnknownName, UserError, nearest
from opmark.interop.general_perf import files, tasks
from opmark.interop.general_perf.files import ModelFile, TaskFile
from opmark.interop.general_perf.hardware import HARDWARE, find_hardware
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import backends, implementations
from opmark.plugin.registry import operator as find_operator
from opmark.runner.guests.placement import why_missing
from opmark.schema import Entry
from opmark.schema.case import MODEL_PREFIX

_RUNS_FILES = {".pt": "torch", ".ts": "torch", ".pt2": "torch", ".onnx": "onnx", ".mlir": "mhlo"}
"""Frameworks by the ending of a file with a model."""
_DOWNLOADS = (".tar", ".gz", ".tgz", ".zip", ".part", ".crdownload")
_AS_ENGINES = {"mhlo": "jax"}
"""Frameworks whose models another one runs: XLA compiles MLIR, through jaxlib."""


class ResolvedTask(Struct, frozen=True):
    """What is measured for one task."""

    name: str
    workload: TaskFile
    operator: str
    params: tuple[dict[str, Any], ...]
    """Parameters for each batch size of the workload, in its order."""
    framework: str
    """opmark's name of the framework that the task says; empty where it says none."""
    precision: str
    dataset: str | None
    """ByteMLPerf's name of the data set; None where it has none."""
    own_file: str = ""
    """The file of the user's that holds the model; empty for a model of opmark's zoo."""
    notes: tuple[str, ...] = ()

    def entries(self) -> list[Entry]:
        return [
            Entry(self.operator, params, source=self.source(size))
            for size, params in zip(self.workload.sizes, self.params, strict=True)
        ]

    def source(self, size: int) -> str:
        """Return what the case of a batch size names as its source."""
        return f"{self.name}#{size}"


class TaskFolders(NamedTuple):
    """Where a user's own files are."""

    workloads: Path | None = None
    model_zoo: Path | None = None


def read_workload(task: str, folders: TaskFolders) -> tuple[TaskFile, list[str]]:
    """Return the workload of a task: the user's own file, or ByteMLPerf's as the table has it."""
    path = files.file_of(folders.workloads, task, files.WORKLOAD)
    if path is None:
        try:
            return tasks.usual_workload(tasks.take_apart(task)), []
        except UnknownName:
            own = nearest(task, files.names_in(folders.workloads))
            if own is None:
                raise
            raise UnknownName("task", task, (), tasks.LISTING, own) from None
    return files.read_task_file(read_plain(path).data, str(path))


def resolve_task(
    name: str, workload: TaskFile, folders: TaskFolders, *, weights: str = "", size: str = ""
) -> ResolvedTask:
    """Return what a workload measures. `weights` is a checkpoint for the zoo's model; `size` replaces the full one."""
    file = files.file_of(folders.model_zoo, workload.model, files.MODEL)
    model, notes = files.read_model_file(file) if file else (None, [])
    if model and file:
        own = _find_own_model(model, file)
        if own is not None:
            return _resolve_file(name, workload, model, own, str(file), notes)
    parts = tasks.take_apart(workload.model)
    if model is None:
        model = tasks.usual_model(parts)
    elif model.model_path:
        notes.append(
            f"model_path `{model.model_path}` does not exist: `{tasks.zoo_operator(parts)}` of opmark's zoo runs, "
            "which has the same architecture and random weights"
        )
    if model.is_quantized:
        raise UserError(
            f"{file}: is_quantized: the zoo has no quantized weights of {workload.model}",
            "give the quantized model itself: model_path has to exist",
        )
    precision = _precision(workload.model, model.model_precision, parts.precision, notes)
    dtype = tasks.element_type(precision, workload.model)
    framework = _framework(workload.model, model.framework, parts.framework, notes)
    sizes, note = tasks.fit_zoo_sizes(parts, model.shapes)
    notes += [note] if note else []
    known = tasks.MODELS.get(parts.model)
    if known and known.note and known.note not in notes:
        notes.append(known.note)
    operator = find_operator(tasks.zoo_operator(parts) + ("-mhlo" if framework == "mhlo" else ""))
    preset = dict(operator.presets["small" if size == "small" else "typical"])
    params = {**preset, **({} if size == "small" else sizes), "dtype": dtype}
    if weights:
        params["weights"] = weights
    _note_large_batches(workload, model, notes)
    dataset = model.dataset_name
    return ResolvedTask(
        name, workload, operator.name, tuple({**params, "batch": batch} for batch in workload.sizes), framework,
        precision, dataset, notes=tuple(notes),
    )  # fmt: skip


def _find_own_model(model: ModelFile, file: Path) -> Path | None:
    """Return the file of a model that the user has; a vendor's ONNX file only where the model itself is missing."""
    for written in (model.model_path, model.onnx_model_path):
        if written and (path := files.find_model(written, file)):
            return path
    return None


def _resolve_file(
    name: str, workload: TaskFile, model: ModelFile, path: Path, where: str, notes: Sequence[str]
) -> ResolvedTask:
    """Return what a workload over a model in a file of the user's measures."""
    if path.suffix in _DOWNLOADS:
        raise UserError(f"{where}: model_path `{path}` is an archive, or a download that has not ended",
                        "unpack it, and let model_path name the model inside")  # fmt: skip
    saved = path.is_dir() and any((path / one).exists() for one in ("saved_model.pb", "saved_model.pbtxt"))
    if saved or model.model_format == "saved_model":
        raise UserError(
            f"{where}: model_path `{path}`: opmark runs no SavedModel of TensorFlow",
            "`python -m tf2onnx.convert --saved-model DIR --output FILE.onnx` makes an ONNX file of it; without the "
            "file, the zoo's model of the same name runs in TensorFlow",
        )
    framework = _RUNS_FILES.get(path.suffix, "torch")
    given = list(notes)
    precision = _precision(workload.model, model.model_precision, _precision_in(workload.model), given)
    dtype = tasks.PRECISIONS.get(precision.lower(), "float32")
    common: dict[str, Any] = {"dtype": dtype}
    if files.is_scaled_as_batch(model):
        inputs = {"inputs": files.describe_inputs(model, where)} if model.input_shape else {}
        params = [{**common, **inputs, "batch": batch} for batch in workload.sizes]
    else:
        given.append("input_shape: a first axis that is not 1 is multiplied by the batch size, as in ByteMLPerf; the "
                     "samples of such a batch are checked together")  # fmt: skip
        params = [
            {**common, "batch": 1, "inputs": files.describe_inputs(model, where, batch)} for batch in workload.sizes
        ]
    _note_large_batches(workload, model, given)
    dataset = model.dataset_name
    return ResolvedTask(
        name, workload, f"{MODEL_PREFIX}{path}", tuple(params), framework, precision, dataset, str(path), tuple(given)
    )


def _precision_in(task: str) -> str:
    last = task.lower().rpartition("-")[2]
    return last if last in tasks.PRECISIONS else "fp32"


def _precision(task: str, stated: str | None, named: str, notes: list[str]) -> str:
    """Return the precision to compute in. A file says in which precision its weights are, the name of the task in
    which it is to be computed."""
    if stated and stated.lower() != named:
        notes.append(f"{task}: model_precision {stated} is that of the weights; computed in {named}, as the task says")
    return named


def _framework(task: str, stated: str | None, named: str, notes: list[str]) -> str:
    """Return the framework of a model: that of its file, or that in the name of the task."""
    found = tasks.FRAMEWORKS.get((stated or "").lower(), named)
    if stated and stated.lower() not in tasks.FRAMEWORKS:
        notes.append(f"{task}: framework `{stated}` is not known here; it is taken as {named or 'torch'}")
    elif named and found != named:
        notes.append(f"{task}: the model-zoo file says {stated}, the name {named}; the file decides")
    if "ixrt" in task.lower().split("-"):
        notes.append(
            f"{task}: IXRT is the engine of Iluvatar's chips; the backend of --hardware_type runs in its place"
        )
    return found


def _note_large_batches(workload: TaskFile, model: ModelFile, notes: list[str]) -> None:
    most = model.max_batch_size
    large = [size for size in workload.sizes if most and size > most]
    if large:
        notes.append(f"batch sizes {', '.join(map(str, large))} are above max_batch_size {most} of the model-zoo file; "
                     "they are measured all the same, as in ByteMLPerf")  # fmt: skip


class BackendChoice(NamedTuple):
    backend: str
    ran: str
    """The framework that runs."""
    note: str = ""
    """Why that is not the framework that the task says."""


def choose_backend(hardware: str, task: ResolvedTask) -> BackendChoice:
    """Return the backend for ByteMLPerf's name of the hardware, or for the name of a backend. Only the framework may
    be another than the task says, never the hardware."""
    asked = task.framework or "torch"
    named = hardware.lower().partition("/")[0].partition("@")[0]
    if named in backends():
        info = find_backend(hardware.lower() if hardware.lower() in backends() else hardware)
        return BackendChoice(
            info.name, info.framework, _difference(asked, info.framework, "the hardware type names it")
        )
    if hardware.upper() not in HARDWARE:
        raise UnknownName(
            "hardware type", hardware, [*HARDWARE, *backends()], "opmark general-perf --show_hardware_list"
        )
    found = find_hardware(hardware)
    engine = _AS_ENGINES.get(asked, asked)
    operator = find_operator(task.operator)
    reasons: list[str] = []
    for framework in dict.fromkeys((engine, "torch", "onnx")):
        if framework not in found.backends:
            if framework == engine:
                reasons.append(f"{found.name} has no backend for models of {engine}")
            continue
        info = find_backend(found.backends[framework])
        missing = why_missing(info)
        if missing is None and implementations(operator, info):
            ran = asked if framework == engine else framework
            return BackendChoice(info.name, ran, _difference(asked, ran, "; ".join(reasons)))
        reasons.append(missing or f"`{operator.name}` has no implementation for {framework}")
    if not found.backends:
        found.backend(asked)  # raises: which chip and package it needs
    first = found.backends.get(engine) or next(iter(found.backends.values()))
    return BackendChoice(first, engine)


def _difference(asked: str, ran: str, why: str) -> str:
    if asked == ran:
        return ""
    asked = tasks.FRAMEWORK_NAMES.get(asked, asked)
    return f"Framework: {asked} asked for, {ran} ran: {why}"


def override(workload: TaskFile, **changes: Any) -> TaskFile:
    """Return the workload with the values that the command line gives."""
    given = {name: value for name, value in changes.items() if value is not None}
    return replace(workload, **given)
