"""The front end: a torch model becomes a module of StableHLO. Only a worker or a child process imports this.

Weights are arguments of the module and lie in a file of their own: as constants they would make a text of gigabytes,
which every compiler reads, folds and keeps.
"""

from __future__ import annotations

import json
import re
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
from jax.extend.mlir import ir

from opmark.errors import in_stage
from opmark.models import execution
from opmark.models.execution import reference, rounding_bounds, why_blind
from opmark.models.facts import ModelExport
from opmark.models.jax_program import convert_model
from opmark.models.mlir_execution import build_jax
from opmark.models.mlir_file import INPUT, MODEL, PARAMS, WEIGHT, Program, describe_entry
from opmark.models.source import ModelSource
from opmark.models.zoo_source import ZooSource
from opmark.plugin import Params

__all__ = ["build_jax", "export_program", "reference", "rounding_bounds", "why_blind", "write_module"]

_CONFIG = {
    # Nothing is computed: a module does not depend on the device that it will run on.
    "jax_platforms": "cpu",
    # int64 means int64, and float32 means float32 on every device that the module will run on.
    "jax_enable_x64": True,
    "jax_default_matmul_precision": "float32",
}
_PREFIX = "called."
"""What execution.Positional puts before the names of weights."""


@in_stage("export")
def export_program(source: ModelSource, params: Params) -> Program:
    return _export(source, json.dumps(dict(params), sort_keys=True))


@lru_cache(maxsize=1)
def _export(source: ModelSource, written: str) -> Program:
    params = json.loads(written)
    model = convert_model(source, written)
    started = time.perf_counter()
    own = execution.placed(source, params, "cpu").state_dict()
    names = [name.removeprefix(_PREFIX) for name in model.names]
    # Tables that a network computes for itself are no weights that a file could hold: they stay constants.
    kept = [i for i, name in enumerate(names) if name in own]
    weights = {names[i]: model.weights[i] for i in kept}

    def run(*values: Any) -> Any:
        whole = list(model.weights)
        for i, value in zip(kept, values, strict=False):
            whole[i] = value
        return tuple(model.call(whole, values[len(kept) :]))

    inputs = source.inputs(params)
    struct: Any = jax.ShapeDtypeStruct
    given = [struct(one.shape, one.dtype) for one in (*weights.values(), *inputs.values())]
    module: Any = jax.jit(run, keep_unused=True).lower(*given).compiler_ir()
    with module.context:
        entry = next(one for one in module.body.operations if one.operation.name == "func.func")
        labels = [(WEIGHT, name) for name in weights] + [(INPUT, name) for name in inputs]
        entry.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [ir.DictAttr.get({key: ir.StringAttr.get(name)}) for key, name in labels]
        )
        module.operation.attributes["sym_name"] = ir.StringAttr.get(re.sub(r"\W", "_", source.name))
        if isinstance(source, ZooSource):
            module.operation.attributes[MODEL] = ir.StringAttr.get(source.model.name)
            case = {name: value for name, value in params.items() if name != "weights"}
            module.operation.attributes[PARAMS] = ir.StringAttr.get(json.dumps(case, sort_keys=True))
    program = describe_entry(module, source.name)
    seconds = model.seconds + time.perf_counter() - started
    return Program(module, program.arguments, program.outputs, weights, seconds)


def write_module(source: ModelSource, params: Params, path: Path) -> ModelExport:
    """Export a case of a model to a file: bytecode where its name ends in .mlirbc, else text. The weights go into a
    file of the same name that ends in .safetensors."""
    from safetensors.flax import save_file

    for name, value in _CONFIG.items():
        if hasattr(jax.config, name):
            jax.config.update(name, value)  # type: ignore[no-untyped-call]
    program = export_program(source, params)
    path.write_bytes(program.serialize() if path.suffix == ".mlirbc" else f"{program.module}\n".encode())
    weights = path.with_suffix(".safetensors")
    save_file(dict(program.weights), str(weights))
    return ModelExport(
        files=(str(path), str(weights)),
        seconds=program.export or 0.0,
        operators=sum(program.operators.values()),
        weights=sum(value.size for value in program.weights.values()),
    )
