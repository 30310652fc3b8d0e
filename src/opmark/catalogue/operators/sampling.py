"""Random values: `random_*` with numbers as parameters of the distribution, `sample_*` with tensors, bernoulli,
multinomial.

The flops of a draw depend on the generator, and vary with rejection, so only bytes are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod, sqrt
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import fresh
from opmark.catalogue.operators._builders import numpy as in_numpy
from opmark.catalogue.operators._builders import torch as in_torch
from opmark.catalogue.operators._distributions import (
    LAWS,
    Law,
    alternation,
    expected_uniform,
    generator,
    place_in_step,
    refuse_outside,
    snap,
    take_windows,
    uniformity,
)
from opmark.catalogue.operators._elementwise import PRESETS, SHAPE
from opmark.catalogue.operators.creation import fits
from opmark.plugin import Launch, Operator, ParamRule, Params, Tolerance
from opmark.plugin.param import dtype, integer, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, INTS, is_float, sizeof

# Relative distance by which rounding may move a value out of the range.
SLACK = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
# Number of values whose distribution is checked, spread evenly; shape and range of all values are checked.
_MOST = 1 << 18
# The check after timing needs another result from a second call, which is not certain with few values.
LEAST = 64
ENOUGH = ParamRule("shape", f"have at least {LEAST} elements, so that no two calls draw the same (got {{shape}})",
              lambda p: prod(p["shape"]) >= LEAST)  # fmt: skip


def at_least(name: str, least: int = LEAST) -> ParamRule:
    return ParamRule(name, f"be at least {least}, so that no two calls draw the same (got {{{name}}})",
                lambda p: bool(p[name] >= least))  # fmt: skip


def _uniform(law: Law, p: Params, output: Any, full: tuple[int, ...], values: Sequence[Any]) -> Any:
    """Return the outputs put through the distribution function that they should come from."""
    low, high = law.support(*values)
    refuse_outside(output, full, low, high, SLACK.get(p["dtype"], 0.0))
    step = max(1, output.size // _MOST)
    thin = [np.broadcast_to(value, full).reshape(-1)[::step] for value in (output, *values)]
    if not law.discrete:
        return uniformity(law.cdf(*thin))
    counts, rest = thin[0], thin[1:]
    if (counts != np.rint(counts)).any():
        raise ValueError("some values are not integers")
    return uniformity(place_in_step(law.cdf(counts - 1, *rest), law.cdf(counts, *rest)))


def _law_draws(law: Law, output: Any, full: tuple[int, ...], values: Sequence[Any]) -> Any:
    """Return the places of the outputs in their distribution; a value of a discrete one is in the middle of its
    step."""
    drawn, *rest = (take_windows(np.broadcast_to(value, full)) for value in (output, *values))
    return (law.cdf(drawn - 1, *rest) + law.cdf(drawn, *rest)) / 2 if law.discrete else law.cdf(drawn, *rest)


def _random(law: Law) -> Operator:
    """Make an operator that draws from one distribution, whose parameters are numbers."""
    names = [argument.name for argument in law.arguments]

    def given(p: Params) -> list[float]:
        return [p[name] for name in names]

    def numpy_draw(p: Params) -> Launch:
        draw = partial(law.numpy, generator(), tuple(p["shape"]), *given(p))
        return lambda: draw().astype(p["dtype"], copy=False)

    return Operator(
        name=f"random_{law.name}",
        summary=f"values drawn from {law.summary}",
        category="random",
        params=(SHAPE, dtype(*law.dtypes), *(argument.param for argument in law.arguments)),
        inputs=lambda p: {},
        cost=lambda p: Cost(0, 0, prod(p["shape"]) * sizeof(p["dtype"])),
        reference=lambda p: expected_uniform(),
        observe=lambda p, output: _uniform(law, p, output, tuple(p["shape"]), given(p)),
        draws=lambda p, output: _law_draws(law, output, tuple(p["shape"]), given(p)),
        presets=PRESETS,
        rules=(ENOUGH, *law.rules),
        implementations=(
            in_numpy(numpy_draw),
            in_torch(lambda p: law.torch(tuple(p["shape"]), fresh(p), *given(p)), law.path),
        ),
        result="random",
        aliases=law.aliases,
    )


def _full(p: Params) -> tuple[int, ...]:
    return p["draws"], p["distributions"]


def _sample_cost(law: Law, p: Params) -> Cost:
    read, nbytes = len(law.arguments) * p["distributions"], sizeof(p["dtype"])
    return Cost(0, read * nbytes, prod(_full(p)) * nbytes)


def _numpy_sample(law: Law, p: Params, **tensors: Any) -> Launch:
    drawing = generator()
    return lambda: law.numpy(drawing, _full(p), *tensors.values()).astype(p["dtype"], copy=False)


def _torch_sample(law: Law, p: Params, **tensors: Any) -> Launch:
    """Make the distribution in every call: its parameters are data, and some values are computed from them."""
    import torch.distributions as known

    draws = (p["draws"],)
    return lambda: law.distribution(known, *tensors.values()).sample(draws)


def _sample(law: Law) -> Operator:
    """Make an operator that draws from several distributions, whose parameters are tensors."""
    return Operator(
        name=f"sample_{law.name}",
        summary=f"values drawn from each of several distributions: {law.summary}",
        category="random",
        params=(
            size("distributions", "number of distributions with different parameters"),
            size("draws", "values drawn from each distribution"),
            dtype(*law.dtypes),
        ),
        inputs=lambda p: {a.name: TensorSpec((p["distributions"],), p["dtype"], a.low, a.high) for a in law.arguments},
        cost=partial(_sample_cost, law),
        reference=lambda p, **tensors: expected_uniform(),
        observe=lambda p, output, **tensors: _uniform(law, p, output, _full(p), list(tensors.values())),
        draws=lambda p, output, **tensors: _law_draws(law, output, _full(p), list(tensors.values())),
        presets={
            "small": {"distributions": 64, "draws": 1024},
            "typical": {"distributions": 1024, "draws": 1024},
            "large": {"distributions": 8192, "draws": 4096},
        },
        rules=(at_least("draws"),),
        implementations=(in_numpy(partial(_numpy_sample, law)), in_torch(partial(_torch_sample, law))),
        result="random",
    )


def _randint_observe(p: Params, output: Any) -> Any:
    refuse_outside(output, tuple(p["shape"]), p["low"], p["high"] - 1, 0.0)
    width = p["high"] - p["low"]
    below = (output - float(p["low"])) / width
    return uniformity(place_in_step(below, below + 1 / width))


def _numpy_randint(p: Params) -> Launch:
    return partial(generator().integers, p["low"], p["high"], tuple(p["shape"]), p["dtype"])


def _torch_randint(p: Params) -> Launch:
    import torch

    return partial(torch.randint, p["low"], p["high"], tuple(p["shape"]), **fresh(p))


RANDINT = Operator(
    name="random_randint",
    summary="integers from `low` to below `high`, all equally likely",
    category="random",
    params=(
        SHAPE,
        dtype("int32", "int64", "int16", "int8", "uint8", default="int32"),
        integer("low", "smallest value", 0),
        integer("high", "values stay below this one", 100),
    ),
    inputs=lambda p: {},
    cost=lambda p: Cost(0, 0, prod(p["shape"]) * sizeof(p["dtype"])),
    reference=lambda p: expected_uniform(),
    observe=_randint_observe,
    draws=lambda p, output: (take_windows(output) - p["low"] + 0.5) / (p["high"] - p["low"]),
    presets=PRESETS,
    rules=(
        ENOUGH,
        ParamRule("high", "be at least `low` + 2 = {low} + 2, so that there are two values (got {high})",
             lambda p: p["low"] + 2 <= p["high"]),
        ParamRule("low", "be a value of {dtype} (got {low})", lambda p: fits(p["dtype"], p["low"])),
        ParamRule("high", "be at most the largest value of {dtype} plus 1 (got {high})",
             lambda p: fits(p["dtype"], p["high"] - 1)),
    ),
    implementations=(in_numpy(_numpy_randint), in_torch(_torch_randint, "torch.randint")),
    result="random",
    aliases=("randint", "randint_like"),
)  # fmt: skip


def _bernoulli_observe(p: Params, output: Any, x: Any) -> Any:
    refuse_outside(output, x.shape, 0, 1, SLACK[p["dtype"]])
    if ((output != 0) & (output != 1)).any():
        raise ValueError("neither 0 nor 1 everywhere")
    return uniformity(place_in_step(output * (1 - x), np.where(output == 0, 1 - x, 1.0)))


def _bernoulli_draws(p: Params, output: Any, x: Any) -> Any:
    """Return the middle of the step from 0 to 1 - x, or from there to 1: its expected value does not depend on x."""
    drawn, x = take_windows(output), take_windows(x)
    return np.where(drawn == 0, (1 - x) / 2, 1 - x / 2)


def _numpy_bernoulli(p: Params, x: Any) -> Launch:
    drawing = generator()
    return lambda: (drawing.random(x.shape, np.float32) < x).astype(x.dtype)


def _torch_bernoulli(p: Params, x: Any) -> Launch:
    import torch

    return partial(torch.bernoulli, x)


BERNOULLI = Operator(
    name="bernoulli",
    summary="1 with probability x, otherwise 0",
    category="random",
    params=(SHAPE, dtype(*FLOATS)),
    inputs=lambda p: {"x": TensorSpec(tuple(p["shape"]), p["dtype"], 0.0, 1.0)},
    cost=lambda p: Cost(0, prod(p["shape"]) * sizeof(p["dtype"]), prod(p["shape"]) * sizeof(p["dtype"])),
    reference=lambda p, x: expected_uniform(),
    observe=_bernoulli_observe,
    draws=_bernoulli_draws,
    presets=PRESETS,
    rules=(ENOUGH,),
    implementations=(in_numpy(_numpy_bernoulli), in_torch(_torch_bernoulli, "torch.bernoulli")),
    result="random",
    aliases=("random_bernoulli", "sample_bernoulli"),
)


def _multinomial_observe(p: Params, output: Any, weights: Any) -> Any:
    """Map each category to a random place in its interval of the row's cumulative distribution from 0 to 1."""
    refuse_outside(output, (p["rows"], p["draws"]), 0, p["categories"] - 1, 0.0)
    return uniformity(place_in_step(*_category_steps(p, output, weights)))


