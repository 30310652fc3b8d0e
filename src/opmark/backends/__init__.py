"""The backends that ship, described without importing a framework. The classes are loaded in worker processes."""

from opmark.interfaces import BackendInfo
from opmark.schema.dtype import FLOATS, INTS

_NUMPY_DTYPES = frozenset({"float64", "float32", "float16", *INTS, "bool"})
_TORCH_DTYPES = frozenset({*FLOATS, *INTS, "bool", "float8_e4m3fn", "float8_e5m2"})

# Every math library that the frameworks may bring; each reads its own variable, once, when it starts.
_THREADS = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
    "{threads}",
)

NULL = BackendInfo(
    name="null",
    framework="null",
    device="none",
    summary="no hardware and a virtual clock: everything but the numbers is real",
    dtypes=_TORCH_DTYPES,
    loads="opmark.backends.null:NullBackend",
    computes=False,
)

NULL_DEVICE = BackendInfo(
    name="null-device",
    framework="null",
    device="none",
    summary="a device that is not there, with made-up clock, sensors and failures",
    dtypes=_TORCH_DTYPES,
    loads="opmark.backends.null_device:NullDevice",
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
    differentiates=False,
    environ=_THREADS,
)


def _torch(device: str, summary: str) -> BackendInfo:
    return BackendInfo(
        name=f"torch-{device}",
        framework="torch",
        device=device,
        summary=summary,
        dtypes=_TORCH_DTYPES,
        loads="opmark.backends.torch_eager:TorchBackend",
        requires="torch",
        install="pip install 'opmark[torch]'",
        environ=_THREADS,
    )


TORCH_CPU = _torch("cpu", "PyTorch, eager, on the CPU")
TORCH_CUDA = _torch("cuda", "PyTorch, eager, on an NVIDIA or AMD GPU")
TORCH_XPU = _torch("xpu", "PyTorch, eager, on an Intel GPU")
TORCH_MPS = _torch("mps", "PyTorch, eager, on an Apple GPU")
TORCH_ACCELERATOR = _torch("accelerator", "PyTorch, eager, on whatever device torch.accelerator reports")


def _jax(device: str, summary: str) -> BackendInfo:
    return BackendInfo(
        name=f"jax-{device}",
        framework="jax",
        device=device,
        summary=summary,
        dtypes=_TORCH_DTYPES,
        loads="opmark.backends.jax_arrays:JaxBackend",
        requires="jax",
        install="pip install 'opmark[jax]'",
        environ={**_THREADS, "JAX_PLATFORMS": device},
        differentiates=False,
    )


JAX_CPU = _jax("cpu", "JAX, its functions as they are called, on the CPU")
JAX_CUDA = _jax("cuda", "JAX, its functions as they are called, on an NVIDIA GPU")
