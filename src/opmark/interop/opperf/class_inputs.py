"""The 73 classes of DL Operator Benchmarks: their default inputs, and the operators of opmark that they mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opmark.errors import UserError, nearest
from opmark.interop.opperf import sizes
from opmark.interop.opperf.operators import OPERATORS
from opmark.interop.opperf.rows import Inputs, Meaning, OpperfRow, meaning
from opmark.schema.tensor import DTYPES

INITIALIZER = "normal"
"""Placeholder in the inputs for MXNet's own function that draws values."""
_INITIALIZERS = ("initializer", "data_initializer", "pred_initializer", "label_initializer", "weight_initializer",
                 "bias_initializer")  # fmt: skip
_GENERAL = (*_INITIALIZERS, "run_backward", "dtype")

_MATRIX, _IMAGES, _SIGNALS = [1024, 1024], [32, 3, 256, 256], [32, 3, 256]


@dataclass(frozen=True)
class Class:
    name: str
    module: str
    """`nd`, `gluon.nn`, `gluon.rnn`, `gluon.loss`, `custom`."""
    category: str
    """Part of the name of the function that runs all classes of a kind."""
    label: str
    """Part of the names of results."""
    rows: tuple[OpperfRow, ...]
    inputs: Mapping[str, Any]
    backward: bool = True
    warmup: int = 10
    runs: int = 50


def _rename(*same: str, **words: str) -> dict[str, str]:
    return {**{name: name for name in same}, **words}


def _defaults(tensors: Mapping[str, Any], options: Mapping[str, Any], *, backward: bool, start: str) -> dict[str, Any]:
    return {**tensors, f"{start}initializer": INITIALIZER, **options, "run_backward": backward, "dtype": "float32"}


def _nd(category: str, rows: Mapping[str, tuple[str, str, Mapping[str, Any], Mapping[str, Any]]], *, backward: bool
        ) -> Iterator[Class]:  # fmt: skip
    """Yield classes of tensors; `rows` holds (label, opperf's operator, tensors, options) by class."""
    for name, (label, op, tensors, options) in rows.items():
        inputs = _defaults(tensors, options, backward=backward, start="")
        yield Class(name, "nd", category, label, OPERATORS[op], inputs, backward)


def _pair(op: str, label: str, first: str = "lhs", second: str = "rhs") -> tuple[str, str, Any, Any]:
    return label, op, {first: _MATRIX, second: _MATRIX}, {}


def _arithmetic() -> Iterator[Class]:
    pairs = {name: _pair(name.lower(), name) for name in ("Add", "Multiply", "Subtract", "Divide", "Modulo")}
    yield from _nd("arithmetic", {**pairs, "Power": _pair("power", "Power", "base", "exp")}, backward=True)
    yield from _nd("arithmetic", {"Negative": ("Negative", "negative", {"data": _MATRIX}, {})}, backward=True)
    names = {"Add": "Add", "Sub": "Subtract", "Mul": "Multiply", "Div": "Division", "Mod": "Modulo"}
    for name, label in names.items():
        row = OpperfRow(f"i{name.lower()}", {"this": "*shape", "other": "~shape"}, needed=2)
        inputs = _defaults({"this": _MATRIX, "other": _MATRIX}, {}, backward=False, start="")
        yield Class(f"I{name}", "nd", "arithmetic", f"Inplace_{label}", (row,), inputs, False)


def _comparison() -> Iterator[Class]:
    labels = ("Lesser", "Lesser_Equal", "Greater", "Greater_Equal", "Equal", "Not_Equal")
    compared = {label.replace("_", ""): _pair(label.lower(), label) for label in labels}
    yield from _nd("comparison", compared, backward=True)
    both = {f"Logical{word}": _pair(f"logical_{word.lower()}", f"Logical_{word}") for word in ("And", "Or", "Xor")}
    alone: dict[str, Any] = {"LogicalNot": ("Logical_Not", "logical_not", {"data": _MATRIX}, {})}
    yield from _nd("logical_comparison", {**both, **alone}, backward=True)


def _tensors() -> Iterator[Class]:
    one = {"data": _MATRIX}
    yield from _nd("exponential_and_log", {n: (n, n.lower(), one, {}) for n in ("Exp", "Log")}, backward=True)
    yield from _nd("powers", {n: (n, n.lower(), one, {}) for n in ("Sqrt", "Square")}, backward=True)
    flags = {"transpose_a": False, "transpose_b": False, "forward_stype": None}
    batch = {"lhs": [32, 1024, 1024], "rhs": [32, 1024, 1000]}
    products = {"Dot": ("Dot", "dot", {"lhs": _MATRIX, "rhs": [1024, 1000]}, flags),
                "BatchDot": ("Batch_Dot", "batch_dot", batch, flags)}  # fmt: skip
    yield from _nd("gemm", products, backward=True)
    rows = {"data": [1024, 1000]}
    up = {"axis": -1, "is_ascend": True}
    best = {"axis": -1, "k": 10, "ret_typ": "indices", "is_ascend": True}
    searched = {n: (n, n.lower(), rows, {"axis": -1, "keepdims": False}) for n in ("ArgMax", "ArgMin")}
    ordered = {n: (n, n.lower(), rows, up) for n in ("Sort", "ArgSort")}
    found: dict[str, Any] = {**ordered, "TopK": ("TopK", "topk", rows, best), **searched}
    yield from _nd("sort_and_search", found, backward=False)


