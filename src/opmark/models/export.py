"""Exports a model as an ONNX graph, once for all engines: small graphs are kept on disk. Only a worker imports this."""

from __future__ import annotations

import io
import json
import time
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch

from opmark.errors import Unsupported, in_stage
from opmark.models.execution import Positional, callable_of, has_script, placed
from opmark.models.facts import kept_file, make_room
from opmark.models.source import ModelSource
from opmark.plugin import Params
from opmark.schema.record import EXPORT_SECONDS

_OPSET = 20
_SCRIPT_OPSET = 18
_MOST_KEPT = 256 << 20


class ExportedModel:
    """A model that becomes an ONNX graph when the shapes and types of its inputs are known."""

    may_fall_back = True
    """An engine may leave some of its nodes to another one, and says so; a single operator may not be left."""

    def __init__(self, source: ModelSource, params: Params) -> None:
        self.source, self.params = source, params

    @in_stage("export")
    def model(self, inputs: Mapping[str, tuple[tuple[int, ...], str]]) -> Any:
        """Return an onnx.ModelProto; `inputs` holds (shape, dtype) by name."""
        return _exported(self.source, json.dumps(dict(self.params), sort_keys=True), json.dumps(dict(inputs)))


@lru_cache(maxsize=1)
def _exported(source: ModelSource, written: str, shapes: str) -> Any:
    import onnx

    params, inputs = json.loads(written), json.loads(shapes)
    kept = kept_file(source, {**params, "shapes": inputs}, "onnx")
    try:
        return onnx.load_from_string(kept.read_bytes())
    except (OSError, ValueError):  # not there, or not whole
        pass
    tensors = tuple(torch.zeros(shape, dtype=getattr(torch, kind)) for shape, kind in inputs.values())
    module = Positional(callable_of(placed(source, params, "cpu"), params))
    started = time.perf_counter()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            model = _export(module, tensors, [*inputs])
    except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
        first = str(error.__cause__ or error).strip().partition("\n")[0]
        raise Unsupported(f"torch cannot export `{source.name}` to ONNX: {first}") from None
    model.metadata_props.add(key=EXPORT_SECONDS, value=str(time.perf_counter() - started))
    _keep(model, kept)
    return model


def _export(module: Any, tensors: tuple[Any, ...], names: list[str]) -> Any:
    """Return the onnx.ModelProto of a module; TorchScript only goes through the older exporter."""
    if not has_script(module):
        program = torch.onnx.export(
            module, tensors, dynamo=True, opset_version=_OPSET, input_names=names, verbose=False
        )  # fmt: skip
        return program.model_proto
    import onnx

    written = io.BytesIO()
    script = next(one for one in module.modules() if isinstance(one, torch.jit.ScriptModule))
    torch.onnx.export(script, tensors, written, dynamo=False, opset_version=_SCRIPT_OPSET, input_names=names)
    return onnx.load_from_string(written.getvalue())


def _keep(model: Any, path: Any) -> None:
    """Keep a graph for the other engines, unless it is large; the oldest graphs make room."""
    if sum(len(one.raw_data) for one in model.graph.initializer) > _MOST_KEPT:  # ByteSize() fails above 2 GiB
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{id(model)}.new")
        new.write_bytes(model.SerializeToString())
        new.replace(path)
        make_room(path)
    except OSError:  # a full or read-only disk: it is exported again the next time
        pass
