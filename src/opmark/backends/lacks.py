"""Operators of the ONNX table that an engine is known not to take, and why: a plan says so without starting it.

Found by running the whole table with OpenVINO 2026.4 and TVM 0.27. What an engine takes and gets wrong is not in here.
"""

from __future__ import annotations

from collections.abc import Mapping

_NOT_IMPORTED = {
    "celu": "Celu", "cross_entropy": "SoftmaxCrossEntropyLoss", "nll_loss": "NegativeLogLikelihoodLoss",
    "det": "Det", "rnn": "RNN", "lstm": "LSTM", "gru": "GRU", "sequence_reverse": "ReverseSequence", "col2im": "Col2Im",
    "multinomial": "Multinomial", "bernoulli": "RandomUniformLike", "random_normal": "RandomNormal",
    "sample_normal": "RandomNormal",
    **dict.fromkeys(
        (
            "random_uniform", "random_exponential", "random_randint", "sample_uniform", "sample_exponential",
            "randperm", "shuffle", "alpha_dropout", "dropout2d", "feature_alpha_dropout", "bias_dropout_add",
        ),
        "RandomUniform",
    ),
}  # fmt: skip

TVM: Mapping[str, str] = {
    **{name: f"TVM's importer has no {node}" for name, node in _NOT_IMPORTED.items()},
    **dict.fromkeys(("masked_select", "nonzero", "unique"), "TVM leaves it to NumPy"),
    "identity": "TVM leaves it out: no call does any work",
}

OPENVINO: Mapping[str, str] = {
    "det": "OpenVINO has no Det",
    **dict.fromkeys(("dropout", "softmax_dropout"), "OpenVINO has no Dropout in training mode"),
    **dict.fromkeys(("randperm", "random_randint", "shuffle"), "OpenVINO imports RandomUniform in float32 only"),
    **dict.fromkeys(
        ("random_exponential", "sample_exponential"), "OpenVINO draws its random numbers while compiling, once for all"
    ),
    **dict.fromkeys(
        ("bincount", "one_hot", "ravel_multi_index", "unravel_index"), "OpenVINO computes it in int32, not in int64"
    ),
}
