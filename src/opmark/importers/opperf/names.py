"""opperf's names: its 23 categories, other spellings of operators, and operators without a counterpart."""

from __future__ import annotations

from opmark.importers.opperf.rows import words
from opmark.importers.opperf.table import BROADCAST, DISTRIBUTIONS, UNARY

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
