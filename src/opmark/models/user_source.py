"""Models that users bring: a function of a Python file, an ONNX file, a configuration or checkpoint of transformers, a
TorchScript file, a torch.export file, a module of StableHLO, an executable of XLA.

Nothing of them is loaded here. A child process describes a model once, and again when a file has changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opmark.errors import InvalidParameter, UserError
from opmark.models.datasets.packages import package_file
from opmark.models.facts import ModelDescription, ModelFacts, description
from opmark.models.source import ModelSource
from opmark.models.zoo.entry import ZooModel
from opmark.models.zoo_source import digest_sources, package_version, stamp_file, stamp_weights
from opmark.plugin import Param, Params
from opmark.plugin.param import size
from opmark.schema import TensorSpec
from opmark.schema.tensor import is_float

_KINDS = (
    "FILE.py:FUNCTION, an .onnx or .mlir file, a config.json or a folder with one, a TorchScript file (.pt, .ts), a "
    ".pt2, or an executable of XLA (.xla)"
)
_CONFIG = "config.json"
_DESCRIBED_BY = ("seq", "image", "inputs")
"""Parameters that the shapes of inputs depend on, besides the batch."""
_PARAMS = {
    "seq": Param("seq", "count", "number of tokens; 0: as the model says", 0, later=True),
    "image": Param("image", "count", "height and width of the picture; 0: as the model says", 0, later=True),
    "inputs": Param(
        "inputs", "arguments", "inputs, as in [1x3x32x32 float32] or {ids: 1x128 int64 0..1000}; a first axis of 1 is "
        "the batch", None, later=True,
    ),
}  # fmt: skip


def source_of_file(name: str) -> ModelSource | None:
    """Return the source of a model in a file or folder; None where the name does not look like one."""
    place, _, function = name.rpartition(":")
    if place.endswith(".py"):
        return PythonSource(name, _existing(place), function)
    if not name:
        return None
    path = Path(name)
    kind = _BY_SUFFIX.get(path.suffix)
    if kind is None and path.suffix not in (".py", ".json") and "/" not in name and not path.exists():
        return None
    _existing(name)
    if path.suffix == ".py":
        raise UserError(f"`{name}` names a file, expected a function of it too", f"as in model:{name}:build")
    if path.is_dir() or path.suffix == ".json":
        return TransformersSource(name, _config_of(path))
    if kind is None:
        raise UserError(
            f"`{name}` is no model: expected {_KINDS}", "weights alone are given to a model as -p weights=FILE"
        )
    return kind(name, path)


def _existing(name: str) -> Path:
    path = Path(name)
    if not path.exists():
        raise UserError(f"there is no file `{name}`", "a path is taken from the folder that opmark runs in")
    return path


def _config_of(path: Path) -> Path:
    """Return the configuration file; UserError where there is none, or where it is something else."""
    file = path / _CONFIG if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"`{path}` is no checkpoint of transformers: it has no {_CONFIG}", f"a model is {_KINDS}")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"`{file}` is no JSON: {error}", "model.save_pretrained(FOLDER) writes a config.json") from None
    if not isinstance(content, dict) or not content.keys() & {"model_type", "architectures"}:
        raise UserError(
            f"`{file}` is no configuration of transformers: it has neither `model_type` nor `architectures`",
            "model.save_pretrained(FOLDER) writes one",
        )
    return file


class FileSource(ModelSource):
    """A model in a file of the user's."""

    domain = "user"
    takes: tuple[str, ...] = ()
    """Parameters besides `batch`."""
    converts: Mapping[str, tuple[str, ...]] = {}
    """Element types that a graph of a single type can be converted to, by its own type."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path

    def params(self) -> tuple[Param, ...]:
        return (size("batch", "number of samples in a call", 1), *(_PARAMS[name] for name in self.takes))

    def presets(self) -> Mapping[str, Mapping[str, Any]]:
        return {"small": {"batch": 1}, "typical": {"batch": 1}, "large": {"batch": 8}}

    def description(self, params: Params) -> ModelDescription:
        return description(self, {name: params[name] for name in _DESCRIBED_BY if params.get(name)})

    def inputs(self, params: Params) -> dict[str, TensorSpec]:
        known, batch, dtype = self.description(params), params["batch"], str(params["dtype"])
        if known.dtype and dtype not in (known.dtype, *self.converts.get(known.dtype, ())):
            raise InvalidParameter(
                f"`{self.name}` computes in {known.dtype}, and the case says {dtype}", f"give -p dtype={known.dtype}"
            )
        if batch > 1 and not any(one.batched for one in known.inputs.values()):
            raise InvalidParameter(f"parameter `batch`: `{self.name}` has no axis for it", self.why_no_batch)
        return {
            name: TensorSpec(
                (batch, *one.shape[1:]) if one.batched else one.shape,
                dtype if is_float(one.dtype) else one.dtype,
                one.low,
                one.high,
            )
            for name, one in known.inputs.items()
        }

    why_no_batch = "leave it out"

    def batched(self, params: Params) -> bool:
        return self.description(params).rows

    def unbatched(self, params: Params) -> frozenset[str]:
        return frozenset(name for name, one in self.description(params).inputs.items() if not one.batched)

    def batch_axes(self, params: Params) -> Mapping[int, int]:
        return self.description(params).axes

    def stamp(self, params: Params) -> str:
        return f"{digest_sources()} {stamp_file(self.path, f'model `{self.name}`')} {stamp_weights(params)}"

    def construct(self, params: Params) -> Any:
        return self.module(params)

    def count(self, params: Params) -> ModelFacts:
        from opmark.models.user_modules import count_user_model

        return count_user_model(self, params)


class PythonSource(FileSource):
    """A function of a Python file, which returns a module and its inputs."""

    takes = ("seq", "image")
    why_no_batch = "let the function take `batch`, and make its inputs with that many rows"

    def __init__(self, name: str, path: Path, function: str) -> None:
        super().__init__(name, path)
        self.function = function
        self.program = str(path)
        self.summary = f"the module that {function} of {path.name} returns"

    def stamp(self, params: Params) -> str:
        """Return the state of all Python files beside it too, because it may import them."""
        beside = (stamp_file(file, self.name) for file in sorted(self.path.absolute().parent.glob("*.py")))
        return " ".join([super().stamp(params), *beside])

    def describe(self, params: Params) -> ModelDescription:
        from opmark.models.user_modules import describe_python

        return describe_python(self, params)

    def module(self, params: Params) -> Any:
        from opmark.models.user_modules import load_python

        return load_python(self, params)


class ScriptSource(FileSource):
    """A TorchScript file. It does not say what its inputs are."""

    takes = ("inputs",)
    options = ()
    implemented = ("torch", "onnx")
    fixed_types = True
    why_no_batch = "write the first axis of every input as 1, as in -p inputs='[1x3x32x32 float32]'"

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name, path)
        self.program = str(path)
        self.summary = f"the TorchScript module in {path.name}"

    def describe(self, params: Params) -> ModelDescription:
        from opmark.models.user_modules import describe_script

        return describe_script(self, params)

    def module(self, params: Params) -> Any:
        from opmark.models.user_modules import load_script

        return load_script(self, params)


class ProgramSource(FileSource):
    """A file of torch.export, which has examples of its inputs."""

    options = ()
    fixed_types = True
    why_no_batch = "export it with a dynamic first axis: dynamic_shapes=({0: torch.export.Dim('batch')},)"

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name, path)
        self.program = str(path)
        self.summary = f"the program of torch.export in {path.name}"

    def describe(self, params: Params) -> ModelDescription:
        from opmark.models.user_modules import describe_program

        return describe_program(self)

    def module(self, params: Params) -> Any:
        from opmark.models.user_modules import load_program

        return load_program(self)


class TransformersSource(FileSource):
    """A configuration of transformers, with the weights beside it where there are any."""

    takes = ("seq", "image")

    def __init__(self, name: str, config: Path) -> None:
        super().__init__(name, config)
        self.config = config
        self.summary = f"the model of transformers that {config} configures"

    def checkpoint(self) -> Path | None:
        """Return the folder with the weights; None where there is only a configuration."""
        folder = self.config.parent
        return folder if Path(self.name).is_dir() and any(folder.glob("*.safetensors")) else None

    def stamp(self, params: Params) -> str:
        weights = stamp_file(self.config.parent, self.name) if self.checkpoint() else ""
        return f"{super().stamp(params)} {weights} {package_version('transformers')}"

    def describe(self, params: Params) -> ModelDescription:
        from opmark.models.user_modules import describe_transformers

        return describe_transformers(self, params)

    def module(self, params: Params) -> Any:
        from opmark.models.user_modules import load_transformers

        return load_transformers(self, params)


class OnnxSource(FileSource):
    """An ONNX file. Engines run its own graph."""

    takes: tuple[str, ...] = ("seq", "image", "inputs")
    options = ()
    framework = "onnx"
    execution = "opmark.models.onnx_file"
    implemented = ("onnx",)
    converts: Mapping[str, tuple[str, ...]] = {"float32": ("float16",)}
    why_no_batch = "the first axis of its inputs has a fixed size in the file; export it with a dynamic one"
    reference_by = "ONNX Runtime without graph optimisations, in the file's own types"

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name, path)
        self.summary = f"the graph in {path.name}"

    def stamp(self, params: Params) -> str:
        """Return the state of files beside it that may hold its weights too."""
        beside = sorted(self.path.absolute().parent.glob(f"{self.path.stem}*"))
        return " ".join([super().stamp(params), *(stamp_file(file, self.name) for file in beside if file.is_file())])

    def describe(self, params: Params) -> ModelDescription:
        from opmark.models.onnx_file import describe_onnx

        return describe_onnx(self, params)

    def count(self, params: Params) -> ModelFacts:
        from opmark.models.onnx_file import count_onnx

        return count_onnx(self, params)

    def module(self, params: Params) -> Any:
        raise AssertionError("an ONNX graph is no torch module")


class PackagedGraph(OnnxSource):
    """An ONNX file of an installed package, which the zoo knows by name."""

    takes = ()

    def __init__(self, model: ZooModel) -> None:
        self.name, self.model, self.summary, self.domain = model.name, model, model.summary, model.domain

    @property
    def path(self) -> Path:  # type: ignore[override]
        return package_file(self.model.file, f"`model:{self.name}`")

    def describe(self, params: Params) -> ModelDescription:
        from opmark.models.onnx_file import describe_onnx

        inputs = self.model.inputs({"batch": 1, "dtype": "float32"}, self.model.full)
        written = {
            name: f"{'x'.join(map(str, one.shape))} {one.dtype} {one.low:g}..{one.high:g}"
            for name, one in inputs.items()
        }
        return describe_onnx(self, {**params, "inputs": written})

    def output_names(self) -> tuple[str, ...]:
        return self.model.outputs


class ModuleSource(FileSource):
    """A module of StableHLO, which XLA compiles and runs."""

    takes = ("inputs",)
    options = ()
    framework = "jax"
    execution = "opmark.models.mlir_execution"
    implemented = ("jax",)
    why_no_batch = (
        "every size is fixed in the file; export it with that batch, or with an open first axis (tensor<?x...>)"
    )
    reference_by = "torch in float64, where opmark exported the module from a model of the zoo; else XLA in float64"

    def read_module(self) -> bytes:
        """Return the module as text or bytecode."""
        return self.path.read_bytes()

    @property
    def weights_path(self) -> Path:
        """The file with the weights of a module that takes them as arguments."""
        return self.path.with_suffix(".safetensors")

    def stamp(self, params: Params) -> str:
        beside = stamp_file(self.weights_path, self.name) if self.weights_path.exists() else ""
        return f"{super().stamp(params)} {beside} {package_version('jaxlib')}"

    def describe(self, params: Params) -> ModelDescription:
        from opmark.models.mlir_file import describe_module

        return describe_module(self, params)

    def count(self, params: Params) -> ModelFacts:
        from opmark.models.mlir_file import count_module

        return count_module(self, params)

    def module(self, params: Params) -> Any:
        raise AssertionError("a module of StableHLO is no torch module")


class MlirSource(ModuleSource):
    """An MLIR file: StableHLO, or MHLO, which is converted."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name, path)
        self.summary = f"the module in {path.name}"


class XlaSource(ModuleSource):
    """An executable that `--artifact` has written, with the module that it was compiled from."""

    execution = "opmark.models.xla_artifact"

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name, path)
        self.program = str(path)
        self.summary = f"the executable of XLA in {path.name}"

    def read_module(self) -> bytes:
        from opmark.models.xla_artifact import read_member

        return read_member(self.path, "module.mlirbc")


_BY_SUFFIX: Mapping[str, type[OnnxSource | ScriptSource | ProgramSource | MlirSource | XlaSource]] = {
    ".onnx": OnnxSource,
    ".pt": ScriptSource,
    ".ts": ScriptSource,
    ".pt2": ProgramSource,
    ".mlir": MlirSource,
    ".mlirbc": MlirSource,
    ".xla": XlaSource,
}
