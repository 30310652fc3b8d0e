"""Rows for every operator of MXNet's opperf."""

from __future__ import annotations

from collections.abc import Mapping

from opmark.interop.opperf import sizes
from opmark.interop.opperf.layers import ARRAYS, IMAGE, LAYERS, X
from opmark.interop.opperf.rows import OpperfRow, words

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


def _unary() -> Mapping[str, OpperfRow]:
    rows = {name: OpperfRow(_ALIASES.get(name, name), X) for name in UNARY}
    rows["BlockGrad"] = OpperfRow("identity", X)
    rows |= {name: OpperfRow("cast", X, {"dtype": "to"}) for name in ("cast", "amp_cast", "Cast")}
    rows["amp_multicast"] = OpperfRow(
        "cast", {ARRAYS: "[1] *shape"}, {"num_outputs": "", "cast_narrow": ""}, fixed={"to": "float16"},
        note="cast to float16 here; MXNet does not cast tensors that all have one type",
    )  # fmt: skip
    rows["argmax_channel"] = OpperfRow("argmax", X, fixed={"axis": 1})
    return rows


def _binary() -> Mapping[str, OpperfRow]:
    rows = {name: OpperfRow(op, _PAIR, needed=2) for name, op in _BINARY.items()}
    rows |= {f"broadcast_{name}": OpperfRow(_BROADCAST_WORDS.get(name, name), _PAIR, needed=2) for name in BROADCAST}
    several = {"num_args": ""}
    rows |= {name: OpperfRow("add_n", {ARRAYS: "[n] *shape"}, several) for name in ("add_n", "ElementWiseSum")}
    return rows


def _products() -> Mapping[str, OpperfRow | tuple[OpperfRow, ...]]:
    flips = {"transpose_a": "lhs", "transpose_b": "rhs"}
    dense = {"forward_stype": "in:default"}
    a_b, of_a_b = {"transpose_a": "A", "transpose_b": "B"}, {"axis": "", "alpha": "in:1,1.0"}
    return {
        "dot": OpperfRow("matmul", {"lhs|a": "M K", "rhs|b": "K N"}, dense, needed=2, flips=flips),
        "batch_dot": OpperfRow("batched_matmul", {"lhs|a": "B M K", "rhs|b": "B K N"}, dense, needed=2, flips=flips),
        "khatri_rao": OpperfRow("khatri_rao", {"args0|lhs": "M N", "args1|rhs": "L N"}, needed=2),
        "linalg_gemm2": (
            OpperfRow("matmul", {"A": "M K", "B": "K N"}, of_a_b, needed=2, flips=a_b),
            OpperfRow("batched_matmul", {"A": "%B M K", "B": "%B K N"}, of_a_b, needed=2, flips=a_b),
        ),
        "linalg_gemm": OpperfRow(
            "addmm", {"A": "M K", "B": "K N", "C": "M N"}, {"axis": "", "alpha": "alpha", "beta": "beta"}, needed=2,
            flips=a_b,
        ),
    }  # fmt: skip


def _random() -> Mapping[str, OpperfRow | tuple[OpperfRow, ...]]:
    rows: dict[str, OpperfRow | tuple[OpperfRow, ...]] = {
        f"random_{name}": OpperfRow(f"random_{name}", {"shape": "*shape"}, words)
        for name, words in _RANDOM_OPTIONS.items()
    }
    for name, given in DISTRIBUTIONS.items():
        tensors = dict.fromkeys(given, "#distributions")
        rows[f"sample_{name}"] = OpperfRow(f"sample_{name}", {**tensors, "shape": "%draws"}, usual={"draws": 1})
        rows[f"random_pdf_{name}"] = OpperfRow(
            f"random_pdf_{name}", {"sample": "distributions %points", **tensors}, {"is_log": "log"}
        )
    rows["random_pdf_dirichlet"] = OpperfRow(
        "random_pdf_dirichlet", {"sample": "%points categories", "alpha": "%distributions categories"},
        {"is_log": "log"}, usual={"distributions": 1, "log": False},
    )  # fmt: skip
    rows["sample_multinomial"] = OpperfRow(
        "multinomial", {"data": "rows categories", "shape": "%draws"}, {"dtype": "", "get_prob": "in:False"},
        usual={"draws": 1},
    )  # fmt: skip
    rows["BilinearSampler"] = OpperfRow(
        "grid_sample", {**IMAGE, "grid": "batch 2 *out"}, needed=2, fixed={"align_corners": True}
    )
    rows["GridGenerator"] = (
        OpperfRow("warp_grid", {"data": "batch 2 *image"}, {"target_shape": ""}, when={"transform_type": ("warp",)}),
        OpperfRow("affine_grid", {"data": "batch 6", "target_shape": "*out"}, needed=2, fixed={"align_corners": True},
            when={"transform_type": ("affine",)}),
    )  # fmt: skip
    return rows


