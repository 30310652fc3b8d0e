"""New tensors whose values do not depend on data: zeros, ones, full, arange, linspace, eye, fill and similar ones.

There is no `empty`: its values are undefined, so there is nothing to verify, and it moves no data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf, prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import formula, fresh
from opmark.catalogue.operators._builders import numpy as in_numpy
from opmark.catalogue.operators._builders import torch as in_torch
from opmark.catalogue.operators._elementwise import PRESETS, SHAPE
from opmark.plugin import Implementation, Launch, Operator, Param, ParamRule, Params
from opmark.plugin.param import dtype, real, size
from opmark.plugin.registry import resolve
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, INTS, is_float, sizeof

ALL = (*FLOATS, *INTS)
_LARGEST_FLOAT = {"float16": 65504.0, "bfloat16": 3.3e38, "float32": 3.4e38, "float64": 1.7e308}

Value = Callable[[Params], float]


def fits(name: str, value: float) -> bool:
    """Return whether an element of that type can hold `value`, up to rounding."""
    if is_float(name):
        return abs(value) <= _LARGEST_FLOAT[name]
    bits = 8 * sizeof(name)
    low, high = (0, 2**bits) if name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return value == int(value) and low <= value < high


VALUE_FITS = ParamRule("value", "be a value of {dtype} (got {value})", lambda p: fits(p["dtype"], p["value"]))


def _write_cost(elements: Callable[[Params], int]) -> Callable[[Params], Cost]:
    """Return a cost function without flops and reads: the input of `zeros_like` only provides the shape."""
    return lambda p: Cost(0, 0, elements(p) * sizeof(p["dtype"]))


def _as_element(p: Params, value: float) -> float | int:
    return value if is_float(p["dtype"]) else int(value)


def _fill_operator(
    name: str,
    summary: str,
    value: Value,
    aliases: Sequence[str],
    *,
    params: Sequence[Param] = (),
    inputs: Sequence[str] = (),
    **more: Any,
) -> Operator:
    """Make an operator that fills a tensor with `value`; torch's function has the operator's name."""
    rows = tuple(inputs)

    # Not np.zeros, whose pages the system zeroes only on first access.
    def numpy_full(p: Params, **tensors: Any) -> Launch:
        return partial(np.full, tuple(p["shape"]), _as_element(p, value(p)), p["dtype"])

    def torch_new(p: Params, **tensors: Any) -> Launch:
        given = (tensors["x"],) if rows else (tuple(p["shape"]),)
        values = (_as_element(p, value(p)),) if params else ()
        return partial(resolve(f"torch.{name}"), *given, *values, **({} if rows else fresh(p)))

    return Operator(
        name=name,
        summary=summary,
        category="creation",
        params=(SHAPE, dtype(*ALL), *params),
        inputs=_spec(rows),
        cost=_write_cost(lambda p: prod(p["shape"])),
        reference=lambda p, **tensors: np.full(tuple(p["shape"]), float(value(p))),
        presets=PRESETS,
        rules=(VALUE_FITS,) if params else (),
        implementations=more.pop("implementations", (in_numpy(numpy_full), in_torch(torch_new, f"torch.{name}"))),
        result="constant",
        partial=bool(rows),
        aliases=tuple(aliases),
        **more,
    )


def _spec(names: Sequence[str]) -> Any:
    def inputs(p: Params) -> dict[str, TensorSpec]:
        domain = (-1.0, 1.0) if is_float(p["dtype"]) else (0, 60)
        return {name: TensorSpec(tuple(p["shape"]), p["dtype"], *domain) for name in names}

    return inputs


def _numpy_fill(p: Params, x: Any) -> Launch:
    value = _as_element(p, p["value"])

    def launch() -> Any:
        x.fill(value)
        return x

    return launch


VALUE = real("value", "what every element becomes", 1.0)

FILLED = (
    _fill_operator("zeros", "a new tensor of zeros", lambda p: 0.0, ("Zeros",)),
    _fill_operator("ones", "a new tensor of ones", lambda p: 1.0, ("Ones",)),
    _fill_operator("full", "a new tensor of one value", lambda p: float(p["value"]), ("Full",), params=(VALUE,)),
    _fill_operator("zeros_like", "a tensor of zeros as large as x", lambda p: 0.0, ("ZerosLike",), inputs=("x",)),
    _fill_operator("ones_like", "a tensor of ones as large as x", lambda p: 1.0, ("OnesLike",), inputs=("x",)),
    _fill_operator(
        "full_like", "a tensor of one value, as large as x", lambda p: float(p["value"]), (),
        params=(VALUE,), inputs=("x",),
    ),
    _fill_operator(
        "fill", "x, overwritten with one value", lambda p: float(p["value"]),
        ("fill_", "zero_", "reset_arrays"),
        params=(real("value", "what every element becomes", 0.0),), inputs=("x",), mutates=("x",),
        implementations=(
            in_numpy(_numpy_fill, "numpy.ndarray.fill"),
            in_torch(lambda p, x: partial(x.fill_, _as_element(p, p["value"])), "torch.Tensor.fill_"),
        ),
    ),
)  # fmt: skip


def _new(function: str, arguments: Callable[[Params], tuple[Any, ...]]) -> Implementation:
    """Make an implementation that calls a torch function with these arguments, element type and device."""

    def build(p: Params) -> Launch:
        return partial(resolve(function), *arguments(p), **fresh(p))

    return in_torch(build, function)


def _sequence(
    name: str,
    summary: str,
    reference: Callable[[Params], Any],
    new: Implementation,
    *,
    params: Sequence[Param],
    flops: int,
    dtypes: Sequence[str] = FLOATS,
    **more: Any,
) -> Operator:
    """Make an operator that computes each element of a vector from its index."""
    return Operator(
        name=name,
        summary=summary,
        category="creation",
        params=(ELEMENTS, dtype(*dtypes), *params),
        inputs=lambda p: {},
        cost=lambda p: Cost(flops * p["elements"], 0, p["elements"] * sizeof(p["dtype"])),
        reference=reference,
        presets={"small": {"elements": 10000}, "typical": {"elements": 1 << 22}, "large": {"elements": 1 << 25}},
        implementations=(formula(reference), new),
        result="constant",
        **more,
    )


ENDS = ("start", "stop")
ELEMENTS = size("elements", "number of elements")


def _last(p: Params) -> float:
    return float(p["start"] + p["step"] * (p["elements"] - 1))


def _arange_arguments(p: Params) -> tuple[Any, ...]:
    """End half a step after the last element, so that rounding cannot add or drop an element."""
    if is_float(p["dtype"]):
        return p["start"], _last(p) + p["step"] / 2, p["step"]
    step = int(p["step"])
    return int(p["start"]), int(_last(p)) + (1 if step > 0 else -1), step


STEP_RULES = (
    ParamRule("step", "not be 0", lambda p: p["step"] != 0),
    ParamRule("step", "be a whole number for {dtype} (got {step})",
         lambda p: is_float(p["dtype"]) or p["step"] % 1 == 0),
    ParamRule("start", "be a value of {dtype} (got {start})", lambda p: fits(p["dtype"], p["start"])),
    ParamRule("elements", "end the sequence within the range of {dtype} (got {elements})",
         lambda p: fits(p["dtype"], _last(p))),
)  # fmt: skip


def _require_fit(name: str, says: str, value: Value) -> ParamRule:
    return ParamRule(name, f"be {says} (got {{{name}}})", lambda p: fits(p["dtype"], value(p)))


def _at(name: str) -> Value:
    return lambda p: float(p[name])


def _power(name: str) -> Value:
    """Return a power of 10; infinite if float64 cannot hold it."""
    return lambda p: float(10.0 ** p[name]) if abs(p[name]) <= 300 else inf


def _arange(p: Params) -> Any:
    if is_float(p["dtype"]):
        return p["start"] + p["step"] * np.arange(p["elements"])
    return int(p["start"]) + int(p["step"]) * np.arange(p["elements"])


SEQUENCES = (
    _sequence(
        "arange", "start, start + step, start + 2 step, ...", _arange, _new("torch.arange", _arange_arguments),
        params=(real("start", "first value", 0.0), real("step", "from each value to the next", 1.0)),
        # 8-bit types have too few values for a sequence worth measuring.
        flops=2, dtypes=(*FLOATS, "int64", "int32", "int16"), rules=STEP_RULES, aliases=("Arange", "range"),
    ),
    _sequence(
        "linspace", "values from start to stop, evenly spaced",
        lambda p: np.linspace(p["start"], p["stop"], p["elements"]),
        _new("torch.linspace", lambda p: (p["start"], p["stop"], p["elements"])),
        params=(real("start", "first value", 0.0), real("stop", "last value", 1.0)),
        flops=2, rules=tuple(_require_fit(end, "a value of {dtype}", _at(end)) for end in ENDS),
    ),
    _sequence(
        "logspace", "powers of 10 with exponents from start to stop, evenly spaced",
        lambda p: np.logspace(p["start"], p["stop"], p["elements"]),
        _new("torch.logspace", lambda p: (p["start"], p["stop"], p["elements"])),
        params=(real("start", "exponent of the first value", -1.0), real("stop", "exponent of the last value", 1.0)),
        flops=3,
        rules=tuple(_require_fit(end, "an exponent whose power of 10 {dtype} can hold", _power(end)) for end in ENDS),
    ),
)  # fmt: skip


def _numpy_eye(p: Params) -> Launch:
    """Avoid np.eye, which starts from np.zeros, whose pages the system zeroes only on first access."""

    def launch() -> Any:
        made = np.full((p["rows"], p["columns"]), 0, p["dtype"])
        made.reshape(-1)[: p["columns"] * p["columns"] : p["columns"] + 1] = 1
        return made

    return launch


EYE = Operator(
    name="eye",
    summary="a matrix of zeros with ones on its diagonal",
    category="creation",
    params=(size("rows", "rows of the matrix"), size("columns", "columns of the matrix"), dtype(*ALL)),
    inputs=lambda p: {},
    cost=_write_cost(lambda p: int(p["rows"] * p["columns"])),
    reference=lambda p: np.eye(p["rows"], p["columns"]),
    presets={
        "small": {"rows": 256, "columns": 256},
        "typical": {"rows": 2048, "columns": 2048},
        "large": {"rows": 8192, "columns": 4096},
    },
    implementations=(in_numpy(_numpy_eye), _new("torch.eye", lambda p: (p["rows"], p["columns"]))),
    result="constant",
    aliases=("identity_matrix",),
)

OPERATORS = (*FILLED, *SEQUENCES, EYE)
