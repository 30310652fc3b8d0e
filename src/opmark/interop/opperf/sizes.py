"""Functions of the field `finish`: parameters of a few operators that are computed from other inputs."""

from __future__ import annotations

from math import ceil, isqrt, prod
from typing import Any

from opmark.errors import InvalidParameter
from opmark.interop.opperf.rows import Inputs
from opmark.interop.opperf.shapes import Bound, shape_of

Notes = list[str]

_MOST_PIXELS = 32


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole_numbers(value: Any, who: str) -> list[int]:
    """Return whole numbers of any sign; a single number is a list of one."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    if not items or not all(map(_whole, items)):
        raise InvalidParameter(f"`{who}`: expected whole numbers, got {value}")
    return items


def _axes(inputs: Inputs, name: str, shape: list[int]) -> list[int]:
    """Return the axes of a shape that an option names, counted from the first; an empty list names none."""
    if inputs.get(name) in (None, [], ()):
        return []
    given = _whole_numbers(inputs[name], name)
    axes = sorted({axis % len(shape) for axis in given})
    if len(axes) < len(given) or not all(-len(shape) <= axis < len(shape) for axis in given):
        raise InvalidParameter(f"`{name}`: expected axes of {shape}, each once, got {inputs[name]}")
    return axes


def one_axis(bound: Bound, inputs: Inputs) -> Notes:
    """Make a reduction over all axes one over a vector; opperf's default is all axes."""
    shape = bound["shape"]
    axes = _axes(inputs, "axis", shape)
    if len(axes) == 1:
        bound["axis"] = _whole_numbers(inputs["axis"], "axis")[0]
        return []
    if axes and len(axes) < len(shape):
        raise InvalidParameter(f"`axis`: expected one axis or all, got {inputs['axis']}")
    bound |= {"shape": [prod(shape)], "axis": 0}
    return ["a reduction over all axes is one over a vector of as many elements here"]


def last_axes(bound: Bound, inputs: Inputs) -> Notes:
    """Set the number of last axes that `moments` reduces."""
    shape = bound["shape"]
    axes = _axes(inputs, "axes", shape)
    if axes and axes != list(range(len(shape) - len(axes), len(shape))):
        raise InvalidParameter(f"`axes`: expected the last ones, got {inputs['axes']}")
    bound["axes"] = 0 if len(axes) == len(shape) else len(axes)
    return []


def one_row_per_image(bound: Bound, inputs: Inputs) -> Notes:
    bound |= {"shape": [bound["shape"][0], prod(bound["shape"][1:])], "axis": -1}
    return []


def slice_bounds(bound: Bound, inputs: Inputs) -> Notes:
    """Set begin and end of one axis; of several axes, all but one have to be whole."""
    shape = bound["shape"]
    begins, ends = _bounds(inputs.get("begin"), "begin"), _bounds(inputs.get("end"), "end")
    axes = _axes({"axis": [bound["axis"]]}, "axis", shape) if "axis" in bound else list(range(len(begins)))
    if not len(axes) == len(begins) == len(ends) <= len(shape):
        raise InvalidParameter(f"`begin`, `end`: expected one of each per axis of {shape}, got {begins} and {ends}")
    parts = {axis: _part(begin, end, shape[axis], axis) for axis, begin, end in zip(axes, begins, ends, strict=True)}
    cut = [axis for axis, part in parts.items() if part != (0, shape[axis])]
    if len(cut) > 1:
        raise InvalidParameter(f"`end`: expected a part of one axis, got {begins} to {ends}")
    axis = cut[0] if cut else axes[0]
    bound |= {"axis": axis, "begin": parts[axis][0], "end": parts[axis][1]}
    return ["a view here, while MXNet copies"]