def _creation() -> Iterator[Class]:
    constants: dict[str, dict[str, float]] = {"Zeros": {}, "Ones": {}, "Full": {"val": 1.0}}
    for name, options in constants.items():
        row = OpperfRow(name.lower(), {"shape": "*shape"}, {"val": "value"})
        inputs = {"shape": _MATRIX, **options, "run_backward": False, "dtype": "float32"}
        yield Class(name, "nd", "tensor_creation", name, (row,), inputs, False)
    alike: dict[str, Any] = {
        f"{n}Like": (f"{n}_Like", f"{n.lower()}_like", {"data": _MATRIX}, {}) for n in ("Zeros", "Ones")
    }
    yield from _nd("tensor_creation", alike, backward=False)
    counting = OpperfRow(
        "arange", {}, dict.fromkeys(("start", "stop", "step", "repeat"), "."), needed=0, finish=sizes.elements
    )
    inputs = {"start": 1, "stop": 100, "step": 1.0, "repeat": 10, "run_backward": False, "dtype": "float32"}
    yield Class("Arange", "nd", "tensor_creation", "Arange", (counting,), inputs, False)


def _block(
    name: str, category: str, row: OpperfRow, shape: list[int], options: Mapping[str, Any] | None = None, *,
    label: str = "", times: tuple[int, int] = (10, 50), module: str = "gluon.nn",
) -> Class:  # fmt: skip
    inputs = _defaults({"data": shape}, options or {}, backward=True, start="data_")
    label = f"Gluon_Imperative_{label or name}"
    return Class(name, module, category, label, (row,), inputs, True, *times)


def _layers() -> Iterator[Class]:
    basic, shape = "gluon_nn_basic", {"data": "*shape"}
    dense = OpperfRow(
        "linear", {"data": "M %K"}, _rename(units="N", activation="in:", use_bias="in:True", flatten="in:True")
    )
    bias = {"weight_initializer": "Xavier", "bias_initializer": "Zeros"}
    yield _block("Dense", basic, dense, [512, 512],
                 {"units": 256, "activation": None, "use_bias": True, "flatten": True, **bias})  # fmt: skip
    yield _block("Flatten", basic, OpperfRow("flatten", shape), [128, 512, 512])
    grown = OpperfRow("expand_dims", shape, fixed={"axis": 0})
    yield _block("Lambda", basic, grown, [128, 512, 512], label="Lambda_Batchify")
    kinds: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
        "LeakyRelu": ("leaky_relu", {"alpha": "negative_slope"}, {"alpha": 0.01}),
        "PRelu": ("prelu", {}, {}),
        "Sigmoid": ("sigmoid", {}, {}),
        "Softmax": ("softmax", {"axis": "axis"}, {"axis": -1}),
        "LogSoftmax": ("log_softmax", {"axis": "axis"}, {"axis": -1}),
        "Tanh": ("tanh", {}, {}),
        "Elu": ("elu", {"alpha": "alpha"}, {"alpha": 1.0}),
        "Selu": ("selu", {}, {}),
        "Swish": ("silu", {"beta": "in:1,1.0"}, {"beta": 1.0}),
    }
    for name, (op, options, given) in kinds.items():
        yield _block(name, "gluon_nn_activation", OpperfRow(op, shape, options), _IMAGES, given)
    yield _block("Dropout", "gluon_normalization", OpperfRow("dropout", shape, {"rate": "p"}), _IMAGES, {"rate": 0.5})
    yield _block("BatchNorm", "gluon_normalization", OpperfRow("batch_norm", shape), _IMAGES)


