"""ByteMLPerf's two files as they are: a workload (how to test) and a model of its zoo (what to test).

Fields that decide nothing here are read and say so; a field of the wrong type is refused with its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import fields

from opmark.catalogue.workload_file import read_plain
from opmark.errors import InvalidFile, UserError, nearest
from opmark.schema.codec import convert

Count = Annotated[int, Meta(ge=1)]


class TaskFile(Struct, frozen=True, kw_only=True):
    """A workload file. The defaults are the values that nearly all of ByteMLPerf's files have."""

    model: str
    test_perf: bool = True
    test_accuracy: bool = True
    test_numeric: bool = True
    clients: Count = 3
    iterations: Count = 100
    """Requests of each client."""
    batch_sizes: tuple[Count, ...] | Count = (1,)
    data_percent: Annotated[float, Meta(gt=0, le=100)] = 100.0
    compile_only: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        sizes = (self.batch_sizes,) if isinstance(self.batch_sizes, int) else self.batch_sizes
        return tuple(dict.fromkeys(sizes))


class ModelFile(Struct, frozen=True):
    """A model-zoo file."""

    model: str
    model_path: str | None = None
    framework: str | None = None
    framework_version: str | float | None = None
    model_format: str | None = None
    model_precision: str | None = None
    inputs: str | list[str] | None = None
    outputs: str | list[str] | None = None
    input_shape: dict[str, list[int]] | None = None
    """Shapes for one sample."""
    input_type: str | list[str] | None = None
    dataset_name: str | None = None
    max_batch_size: int | None = None
    is_quantized: bool | None = None
    layout: str | None = None
    onnx_model_path: str | None = None
    engine_path: str | None = None
    best_batch: int | list[int] | None = None

    @property
    def input_names(self) -> list[str]:
        return _words(self.inputs) or list(self.input_shape or ())

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the inputs in the order of `inputs`."""
        known = self.input_shape or {}
        return tuple(tuple(known[name]) for name in self.input_names if name in known)


_MODEL_NOTES = {
    "engine_path": "a vendor's engine is not read; a backend compiles the model itself",
    "best_batch": "every batch size of the workload is measured",
    "layout": "the model's own inputs decide; nothing is transposed",
}
"""Fields of a model-zoo file that decide nothing, and why."""

_TASK_NOTES = {
    "multi_cores": "all cores are used; `--threads` sets their number",
    "fake_data": "performance is measured with drawn inputs, accuracy with data of --data",
}
"""Fields of vendors' workloads that decide nothing, and why."""

_VENDOR = ("framework_iluvatar", "framework_iluvatar_version")


def _words(value: str | list[str] | None) -> list[str]:
    if isinstance(value, str):
        value = value.split(",")
    return [word.strip() for word in value or () if word.strip()]


def is_workload(data: Any) -> bool:
    """Return whether data is a workload of general_perf: it names a model, and what to test of it."""
    return isinstance(data, dict) and isinstance(data.get("model"), str) and bool(data.keys() & _TEST_KEYS)


_TEST_KEYS = {"test_perf", "test_accuracy", "test_numeric", "data_percent"}


def read_task_file(data: Any, where: str) -> tuple[TaskFile, list[str]]:
    """Return the workload in the content of a file, and notes on fields that decide nothing."""
    if not isinstance(data, dict) or "model" not in data:
        raise InvalidFile(
            f"{where}: expected a workload of general_perf, which has `model` and `test_perf`",
            "docs/general-perf.md shows one",
        )
    found = convert(data, TaskFile, where)
    if not found.sizes:
        raise InvalidFile(f"{where}: expected batch sizes, got an empty list, at `$.batch_sizes`", "as in [1, 4, 8]")
    missing = [one.name for one in fields(TaskFile) if one.name not in data]
    notes = [f"{where}: no `{name}`; it is taken as {_shown(getattr(found, name))}" for name in missing]
    return found, [*_unknown_keys(data, TaskFile, _TASK_NOTES, where), *notes]


def read_model_file(path: Path) -> tuple[ModelFile, list[str]]:
    """Return a model-zoo file, and notes on fields that decide nothing."""
    data = read_plain(path).data
    if not isinstance(data, dict) or not isinstance(data.get("model"), str):
        raise InvalidFile(f"{path}: expected a model of general_perf's zoo, which has `model` and `model_path`",
                          "docs/general-perf.md shows one")  # fmt: skip
    found = convert(data, ModelFile, str(path))
    return found, list(_unknown_keys(data, ModelFile, _MODEL_NOTES, str(path)))


def _unknown_keys(data: Mapping[str, Any], noun: type[Struct], remarks: Mapping[str, str], where: str) -> Iterator[str]:
    known = [one.name for one in fields(noun)]
    for key, value in data.items():
        if key in remarks and value is not None:
            yield f"{where}: `{key}`: {remarks[key]}"
        elif key in _VENDOR:
            yield f"{where}: `{key}`: {value} is not used; the backend of --hardware_type computes"
        elif key not in known and (near := nearest(key, [name for name in known if name not in data])):
            raise InvalidFile(f"{where}: unknown key `{key}`", f"did you mean `{near}`?")
        elif key not in known and key not in remarks:
            yield f"{where}: `{key}` is no field of general_perf; it is ignored"


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# Folders in ByteMLPerf's layout: general_perf/workloads/TASK.json and general_perf/model_zoo/MODEL.json.