def _category_steps(p: Params, output: Any, weights: Any) -> list[Any]:
    """Return where the intervals of the drawn categories begin and end."""
    ends = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
    starts = np.concatenate((np.zeros((p["rows"], 1)), ends[:, :-1]), axis=1)
    return [np.take_along_axis(at, output, axis=1) for at in (starts, ends)]


def _numpy_multinomial(p: Params, weights: Any) -> Launch:
    drawing = generator()

    def launch() -> Any:
        ends = np.cumsum(weights, axis=1, dtype=np.float64)
        places = drawing.random((p["rows"], p["draws"])) * ends[:, -1:]
        return np.stack([np.searchsorted(*row, side="right") for row in zip(ends, places, strict=True)])

    return launch


def _torch_multinomial(p: Params, weights: Any) -> Launch:
    import torch

    return partial(torch.multinomial, weights, p["draws"], replacement=True)


MULTINOMIAL = Operator(
    name="multinomial",
    summary="categories of each row, drawn with replacement in proportion to its weights",
    category="random",
    params=(
        size("rows", "distributions"),
        size("categories", "weights of each distribution"),
        size("draws", "categories drawn from each distribution"),
        dtype(*FLOATS, doc="element type of the weights"),
    ),
    inputs=lambda p: {"weights": TensorSpec((p["rows"], p["categories"]), p["dtype"], 0.125, 1.0)},
    cost=lambda p: Cost(0, p["rows"] * p["categories"] * sizeof(p["dtype"]), p["rows"] * p["draws"] * sizeof("int64")),
    reference=lambda p, weights: expected_uniform(),
    observe=_multinomial_observe,
    draws=lambda p, output, weights: take_windows(sum(_category_steps(p, output, weights)) / 2),
    result_dtype=lambda p: "int64",
    presets={
        "small": {"rows": 32, "categories": 32, "draws": 1024},
        "typical": {"rows": 64, "categories": 32000, "draws": 64},
        "large": {"rows": 256, "categories": 128000, "draws": 64},
    },
    rules=(
        ParamRule("categories", "be between 2 and 2^24 (got {categories})", lambda p: 2 <= p["categories"] <= 1 << 24),
        at_least("draws"),
    ),
    implementations=(in_numpy(_numpy_multinomial), in_torch(_torch_multinomial, "torch.multinomial")),
    result="random",
    aliases=("sample_multinomial", "random_multinomial", "random_categorical"),
)  # fmt: skip


