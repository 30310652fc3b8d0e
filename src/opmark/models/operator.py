"""A model as an operator: inputs, cost, reference, tolerance and implementations, made from its source.

No framework is imported here; what needs one is in `execution`, which only workers import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from opmark.models.facts import facts
from opmark.models.source import ModelSource
from opmark.plugin import Implementation, Operator, Param, Params, Tolerance
from opmark.plugin.param import choice, dtype
from opmark.plugin.registry import MODEL
from opmark.schema import Cost
from opmark.schema.case import MODEL_PREFIX
from opmark.schema.cost import nbytes
from opmark.schema.schedule import SCHEDULE, SCHEDULED
from opmark.schema.tensor import sizeof

DTYPES = ("float32", "float16", "bfloat16", "float64")
_OPTIONS = {
    "outputs": choice("outputs", "those of the model, or of every layer", ("model", "layers"), "model", later=True),
    "weights": Param("weights", "choice", "file or folder with weights; empty: seeded random ones", "", later=True),
}


def model_operator(source: ModelSource) -> Operator:
    """Return the operator `model:NAME`."""
    return Operator(
        name=MODEL_PREFIX + source.name,
        summary=source.summary,
        category=MODEL,
        params=(
            *source.params(),
            dtype(*DTYPES),
            *(_OPTIONS[name] for name in source.options),
        ),
        inputs=source.inputs,
        cost=partial(_cost, source),
        reference=partial(_call, "reference", source),
        presets=source.presets(),
        implementations=(
            *(Implementation(name, partial(_call, f"build_{name}", source)) for name in source.implemented),
            *_scheduled(source),
        ),
        tolerance=ModelTolerance(source=source),
        rules=source.rules(),
        row_axes=partial(_row_axes, source),
        held=partial(_held, source),
        output_names=partial(_output_names, source),
        items=_items,
        token_cache=source.token_cache,
        result_dtype=lambda p: next(iter(facts(source, p).dtypes), str(p["dtype"])),
        further_dtypes=lambda p: facts(source, p).dtypes[1:],
        reference_by=source.reference_by,
        program=source.program,
    )  # fmt: skip


def _scheduled(source: ModelSource) -> tuple[Implementation, ...]:
    """Return the implementation that runs the operators of a model by a schedule, for a model that torch runs."""
    if "torch" not in source.implemented:
        return ()
    build = partial(_call, "build_scheduled", source)
    return (Implementation("torch", build, SCHEDULED, on_request=True, takes=(SCHEDULE,)),)


def _call(function: str, source: ModelSource, params: Params, **tensors: Any) -> Any:
    from importlib import import_module

    return getattr(import_module(source.execution), function)(source, params, **tensors)


def _output_names(source: ModelSource, params: Params) -> tuple[str, ...]:
    """Return the names that the source gives them, if it knows them all."""
    found, known = tuple(facts(source, params).outputs), source.output_names()
    return known if len(known) == len(found) and params.get("outputs") != "layers" else found


def _cost(source: ModelSource, params: Params) -> Cost:
    """Return products, convolutions and attention as operations; weights and inputs as read, outputs as written."""
    known = facts(source, params)
    return Cost(
        known.flops,
        nbytes(source.inputs(params).values()) + known.weights * sizeof(str(params["dtype"])),
        known.output_bytes,
    )


def _items(params: Params) -> tuple[int, str]:
    """Return what a call processes: samples, or tokens of a language model with stages."""
    if "stage" not in params:
        return params["batch"], "samples"
    return params["batch"] * (params["seq"] if params["stage"] == "prefill" else 1), "tokens"


def _held(source: ModelSource, params: Params) -> int:
    return facts(source, params).weights * sizeof(str(params["dtype"])) + source.token_cache(params)


def _row_axes(source: ModelSource, params: Params) -> Mapping[str | int, int]:
    if not source.batched(params):
        return {}
    unbatched, own = source.unbatched(params), source.batch_axes(params)
    axes: dict[str | int, int] = {name: 0 for name in source.inputs(params) if name not in unbatched}
    return axes | {i: own.get(i, 0) for i, _ in enumerate(facts(source, params).outputs)}


@dataclass(frozen=True)
class ModelTolerance(Tolerance):
    """What rounding explains is found with the reference itself: it is computed once more with everything rounded to
    the element type, and outputs may be off by a multiple of the difference that this makes."""

    source: ModelSource | None = None

    def bounds(self, dtype: str, params: Params) -> tuple[float, float]:
        return 0.0, max(self.output_bounds(dtype, params) or (0.0,))

    def output_bounds(self, dtype: str, params: Params) -> tuple[float, ...] | None:
        if dtype not in DTYPES:
            return (0.0,)
        found: tuple[float, ...] = _call("rounding_bounds", self.source, {**params, "dtype": dtype})  # type: ignore[arg-type]
        return found

    def why_blind(self, dtype: str, params: Params) -> str:
        reason: str = _call("why_blind", self.source, {**params, "dtype": dtype}) if dtype in DTYPES else ""  # type: ignore[arg-type]
        return reason
