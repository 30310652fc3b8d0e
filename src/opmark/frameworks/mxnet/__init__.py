import re
from dataclasses import replace

from opmark.plugin import BackendInfo, Build, Installation

MXNET_CPU = BackendInfo(
    name="mxnet-cpu",
    framework="mxnet",
    device="cpu",
    summary="MXNet on the CPU",
    dtypes=frozenset({"float64", "float32", "float16", "uint8", "int8", "int32", "int64", "bool"}),
    loads="opmark.frameworks.mxnet.backend:MxnetBackend",
    differentiates=True,
    requires="mxnet",
    install="opmark env create mxnet",
    # Operators that run at once, not threads in one of them: with two, products hang and gradients come out wrong.
    environ={"MXNET_CPU_WORKER_NTHREADS": "1"},
    views=False,
    guest="mxnet",
)


def _read_cuda_build(installed: Installation) -> Build:
    """Look for a package of MXNet for CUDA: `mxnet-cu112` is the one for CUDA 11.2."""
    found = next((re.fullmatch(r"mxnet-cu(\d+)(\d)", name) for name in installed.packages if "mxnet-cu" in name), None)
    if found is None:
        return Build(unfit="mxnet is a build without CUDA (opmark env create mxnet-cuda)")
    return Build({"cuda": f"{found[1]}.{found[2]}"})


MXNET_CUDA = replace(
    MXNET_CPU,
    name="mxnet-cuda",
    device="cuda",
    summary="MXNet on an NVIDIA GPU, up to compute capability 8.9",
    loads="opmark.frameworks.mxnet.cuda:MxnetCudaBackend",
    install="opmark env create mxnet-cuda",
    read_build=_read_cuda_build,
    # float32 means float32: MXNet lets cuBLAS keep 10 bits of 23 in products, and has no switch for that.
    environ={"MXNET_CPU_WORKER_NTHREADS": "1", "NVIDIA_TF32_OVERRIDE": "0"},
    guest="mxnet-cuda",
)
