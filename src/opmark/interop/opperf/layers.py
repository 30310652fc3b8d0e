"""Rows for the layers, losses and optimizers of MXNet's opperf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opmark.interop.opperf import sizes
from opmark.interop.opperf.rows import OpperfRow, words

X = {"data|x|a": "*shape"}
IMAGE = {"data": "batch channels *image"}
ARRAYS = "args*|data*|arrays*"

_RATES = {
    "lr": "lr", "beta1": "beta1", "beta2": "beta2", "epsilon": "eps", "wd": "wd", "rescale_grad": "rescale_grad",
    "clip_gradient": "clip_gradient", "clip_grad": "clip_gradient", "momentum": "momentum", "gamma1": "gamma1",
    "gamma2": "gamma2", "t": "t", "lamda1": "lamda1", "beta": "beta", "wd_lh": "wd_lh", "lower_bound": "lower_bound",
    "upper_bound": "upper_bound", "bias_correction": "bias_correction", "lazy_update": "", "clip_weights": "in:-1,-1.0",
}  # fmt: skip
_STATES = dict.fromkeys(("weight", "grad|g", "mom", "mean", "var", "d", "v", "z", "n", "delta", "weight32"), "*shape")
_OPTIMIZERS = words(
    "adam_update ftml_update ftrl_update lamb_update_phase1 mp_nag_mom_update mp_sgd_mom_update mp_sgd_update "
    "nag_mom_update rmsprop_update signsgd_update signum_update sgd_mom_update sgd_update "
    "mp_lamb_update_phase1"
)
_MULTI = {"multi_sgd_update": 2, "multi_sgd_mom_update": 3, "multi_mp_sgd_update": 3, "multi_mp_sgd_mom_update": 4}

_POOL = {
    "stride": "stride", "pad": "padding", "pooling_convention": "in:valid", "count_include_pad": "count_include_pad",
    "layout": "in:NCW,NCHW,NCDHW", "cudnn_off": "", "pool_type": "", "p_value": "",
}  # fmt: skip
_POOL_TYPES = {None: "max", "avg": "avg", "max": "max", "sum": "sum"}
_CONVOLUTION = {
    "kernel": "kernel", "stride": "stride", "pad": "padding", "dilate": "dilation", "num_filter": "out_channels",
    "num_group": "groups", "layout": "in:NCW,NCHW,NCDHW", "cudnn_off": "", "cudnn_tune": "",
    "workspace": "", "adj": "output_padding", "target_shape": "",
}  # fmt: skip
_CONVOLVED = {"data": "batch in_channels *image", "bias": "=out_channels"}
_WITHOUT_BIAS = "measured without the bias that opperf adds"
_RECURRENT = {"state_size": "hidden_size", "num_layers": "layers", "bidirectional": "bidirectional", "p": "",
              "state_outputs": ""}  # fmt: skip
_SEQUENCES = {"data": "seq_len batch input_size", "state": "? batch hidden_size", "parameters": "...",
              "state_cell": "? batch hidden_size"}  # fmt: skip
_NORM = dict.fromkeys(("gamma", "beta", "moving_mean", "moving_var"), "weights")
"""All weights have one size, which `finish` compares."""


def _layers() -> Mapping[str, OpperfRow | tuple[OpperfRow, ...]]:
    size = {"kernel": "kernel", "stride": "stride", "dilate": "dilation", "pad": "padding"}
    modes: dict[str, dict[str, Any]] = {
        "rnn_relu": {"nonlinearity": "relu"}, "rnn_tanh": {"nonlinearity": "tanh"}, "lstm": {}, "gru": {},
    }  # fmt: skip
    return {
        "col2im": OpperfRow(
            "col2im", {"data": "batch rows ?", "output_size": "*image"}, size, needed=2, finish=sizes.columns,
            usual={"stride": 1, "padding": 0},
        ),
        "im2col": OpperfRow("im2col", IMAGE, size, usual={"padding": 0}),
        "Correlation": OpperfRow(
            "correlation", {"data1": "batch channels *image", "data2": "batch channels *image"},
            {"kernel_size": "kernel", "max_displacement": "max_displacement", "stride1": "stride",
             "stride2": "displacement_stride", "pad_size": "padding", "is_multiply": "in:True,1"},
            usual={"max_displacement": 1},
        ),
        "Embedding": OpperfRow(
            "embedding", {"data": "%indices", "weight": "rows dim"},
            {"input_dim": "rows", "output_dim": "dim", "sparse_grad": "in:False"},
        ),
        "FullyConnected": tuple(_dense()),
        "SpatialTransformer": OpperfRow(
            "spatial_transformer", {**IMAGE, "target_shape": "*out", "loc": "batch 6"},
            {"transform_type": "in:affine", "sampler_type": "in:bilinear", "cudnn_off": ""}, needed=2,
            fixed={"align_corners": True},
        ),
        "RNN": tuple(
            OpperfRow(mode.partition("_")[0], _SEQUENCES, _RECURRENT, when={"mode": (mode,)}, fixed=fixed)
            for mode, fixed in modes.items()
        ),
    }  # fmt: skip


def _dense() -> Iterator[OpperfRow]:
    for op, no_bias in (("linear", (None, False)), ("linear_no_bias", (True,))):
        for data, flatten in (("M %K", (None, True)), ("%M K", (False,))):
            tensors = {"data": data, "weight": "N K", "bias": "N"}
            yield OpperfRow(op, tensors, {"num_hidden": "N"}, when={"flatten": flatten, "no_bias": no_bias})


def _normalization() -> Mapping[str, OpperfRow]:
    eps = {"eps": "eps", "output_mean_var": "in:False"}
    x = {"data": "*shape", **_NORM}
    return {
        "BatchNorm": OpperfRow(
            "batch_norm", x,
            {"momentum": "1-momentum", "axis": "in:1", "fix_gamma": "", "cudnn_off": "", **eps,
             "use_global_stats": "!training"}, finish=sizes.check_channel_weights,
        ),
        "Dropout": OpperfRow("dropout", X, {"p": "p", "mode": "", "axes": "", "cudnn_off": ""}),
        "GroupNorm": OpperfRow("group_norm", x, {**eps, "num_groups": "groups"}, finish=sizes.check_group_weights),
        "InstanceNorm": OpperfRow("instance_norm", x, eps, finish=sizes.check_channel_weights),
        "L2Normalization": OpperfRow("l2_normalize", X, {"eps": "eps", "mode": "mode"}, usual={"eps": 1e-10}),
        "LayerNorm": OpperfRow("layer_norm", x, eps, moves="data", finish=sizes.check_element_weights),
        "LRN": OpperfRow("lrn", X, {"alpha": "alpha", "beta": "beta", "knorm": "k", "nsize": "size"}, usual={"k": 2.0}),
    }  # fmt: skip


def _activations() -> Mapping[str, OpperfRow | tuple[OpperfRow, ...]]:
    kinds = {"relu": "relu", "sigmoid": "sigmoid", "log_sigmoid": "log_sigmoid", "mish": "mish",
             "softrelu": "softplus", "softsign": "softsign", "tanh": "tanh"}  # fmt: skip
    leaky = {None: "leaky_relu", "leaky": "leaky_relu", "elu": "elu", "selu": "selu", "gelu": "gelu", "prelu": "prelu"}
    along = {"axis": "axis", "dtype": "", "temperature": "in:1,1.0", "use_length": "in:False"}
    output = {"label": "..."}
    loss = dict.fromkeys(("grad_scale", "normalization", "margin", "regularization_coefficient", "use_linear"), "")
    image = {"data": "*shape", **output}
    rows: dict[str, OpperfRow | tuple[OpperfRow, ...]] = {
        name: OpperfRow(name, X, along) for name in ("softmax", "log_softmax")
    }
    rows |= {
        "Activation": OpperfRow("{act_type}", X, words={"act_type": kinds}),
        "LeakyReLU": OpperfRow(
            "{act_type}", {"data": "*shape", "gamma": "..."}, {"slope": "negative_slope|alpha"},
            words={"act_type": leaky},
        ),
        "hard_sigmoid": OpperfRow("hard_sigmoid", X, {"alpha": "", "beta": ""}),
        "softmin": OpperfRow("softmin", X, along),
        "SoftmaxActivation": OpperfRow("softmax", X, {"mode": "in:instance"}, fixed={"axis": -1}),
        "Softmax": OpperfRow("softmax", image, loss, fixed={"axis": -1}),
        "SoftmaxOutput": OpperfRow("softmax", image, loss, finish=sizes.one_row_per_image),
        "LogisticRegressionOutput": OpperfRow("sigmoid", image, loss),
    }  # fmt: skip
    same = ("LinearRegressionOutput", "MAERegressionOutput", "SVMOutput")
    return rows | dict.fromkeys(same, OpperfRow("identity", image, loss))


def _windows() -> Mapping[str, OpperfRow | tuple[OpperfRow, ...]]:
    words = {"pool_type": _POOL_TYPES}
    window = {**_POOL, "kernel": "kernel"}
    return {
        "Pooling": (
            OpperfRow("{pool_type}_pool{rank}d", IMAGE, window, words=words, usual={"stride": 1, "padding": 0},
                when={"global_pool": (None, 0)}),
            OpperfRow("global_{pool_type}_pool{rank}d", IMAGE, {**dict.fromkeys(window, ""), "layout": _POOL["layout"]},
                words=words, when={"global_pool": (1,)}),
        ),
        "ROIPooling": OpperfRow(
            "roi_pooling", {**IMAGE, "rois": "regions 5", "pooled_size": "*out"}, {"spatial_scale": ""}, needed=3,
            finish=sizes.regions,
        ),
        "Convolution": tuple(
            _convolution("conv{rank}d", "out_channels weight_channels *kernel", sizes.check_filters)
        ),
        "Deconvolution": tuple(
            _convolution(
                "conv_transpose{rank}d", "in_channels weight_channels *kernel", sizes.check_transposed_filters
            )
        ),
        "UpSampling": OpperfRow(
            "upsample_nearest2d", IMAGE, {"scale": ".", "sample_type": "in:nearest", "num_args": "", "num_filter": ""},
            finish=sizes.upsample_size,
        ),
    }  # fmt: skip


def _convolution(op: str, weight: str, check: Any) -> Iterator[OpperfRow]:
    """Yield rows for a convolution with a bias and without; opmark's convolution has none."""
    tensors = {**_CONVOLVED, "weight": weight}
    usual = {"stride": 1, "padding": 0, "dilation": 1}
    for no_bias, note in (((None, False), _WITHOUT_BIAS), ((True,), "")):
        yield OpperfRow(op, tensors, _CONVOLUTION, when={"no_bias": no_bias}, usual=usual, finish=check, note=note)


