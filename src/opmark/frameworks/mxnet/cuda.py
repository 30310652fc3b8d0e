"""MXNet on an NVIDIA GPU."""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from opmark.frameworks.cuda_code import first_gpu, format_architectures, has_code, library_architectures
from opmark.plugin import BackendInfo


def load_libraries(package: Path) -> None:
    """Load MXNet's library, and before it those of CUDA that are installed as packages beside it: its own search path
    does not lead there. What is not found is left to the import, which names it."""
    tried: set[str] = set()
    while True:
        try:
            ctypes.CDLL(str(package / "libmxnet.so"))
        except OSError as error:  # as in "libcudnn.so.8: cannot open shared object file: No such file or directory"
            missing = str(error).partition(":")[0]
            found = next(package.parent.glob(f"nvidia/*/lib/{missing}"), None)
            if found is None or missing in tried:
                return
            tried.add(missing)
            ctypes.CDLL(str(found))
        else:
            return


_PACKAGE = Path(*(find_spec("mxnet").submodule_search_locations or ())[:1])  # type: ignore[union-attr]
load_libraries(_PACKAGE)

import mxnet as mx  # noqa: E402

from opmark.frameworks.mxnet.backend import MxnetBackend  # noqa: E402


class MxnetCudaBackend(MxnetBackend):
    """Queues calls to MXNet's engine, which launches their kernels. Every tensor that names no place is made on the
    first GPU."""

    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        mx.gpu(0).__enter__()  # the default of this thread, which makes all tensors and calls

    def why_unavailable(self) -> str | None:
        """Refuse a GPU that the build has no code for: MXNet would start, and fail at its first kernel."""
        version = f"MXNet {mx.__version__}"
        if not mx.runtime.Features().is_enabled("CUDA"):
            return f"{version} is a build without CUDA"
        try:
            gpu = first_gpu()
            architectures = library_architectures(_PACKAGE / "libmxnet.so")
            if architectures and not has_code(architectures, gpu.capability):
                capability = ".".join(map(str, gpu.capability))
                made_for = format_architectures(architectures)
                return f"{version} has no code for {gpu.name} (compute capability {capability}), but for {made_for}"
            if not mx.context.num_gpus():
                return f"{version} finds no GPU"
        except (mx.MXNetError, OSError) as error:
            return f"{version} finds no GPU: {str(error).strip().splitlines()[-1]}"
        return None

    def environment(self) -> dict[str, Any]:
        gpu = first_gpu()
        return super().environment() | {
            "gpu": gpu.name,
            "gpu_uuid": gpu.uuid,
            "gpu_memory": int(mx.context.gpu_memory_info(0)[1]),
            "gpu_l2": gpu.l2,
            "gpu_sms": gpu.sms,
            "gpu_capability": ".".join(map(str, gpu.capability)),
        }

    def cache_bytes(self) -> int | None:
        return first_gpu().l2

    def available_bytes(self) -> int | None:
        """Return what the driver has left; MXNet's own pool may hold more."""
        return int(mx.context.gpu_memory_info(0)[0])

    def usable(self) -> bool:
        """Return whether the GPU still computes: after an error in a kernel it refuses everything."""
        try:
            return super().usable() and mx.nd.ones((1,)).asnumpy()[0] == 1
        except mx.MXNetError:
            return False