def _reduction() -> Mapping[str, OpperfRow]:
    plain = {**_AXIS, "exclude": "in:False,0"}
    axis = {"axis": "axis"}
    searched = {"keepdims": "keepdims", **_RESULT_TYPE}
    sorting = {"axis": "axis", "is_ascend": "!descending", **_RESULT_TYPE}
    best = {"k": "k", "is_ascend": "!largest", "ret_typ": "", **_RESULT_TYPE}
    rows = {
        name: OpperfRow(op, X, {**plain, "axis": "."}, finish=sizes.one_axis, back=axis)
        for name, op in _REDUCTION.items()
    }
    rows["norm"] = OpperfRow(
        "norm",
        X,
        {"ord": "ord", "keepdims": "keepdims", "axis": ".", "out_dtype": ""},
        finish=sizes.one_axis,
        back=axis,
    )
    rows["moments"] = OpperfRow("moments", X, {"axes": ".", "keepdims": ""}, finish=sizes.last_axes)
    for name in ("argmax", "argmin"):
        rows[name] = OpperfRow(name, X, {**searched, "axis": "."}, finish=sizes.one_axis, back=axis)
    rows |= {name: OpperfRow(name, X, sorting) for name in ("sort", "argsort")}
    rows["topk"] = OpperfRow("topk", {"data": "*shape"}, best, moves="data", usual={"k": 1})
    return rows


def _indexing() -> Mapping[str, OpperfRow | tuple[OpperfRow, ...]]:
    part = {"begin": ".", "end": ".", "step": "in:1,[1]", "axis": "axis"}
    cut = {"begin": "begin", "end": "end"}
    pick = OpperfRow("pick", {"data": "*shape", "index": "..."}, {**_AXIS, "mode": ""})
    return {
        "gather_nd": OpperfRow("gather_nd", {"data": "*shape", "indices": "depth %indices"}, needed=2),
        "scatter_nd": OpperfRow(
            "index_put", {"indices": "? %indices", "shape": "*shape", "data": "..."}, needed=2,
            note="index_put is the nearest operator: MXNet writes into zeros, index_put into a tensor",
        ),
        "one_hot": OpperfRow(
            "one_hot", {"indices": "%indices"}, {"depth": "depth", "dtype": "", "on_value": "", "off_value": ""}
        ),
        "pick": pick,
        "choose_element_0index": pick,
        "ravel_multi_index": OpperfRow("ravel_multi_index", {"data": "? %indices", "shape": "*shape"}, needed=2),
        "unravel_index": OpperfRow("unravel_index", {"data": "%indices", "shape": "*shape"}, needed=2),
        "slice": OpperfRow("slice", X, part, finish=sizes.slice_bounds, back=cut),
        "slice_axis": OpperfRow("slice", X, part, finish=sizes.slice_bounds, back=cut),
        "slice_like": OpperfRow(
            "slice", {"data": "*shape", "shape_like": "*like"}, {"axes": "."}, needed=2, finish=sizes.slice_like
        ),
        "take": OpperfRow(
            "take", {"a|data": "*shape", "indices": "*index_shape"}, {"axis": "axis", "mode": ""}, needed=2
        ),
        "where": OpperfRow(
            "where", {"x": "*shape", "y": "*shape", "condition": "*condition"}, finish=sizes.check_condition
        ),
        "fill_element_0index": OpperfRow(
            "scatter", {"lhs": "*shape", "mhs": "...", "rhs": "..."}, fixed={"length": 1, "axis": 1}
        ),
    }  # fmt: skip


