"""Rows for every operator of MXNet's opperf."""

from __future__ import annotations

from collections.abc import Mapping

from opmark.importers.opperf import finish
from opmark.importers.opperf.layers import ARRAYS, IMAGE, LAYERS, X
from opmark.importers.opperf.rows import Row, words

_PAIR = {"lhs|x1|a|base|this": "*shape", "rhs|x2|b|exp|other": "~shape"}
_SQUARE = {"A": "%batch n n"}
_AXIS = {"axis": "axis", "keepdims": "keepdims"}
_RESULT_TYPE = {"dtype": ""}

UNARY = words(
    "abs arccos arccosh arcsin arcsinh arctan arctanh BlockGrad cbrt ceil cos cosh degrees erf erfinv exp "
    "expm1 fix flatten floor gamma gammaln identity log log10 log1p log2 logical_not make_loss negative "
    "ones_like radians rcbrt reciprocal relu rint round rsqrt shape_array shuffle sigmoid sign sin sinh "
    "size_array softsign sqrt square stop_gradient tan tanh trunc zeros_like"
)
BROADCAST = words(
    "add div equal greater greater_equal hypot lesser lesser_equal logical_and logical_or logical_xor maximum "
    "minimum minus mod mul not_equal plus power sub"
)
_ALIASES = {"fix": "trunc", "rint": "round", "make_loss": "identity", "stop_gradient": "identity"}
_BINARY = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "modulo": "mod", "mod": "mod",
    "power": "power",
    "maximum": "maximum", "minimum": "minimum", "equal": "equal", "not_equal": "not_equal", "lesser": "less",
    "lesser_equal": "less_equal", "greater": "greater", "greater_equal": "greater_equal", "logical_and": "logical_and",
    "logical_or": "logical_or", "logical_xor": "logical_xor", "hypot": "hypot", "true_divide": "div", "less": "less",
    "less_equal": "less_equal", "elemwise_add": "add", "elemwise_sub": "sub", "elemwise_mul": "mul",
    "elemwise_div": "div",
}  # fmt: skip
_BROADCAST_WORDS = {"div": "div", "lesser": "less", "lesser_equal": "less_equal", "minus": "sub", "plus": "add"}

_REDUCTION = {
    "max": "amax", "max_axis": "amax", "mean": "reduce_mean", "min": "amin", "min_axis": "amin", "nanprod": "nanprod",
    "nansum": "nansum", "prod": "prod", "sum": "reduce_sum", "sum_axis": "reduce_sum",
}  # fmt: skip

_RANDOM_OPTIONS = {
    "exponential": {"lam": "rate", "scale": ""}, "gamma": {"alpha": "alpha", "beta": "scale"},
    "generalized_negative_binomial": {"mu": "mu", "alpha": "alpha"}, "normal": {"loc": "mean", "scale": "std"},
    "poisson": {"lam": "rate"}, "negative_binomial": {"k": "k", "p": "prob"},
    "randint": {"low": "low", "high": "high"}, "uniform": {"low": "low", "high": "high"},
}  # fmt: skip
DISTRIBUTIONS = {
    "exponential": ("lam",), "gamma": ("alpha", "beta"), "generalized_negative_binomial": ("mu", "alpha"),
    "negative_binomial": ("k", "p"), "normal": ("mu", "sigma"), "poisson": ("lam",), "uniform": ("low", "high"),
}  # fmt: skip
"""Parameters of each distribution, which are tensors of `sample_` and `random_pdf_` operators."""


def _unary() -> Mapping[str, Row]:
    rows = {name: Row(_ALIASES.get(name, name), X) for name in UNARY}
    rows["BlockGrad"] = Row("identity", X)
    rows |= {name: Row("cast", X, {"dtype": "to"}) for name in ("cast", "amp_cast", "Cast")}
    rows["amp_multicast"] = Row(
        "cast", {ARRAYS: "[1] *shape"}, {"num_outputs": "", "cast_narrow": ""}, fixed={"to": "float16"},
        note="cast to float16 here; MXNet does not cast tensors that all have one type",
    )  # fmt: skip
    rows["argmax_channel"] = Row("argmax", X, fixed={"axis": 1})
    return rows


