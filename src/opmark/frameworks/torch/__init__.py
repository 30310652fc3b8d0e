from dataclasses import replace

from opmark.frameworks import CUDA_DTYPES, TORCH_DTYPES
from opmark.plugin import BackendInfo


def _torch(device: str, summary: str) -> BackendInfo:
    return BackendInfo(
        name=f"torch-{device}",
        framework="torch",
        device=device,
        summary=summary,
        dtypes=CUDA_DTYPES if device == "cuda" else TORCH_DTYPES,
        loads="opmark.frameworks.torch.backend:TorchBackend",
        differentiates=True,
        requires="torch",
        install="pip install 'opmark[torch]'",
        guest="torch",
        shares="opmark.frameworks.torch.shared:TorchSharedTensors" if device in ("cpu", "cuda") else "",
    )


TORCH_CPU = _torch("cpu", "PyTorch, eager, on the CPU")
TORCH_CUDA = _torch("cuda", "PyTorch, eager, on an NVIDIA or AMD GPU")
TORCH_XPU = _torch("xpu", "PyTorch, eager, on an Intel GPU")
TORCH_MPS = _torch("mps", "PyTorch, eager, on an Apple GPU")
TORCH_HPU = replace(
    _torch("hpu", "PyTorch, eager, on an Intel Gaudi"),
    requires="habana_frameworks.torch",
    install="an Intel Gaudi needs its driver and pip install habana-torch-plugin",
    # Without this, older versions collect calls and compute them later.
    environ={"PT_HPU_LAZY_MODE": "0"},
    guest="",
)
TORCH_ACCELERATOR = _torch("accelerator", "PyTorch, eager, on whatever device torch.accelerator reports")


def _torch_compile(device: str, summary: str) -> BackendInfo:
    return BackendInfo(
        name=f"torch-compile-{device}",
        framework="torch",
        device=device,
        summary=summary,
        dtypes=CUDA_DTYPES if device == "cuda" else TORCH_DTYPES,
        loads="opmark.frameworks.torch.compile:TorchCompileBackend",
        differentiates=True,
        requires="torch",
        install="pip install 'opmark[torch]'",
        compiles=True,
        guest="torch",
        variants=("default", "max-autotune"),
    )


TORCH_COMPILE_CPU = _torch_compile("cpu", "PyTorch, torch.compile (inductor), on the CPU")
TORCH_COMPILE_CUDA = _torch_compile("cuda", "PyTorch, torch.compile (inductor), on an NVIDIA or AMD GPU")