def _shaping() -> Mapping[str, OpperfRow]:
    blocks = {"block_size": "block"}
    depth = dict.fromkeys(("depth_to_space", "space_to_depth"))
    swapped = OpperfRow("swapaxes", X, {"dim1": "axis1", "dim2": "axis2"}, note="a view here, while MXNet copies")
    axis = {"axis": "axis"}
    rows = {name: OpperfRow(name, X, blocks, fixed={"order": "dcr"}) for name in depth}
    rows |= dict.fromkeys(("flip", "reverse"), OpperfRow("flip", X, axis))
    rows |= dict.fromkeys(("swapaxes", "SwapAxis"), swapped)
    rows |= {
        "transpose": OpperfRow("transpose", X, {"axes": "axes"}),
        "diag": OpperfRow("diag", X, {"k": "k", "axis1": "in:0", "axis2": "in:1"}),
        "reshape": OpperfRow(
            "reshape", X, {"shape": ".", "newshape": ".", "target_shape": "", "reverse": "in:False"},
            finish=sizes.reshape_target, back={"shape": "target"},
        ),
        "reshape_like": OpperfRow("reshape", {"lhs": "*shape", "rhs": "*target"}, needed=2),
        "squeeze": OpperfRow("squeeze", X, axis),
        "concat": OpperfRow("concat", {ARRAYS: "[count] *shape"}, {"dim": "axis", "num_args": ""}, usual={"axis": 1}),
        "stack": OpperfRow("stack", {ARRAYS: "[count] *shape"}, {"axis": "axis", "num_args": ""}, usual={"axis": 0}),
        "split": OpperfRow(
            "split_copy", X, {"num_outputs": "parts", "axis": "axis", "squeeze_axis": "in:False,0"},
            usual={"axis": 1},
        ),
        "broadcast_to": OpperfRow("broadcast_copy", {"data": "*shape", "shape": "*target"}, needed=2),
        "broadcast_like": OpperfRow("broadcast_copy", {"lhs": "*shape", "rhs": "*target"}, needed=2),
        "expand_dims": OpperfRow("expand_dims", X, axis),
        "pad": OpperfRow(
            "pad", X, {"pad_width": ".", "mode": "mode", "constant_value": "value"}, finish=sizes.pad_widths
        ),
        "repeat": OpperfRow("repeat", X, {"repeats": "repeats", "axis": "axis"}),
        "tile": OpperfRow("tile", X, {"reps": "."}, finish=sizes.tile_repeats, back={"reps": "reps"}),
    }  # fmt: skip
    counted = OpperfRow("broadcast_copy", X, {"axis": ".", "size": "."}, finish=sizes.broadcast_axis)
    return rows | dict.fromkeys(("broadcast_axis", "broadcast_axes"), counted)


def _others() -> Mapping[str, OpperfRow]:
    steps = {"axis": "in:0", "use_sequence_length": "", "sequence_length": "", "value": "value"}
    several = {"num_arrays": "tensors", "init_output": ""}
    return {
        "all_finite": OpperfRow("all_finite", X, {"init_output": ""}),
        "multi_all_finite": OpperfRow("multi_all_finite", {ARRAYS: "[tensors] *shape"}, several),
        "multi_sum_sq": OpperfRow("multi_sum_sq", {ARRAYS: "[tensors] *shape"}, several),
        "reset_arrays": OpperfRow("fill", {ARRAYS: "[1] *shape"}, {"num_arrays": ""}),
        "clip": OpperfRow("clip", X, {"a_min": "low", "a_max": "high"}),
        "cumsum": OpperfRow("cumsum", {"a|data": "*shape"}, {"axis": "axis", "dtype": ""}),
        "SequenceLast": OpperfRow("sequence_last", {"data": "steps batch %dim"}, steps),
        "SequenceMask": OpperfRow("sequence_mask", {"data": "steps batch %dim"}, steps),
        "SequenceReverse": OpperfRow("sequence_reverse", {"data": "steps batch %dim"}, steps),
    }