def _optimizers() -> Mapping[str, OpperfRow]:
    rates = {"lrs": "", "wds": "", "num_weights": "count", "out": "", **_RATES}
    rows = {name: OpperfRow(name, _STATES, _RATES) for name in _OPTIMIZERS}
    moving = {"g": "*shape", "weight": "*shape", "grad": "*shape", "n": "*shape", "delta": "*shape"}
    rows["rmspropalex_update"] = OpperfRow("rmspropalex_update", moving, _RATES)
    for name in ("lamb_update_phase2", "mp_lamb_update_phase2"):
        rows[name] = OpperfRow(
            name, {"weight": "*shape", "g": "*shape", "weight32": "*shape", "r1": "...", "r2": "..."}, _RATES
        )
    for name, group in _MULTI.items():
        rows[name] = OpperfRow(name, {ARRAYS: f"[count/{group}] *shape"}, rates)
        rows[f"preloaded_{name}"] = OpperfRow(name, {ARRAYS: f"[count/{group}+2] *shape"}, rates)
    layers = dict.fromkeys(("lrs", "weights_sum_sq", "grads_sum_sq", "wds"), "%count")
    rows["multi_lars"] = OpperfRow("multi_lars", layers, {"eta": "eta", "eps": "eps", "rescale_grad": "rescale_grad"})
    return rows


def _losses() -> Mapping[str, OpperfRow]:
    lengths = {"use_data_lengths": "in:False", "use_label_lengths": "in:False", "blank_label": ""}
    ctc = OpperfRow("ctc_loss", {"data": "steps batch classes", "label": "batch labels"}, lengths, needed=2)
    return {
        "ctc_loss": ctc,
        "CTCLoss": ctc,
        "MakeLoss": OpperfRow("scaled_loss", X, {"grad_scale": "grad_scale", "normalization": "", "valid_thresh": ""}),
        "smooth_l1": OpperfRow("smooth_l1", X, {"scalar": "sigma"}),
        "softmax_cross_entropy": OpperfRow("cross_entropy", {"data": "batch classes", "label": "batch"}),
    }


LAYERS: tuple[Mapping[str, OpperfRow | tuple[OpperfRow, ...]], ...] = (
    _layers(), _normalization(), _activations(), _windows(), _optimizers(), _losses(),
)  # fmt: skip