def _binary() -> Mapping[str, Row]:
    rows = {name: Row(op, _PAIR, needed=2) for name, op in _BINARY.items()}
    rows |= {f"broadcast_{name}": Row(_BROADCAST_WORDS.get(name, name), _PAIR, needed=2) for name in BROADCAST}
    several = {"num_args": ""}
    rows |= {name: Row("add_n", {ARRAYS: "[n] *shape"}, several) for name in ("add_n", "ElementWiseSum")}
    return rows


def _products() -> Mapping[str, Row | tuple[Row, ...]]:
    flips = {"transpose_a": "lhs", "transpose_b": "rhs"}
    dense = {"forward_stype": "in:default"}
    a_b, of_a_b = {"transpose_a": "A", "transpose_b": "B"}, {"axis": "", "alpha": "in:1,1.0"}
    return {
        "dot": Row("matmul", {"lhs|a": "M K", "rhs|b": "K N"}, dense, needed=2, flips=flips),
        "batch_dot": Row("batched_matmul", {"lhs|a": "B M K", "rhs|b": "B K N"}, dense, needed=2, flips=flips),
        "khatri_rao": Row("khatri_rao", {"args0|lhs": "M N", "args1|rhs": "L N"}, needed=2),
        "linalg_gemm2": (
            Row("matmul", {"A": "M K", "B": "K N"}, of_a_b, needed=2, flips=a_b),
            Row("batched_matmul", {"A": "%B M K", "B": "%B K N"}, of_a_b, needed=2, flips=a_b),
        ),
        "linalg_gemm": Row(
            "addmm", {"A": "M K", "B": "K N", "C": "M N"}, {"axis": "", "alpha": "alpha", "beta": "beta"}, needed=2,
            flips=a_b,
        ),
    }  # fmt: skip


def _random() -> Mapping[str, Row | tuple[Row, ...]]:
    rows: dict[str, Row | tuple[Row, ...]] = {
        f"random_{name}": Row(f"random_{name}", {"shape": "*shape"}, words) for name, words in _RANDOM_OPTIONS.items()
    }
    for name, given in DISTRIBUTIONS.items():
        tensors = dict.fromkeys(given, "#distributions")
        rows[f"sample_{name}"] = Row(f"sample_{name}", {**tensors, "shape": "%draws"}, usual={"draws": 1})
        rows[f"random_pdf_{name}"] = Row(
            f"random_pdf_{name}", {"sample": "distributions %points", **tensors}, {"is_log": "log"}
        )
    rows["random_pdf_dirichlet"] = Row(
        "random_pdf_dirichlet", {"sample": "%points categories", "alpha": "%distributions categories"},
        {"is_log": "log"}, usual={"distributions": 1, "log": False},
    )  # fmt: skip
    rows["sample_multinomial"] = Row(
        "multinomial", {"data": "rows categories", "shape": "%draws"}, {"dtype": "", "get_prob": "in:False"},
        usual={"draws": 1},
    )  # fmt: skip
    rows["BilinearSampler"] = Row(
        "grid_sample", {**IMAGE, "grid": "batch 2 *out"}, needed=2, fixed={"align_corners": True}
    )
    rows["GridGenerator"] = (
        Row("warp_grid", {"data": "batch 2 *image"}, {"target_shape": ""}, when={"transform_type": ("warp",)}),
        Row("affine_grid", {"data": "batch 6", "target_shape": "*out"}, needed=2, fixed={"align_corners": True},
            when={"transform_type": ("affine",)}),
    )  # fmt: skip
    return rows


def _reduction() -> Mapping[str, Row]:
    plain = {**_AXIS, "exclude": "in:False,0"}
    axis = {"axis": "axis"}
    searched = {"keepdims": "keepdims", **_RESULT_TYPE}
    sorting = {"axis": "axis", "is_ascend": "!descending", **_RESULT_TYPE}
    best = {"k": "k", "is_ascend": "!largest", "ret_typ": "", **_RESULT_TYPE}
    rows = {
        name: Row(op, X, {**plain, "axis": "."}, finish=finish.one_axis, back=axis) for name, op in _REDUCTION.items()
    }
    rows["norm"] = Row(
        "norm",
        X,
        {"ord": "ord", "keepdims": "keepdims", "axis": ".", "out_dtype": ""},
        finish=finish.one_axis,
        back=axis,
    )
    rows["moments"] = Row("moments", X, {"axes": ".", "keepdims": ""}, finish=finish.last_axes)
    for name in ("argmax", "argmin"):
        rows[name] = Row(name, X, {**searched, "axis": "."}, finish=finish.one_axis, back=axis)
    rows |= {name: Row(name, X, sorting) for name in ("sort", "argsort")}
    rows["topk"] = Row("topk", {"data": "*shape"}, best, moves="data", usual={"k": 1})
    return rows


