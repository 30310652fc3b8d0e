"""What a few operators of opperf need beside patterns: sizes that are computed from others."""

from __future__ import annotations

from math import ceil, isqrt, prod
from typing import Any

from opmark.errors import InvalidParameter
from opmark.importers.opperf.rows import Inputs
from opmark.importers.opperf.shapes import Bound, shape_of

Notes = list[str]

_MOST_PIXELS = 32


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _list(value: Any, who: str) -> list[int]:
    """Whole numbers, of any sign; one alone is a list of one."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    if not items or not all(map(_whole, items)):
        raise InvalidParameter(f"`{who}`: expected whole numbers, got {value}")
    return items


def one_axis(bound: Bound, inputs: Inputs) -> Notes:
    """A reduction over no axis named, or over all of them, is one over a vector."""
    shape = bound["shape"]
    if "axis" in inputs:
        axes = sorted({axis % len(shape) for axis in _list(inputs["axis"], "axis")})
        if len(axes) == 1:
            bound["axis"] = _list(inputs["axis"], "axis")[0]
            return []
        if len(axes) < len(shape):
            raise InvalidParameter(f"`axis`: expected one axis or all, got {inputs['axis']}")
    bound |= {"shape": [prod(shape)], "axis": 0}
    return ["over all axes: here over a vector of as many elements"]


def last_axes(bound: Bound, inputs: Inputs) -> Notes:
    """`moments` counts axes from the last."""
    shape = bound["shape"]
    axes = sorted({axis % len(shape) for axis in _list(inputs["axes"], "axes")}) if "axes" in inputs else []
    if axes and axes != list(range(len(shape) - len(axes), len(shape))):
        raise InvalidParameter(f"`axes`: expected the last ones, got {inputs['axes']}")
    bound["axes"] = 0 if len(axes) == len(shape) else len(axes)
    return []


def row_an_image(bound: Bound, inputs: Inputs) -> Notes:
    bound |= {"shape": [bound["shape"][0], prod(bound["shape"][1:])], "axis": -1}
    return []


def between(bound: Bound, inputs: Inputs) -> Notes:
    """begin and end, of one axis."""
    shape = bound["shape"]
    begins, ends = (
        _list(inputs.get("begin", 0), "begin"),
        _list(inputs["end"], "end") if "end" in inputs else [shape[0]],
    )
    axis = bound.get("axis", 0)
    if not _whole(axis) or not -len(shape) <= axis < len(shape):
        raise InvalidParameter(f"`axis`: expected an axis of {shape}, got {axis}")
    cut = [i for i, (b, e) in enumerate(zip(begins, ends, strict=False)) if (b, e) != (0, shape[i % len(shape)])]
    if len(begins) != len(ends) or len(begins) > len(shape) or len(cut) > 1:
        raise InvalidParameter(
            f"`end`: expected a part of one axis, got {inputs.get('begin', 0)} to {inputs.get('end')}"
        )
    place = cut[0] if cut else 0
    axis = axis if len(begins) == 1 else place
    bound |= {"axis": axis, "begin": begins[place] % shape[axis], "end": (ends[place] - 1) % shape[axis] + 1}
    return ["a view here, where MXNet copies"]


def like(bound: Bound, inputs: Inputs) -> Notes:
    shape, other = bound["shape"], bound["like"]
    axes = [axis % len(shape) for axis in _list(inputs["axes"], "axes")] if "axes" in inputs else range(len(shape))
    cut = [axis for axis in axes if axis < len(other) and other[axis] != shape[axis]]
    if len(cut) != 1:
        raise InvalidParameter(f"`shape_like`: expected {shape} but for one axis, got {other}", "give `axes: [0]`")
    bound |= {"axis": cut[0], "begin": 0, "end": other[cut[0]]}
    return ["a view here, where MXNet copies"]


def counted_axis(bound: Bound, inputs: Inputs) -> Notes:
    """broadcast_axis: so many along some axes."""
    target = list(bound["shape"])
    axes, sizes = _list(inputs.get("axis", 0), "axis"), _list(inputs.get("size", 1), "size")
    if len(axes) != len(sizes) or any(not -len(target) <= axis < len(target) for axis in axes):
        raise InvalidParameter(f"`axis`, `size`: expected as many of one as of the other, got {axes} and {sizes}")
    for axis, size in zip(axes, sizes, strict=True):
        target[axis] = size
    bound["target"] = target
    return []


def reshaped(bound: Bound, inputs: Inputs) -> Notes:
    """-1 is what is left over, 0 the size that is there."""
    shape = bound["shape"]
    wanted = _list(inputs.get("shape", inputs.get("newshape", [-1])), "shape")
    target = [shape[i] if size == 0 and i < len(shape) else size for i, size in enumerate(wanted)]
    if target.count(-1) == 1:
        others = prod(size for size in target if size != -1)
        target = [prod(shape) // others if size == -1 and others > 0 else size for size in target]
    bound["target"] = target
    return []


def padded(bound: Bound, inputs: Inputs) -> Notes:
    """MXNet names all axes, first to last; here the last ones are enough."""
    width = _list(inputs.get("pad_width"), "pad_width")
    if len(width) != 2 * len(bound["shape"]):
        raise InvalidParameter(f"`pad_width`: expected two numbers an axis of {bound['shape']}, got {width}")
    pairs = list(zip(width[::2], width[1::2], strict=True))
    while len(pairs) > 1 and pairs[0] == (0, 0):
        pairs.pop(0)
    bound |= {"before": [pair[0] for pair in pairs], "after": [pair[1] for pair in pairs]}
    return []


def repeated(bound: Bound, inputs: Inputs) -> Notes:
    reps = _list(inputs.get("reps"), "reps")
    bound["reps"] = [1] * (len(bound["shape"]) - len(reps)) + reps
    return []


def enlarged(bound: Bound, inputs: Inputs) -> Notes:
    scale = inputs.get("scale", 1)
    if not _whole(scale) or scale < 1:
        raise InvalidParameter(f"`scale`: expected a whole number of at least 1, got {scale}")
    bound["out"] = [scale * size for size in bound["image"]]
    return []


def elements(bound: Bound, inputs: Inputs) -> Notes:
    """Of `arange`: how many from start to stop."""
    start, stop, step = (inputs.get(name, usual) for name, usual in (("start", 0), ("stop", None), ("step", 1)))
    if stop is None:
        start, stop = 0, start
    if not all(_in_reach(value) for value in (start, stop, step)) or not step or abs((stop - start) / step) > 1e15:
        raise InvalidParameter(f"`start`, `stop`, `step`: expected numbers, got {start}, {stop}, {step}")
    bound |= {"start": float(start), "step": float(step), "elements": max(1, ceil((stop - start) / step))}
    repeat = inputs.get("repeat", 1)
    return [] if repeat == 1 else [f"each number once here, {repeat} times there"]


def _in_reach(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e15 <= value <= 1e15


def triangle(bound: Bound, inputs: Inputs) -> Notes:
    """The n of a triangle of n (n + 1) / 2 numbers."""
    count = bound["triangle"]
    n = (isqrt(8 * count + 1) - 1) // 2
    if n * (n + 1) // 2 != count:
        raise InvalidParameter(f"`A`: {count} numbers are no triangle", "as 1035 are that of 45 x 45")
    bound["n"] = n
    return []


def columns(bound: Bound, inputs: Inputs) -> Notes:
    """Of col2im: the channels that the columns hold."""
    kernel = shape_of(inputs.get("kernel"), "kernel")
    size = prod(kernel)
    if len(kernel) != 2 or bound["rows"] % size:
        raise InvalidParameter(f"`kernel`: expected two sizes whose product divides {bound['rows']}, got {kernel}")
    bound["channels"] = bound["rows"] // size
    return []


def regions(bound: Bound, inputs: Inputs) -> Notes:
    bound.setdefault("region", [min(_MOST_PIXELS, size) for size in bound["image"]])
    return [f"regions of {bound['region']} pixels here, drawn at random there"]


def window_apart(bound: Bound, inputs: Inputs) -> Notes:
    """Pooling without strides goes from window to window."""
    bound.setdefault("stride", bound.get("kernel", 2))
    return []