def _bounds(value: Any, who: str) -> list[int | None]:
    """Return the beginnings or ends of slices; None means the first element, or the end of the axis."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    if not items or not all(item is None or _whole(item) for item in items):
        raise InvalidParameter(f"`{who}`: expected whole numbers, got {value}")
    return items


def _part(begin: int | None, end: int | None, size: int, axis: int) -> tuple[int, int]:
    """Return begin and end counted from the first element; negative ones count from the end."""
    first, last = begin or 0, size if end is None else end
    first, last = (place + size if place < 0 else place for place in (first, last))
    if not 0 <= first < last <= size:
        got = f"{'none' if begin is None else begin} to {'none' if end is None else end}"
        raise InvalidParameter(f"`begin`, `end`: expected a part of axis {axis}, 0 to {size}, got {got}")
    return first, last


def slice_like(bound: Bound, inputs: Inputs) -> Notes:
    shape, other = bound["shape"], bound["like"]
    axes = _axes(inputs, "axes", shape) or list(range(len(shape)))
    cut = [axis for axis in axes if axis < len(other) and other[axis] != shape[axis]]
    if len(cut) != 1 or max(axes) >= len(other) or other[cut[0]] > shape[cut[0]]:
        raise InvalidParameter(f"`shape_like`: expected {shape} with one shorter axis, got {other}", "give `axes: [0]`")
    bound |= {"axis": cut[0], "begin": 0, "end": other[cut[0]]}
    return ["a view here, while MXNet copies"]


def broadcast_axis(bound: Bound, inputs: Inputs) -> Notes:
    """Set the target of `broadcast_axis`, which gives the sizes of some axes."""
    target = list(bound["shape"])
    axes, sizes = _whole_numbers(inputs.get("axis", 0), "axis"), _whole_numbers(inputs.get("size", 1), "size")
    if len(axes) != len(sizes) or any(not -len(target) <= axis < len(target) for axis in axes):
        raise InvalidParameter(f"`axis`, `size`: expected as many of one as of the other, got {axes} and {sizes}")
    for axis, size in zip(axes, sizes, strict=True):
        target[axis] = size
    bound["target"] = target
    return []


def reshape_target(bound: Bound, inputs: Inputs) -> Notes:
    """Set the target of `reshape`: -1 is the remaining size, 0 the size of the input."""
    shape = bound["shape"]
    sizes = _whole_numbers(inputs.get("shape", inputs.get("newshape", [-1])), "shape")
    target = [shape[i] if size == 0 and i < len(shape) else size for i, size in enumerate(sizes)]
    if target.count(-1) == 1:
        others = prod(size for size in target if size != -1)
        target = [prod(shape) // others if size == -1 and others > 0 else size for size in target]
    bound["target"] = target
    return []


def pad_widths(bound: Bound, inputs: Inputs) -> Notes:
    """Set the padding of the last axes; MXNet gives that of all axes."""
    width = _whole_numbers(inputs.get("pad_width"), "pad_width")
    if len(width) != 2 * len(bound["shape"]):
        raise InvalidParameter(f"`pad_width`: expected two numbers per axis of {bound['shape']}, got {width}")
    pairs = list(zip(width[::2], width[1::2], strict=True))
    while len(pairs) > 1 and pairs[0] == (0, 0):
        pairs.pop(0)
    bound |= {"before": [pair[0] for pair in pairs], "after": [pair[1] for pair in pairs]}
    return []


def tile_repeats(bound: Bound, inputs: Inputs) -> Notes:
    reps = _whole_numbers(inputs.get("reps"), "reps")
    bound["reps"] = [1] * (len(bound["shape"]) - len(reps)) + reps
    return []


def upsample_size(bound: Bound, inputs: Inputs) -> Notes:
    scale = inputs.get("scale", 1)
    if not _whole(scale) or scale < 1:
        raise InvalidParameter(f"`scale`: expected a whole number of at least 1, got {scale}")
    bound["out"] = [scale * size for size in bound["image"]]
    return []


def elements(bound: Bound, inputs: Inputs) -> Notes:
    """Set the number of elements of `arange` from start to stop."""
    start, stop, step = (inputs.get(name, usual) for name, usual in (("start", 0), ("stop", None), ("step", 1)))
    if stop is None:
        start, stop = 0, start
    if not all(_is_moderate(value) for value in (start, stop, step)) or not step or abs((stop - start) / step) > 1e15:
        raise InvalidParameter(f"`start`, `stop`, `step`: expected numbers, got {start}, {stop}, {step}")
    bound |= {"start": float(start), "step": float(step), "elements": max(1, ceil((stop - start) / step))}
    repeat = inputs.get("repeat", 1)
    return [] if repeat == 1 else [f"each number occurs once here, {repeat} times in MXNet"]


def _is_moderate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e15 <= value <= 1e15


def triangle(bound: Bound, inputs: Inputs) -> Notes:
    """Set the n of a triangle of n (n + 1) / 2 numbers."""
    count = bound["triangle"]
    n = (isqrt(8 * count + 1) - 1) // 2
    if n * (n + 1) // 2 != count:
        raise InvalidParameter(f"`A`: {count} numbers are not a triangle", "as 1035 is the triangle of 45 x 45")
    bound["n"] = n
    return []


def columns(bound: Bound, inputs: Inputs) -> Notes:
    """Set the channels of col2im from the rows of its columns."""
    kernel = shape_of(inputs.get("kernel"), "kernel")
    size = prod(kernel)
    if len(kernel) != 2 or bound["rows"] % size:
        raise InvalidParameter(f"`kernel`: expected two sizes whose product divides {bound['rows']}, got {kernel}")
    bound["channels"] = bound["rows"] // size
    return []


def regions(bound: Bound, inputs: Inputs) -> Notes:
    bound.setdefault("region", [min(_MOST_PIXELS, size) for size in bound["image"]])
    return [f"regions have {bound['region']} pixels here, and random sizes in MXNet"]


def stride_of_window(bound: Bound, inputs: Inputs) -> Notes:
    """Use the window as the stride of a pooling without strides."""
    bound.setdefault("stride", bound.get("kernel", 2))
    return []


def check_channel_weights(bound: Bound, inputs: Inputs) -> Notes:
    """Check the weights of BatchNorm and InstanceNorm, which belong to the second axis."""
    return _check_weights(bound, bound["shape"][1:2])


def check_element_weights(bound: Bound, inputs: Inputs) -> Notes:
    """Check the weights of LayerNorm, which belong to the axis that is last here."""
    return _check_weights(bound, bound["shape"][-1:])


def check_group_weights(bound: Bound, inputs: Inputs) -> Notes:
    """Check the weights of GroupNorm: one per group in MXNet 1, one per channel later."""
    return _check_weights(bound, [bound.get("groups"), *bound["shape"][1:2]])


def _check_weights(bound: Bound, sizes: list[Any]) -> Notes:
    given = bound.get("weights")
    if given is not None and given not in sizes:
        expected = " or ".join(str(size) for size in sizes) or "one more axis"
        raise InvalidParameter(f"`gamma`, `beta`: expected {expected} for {bound['shape']}, got {given}")
    return []


def check_condition(bound: Bound, inputs: Inputs) -> Notes:
    """Check the condition of `where`, which has the same shape, or one element per row."""
    shape, given = bound["shape"], bound.get("condition")
    if given is None or given == shape:
        return []
    if given != shape[:1]:
        raise InvalidParameter(f"`condition`: expected {shape} or {shape[:1]}, got {given}")
    return [f"`condition` has one value per element here, {shape}, and one per row in the file"]


def check_filters(bound: Bound, inputs: Inputs) -> Notes:
    """Check the channels of a convolution's weights, with groups."""
    groups, given = bound.get("groups", 1), bound.get("weight_channels")
    if given is not None and _whole(groups) and given * groups != bound["in_channels"]:
        raise InvalidParameter(
            f"`weight`: expected {bound['in_channels']} channels in {groups} groups, got {given} each"
        )
    return []


def check_transposed_filters(bound: Bound, inputs: Inputs) -> Notes:
    """Check a transposed convolution's weights, which hold the channels of the output."""
    groups, given = bound.get("groups", 1), bound.get("weight_channels")
    if given is not None and _whole(groups) and bound.setdefault("out_channels", given * groups) != given * groups:
        raise InvalidParameter(
            f"`weight`: expected {bound['out_channels']} filters in {groups} groups, got {given} each"
        )
    return []