def _indexing() -> Mapping[str, Row | tuple[Row, ...]]:
    part = {"begin": ".", "end": ".", "step": "in:1,[1]", "axis": "axis"}
    cut = {"begin": "begin", "end": "end"}
    pick = Row("pick", {"data": "*shape", "index": "..."}, {**_AXIS, "mode": ""})
    return {
        "gather_nd": Row("gather_nd", {"data": "*shape", "indices": "depth %indices"}, needed=2),
        "scatter_nd": Row(
            "index_put", {"indices": "? %indices", "shape": "*shape", "data": "..."}, needed=2,
            note="index_put is the nearest operator: MXNet writes into zeros, index_put into a tensor",
        ),
        "one_hot": Row(
            "one_hot", {"indices": "%indices"}, {"depth": "depth", "dtype": "", "on_value": "", "off_value": ""}
        ),
        "pick": pick,
        "choose_element_0index": pick,
        "ravel_multi_index": Row("ravel_multi_index", {"data": "? %indices", "shape": "*shape"}, needed=2),
        "unravel_index": Row("unravel_index", {"data": "%indices", "shape": "*shape"}, needed=2),
        "slice": Row("slice", X, part, finish=finish.slice_bounds, back=cut),
        "slice_axis": Row("slice", X, part, finish=finish.slice_bounds, back=cut),
        "slice_like": Row(
            "slice", {"data": "*shape", "shape_like": "*like"}, {"axes": "."}, needed=2, finish=finish.slice_like
        ),
        "take": Row(
            "take", {"a|data": "*shape", "indices": "*index_shape"}, {"axis": "axis", "mode": ""}, needed=2
        ),
        "where": Row("where", {"x": "*shape", "y": "*shape", "condition": "*condition"}, finish=finish.check_condition),
        "fill_element_0index": Row(
            "scatter", {"lhs": "*shape", "mhs": "...", "rhs": "..."}, fixed={"length": 1, "axis": 1}
        ),
    }  # fmt: skip


def _shaping() -> Mapping[str, Row]:
    blocks = {"block_size": "block"}
    depth = dict.fromkeys(("depth_to_space", "space_to_depth"))
    swapped = Row("swapaxes", X, {"dim1": "axis1", "dim2": "axis2"}, note="a view here, while MXNet copies")
    axis = {"axis": "axis"}
    rows = {name: Row(name, X, blocks, fixed={"order": "dcr"}) for name in depth}
    rows |= dict.fromkeys(("flip", "reverse"), Row("flip", X, axis))
    rows |= dict.fromkeys(("swapaxes", "SwapAxis"), swapped)
    rows |= {
        "transpose": Row("transpose", X, {"axes": "axes"}),
        "diag": Row("diag", X, {"k": "k", "axis1": "in:0", "axis2": "in:1"}),
        "reshape": Row(
            "reshape", X, {"shape": ".", "newshape": ".", "target_shape": "", "reverse": "in:False"},
            finish=finish.reshape_target, back={"shape": "target"},
        ),
        "reshape_like": Row("reshape", {"lhs": "*shape", "rhs": "*target"}, needed=2),
        "squeeze": Row("squeeze", X, axis),
        "concat": Row("concat", {ARRAYS: "[count] *shape"}, {"dim": "axis", "num_args": ""}, usual={"axis": 1}),
        "stack": Row("stack", {ARRAYS: "[count] *shape"}, {"axis": "axis", "num_args": ""}, usual={"axis": 0}),
        "split": Row(
            "split_copy", X, {"num_outputs": "parts", "axis": "axis", "squeeze_axis": "in:False,0"},
            usual={"axis": 1},
        ),
        "broadcast_to": Row("broadcast_copy", {"data": "*shape", "shape": "*target"}, needed=2),
        "broadcast_like": Row("broadcast_copy", {"lhs": "*shape", "rhs": "*target"}, needed=2),
        "expand_dims": Row("expand_dims", X, axis),
        "pad": Row(
            "pad", X, {"pad_width": ".", "mode": "mode", "constant_value": "value"}, finish=finish.pad_widths
        ),
        "repeat": Row("repeat", X, {"repeats": "repeats", "axis": "axis"}),
        "tile": Row("tile", X, {"reps": "."}, finish=finish.tile_repeats, back={"reps": "reps"}),
    }  # fmt: skip
    counted = Row("broadcast_copy", X, {"axis": ".", "size": "."}, finish=finish.broadcast_axis)
    return rows | dict.fromkeys(("broadcast_axis", "broadcast_axes"), counted)


