"""MXNet on a GPU, with a made-up MXNet that computes with NumPy, a made-up driver and made-up libraries."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from opmark.frameworks.cuda_code import Gpu
from opmark.frameworks.mxnet import MXNET_CPU, MXNET_CUDA
from opmark.runner.guests.environments import recipes

FAKE = '''
"""As much of MXNet as the backend touches: tensors know the place that they were made in."""
import threading
import types
import numpy

__version__ = "1.9.1"
waits, broken, gpus, cuda = 0, False, 1, True

class MXNetError(Exception):
    pass

class Context:
    current = threading.local()
    def __init__(self, device, number=0):
        self.device = device
    def __enter__(self):
        Context.current.value = self
    def __exit__(self, *_):
        pass

def gpu(number=0):
    return Context("gpu", number)

class NDArray:
    def __init__(self, values, dtype=None):
        self.values = numpy.array(values, dtype=dtype)
        self.place = Context.current.value.device
    dtype = property(lambda self: self.values.dtype.type)
    def asnumpy(self):
        if broken:
            raise MXNetError("CUDA: an illegal memory access was encountered")
        return self.values.copy()
    def __iadd__(self, other):
        self.values += other
        return self

def waitall():
    global waits
    waits += 1
    if broken:
        raise MXNetError("CUDA: an illegal memory access was encountered")

def num_gpus():
    if gpus is None:
        raise MXNetError("Traceback (most recent call last):\\n  File somewhere\\nMXNetError: driver too old")
    return gpus

nd = types.SimpleNamespace(
    NDArray=NDArray, array=NDArray, waitall=waitall, ones=lambda shape: NDArray(numpy.ones(shape)),
    zeros=lambda shape, dtype="float32": NDArray(numpy.zeros(shape, dtype)),
)
np = types.SimpleNamespace(ndarray=NDArray)
context = types.SimpleNamespace(num_gpus=num_gpus, gpu_memory_info=lambda number: (3 << 30, 16 << 30))
feature = types.SimpleNamespace(name="CUDA", enabled=True)
runtime = types.SimpleNamespace(
    Features=lambda: types.SimpleNamespace(is_enabled=lambda name: cuda), feature_list=lambda: [feature]
)
util = types.SimpleNamespace(set_np_shape=lambda active: None)
base = types.SimpleNamespace(_LIB=types.SimpleNamespace(omp_get_max_threads=lambda: 1))
'''
A100 = Gpu("NVIDIA A100-SXM4-40GB", "a-b-c", (8, 0), l2=40 << 20, sms=108)
NAMES = ("mxnet", "opmark.frameworks.mxnet.backend", "opmark.frameworks.mxnet.cuda")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the backend, on the made-up MXNet, with an A100."""
    (tmp_path / "mxnet").mkdir()
    (tmp_path / "mxnet" / "__init__.py").write_text(FAKE)
    (tmp_path / "mxnet" / "libmxnet.so").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import opmark.frameworks.mxnet.cuda as module

    monkeypatch.setattr(module, "first_gpu", lambda: A100)
    monkeypatch.setattr(module, "library_architectures", lambda path: ["sm_50", "sm_60", "sm_70", "sm_80", "sm_86"])
    yield module
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture
def live(installed: ModuleType) -> Any:
    return MXNET_CUDA.load(1)


@pytest.fixture
def mx(installed: ModuleType) -> Any:
    return sys.modules["mxnet"]


def test_tensors_are_made_on_the_gpu(live: Any, mx: Any) -> None:
    tensor = live.upload(np.arange(6, dtype=np.float32), "float32")
    assert tensor.place == "gpu"
    assert live.download(tensor).tolist() == [0, 1, 2, 3, 4, 5]
    written = live.overwrite(64)()
    assert (written.place, written.values.tolist()) == ("gpu", [1] * 64)


def test_a_call_is_done_when_the_engine_has_no_more(live: Any, mx: Any) -> None:
    assert live.asynchronous
    live.synchronize()
    assert mx.waits == 1


def test_the_facts_are_those_of_the_gpu(live: Any) -> None:
    assert live.why_unavailable() is None
    facts = live.environment()
    assert (facts["mxnet"], facts["device"], facts["gpu"], facts["gpu_uuid"]) == ("1.9.1", "cuda", A100.name, "a-b-c")
    assert (facts["gpu_memory"], facts["gpu_l2"], facts["gpu_capability"]) == (16 << 30, 40 << 20, "8.0")
    assert (live.cache_bytes(), live.available_bytes()) == (40 << 20, 3 << 30)


