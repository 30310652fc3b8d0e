import re
from dataclasses import replace
from functools import partial

from opmark.frameworks import CUDA_DTYPES, TORCH_DTYPES
from opmark.plugin import BackendInfo, Build, Installation

_SPACES = "opmark.frameworks.torch.spaces"
_BUILT_FOR = {"cuda": ("cuda", "hip"), "xpu": ("xpu",)}
"""Names in torch/version.py of what a build for a device was made with; AMD's GPUs are `cuda` to torch."""


def _read_build(device: str, installed: Installation) -> Build:
    """Read torch/version.py, which says what torch was built with: None, or a version."""
    try:
        text = (installed.folder / "version.py").read_text()
    except (OSError, UnicodeDecodeError):
        return Build()
    found = dict(re.findall(r"^(\w+)(?:: [^=\n]+)? = (?:'([^'\n]+)'|None)$", text, re.MULTILINE))
    facts = {"torch": found.get("__version__", ""), **{name: found.get(name, "") for name in ("cuda", "hip", "xpu")}}
    made_with = _BUILT_FOR.get(device, ())
    without = all(found.get(name) == "" for name in made_with) if made_with else False
    unfit = f"torch {facts['torch']} is a build without {device.upper()}" if without else None
    return Build({name: version for name, version in facts.items() if version}, unfit)


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
        read_build=partial(_read_build, device),
        guest="torch",
        streams=device == "cuda",
        space={"cpu": f"{_SPACES}:eager_cpu", "cuda": f"{_SPACES}:eager_cuda"}.get(device, ""),
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
    read_build=None,
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
        read_build=partial(_read_build, device),
        compiles=True,
        shares_builds=True,
        guest="torch",
        variants=("default", "max-autotune"),
        space=f"{_SPACES}:compile_{device}",
    )


TORCH_COMPILE_CPU = _torch_compile("cpu", "PyTorch, torch.compile (inductor), on the CPU")
TORCH_COMPILE_CUDA = _torch_compile("cuda", "PyTorch, torch.compile (inductor), on an NVIDIA or AMD GPU")
