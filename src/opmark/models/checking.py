"""What references of models have in common, whatever computes them: samples one by one, and bounds for rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from opmark.errors import WrongResult
from opmark.models.facts import kept_file, read_kept, write_kept
from opmark.models.source import ModelSource
from opmark.plugin import Params, draw_values
from opmark.plugin.backend import cast

_FACTOR = {"float16": 8.0, "bfloat16": 8.0, "float32": 64.0, "float64": 64.0}
"""How many times the effect of rounding an output may be off. Sums of float32 and float64 are also accumulated in their
own type, in any order; sums of 16 bits are accumulated with more."""
_ENOUGH_ELEMENTS, _MOST_INPUTS = 256, 16
ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Half of the distance between 1 and the next number."""
_BLIND = 0.5
"""A bound above this share of what another input changes tells nothing apart."""
_OVERFLOW = 1e30
"""The effect of rounding to a type that does not hold the numbers."""

Effects = tuple[list[float], list[float]]
"""(effect of rounding, effect of another input) on each output of a single sample, relative to its magnitude."""


def by_sample(
    source: ModelSource, params: Params, arrays: Mapping[str, Any], evaluate: Callable[[Params, Any], list[Any]]
) -> tuple[Any, ...]:
    """Evaluate a batch sample by sample, and join the outputs; as a whole where it has no samples."""
    if not source.batched(params):
        return tuple(evaluate(params, arrays))
    unbatched, axes = source.unbatched(params), source.batch_axes(params)
    rows = [
        evaluate({**params, "batch": 1}, {
            name: array if name in unbatched else array[i : i + 1] for name, array in arrays.items()
        })
        for i in range(params["batch"])
    ]  # fmt: skip
    return tuple(np.concatenate(parts, axes.get(i, 0)) for i, parts in enumerate(zip(*rows, strict=True)))


def refuse_not_finite(names: Iterable[str], outputs: Iterable[Any]) -> None:
    """Raise WrongResult for NaN or Inf in outputs of the reference, with which nothing can be compared."""
    for name, output in zip(names, outputs, strict=True):
        if not np.isfinite(output).all():
            raise WrongResult(f"{name} of the reference itself has NaN or Inf: the weights or the inputs make no sense")


def find_effects(source: ModelSource, params: Params, measure: Callable[[ModelSource, Params], Effects]) -> Effects:
    """Return the effects on a single sample: kept ones, else measured."""
    alone = {**params, "batch": 1}
    kept = kept_file(source, alone, "rounding")
    found: Effects | None = read_kept(kept, Effects)
    if found is None:
        found = measure(source, alone)
        write_kept(kept, found)
    return found


def bound_outputs(dtype: str, effects: Effects) -> tuple[float, ...]:
    """Return how far each output may be off, relative to its root mean square."""
    return tuple(_FACTOR[dtype] * effect for effect in effects[0])


def explain_blindness(dtype: str, effects: Effects) -> str:
    """Return why a comparison in this element type says little; empty where it tells right from wrong."""
    for effect, other in zip(*effects, strict=True):
        if _FACTOR[dtype] * effect > _BLIND * other:
            return (
                f"rounding to {dtype} alone moves an output by {effect:.2g} of its magnitude, and another "
                f"input by {other:.2g}: the comparison cannot tell right from wrong"
            )
    return ""


def draw_inputs(source: ModelSource, params: Params) -> Iterator[dict[str, Any]]:
    """Yield different sets of inputs."""
    specs = source.inputs(params).items()
    for seed in range(1, _MOST_INPUTS + 1):
        yield {name: cast(draw_values(spec, 7 * seed + i), spec.dtype) for i, (name, spec) in enumerate(specs)}


def compare_inputs(
    source: ModelSource,
    params: Params,
    exact: Callable[[Any], list[Any]],
    rounded: Callable[[Any], list[Any]],
    least: float,
) -> Effects:
    """Compare inputs until enough elements of each output were seen: few may be off by little as it happens. `least` is
    the smallest effect of rounding, that of the element type itself on the largest element."""
    rounding, change, before, seen = list[list[float]](), list[list[float]](), None, 0
    for given in draw_inputs(source, params):
        outputs = exact(given)
        if before is not None:
            change.append([*map(distance, outputs, before)])
        if seen < _ENOUGH_ELEMENTS:
            rounding.append(
                [max(distance(*pair), least * _peak(pair[1])) for pair in zip(rounded(given), outputs, strict=True)]
            )
            seen += min(output.size for output in outputs)
        elif change:
            break
        before = outputs
    return [max(each) for each in zip(*rounding, strict=True)], [max(each) for each in zip(*change, strict=True)]


def _peak(output: Any) -> float:
    """Return the largest element, relative to the root mean square; of probabilities, one may stand out alone."""
    values = np.abs(output.astype(np.float64))
    return max(1.0, float(values.max()) / (float(np.sqrt(np.mean(np.square(values)))) or 1.0))


def distance(found: Any, expected: Any) -> float:
    """Return the largest difference, relative to the root mean square of what was expected."""
    refuse_not_finite(["an output"], [expected])
    size = float(np.sqrt(np.mean(np.square(expected.astype(np.float64)))))
    with np.errstate(invalid="ignore", over="ignore"):
        off = float(np.abs(found.astype(np.float64) - expected).max()) / (size or 1.0)
    return off if np.isfinite(off) else _OVERFLOW


def move_by_rounding(array: Any, step: float, generator: Any) -> Any:
    """Move every number by about one rounding, at least to the next one that its type has."""
    if array.dtype.kind != "f":
        return array
    least = max(step, float(np.finfo(array.dtype).eps))
    signs = generator.choice((-least, least), array.shape)
    return (array * (1 + signs)).astype(array.dtype)
