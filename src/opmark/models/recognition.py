"""Proposes operators of the catalogue that may be the same work as a call of torch. Whoever asks has to check it.

Tensors among the arguments are TensorSpecs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opmark.schema import TensorSpec

Proposal = tuple[str, dict[str, Any]]
"""Name of an operator and its parameters."""

_NAMES = {
    "pow": "power", "neg": "negative", "add_": "iadd", "sub_": "isub", "mul_": "imul", "div_": "idiv",
    "bitwise_not": "bitwise_not", "hardsigmoid": "hard_sigmoid", "eq": "equal", "ne": "not_equal", "gt": "greater",
    "ge": "greater_equal", "lt": "less", "le": "less_equal", "cat": "concat",
}  # fmt: skip
"""Names of element-wise operators that differ; all others are the same."""
_BROADCASTS = ("same", "row", "column", "scalar")


def proposals(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Proposal]:
    """Yield operators for a call of `aten.NAME`, the likeliest first."""
    given = [one for one in args if isinstance(one, TensorSpec)]
    lists = [one for one in args if isinstance(one, list) and one and isinstance(one[0], TensorSpec)]
    if not given and not lists:
        return
    x = (given or lists[0])[0]
    common = {"shape": list(x.shape), "dtype": x.dtype}
    if name in ("addmm", "mm", "bmm", "baddbmm"):
        yield from _products(name, given)
    elif name == "convolution":
        yield from _convolutions(given, args)
    elif name in ("_softmax", "_log_softmax"):
        yield name.removeprefix("_"), {**common, "axis": args[1]}
    elif name == "native_layer_norm":
        yield "layer_norm", {**common, "eps": args[4]}
        yield "layer_norm", {**common, "eps": args[4], "bias": False}
    elif name == "native_group_norm":
        yield "group_norm", {**common, "groups": args[6], "eps": args[7]}
    elif name == "native_batch_norm" and args[5]:
        return  # the catalogue has it as inference, and as a step that counts its batches
    elif name in ("native_batch_norm", "_native_batch_norm_legit_no_training"):
        yield "batch_norm", {**common, "training": False, "momentum": args[-2], "eps": args[-1]}
    elif name == "embedding":
        yield "embedding", {"rows": x.shape[0], "dim": x.shape[1], "indices": given[1].elements, "dtype": x.dtype}
    elif name.startswith("_scaled_dot_product"):
        batch, heads, q_len, head_dim = x.shape
        sizes = {"batch": batch, "heads": heads, "q_len": q_len, "kv_len": given[1].shape[2], "head_dim": head_dim}
        grouped = given[1].shape[1] if given[1].shape[1] != heads else 0
        for causal in (False, True):
            yield "scaled_dot_product_attention", {**sizes, "kv_heads": grouped, "causal": causal, "dtype": x.dtype}
    elif name in ("max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d", "mean"):
        yield from _pools(name, x, args)
    elif lists and name in ("cat", "stack"):
        axis = args[1] if len(args) > 1 else 0
        yield _NAMES.get(name, name), {**common, "count": len(lists[0]), "axis": axis}
    elif name == "leaky_relu":
        yield name, {**common, "negative_slope": args[1] if len(args) > 1 else 0.01}
    elif name == "gelu":
        yield name, {**common, "approximate": kwargs.get("approximate", "none")}
    elif len(given) == 1:
        yield _NAMES.get(name, name), common
    elif len(given) == 2:
        for y in _BROADCASTS:
            yield _NAMES.get(name, name), {**common, "y": y}


def _products(name: str, given: Sequence[TensorSpec]) -> Iterator[Proposal]:
    a, b = given[-2:]
    if len(a.shape) != len(b.shape):
        return
    sizes = {"M": a.shape[-2], "N": b.shape[-1], "K": a.shape[-1], "dtype": a.dtype}
    names = {"addmm": ("linear", "addmm"), "mm": ("linear_no_bias", "matmul")}
    if name in names:
        yield from ((one, sizes) for one in names[name])
    else:
        yield "batched_matmul" if name == "bmm" else name, {"B": a.shape[0], **sizes}


def _convolutions(given: Sequence[TensorSpec], args: Sequence[Any]) -> Iterator[Proposal]:
    """Propose a convolution without bias; the operators of the catalogue have one stride, padding and dilation."""
    x, weight = given[:2]
    stride, padding, dilation, transposed, output_padding, groups = args[3:9]
    if args[2] is not None or any(len(set(one)) > 1 for one in (stride, padding, dilation)) or len(x.shape) < 3:
        return
    dims = len(x.shape) - 2
    common = {
        "batch": x.shape[0], "image": list(x.shape[2:]), "kernel": list(weight.shape[2:]), "stride": stride[0],
        "padding": padding[0], "dilation": dilation[0], "dtype": x.dtype,
    }  # fmt: skip
    channels = {"in_channels": x.shape[1], "out_channels": weight.shape[0], "groups": groups}
    if transposed:
        out = weight.shape[1] * groups
        yield f"conv_transpose{dims}d", {**common, **channels, "out_channels": out, "output_padding": output_padding[0]}
        return
    if groups == x.shape[1] > 1 and dims == 2:
        yield "depthwise_conv2d", {**common, "channels": groups, "multiplier": weight.shape[0] // groups}
    yield f"conv{dims}d", {**common, **channels}


def _pools(name: str, x: TensorSpec, args: Sequence[Any]) -> Iterator[Proposal]:
    if len(x.shape) != 4:
        return
    common = {"batch": x.shape[0], "channels": x.shape[1], "image": list(x.shape[2:]), "dtype": x.dtype}
    if name == "mean":
        yield "global_avg_pool2d", common
        return
    if name == "_adaptive_avg_pool2d":
        yield "adaptive_avg_pool2d", {**common, "out": args[1]}
        return
    kernel, rest = args[1], list(args[4:])
    stride = (args[2] if len(args) > 2 else []) or kernel
    padding = args[3] if len(args) > 3 else [0, 0]
    if len(set(stride)) > 1 or len(set(padding)) > 1:
        return
    common |= {"kernel": kernel, "stride": stride[0], "padding": padding[0]}
    if name == "avg_pool2d":
        yield "avg_pool2d", {**common, "count_include_pad": rest[1] if len(rest) > 1 else True}
    else:
        yield "max_pool2d", {**common, "dilation": rest[0][0] if rest else 1}