def _linalg() -> Mapping[str, OpperfRow]:
    triangle = {"transpose": "in:False,0", "rightside": "in:False,0", "lower": "!upper", "alpha": "in:1,1.0"}
    square = {"det": "det", "inverse": "inverse", "potri": "cholesky_inverse", "potrf": "cholesky",
              "slogdet": "slogdet", "sumlogdiag": "sumlogdiag"}  # fmt: skip
    rows = {f"linalg_{name}": OpperfRow(op, _SQUARE, {"lower": "in:True,1"}) for name, op in square.items()}
    right = {**_SQUARE, "B": "%batch n k"}
    return rows | {
        "linalg_extractdiag": OpperfRow("diag", {"A": "*shape"}, {"offset": "k"}),
        "linalg_makediag": OpperfRow("diag_embed", {"A": "*shape"}, {"offset": "k"}),
        "linalg_extracttrian": OpperfRow("extract_triangle", _SQUARE, {"lower": "!upper", "offset": "in:0"}),
        "linalg_maketrian": OpperfRow(
            "make_triangle", {"A": "%batch triangle"}, {"lower": "!upper", "offset": "in:0"}, finish=sizes.triangle
        ),
        "linalg_gelqf": OpperfRow("lq", {"A": "%batch m n"}),
        "linalg_syrk": OpperfRow("syrk", {"A": "%batch n k"}, {"alpha": "in:1,1.0"}, flips={"transpose": "A"}),
        "linalg_trmm": OpperfRow("trmm", right, triangle, needed=2),
        "linalg_trsm": OpperfRow("triangular_solve", right, triangle, needed=2),
    }


def _table() -> dict[str, tuple[OpperfRow, ...]]:
    parts: list[Mapping[str, OpperfRow | tuple[OpperfRow, ...]]] = [
        _unary(), _binary(), _products(), _random(), _reduction(), _indexing(), _shaping(), *LAYERS, _others(),
        _linalg(),
    ]  # fmt: skip
    found: dict[str, tuple[OpperfRow, ...]] = {}
    for part in parts:
        found |= {name: (rows,) if isinstance(rows, OpperfRow) else rows for name, rows in part.items()}
    return found


OPERATORS = _table()
"""Rows by opperf's name of an operator; several where options decide which one applies."""


# opperf's names: its 23 categories, other spellings of operators, and operators without a counterpart.

_ROUNDING = ["ceil", "fix", "floor", "rint", "round", "trunc"]
_LINALG = words(
    "det extractdiag extracttrian gelqf gemm gemm2 inverse makediag maketrian potrf potri slogdet sumlogdiag syrk trmm "
    "trsm"
)