SAMPLING_OPERATORS = (
    *(row(law) for row in (_random, _sample) for law in LAWS),
    RANDINT,
    BERNOULLI,
    MULTINOMIAL,
)


# Random order: randperm, shuffle.


def _correlations(found: Any, start: Any) -> Any:
    """Return the correlation of new positions with old ones, and of neighbours: zero after shuffling."""
    n = start.size
    if n < 3:
        return np.zeros(2)
    centred = found - found.mean()
    spread = float(np.sqrt(np.square(centred).sum() * np.square(start - start.mean()).sum())) or 1.0
    kept = float((centred * (start - start.mean())).sum()) / spread
    return np.array([snap(kept, 0.0, 1 / sqrt(n)), alternation(centred < np.median(centred), 0.5) - 0.5])


def _randperm_observe(p: Params, output: Any) -> Any:
    n = p["elements"]
    refuse_outside(output, (n,), 0, n - 1, 0.0)
    return np.sort(output).astype(np.float64), _correlations(output.astype(np.float64), np.arange(n))


def _numpy_randperm(p: Params) -> Launch:
    drawing = generator()
    return lambda: drawing.permutation(p["elements"]).astype(p["dtype"], copy=False)


def _torch_randperm(p: Params) -> Launch:
    import torch

    return partial(torch.randperm, p["elements"], **fresh(p))