def _others() -> Mapping[str, Row]:
    steps = {"axis": "in:0", "use_sequence_length": "", "sequence_length": "", "value": "value"}
    several = {"num_arrays": "tensors", "init_output": ""}
    return {
        "all_finite": Row("all_finite", X, {"init_output": ""}),
        "multi_all_finite": Row("multi_all_finite", {ARRAYS: "[tensors] *shape"}, several),
        "multi_sum_sq": Row("multi_sum_sq", {ARRAYS: "[tensors] *shape"}, several),
        "reset_arrays": Row("fill", {ARRAYS: "[1] *shape"}, {"num_arrays": ""}),
        "clip": Row("clip", X, {"a_min": "low", "a_max": "high"}),
        "cumsum": Row("cumsum", {"a|data": "*shape"}, {"axis": "axis", "dtype": ""}),
        "SequenceLast": Row("sequence_last", {"data": "steps batch %dim"}, steps),
        "SequenceMask": Row("sequence_mask", {"data": "steps batch %dim"}, steps),
        "SequenceReverse": Row("sequence_reverse", {"data": "steps batch %dim"}, steps),
    }


def _linalg() -> Mapping[str, Row]:
    triangle = {"transpose": "in:False,0", "rightside": "in:False,0", "lower": "!upper", "alpha": "in:1,1.0"}
    square = {"det": "det", "inverse": "inverse", "potri": "cholesky_inverse", "potrf": "cholesky",
              "slogdet": "slogdet", "sumlogdiag": "sumlogdiag"}  # fmt: skip
    rows = {f"linalg_{name}": Row(op, _SQUARE, {"lower": "in:True,1"}) for name, op in square.items()}
    right = {**_SQUARE, "B": "%batch n k"}
    return rows | {
        "linalg_extractdiag": Row("diag", {"A": "*shape"}, {"offset": "k"}),
        "linalg_makediag": Row("diag_embed", {"A": "*shape"}, {"offset": "k"}),
        "linalg_extracttrian": Row("extract_triangle", _SQUARE, {"lower": "!upper", "offset": "in:0"}),
        "linalg_maketrian": Row(
            "make_triangle", {"A": "%batch triangle"}, {"lower": "!upper", "offset": "in:0"}, finish=finish.triangle
        ),
        "linalg_gelqf": Row("lq", {"A": "%batch m n"}),
        "linalg_syrk": Row("syrk", {"A": "%batch n k"}, {"alpha": "in:1,1.0"}, flips={"transpose": "A"}),
        "linalg_trmm": Row("trmm", right, triangle, needed=2),
        "linalg_trsm": Row("triangular_solve", right, triangle, needed=2),
    }


def _table() -> dict[str, tuple[Row, ...]]:
    parts: list[Mapping[str, Row | tuple[Row, ...]]] = [
        _unary(), _binary(), _products(), _random(), _reduction(), _indexing(), _shaping(), *LAYERS, _others(),
        _linalg(),
    ]  # fmt: skip
    found: dict[str, tuple[Row, ...]] = {}
    for part in parts:
        found |= {name: (rows,) if isinstance(rows, Row) else rows for name, rows in part.items()}
    return found


OPERATORS = _table()
"""Rows by opperf's name of an operator; several where options decide which one applies."""
