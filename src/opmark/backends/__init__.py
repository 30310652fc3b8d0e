"""The backends that ship, described without importing a framework. The classes are loaded in worker processes."""

from opmark.backends import lacks
from opmark.interfaces import BackendInfo
from opmark.schema.dtype import FLOATS, INTS

_NUMPY_DTYPES = frozenset({"float64", "float32", "float16", *INTS, "bool"})
_TORCH_DTYPES = frozenset({*FLOATS, *INTS, "bool", "float8_e4m3fn", "float8_e5m2"})

NULL = BackendInfo(
    name="null",
    framework="null",
    device="none",
    summary="no hardware and a virtual clock: everything but the numbers is real",
    dtypes=_TORCH_DTYPES,
    loads="opmark.backends.null:NullBackend",
    differentiates=True,
    computes=False,
)

NULL_DEVICE = BackendInfo(
    name="null-device",
    framework="null",
    device="none",
    summary="a device that is not there, with made-up clock, sensors and failures",
    dtypes=_TORCH_DTYPES,
    loads="opmark.backends.null_device:NullDevice",
    differentiates=True,
    computes=False,
)

NUMPY_CPU = BackendInfo(
    name="numpy-cpu",
    framework="numpy",
    device="cpu",
    summary="NumPy and SciPy",
    dtypes=_NUMPY_DTYPES,
    loads="opmark.backends.numpy_cpu:NumpyBackend",
    requires="numpy",
)


def _torch(device: str, summary: str) -> BackendInfo:
    return BackendInfo(
        name=f"torch-{device}",
        framework="torch",
        device=device,
        summary=summary,
        dtypes=_TORCH_DTYPES,
        loads="opmark.backends.torch_eager:TorchBackend",
        differentiates=True,
        requires="torch",
        install="pip install 'opmark[torch]'",
        guest="torch",
    )


TORCH_CPU = _torch("cpu", "PyTorch, eager, on the CPU")
TORCH_CUDA = _torch("cuda", "PyTorch, eager, on an NVIDIA or AMD GPU")
TORCH_XPU = _torch("xpu", "PyTorch, eager, on an Intel GPU")
TORCH_MPS = _torch("mps", "PyTorch, eager, on an Apple GPU")
TORCH_ACCELERATOR = _torch("accelerator", "PyTorch, eager, on whatever device torch.accelerator reports")


def _torch_compile(device: str, summary: str) -> BackendInfo:
    return BackendInfo(
        name=f"torch-compile-{device}",
        framework="torch",
        device=device,
        summary=summary,
        dtypes=_TORCH_DTYPES,
        loads="opmark.backends.torch_compile:TorchCompileBackend",
        differentiates=True,
        requires="torch",
        install="pip install 'opmark[torch]'",
        compiles=True,
        guest="torch",
        variants=("default", "max-autotune"),
    )


TORCH_COMPILE_CPU = _torch_compile("cpu", "PyTorch, torch.compile (inductor), on the CPU")
TORCH_COMPILE_CUDA = _torch_compile("cuda", "PyTorch, torch.compile (inductor), on an NVIDIA or AMD GPU")


def _jax(device: str, summary: str) -> BackendInfo:
    return BackendInfo(
        name=f"jax-{device}",
        framework="jax",
        device=device,
        summary=summary,
        dtypes=_TORCH_DTYPES,
        loads="opmark.backends.jax_arrays:JaxBackend",
        differentiates=True,
        requires="jax",
        install="pip install 'opmark[jax]'",
        environ={"JAX_PLATFORMS": device},
        compiles=True,
        views=False,
        guest="jax",
    )


JAX_CPU = _jax("cpu", "JAX, jit, on the CPU")
JAX_CUDA = _jax("cuda", "JAX, jit, on an NVIDIA GPU")


def _onnxruntime(device: str, summary: str) -> BackendInfo:
    return BackendInfo(
        name=f"onnxruntime-{device}",
        framework="onnx",
        device=device,
        summary=summary,
        dtypes=_TORCH_DTYPES,
        loads="opmark.backends.onnxruntime:OnnxRuntimeBackend",
        requires="onnxruntime",
        install="pip install 'opmark[onnxruntime]'",
        compiles=True,
        callables=False,
        views=False,
        guest="onnxruntime",
    )


ONNXRUNTIME_CPU = _onnxruntime("cpu", "ONNX Runtime on the CPU")
ONNXRUNTIME_CUDA = _onnxruntime("cuda", "ONNX Runtime on an NVIDIA GPU")

OPENVINO_CPU = BackendInfo(
    name="openvino-cpu",
    framework="onnx",
    device="cpu",
    summary="OpenVINO on the CPU, from ONNX models",
    dtypes=_TORCH_DTYPES,
    loads="opmark.backends.openvino:OpenVinoBackend",
    requires="openvino",
    install="pip install 'opmark[openvino]'",
    compiles=True,
    callables=False,
    views=False,
    guest="openvino",
    variants=("latency", "throughput"),
    lacks=lacks.OPENVINO,
)


def _tvm(device: str, summary: str) -> BackendInfo:
    return BackendInfo(
        name=f"tvm-{device}",
        framework="onnx",
        device=device,
        summary=summary,
        dtypes=_NUMPY_DTYPES,
        loads="opmark.backends.tvm:TvmBackend",
        requires="tvm",
        install="pip install 'opmark[tvm]'",
        # TVM takes half of the cores unless it is told before it starts, and undoes the affinity it is given.
        environ={"TVM_NUM_THREADS": "{threads}", "TVM_BIND_THREADS": "0"},
        compiles=True,
        callables=False,
        views=False,
        guest="tvm",
        lacks=lacks.TVM,
    )


TVM_CPU = _tvm("cpu", "Apache TVM, default schedules, on the CPU")
TVM_CUDA = _tvm("cuda", "Apache TVM, default schedules, on an NVIDIA GPU")

TENSORFLOW_CPU = BackendInfo(
    name="tensorflow-cpu",
    framework="tensorflow",
    device="cpu",
    summary="TensorFlow, tf.function, on the CPU",
    dtypes=_TORCH_DTYPES,
    loads="opmark.backends.tensorflow:TensorFlowBackend",
    differentiates=True,
    requires="tensorflow",
    install="opmark env create tensorflow",
    environ={"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"},
    compiles=True,
    views=False,
    guest="tensorflow",
    variants=("function", "eager", "xla"),
)

MXNET_CPU = BackendInfo(
    name="mxnet-cpu",
    framework="mxnet",
    device="cpu",
    summary="MXNet on the CPU",
    dtypes=frozenset({"float64", "float32", "float16", "uint8", "int8", "int32", "int64", "bool"}),
    loads="opmark.backends.mxnet:MxnetBackend",
    differentiates=True,
    requires="mxnet",
    install="opmark env create mxnet",
    # Operators that run at once, not threads in one of them: with two, products hang and gradients come out wrong.
    environ={"MXNET_CPU_WORKER_NTHREADS": "1"},
    views=False,
    guest="mxnet",
)

TRITON_CUDA = BackendInfo(
    name="triton-cuda",
    framework="triton",
    device="cuda",
    summary="kernels written in Triton, launched from PyTorch, on an NVIDIA or AMD GPU",
    dtypes=_TORCH_DTYPES,
    loads="opmark.backends.triton:TritonBackend",
    requires="triton",
    install="pip install triton",
    compiles=True,
    callables=False,
)