RANDPERM = Operator(
    name="randperm",
    summary="the integers from 0 to elements - 1 in random order",
    category="random",
    params=(size("elements", "how many"), dtype("int64", "int32", default="int64")),
    inputs=lambda p: {},
    cost=lambda p: Cost(0, 0, p["elements"] * sizeof(p["dtype"])),
    reference=lambda p: (np.arange(p["elements"], dtype=np.float64), np.zeros(2)),
    observe=_randperm_observe,
    draws=lambda p, output: take_windows(output) / p["elements"],
    presets={"small": {"elements": 10000}, "typical": {"elements": 1 << 20}, "large": {"elements": 1 << 24}},
    rules=(at_least("elements"),),
    implementations=(in_numpy(_numpy_randperm), in_torch(_torch_randperm, "torch.randperm")),
    result="random",
    aliases=("permutation", "random_permutation"),
)


def _keys(x: Any) -> Any:
    """Return a number per row that identifies it, summed in an order that does not depend on the row's position."""
    weights = np.cos(np.arange(1, x[0].size + 1))
    return (x.reshape(len(x), -1) * weights).sum(axis=1)


def _shuffle_observe(p: Params, output: Any, x: Any) -> Any:
    refuse_outside(output, x.shape, x.min(), x.max(), SLACK.get(p["dtype"], 0.0))
    before, after = _keys(x.astype(np.float64)), _keys(output.astype(np.float64))
    return np.sort(after), _correlations(after, before)


def _numpy_shuffle(p: Params, x: Any) -> Launch:
    return partial(generator().permutation, x)


def _torch_shuffle(p: Params, x: Any) -> Launch:
    import torch

    return lambda: x[torch.randperm(len(x), device=x.device)]


def _shuffle_cost(p: Params) -> Cost:
    nbytes = prod(p["shape"]) * sizeof(p["dtype"])
    return Cost(0, nbytes, nbytes)


def _shuffle_inputs(p: Params) -> dict[str, TensorSpec]:
    domain = (-1.0, 1.0) if is_float(p["dtype"]) else (0, 100)
    return {"x": TensorSpec(tuple(p["shape"]), p["dtype"], *domain)}


SHUFFLE = Operator(
    name="shuffle",
    summary="the rows of x in random order",
    category="random",
    params=(shape("shape", "shape of x; its first axis is shuffled"), dtype(*FLOATS, *INTS)),
    inputs=_shuffle_inputs,
    cost=_shuffle_cost,
    reference=lambda p, x: (np.sort(_keys(x.astype(np.float64))), np.zeros(2)),
    observe=_shuffle_observe,
    draws=lambda p, output, x: take_windows(_keys(output.astype(np.float64))),
    presets={"small": {"shape": [1024, 64]}, "typical": {"shape": [16384, 256]}, "large": {"shape": [65536, 1024]}},
    rules=(ParamRule("shape", f"have at least {LEAST} rows, so that no two calls give the same (got {{shape}})",
                lambda p: bool(p["shape"][0] >= LEAST)),),
    tolerance=Tolerance(factor=1e-3),  # rows are only moved, not rounded
    implementations=(in_numpy(_numpy_shuffle), in_torch(_torch_shuffle)),
    result="random",
    aliases=("random_shuffle",),
)  # fmt: skip


OPERATORS = (
    *SAMPLING_OPERATORS,
    RANDPERM,
    SHUFFLE,
)
