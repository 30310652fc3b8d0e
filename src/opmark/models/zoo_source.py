"""A model of the zoo as a source of operators."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from opmark.errors import Unsupported, UserError
from opmark.models.datasets.packages import package_file
from opmark.models.facts import ModelFacts, kept_file
from opmark.models.host import asks_host
from opmark.models.source import ModelSource
from opmark.models.zoo.entry import ZooModel
from opmark.plugin import Param, ParamRule, Params
from opmark.plugin.param import choice, size
from opmark.schema import TensorSpec

_DOCS = {
    "seq": "number of tokens",
    "image": "height and width of the picture, in pixels",
    "rows": "rows of each matrix",
}
MLIR_SUFFIX = "-mhlo"
"""End of the name of a model of the zoo that is to run as a module of StableHLO, as ByteMLPerf names it."""
_CALIBRATION_BATCH = 2
"""Statistics of batch normalisation need more than one value per channel."""


class ZooSource(ModelSource):
    def __init__(self, model: ZooModel) -> None:
        self.model = model
        self.name = model.name
        self.summary = model.summary
        self.domain = model.domain
        if model.keras:
            self.implemented = (*self.implemented, "tensorflow")
        if asks_host():
            self.execution = "opmark.models.guest_execution"

    def params(self) -> tuple[Param, ...]:
        # The sizes of a model with trained weights are those that it was trained for.
        given = self.model.sizes["full"].items()
        own = [size(name, _DOCS.get(name, name), *([value] if self.model.file else [])) for name, value in given]
        stages = self.model.stages
        return (
            *([choice("size", "the whole model, or a small one of the same structure", ("full", "small"), "full")]
              if self.model.small is not None else ()),
            size("batch", "number of samples in a call", 1),
            *([choice("stage", "prefill: all tokens of a prompt; decode: one more token after a cache of `seq`", stages,
                      stages[0])] if stages else ()),
            *own,
        )  # fmt: skip

    def presets(self) -> Mapping[str, Mapping[str, Any]]:
        if self.model.small is None:
            only = {"batch": 1, **self.model.sizes["full"]}
            return {"small": only, "typical": only, "large": {**only, "batch": 8}}
        typical = {"size": "full", "batch": 1, **self.model.sizes["full"]}
        small = {"size": "small", "batch": 1, **self.model.sizes["small"]}
        return {"small": small, "typical": typical, "large": {**typical, "batch": 8}}

    def inputs(self, params: Params) -> dict[str, TensorSpec]:
        return self.model.inputs(params, self.model.config(params))

    def rules(self) -> tuple[ParamRule, ...]:
        if "seq" not in self.model.sizes.get("small", ()):
            return ()
        most = self.model.sizes["small"]["seq"]
        says = f"be at most {most} where size is small (`--size small` sets both)"
        return (ParamRule("seq", says, lambda p: p["size"] != "small" or p["seq"] <= most),)

    def output_names(self) -> tuple[str, ...]:
        return self.model.outputs

    def unbatched(self, params: Params) -> frozenset[str]:
        return self.model.unbatched

    def batch_axes(self, params: Params) -> Mapping[int, int]:
        return {
            i: self.model.batch_axes[name] for i, name in enumerate(self.model.outputs) if name in self.model.batch_axes
        }

    def token_cache(self, params: Params) -> int:
        if params.get("stage") != "decode" or self.model.cache_bytes is None:
            return 0
        return self.model.cache_bytes(self.model.config(params), params)

    def module(self, params: Params) -> Any:
        import torch

        from opmark.models.checkpoint import load_weights
        from opmark.models.weights import calibrate, initialise, no_initialisation

        with no_initialisation():
            module = self.construct(params)
        if params.get("weights"):
            load_weights(module, params["weights"], self.name)
            return module.eval()
        if self.model.weights:
            kept = self.trained()
            try:
                load_weights(module, str(kept), self.name)
            except UserError as error:
                raise UserError(error.message, f"remove `{kept}`: it is made again") from None
            return module.eval()
        initialise(module)
        with torch.no_grad():
            given = self.inputs({**params, "batch": _CALIBRATION_BATCH, "dtype": "float32"})
            generator = torch.Generator().manual_seed(0)
            calibrate(module, {name: _draw(spec, generator) for name, spec in given.items()})
        return module

    def count(self, params: Params) -> ModelFacts:
        """Count, and train first: a worker's time is limited, and the child process that counts has minutes."""
        if self.model.weights and not params.get("weights"):
            self.trained()
        return super().count(params)

    def trained(self) -> Path:
        """Return the file with the weights of a model that has real ones; it is made once. Only a worker or a child
        process calls it."""
        kept: Path = kept_file(self, {}, "safetensors")
        if not kept.exists():
            from opmark.models.trained import write_weights

            write_weights(self, kept)
        return kept

    def construct(self, params: Params) -> Any:
        if self.model.needs and find_spec(self.model.needs) is None:
            raise Unsupported(
                f"`{self.name}` comes from {self.model.needs}, which is not installed (pip install 'opmark[models]')"
            )
        module, _, function = self.model.build.partition(":")
        return getattr(import_module(f"opmark.models.networks.{module}"), function)(**self.model.config(params))

    def stamp(self, params: Params) -> str:
        file = stamp_file(self.file(), self.name) if self.model.file else ""
        return f"{digest_sources()} {package_version(self.model.needs)} {file} {stamp_weights(params)}"

    def file(self) -> Path:
        return package_file(self.model.file, f"`model:{self.name}`")


class MlirZooSource(ZooSource):
    """A model of the zoo as a module of StableHLO: torchax is the front end, XLA compiles the module and runs it."""

    execution = "opmark.models.mlir_export"
    options = ("weights",)

    def __init__(self, model: ZooModel) -> None:
        super().__init__(model)
        self.implemented = ("jax",)
        self.name = f"{model.name}{MLIR_SUFFIX}"
        self.summary = f"{model.summary}, as a module of StableHLO"

    def stamp(self, params: Params) -> str:
        return f"{super().stamp(params)} {package_version('torchax')}"


def stamp_weights(params: Params) -> str:
    """Return a text that changes with the file of weights that a case names; UserError where there is none."""
    return stamp_file(Path(params["weights"]), "parameter `weights`") if params.get("weights") else ""


def stamp_file(path: Path, what: str) -> str:
    """Return place, time and size of a file, or of the files in a folder."""
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        states = [(file.name, file.stat()) for file in files]
    except OSError as error:
        raise UserError(
            f"{what}: `{path}` cannot be read: {error.strerror}", "a path is taken from the folder that opmark runs in"
        ) from None
    return " ".join([str(path.absolute()), *(f"{name} {state.st_mtime_ns} {state.st_size}" for name, state in states)])


def _draw(spec: TensorSpec, generator: Any) -> Any:
    """Return a tensor with values of the spec, for a pass that only collects statistics."""
    import torch

    dtype = getattr(torch, spec.dtype)
    if dtype.is_floating_point:
        return torch.empty(spec.shape, dtype=dtype).uniform_(spec.low, spec.high, generator=generator)
    return torch.randint(int(spec.low), int(spec.high), spec.shape, dtype=dtype, generator=generator)


@cache
def digest_sources() -> str:
    """Return a digest of the sources of the zoo: what was found out about a model holds until they change."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


@cache
def package_version(package: str) -> str:
    try:
        return f"{package} {version(package)}" if package else ""
    except PackageNotFoundError:
        return ""
