import re

from opmark.frameworks import CUDA_DTYPES, TORCH_DTYPES
from opmark.plugin import BackendInfo, Build, Installation


def _read_cuda_build(installed: Installation) -> Build:
    """Look for the plug-in by which JAX reaches a GPU; a jaxlib that was built for CUDA needs none."""
    plugins = {name: it for name, it in installed.packages.items() if re.fullmatch(r"jax-cuda\d+-(plugin|pjrt)", name)}
    if plugins or (installed.folder.parent / "jaxlib" / "cuda").is_dir():
        return Build(plugins)
    return Build(unfit="no plug-in for CUDA is installed beside jax (pip install 'jax[cuda13]', or jax[cuda12])")


def _jax(device: str, summary: str) -> BackendInfo:
    return BackendInfo(
        name=f"jax-{device}",
        framework="jax",
        device=device,
        summary=summary,
        dtypes=CUDA_DTYPES if device == "cuda" else TORCH_DTYPES,
        loads="opmark.frameworks.jax.backend:JaxBackend",
        differentiates=True,
        requires="jax",
        install="pip install 'opmark[jax]'",
        read_build=_read_cuda_build if device == "cuda" else None,
        environ={"JAX_PLATFORMS": device},
        compiles=True,
        views=False,
        guest="jax",
        shares="opmark.frameworks.jax.shared:SharedJaxArrays" if device == "cpu" else "",
    )


JAX_CPU = _jax("cpu", "JAX, jit, on the CPU")
JAX_CUDA = _jax("cuda", "JAX, jit, on an NVIDIA GPU")
