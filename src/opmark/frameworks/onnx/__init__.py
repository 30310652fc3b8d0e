"""Backends of engines that run ONNX models (ONNX Runtime, OpenVINO, TVM), and the operators that an engine is known not
to take, with the reason: a plan skips them without starting the engine.

The list was found by running the whole table with OpenVINO 2026.4 and TVM 0.27. Operators that an engine computes
wrongly are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opmark.frameworks import TORCH_DTYPES
from opmark.frameworks.numpy import _NUMPY_DTYPES
from opmark.plugin import BackendInfo, Build, Installation

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


def _read_cuda_build(installed: Installation) -> Build:
    """Look for the library of ONNX Runtime's provider for CUDA, which the package for CPUs lacks."""
    if any((installed.folder / "capi").glob("*onnxruntime_providers_cuda*")):
        return Build()
    return Build(unfit="onnxruntime is a build without CUDAExecutionProvider (pip install onnxruntime-gpu)")


def _onnxruntime(device: str, summary: str) -> BackendInfo:
    return BackendInfo(
        name=f"onnxruntime-{device}",
        framework="onnx",
        device=device,
        summary=summary,
        dtypes=TORCH_DTYPES,
        loads="opmark.frameworks.onnx.onnxruntime:OnnxRuntimeBackend",
        requires="onnxruntime",
        install="pip install 'opmark[onnxruntime]'",
        read_build=_read_cuda_build if device == "cuda" else None,
        compiles=True,
        callables=False,
        views=False,
        guest="onnxruntime",
        space="opmark.frameworks.onnx.spaces:onnxruntime",
    )


ONNXRUNTIME_CPU = _onnxruntime("cpu", "ONNX Runtime on the CPU")
ONNXRUNTIME_CUDA = _onnxruntime("cuda", "ONNX Runtime on an NVIDIA GPU")

OPENVINO_CPU = BackendInfo(
    name="openvino-cpu",
    framework="onnx",
    device="cpu",
    summary="OpenVINO on the CPU, from ONNX models",
    dtypes=TORCH_DTYPES,
    loads="opmark.frameworks.onnx.openvino:OpenVinoBackend",
    requires="openvino",
    install="pip install 'opmark[openvino]'",
    compiles=True,
    callables=False,
    views=False,
    guest="openvino",
    variants=("latency", "throughput", "default-precision"),
    lacks=OPENVINO,
    space="opmark.frameworks.onnx.spaces:openvino",
)


_METASCHEDULE = {
    "evolutionary": "opmark.frameworks.tvm.tuner:MetaScheduleTuner",
    "replay-trace": "opmark.frameworks.tvm.tuner:ReplayTraceTuner",
}


def _tvm(device: str, summary: str) -> BackendInfo:
    return BackendInfo(
        name=f"tvm-{device}",
        framework="onnx",
        device=device,
        summary=summary,
        dtypes=_NUMPY_DTYPES,
        loads="opmark.frameworks.onnx.tvm:TvmBackend",
        requires="tvm",
        install="pip install 'opmark[tvm]'",
        # TVM takes half of the cores unless it is told before it starts, and undoes the affinity it is given.
        environ={"TVM_NUM_THREADS": "{threads}", "TVM_BIND_THREADS": "0"},
        compiles=True,
        callables=False,
        views=False,
        guest="tvm",
        lacks=TVM,
        tuners=_METASCHEDULE if device == "cpu" else {},
        takes_tuned_operators=True,
    )


TVM_CPU = _tvm("cpu", "Apache TVM, default schedules, on the CPU")
TVM_CUDA = _tvm("cuda", "Apache TVM, default schedules, on an NVIDIA GPU")
TVM_BOARD = replace(
    _tvm("board", "Apache TVM, default schedules, on another machine that runs TVM's RPC server"),
    loads="opmark.frameworks.tvm.board:BoardBackend",
    device_variables={
        "chip": "OPMARK_BOARD=10.0.0.7:9090",
        "target": "OPMARK_BOARD_TARGET='llvm -mtriple=aarch64-linux-gnu'",
    },
)