def _windows() -> Iterator[Class]:
    tensors = {"data": "batch in_channels *image"}
    options = _rename("padding", "dilation", "output_padding", channels="out_channels", kernel_size="kernel",
                       strides="stride", layout="in:NCW,NCHW", activation="in:")  # fmt: skip
    for name, rank in (("Conv2D", 2), ("Conv2DTranspose", 2), ("Conv1D", 1), ("Conv1DTranspose", 1)):
        back = name.endswith("Transpose")
        one: Any = [1] * rank if rank > 1 else 1
        given = {"channels": 64, "kernel_size": [3, 3] if rank > 1 else 3, "strides": one,
                 "padding": [0, 0] if rank > 1 else 1, "dilation": one, "layout": "NCHW" if rank > 1 else "NCW",
                 "activation": None}  # fmt: skip
        given |= {"output_padding": [0, 0] if rank > 1 else 0} if back else {}
        row = OpperfRow(f"conv{'_transpose' if back else ''}{rank}d", tensors, options)
        times = (1, 1) if name == "Conv1DTranspose" else (5, 25)
        shape = _IMAGES if rank > 1 else _SIGNALS
        yield _block(name, "gluon_nn_convolution", row, shape, given, times=times)
    pooled = {"data": "batch channels *image"}
    window = _rename("padding", pool_size="kernel", strides="stride", layout="in:NCW,NCHW")
    for kind, rank in (("Max", 1), ("Max", 2), ("Avg", 1), ("Avg", 2)):
        shape, layout = (_IMAGES, "NCHW") if rank > 1 else (_SIGNALS, "NCW")
        row = OpperfRow(f"{kind.lower()}_pool{rank}d", pooled, window, finish=sizes.stride_of_window)
        sides: dict[str, Any] = {"pool_size": [2, 2], "strides": None, "padding": [0, 0]}
        sides = sides if rank > 1 else {"pool_size": 2, "strides": None, "padding": 0}
        yield _block(f"{kind}Pool{rank}D", "gluon_nn_pooling", row, shape, {**sides, "layout": layout}, times=(5, 25))
        row = OpperfRow(f"global_{kind.lower()}_pool{rank}d", pooled, {"layout": "in:NCW,NCHW"})
        yield _block(f"Global{kind}Pool{rank}D", "gluon_nn_pooling", row, shape, {"layout": layout}, times=(5, 25))


def _sequences() -> Iterator[Class]:
    options = _rename("hidden_size", "bidirectional", num_layers="layers", activation="nonlinearity", layout="in:TNC",
                       dropout="in:0,0.0")  # fmt: skip
    for name in ("RNN", "LSTM", "GRU"):
        given = {"hidden_size": 100, "num_layers": 1, "layout": "TNC", "dropout": 0, "bidirectional": False}
        given |= {"activation": "relu"} if name == "RNN" else {}
        row = OpperfRow(name.lower(), {"data": "seq_len batch input_size"}, options)
        yield _block(name, "gluon_recurrent", row, [25, 32, 256], given, module="gluon.rnn")


def _losses() -> Iterator[Class]:
    each = {"pred": "*shape", "label": "*shape"}
    plain = {"weight": "in:1,1.0"}
    chosen = {**plain, "axis": "in:-1", "sparse_label": ""}
    rows = {
        "L1Loss": OpperfRow("l1_loss", each, plain), "L2Loss": OpperfRow("mse_loss", each, plain),
        "SigmoidBinaryCrossEntropyLoss": OpperfRow("bce_with_logits", each, plain),
        "SoftmaxCrossEntropyLoss": OpperfRow("cross_entropy", {"pred": "batch %classes", "label": "..."}, chosen),
    }  # fmt: skip
    for name, row in rows.items():
        shape = [32, 1000, 1]
        more = {"axis": -1, "sparse_label": False} if name.startswith("Softmax") else {}
        inputs = {"pred": shape, "pred_initializer": INITIALIZER, "label": shape, "label_initializer": INITIALIZER,
                  "weight": 1.0, **more, "run_backward": False, "dtype": "float32"}  # fmt: skip
        yield Class(name, "gluon.loss", "gluon_nn_loss", f"Gluon_Imperative_{name}", (row,), inputs, False)


def _all() -> Iterator[Class]:
    for part in (_creation, _arithmetic, _comparison, _tensors, _layers, _windows, _sequences, _losses):
        yield from part()
    row = OpperfRow(
        "add", {"data": "*shape"}, fixed={"y": "scalar"}, note="one addition, by the framework's own operator"
    )
    inputs = _defaults({"data": [1000, 1]}, {}, backward=True, start="data_")
    yield Class("CustomOpElementwiseAdd", "custom_operations", "customop", "CustomOp_Elementwise_Add", (row,), inputs)


CLASSES: dict[str, Class] = {found.name: found for found in _all()}


class WrongInput(UserError, ValueError):
    """An input that a class does not have; DL Operator Benchmarks raises ValueError for it."""


def check_dtype(dtype: Any, place: str) -> None:
    if dtype not in tuple(DTYPES):
        near = nearest(str(dtype), DTYPES)
        expected = f"expected one of {', '.join(DTYPES)}, got {dtype!r}"
        raise WrongInput(f"{place}: {expected}", f"did you mean `{near}`?" if near else None)


def complete_inputs(of: Class, given: Inputs) -> dict[str, Any]:
    """Return the defaults of a class, overridden by the given inputs."""
    if not isinstance(given, Mapping):
        raise WrongInput(
            f"inputs of `{of.name}`: expected a dictionary, got {given!r}", f"it has {', '.join(of.inputs)}"
        )
    for key in given:
        if key not in of.inputs:
            near = nearest(str(key), of.inputs)
            hint = f"did you mean `{near}`?" if near else f"it has {', '.join(of.inputs)}"
            raise WrongInput(f"`{of.name}` has no input `{key}`", hint)
    whole = {**of.inputs, **given}
    check_dtype(whole["dtype"], f"`dtype` of `{of.name}`")
    return whole


def class_meaning(of: Class, inputs: Inputs) -> Meaning:
    own = {key: value for key, value in inputs.items() if key not in _GENERAL}
    return meaning(of.rows, own, inputs["dtype"])