_ROOTS = ("", "general_perf", "byte_infer_perf/general_perf", "byte_mlperf", "inference/general_perf",
          "byte_mlperf_inference/general_perf", "projects/infer_perf/general_perf")  # fmt: skip
"""Where the folders are below the one that a user works in, over ByteMLPerf's history."""


_FILE_NAME = re.compile(r"[\w&.+-]{1,100}")


MODEL, WORKLOAD = "model_", "workload_"
"""How names of files may begin, where models and workloads lie in one folder."""


def find_folder(given: Path | None, name: str, option: str) -> Path | None:
    """Return the folder that the user names, or the one of this name that lies where ByteMLPerf has it."""
    if given is None:
        return next((folder for root in _ROOTS if (folder := Path(root) / name).is_dir()), None)
    if not given.is_dir():
        raise UserError(f"{option} {given}: there is no such folder", f"it has files as {name}/bert-torch-fp32.json")
    return given


def file_of(folder: Path | None, name: str, prefix: str) -> Path | None:
    """Return the file of a task or a model in a folder; None where there is none, or the name is no name of a file. A
    workload has the name of its model, and is not taken for it where both may lie in one folder."""
    if folder is None or not _FILE_NAME.fullmatch(name):
        return None
    found = (path for stem in (name, f"{prefix}{name}") if (path := folder / f"{stem}.json").is_file())
    return next((path for path in found if prefix != MODEL or not is_workload(_content(path))), None)


def names_in(folder: Path | None) -> list[str]:
    """Return the names of the workloads in a folder."""
    found = sorted(folder.glob("*.json")) if folder else []
    return [path.stem for path in found if is_workload(_content(path))]


def _content(path: Path) -> Any:
    try:
        return read_plain(path).data
    except UserError:
        return None


def find_model(written: str, file: Path) -> Path | None:
    """Return the model that a path in a model-zoo file means, looked for from the file's folder upwards and from here;
    None where there is none."""
    beside = [parent / written for parent in file.absolute().parents]
    return next((path for path in (*beside, Path(written)) if path.exists()), None)


# Inputs of a model in a file of the user's.

_TYPES = {
    "FLOAT32": "float32", "FLOAT": "float32", "FP32": "float32", "FLOAT16": "float16", "FP16": "float16",
    "HALF": "float16", "BFLOAT16": "bfloat16", "BF16": "bfloat16", "FLOAT64": "float64", "DOUBLE": "float64",
    "LONG": "int64", "INT64": "int64", "INT": "int32", "INT32": "int32", "INT8": "int8", "UINT8": "uint8",
    "BOOL": "bool",
}  # fmt: skip
_UNSCALED = ("text",)
"""Inputs whose first axis is not the batch."""
_IDS = 1000
"""Whole numbers are drawn below this, as in ByteMLPerf: the vocabulary of a model in a file is not known."""


def describe_inputs(model: ModelFile, where: str, batch: int | None = None) -> dict[str, str]:
    """Return the inputs of a model in the words of the parameter `inputs`. With `batch`, the first axis is multiplied
    by it, as ByteMLPerf does; without, an axis of 1 is left to be the batch."""
    types = _words(model.input_type)
    if len(types) == 1:
        types *= len(model.input_names)
    if not model.input_shape or len(types) != len(model.input_names):
        raise InvalidFile(
            f"{where}: {len(model.input_names)} inputs, {len(types)} types in `input_type`, "
            f"{len(model.input_shape or ())} shapes in `input_shape`",
            "a model in a file needs a shape and a type for each of its inputs",
        )
    found = {}
    for name, written in zip(model.input_names, types, strict=True):
        if name not in model.input_shape or written.upper() not in _TYPES:
            what = f"type {written}" if name in model.input_shape else f"no shape for `{name}`"
            raise InvalidFile(f"{where}: input `{name}`: {what}", f"types are {', '.join(_TYPES)}")
        first, *rest = model.input_shape[name] or [1]
        scaled = first * batch if batch and name not in _UNSCALED else first
        dtype = _TYPES[written.upper()]
        shape = "x".join(map(str, (scaled, *rest)))
        found[name] = f"{shape} {dtype}{_range(name, dtype)}"
    return found


def _range(name: str, dtype: str) -> str:
    """Return the values to draw: whole numbers are token ids, or 0 and 1 where the name says mask or segment."""
    if "int" not in dtype:
        return ""
    flags = any(word in name.lower() for word in ("mask", "segment", "token_type"))
    return f" 0..{2 if flags else min(_IDS, 100)}" if dtype in ("int8", "uint8") else f" 0..{2 if flags else _IDS}"


def is_scaled_as_batch(model: ModelFile) -> bool:
    """Return whether the first axis of every input is 1 for one sample, so that it is the batch."""
    return all(shape[:1] == (1,) for shape in model.shapes)
