from opmark.frameworks import CUDA_DTYPES, TORCH_DTYPES
from opmark.plugin import BackendInfo


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
        environ={"JAX_PLATFORMS": device},
        compiles=True,
        views=False,
        guest="jax",
        shares="opmark.frameworks.jax.shared:SharedJaxArrays" if device == "cpu" else "",
    )


JAX_CPU = _jax("cpu", "JAX, jit, on the CPU")
JAX_CUDA = _jax("cuda", "JAX, jit, on an NVIDIA GPU")
