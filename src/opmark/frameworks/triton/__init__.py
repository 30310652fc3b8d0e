from opmark.frameworks import TORCH_DTYPES
from opmark.plugin import BackendInfo

TRITON_CUDA = BackendInfo(
    name="triton-cuda",
    framework="triton",
    device="cuda",
    summary="kernels written in Triton, launched from PyTorch, on an NVIDIA or AMD GPU",
    dtypes=TORCH_DTYPES,
    loads="opmark.frameworks.triton.backend:TritonBackend",
    requires="triton",
    install="pip install triton",
    compiles=True,
    shares_builds=True,
    callables=False,
)