@pytest.mark.parametrize(
    ("name", "capability", "runs"),
    [
        ("Tesla K80", (3, 7), False),
        ("Tesla P100", (6, 0), True),
        ("Tesla T4", (7, 5), True),
        ("NVIDIA L40S", (8, 9), True),
        ("NVIDIA H200", (9, 0), False),
        ("NVIDIA B200", (10, 0), False),
    ],
)
def test_a_gpu_without_code_is_refused_by_name(
    installed: ModuleType,
    live: Any,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    capability: tuple[int, int],
    runs: bool,
) -> None:
    monkeypatch.setattr(installed, "first_gpu", lambda: A100._replace(name=name, capability=capability))
    number = ".".join(map(str, capability))
    refusal = f"MXNet 1.9.1 has no code for {name} (compute capability {number}), but for 5.0, 6.0, 7.0, 8.0, 8.6"
    assert live.why_unavailable() == (None if runs else refusal)


def test_a_library_that_says_nothing_of_its_code_may_run(
    installed: ModuleType, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "library_architectures", lambda path: [])
    assert live.why_unavailable() is None


def test_a_build_for_cpus_says_so(live: Any, mx: Any) -> None:
    mx.cuda = False
    assert live.why_unavailable() == "MXNet 1.9.1 is a build without CUDA"


def test_a_gpu_that_mxnet_or_the_driver_does_not_find_is_a_reason(
    installed: ModuleType, live: Any, mx: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mx.gpus = 0
    assert live.why_unavailable() == "MXNet 1.9.1 finds no GPU"
    mx.gpus = None
    assert live.why_unavailable() == "MXNet 1.9.1 finds no GPU: MXNetError: driver too old"

    def fails() -> Gpu:
        raise OSError("cuInit of NVIDIA's driver fails with error 999")

    monkeypatch.setattr(installed, "first_gpu", fails)
    assert live.why_unavailable() == "MXNet 1.9.1 finds no GPU: cuInit of NVIDIA's driver fails with error 999"


def test_a_gpu_that_refuses_all_work_ends_the_process(live: Any, mx: Any) -> None:
    assert live.usable()
    mx.broken = True
    assert not live.usable()


# Libraries of CUDA, which are packages beside MXNet.


class Loader:
    """Loads libraries as the system does: it says which one is missing."""

    def __init__(self, *needs: str) -> None:
        self.needs = needs
        self.loaded: list[str] = []

    def __call__(self, path: str) -> object:
        name = Path(path).name
        if name == "libmxnet.so":
            for one in self.needs:
                if one not in self.loaded:
                    raise OSError(f"{one}: cannot open shared object file: No such file or directory")
        self.loaded.append(name)
        return object()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for folder, name in (("cudnn", "libcudnn.so.8"), ("cublas", "libcublas.so.11"), ("cublas", "libnvblas.so.11")):
        (tmp_path / "nvidia" / folder / "lib").mkdir(parents=True, exist_ok=True)
        (tmp_path / "nvidia" / folder / "lib" / name).touch()
    return tmp_path / "mxnet"


def test_what_the_library_misses_is_loaded_from_the_packages_beside_it(
    installed: ModuleType, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = Loader("libcudnn.so.8", "libcublas.so.11")
    monkeypatch.setattr(ctypes, "CDLL", loader)
    installed.load_libraries(package)
    assert loader.loaded == ["libcudnn.so.8", "libcublas.so.11", "libmxnet.so"]


def test_what_nobody_has_is_left_to_the_import_which_names_it(
    installed: ModuleType, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = Loader("libcudnn.so.8", "libcuda.so.1")
    monkeypatch.setattr(ctypes, "CDLL", loader)
    installed.load_libraries(package)
    assert loader.loaded == ["libcudnn.so.8"]


def test_a_library_that_is_loaded_in_vain_is_tried_once(
    installed: ModuleType, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(path: str) -> object:
        if path.endswith("libmxnet.so"):
            raise OSError("libcudnn.so.8: cannot open shared object file")
        return object()

    monkeypatch.setattr(ctypes, "CDLL", load)
    installed.load_libraries(package)


# Descriptions.


def test_it_differs_from_the_backend_for_cpus_by_its_device() -> None:
    assert (MXNET_CUDA.framework, MXNET_CUDA.dtypes) == (MXNET_CPU.framework, MXNET_CPU.dtypes)
    assert (MXNET_CUDA.device, MXNET_CUDA.guest) == ("cuda", "mxnet-cuda")
    assert MXNET_CUDA.environ["NVIDIA_TF32_OVERRIDE"] == "0"
    assert "NVIDIA_TF32_OVERRIDE" not in MXNET_CPU.environ


def test_the_recipe_brings_every_library_of_cuda_that_the_wheel_asks_for() -> None:
    """Names as in the dynamic section of libmxnet.so, without those of the driver and the system."""
    needed = {"cudnn", "nccl", "cuda-runtime", "cufft", "cublas", "cusolver", "curand", "cuda-nvrtc", "nvtx"}
    requirements = recipes()["mxnet-cuda"].requirements
    assert requirements[0] == "mxnet-cu112==1.9.1"
    assert {f"nvidia-{name}-cu11" for name in needed} <= {one.partition("==")[0] for one in requirements}


def test_reading_the_description_imports_nothing() -> None:
    code = "import sys, opmark.frameworks.mxnet; sys.exit('mxnet' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