CATEGORIES: dict[str, list[str]] = {
    "unary": [*UNARY, "argmax_channel", "amp_cast", "cast", "amp_multicast"],
    "binary-broadcast": [f"broadcast_{name}" for name in BROADCAST],
    "binary-elementwise": ["ElementWiseSum", "elemwise_add", "elemwise_div", "elemwise_mul", "elemwise_sub"],
    "binary-misc": ["choose_element_0index", "reshape_like"],
    "gemm": ["dot", "batch_dot", "khatri_rao"],
    "random": [
        "BilinearSampler",
        "GridGenerator",
        *(f"random_{name}" for name in [*DISTRIBUTIONS, "randint"]),
        *(f"random_pdf_{name}" for name in ["dirichlet", *DISTRIBUTIONS]),
        *(f"sample_{name}" for name in [*DISTRIBUTIONS, "multinomial"]),
    ],
    "reduction": words("max max_axis mean min min_axis nanprod nansum norm prod sum sum_axis"),
    "sorting": ["argmax", "argmin", "sort", "argsort", "topk"],
    "indexing": words(
        "gather_nd one_hot pick ravel_multi_index slice slice_axis slice_like take where unravel_index scatter_nd"
    ),
    "rearrange": words("depth_to_space space_to_depth flip reverse swapaxes SwapAxis transpose"),
    "shape": ["diag", "reshape", "reshape_like", "shape_array", "size_array", "split"],
    "expanding": words("broadcast_axes broadcast_axis broadcast_like broadcast_to expand_dims pad repeat tile"),
    "rounding": _ROUNDING,
    "join-split": ["concat", "stack", "split"],
    "nn-basic": words(
        "BatchNorm col2im Correlation Dropout Embedding FullyConnected GroupNorm im2col InstanceNorm "
        "L2Normalization LayerNorm LRN SpatialTransformer RNN SoftmaxOutput LinearRegressionOutput "
        "LogisticRegressionOutput MAERegressionOutput SVMOutput"
    ),
    "activation": words("Activation hard_sigmoid SoftmaxActivation LeakyReLU log_softmax softmax softmin Softmax"),
    "pooling": ["Pooling", "ROIPooling"],
    "convolution": ["Convolution"],
    "transposed-convolution": ["Deconvolution"],
    "optimizer": words(
        "adam_update ftml_update ftrl_update lamb_update_phase1 lamb_update_phase2 mp_lamb_update_phase1 "
        "mp_lamb_update_phase2 mp_nag_mom_update mp_sgd_mom_update mp_sgd_update multi_mp_sgd_mom_update "
        "multi_mp_sgd_update multi_sgd_mom_update multi_sgd_update nag_mom_update "
        "preloaded_multi_mp_sgd_mom_update preloaded_multi_mp_sgd_update preloaded_multi_sgd_mom_update "
        "preloaded_multi_sgd_update rmsprop_update rmspropalex_update sgd_mom_update sgd_update signsgd_update "
        "signum_update"
    ),
    "loss": ["ctc_loss", "CTCLoss", "MakeLoss", "smooth_l1", "softmax_cross_entropy"],
    "misc": words(
        "add_n all_finite clip cumsum fill_element_0index multi_all_finite multi_lars multi_sum_sq reset_arrays "
        "SequenceLast SequenceMask SequenceReverse squeeze UpSampling"
    ),
    "linalg": [*(f"linalg_{name}" for name in _LINALG), "moments"],
}

NO_COUNTERPART = {
    "cast_storage": "it changes how a sparse tensor is stored, and tensors here are dense",
    "Custom": "it calls an operator written in Python for MXNet; `package.module:function` calls your own function",
    "IdentityAttachKLSparseReg": "it has no counterpart in other frameworks, and opperf leaves it out too",
}

_PREFIXES = (
    "mxnet.",
    "mx.",
    "ndarray.",
    "symbol.",
    "nd.",
    "sym.",
    "numpy_extension.",
    "npx.",
    "np.",
    "op.",
    "contrib.",
)
_SUBMODULES = {"linalg.": "linalg_", "random.": "random_", "sparse.": ""}
_OTHER_SPELLINGS = {
    "fully_connected": "FullyConnected", "convolution": "Convolution", "deconvolution": "Deconvolution",
    "pooling": "Pooling", "activation": "Activation", "leaky_relu": "LeakyReLU", "batch_norm": "BatchNorm",
    "layer_norm": "LayerNorm", "group_norm": "GroupNorm", "instance_norm": "InstanceNorm", "embedding": "Embedding",
    "dropout": "Dropout", "rnn": "RNN", "roi_pooling": "ROIPooling", "sequence_mask": "SequenceMask",
    "sequence_last": "SequenceLast", "sequence_reverse": "SequenceReverse", "Flatten": "flatten", "Concat": "concat",
    "concatenate": "concat", "Reshape": "reshape", "Pad": "pad", "SliceChannel": "split",
    "random_exponential_like": "random_exponential", "absolute": "abs", "remainder": "mod", "amax": "max",
    "amin": "min", "lrn": "LRN", "l2_normalization": "L2Normalization", "correlation": "Correlation",
}  # fmt: skip


def plain_name(name: str) -> str:
    """Return a name without modules: `mx.nd.linalg.gemm2` is linalg_gemm2."""
    found = name.strip()
    while (prefix := next((p for p in _PREFIXES if found.startswith(p)), None)) is not None:
        found = found[len(prefix) :]
    for module, start in _SUBMODULES.items():
        if found.startswith(module):
            found = start + found[len(module) :]
    return _OTHER_SPELLINGS.get(found, found)
