"""What metadata tells about backends: packages in made-up folders, environments that nobody may start, fake drivers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import pytest

from opmark.frameworks.jax import JAX_CUDA
from opmark.frameworks.mxnet import MXNET_CPU, MXNET_CUDA
from opmark.frameworks.onnx import ONNXRUNTIME_CUDA
from opmark.frameworks.torch import TORCH_CPU, TORCH_CUDA, TORCH_XPU
from opmark.plugin import BackendInfo, Build, Installation
from opmark.plugin.registry import backends
from opmark.runner import survey as module
from opmark.runner.guests import environments
from opmark.runner.guests.environments import Guest
from opmark.runner.survey import survey
from opmark.schema import Availability

Install = Callable[..., Path]

INFO = BackendInfo(
    name="x", framework="x", device="cpu", loads="m:C", summary="a framework", requires="framework_x", install="make it"
)


def put(site: Path, package: str, version: str, modules: str = "", record: bytes | None = None) -> Path:
    """Install a package as pip does, with one folder per module; return its folder of metadata."""
    metadata = site / f"{package.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    files = [f"{name.replace('.', '/')}/__init__.py" for name in modules.split()]
    for file in files:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text("raise SystemExit('imported')\n")
    invalidate_caches()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = "".join(f"{file},sha256=0,1\n" for file in ["somewhere/else.py", *files])
    (metadata / "RECORD").write_bytes(lines.encode() if record is None else record)
    return metadata


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that this interpreter imports from."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(environments.VARIABLE, str(tmp_path / "envs"))
    return tmp_path / "envs"


def environment(folder: Path, name: str) -> Path:
    """Make an environment whose interpreter fails when it is started; return its folder of packages."""
    place = folder / name
    packages = place / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    (place / "pyvenv.cfg").write_text("version = 3.11.7\n")
    (place / "bin").mkdir()
    (place / "bin" / "python").write_text("#!/bin/sh\nexit 77\n")
    (place / "bin" / "python").chmod(0o755)
    described = Guest(name, "a guest", (), "3.11.7", {}, "2026-01-01")
    (place / "opmark.json").write_text(json.dumps({f: getattr(described, f) for f in Guest.__struct_fields__}))
    return packages


def look(info: BackendInfo) -> Availability:
    (found,) = survey([info])
    assert (found.name, found.summary, found.probed) == (info.name, info.summary, False)
    return found


# Packages of this interpreter.


def test_a_version_is_that_of_the_package_which_brought_the_module(site: Path) -> None:
    put(site, "framework-x", "9.9", "other")
    put(site, "Vendor.Framework-gpu", "1.2.post1+cu130", "framework_x")
    found = look(INFO)
    assert found.reason is None
    assert found.facts == {"vendor-framework-gpu": "1.2.post1+cu130"}


def test_two_packages_that_bring_the_same_module_are_both_named(site: Path) -> None:
    put(site, "framework-x", "1.0", "framework_x")
    put(site, "framework-x-gpu", "1.1", "framework_x")
    assert look(INFO).facts == {"framework-x": "1.0", "framework-x-gpu": "1.1"}


def test_a_part_of_a_package_is_found_by_its_path(site: Path) -> None:
    put(site, "vendor-base", "1.0", "framework_x")
    info = replace(INFO, requires="framework_x.part")
    assert look(info).reason == "framework_x.part is not installed (make it)"
    put(site, "vendor-part", "2.0", "framework_x.part")
    assert look(info).facts == {"vendor-part": "2.0"}
    (site / "framework_x" / "__init__.py").unlink()  # a namespace, which several packages share
    invalidate_caches()
    assert look(info).facts == {"vendor-part": "2.0"}
    assert look(replace(INFO, requires="framework_x.part.deeper")).reason is not None


def test_a_package_that_is_edited_in_place_is_known_by_its_name(site: Path, tmp_path: Path) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "framework_x.py").touch()
    sys.path.append(str(tmp_path / "checkout"))  # syspath_prepend puts sys.path back
    put(site, "framework-x", "3.0.dev1", record=b"__editable__.framework_x.pth,sha256=0,1\n")
    assert look(INFO).facts == {"framework-x": "3.0.dev1"}


def test_a_module_that_no_package_brought_has_no_version_and_is_there(site: Path) -> None:
    (site / "framework_x").mkdir()
    (site / "framework_x" / "__init__.py").touch()
    found = look(INFO)
    assert (found.reason, found.facts) == (None, {})


@pytest.mark.parametrize("broken", ["METADATA", "RECORD"])
@pytest.mark.parametrize("how", ["gone", "bytes", "a folder"])
def test_broken_metadata_costs_at_most_the_owner_of_the_module(site: Path, broken: str, how: str) -> None:
    """The version is in the name of a folder."""
    metadata = put(site, "framework-x", "1.0", "framework_x")
    put(site, "neighbour", "5.0", "neighbour")
    (metadata / broken).unlink()
    if how == "bytes":
        (metadata / broken).write_bytes(b"\xff\xfe\x00\x9f")
    elif how == "a folder":
        (metadata / broken).mkdir()
    found = look(INFO)
    assert (found.reason, found.facts) == (None, {"framework-x": "1.0"})


def test_a_folder_of_metadata_without_a_version_is_not_a_package(site: Path) -> None:
    put(site, "framework-x", "1.0", "framework_x")
    (site / "nonsense.dist-info").mkdir()
    (site / "-1.dist-info").mkdir()
    assert look(INFO).facts == {"framework-x": "1.0"}


def test_what_is_not_installed_says_how_to_get_it() -> None:
    found = look(INFO)
    assert (found.reason, found.facts) == ("framework_x is not installed (make it)", {})


def test_a_backend_that_needs_nothing_is_there() -> None:
    found = look(replace(INFO, requires=None))
    assert (found.reason, found.facts) == (None, {})


def test_a_backend_for_another_version_of_opmark_says_so(site: Path) -> None:
    put(site, "framework-x", "1.0", "framework_x")
    assert look(replace(INFO, outdated="made for 0.8")).reason == "made for 0.8"


# Environments: their interpreters would fail, and are not started.


def test_a_guest_is_looked_at_from_outside(guests: Path) -> None:
    put(environment(guests, "guest-x"), "framework-x-old", "0.9", "framework_x")
    found = look(replace(INFO, guest="guest-x"))
    assert (found.reason, found.facts) == (None, {"framework-x-old": "0.9", "environment": "guest-x"})


def test_an_own_framework_comes_before_that_of_a_guest(site: Path, guests: Path) -> None:
    put(site, "framework-x", "1.0", "framework_x")
    put(environment(guests, "guest-x"), "framework-x", "0.9", "framework_x")
    assert look(replace(INFO, guest="guest-x")).facts == {"framework-x": "1.0"}
    assert look(replace(INFO, name="x@guest-x", python="guest-x")).facts == {
        "framework-x": "0.9", "environment": "guest-x"
    }  # fmt: skip


def test_a_guest_without_the_framework_is_named(guests: Path) -> None:
    environment(guests, "guest-x")
    python = guests / "guest-x" / "bin" / "python"
    assert look(replace(INFO, guest="guest-x")).reason == f"framework_x is not installed in {python}"


def test_a_guest_whose_interpreter_is_gone_is_named(guests: Path) -> None:
    put(environment(guests, "guest-x"), "framework-x", "0.9", "framework_x")
    python = guests / "guest-x" / "bin" / "python"
    python.unlink()
    python.symlink_to("/no/such/python3.11")
    assert look(replace(INFO, guest="guest-x")).reason == f"`{python}` is not a program"


def test_an_interpreter_outside_of_an_environment_is_asked() -> None:
    """Nobody else knows where its packages are."""
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    found = look(replace(INFO, name=f"x@{base}", python=str(base)))
    assert found.reason == f"framework_x is not installed in {base}"
    assert look(replace(INFO, name=f"x@{base}", python=str(base), requires="json")).reason is None


# Drivers and builds.


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine with NVIDIA's driver; what is changed here is what the machine says."""
    says: dict[str, Any] = {"device": None, "library": None, "driver": {"driver": "580.65.06", "gpu": "NVIDIA H200"}}
    monkeypatch.setattr(module, "why_no_device", lambda device: says["device"] if device != "cpu" else None)
    monkeypatch.setattr(module, "why_no_driver_library", lambda: says["library"])
    monkeypatch.setattr(module, "nvidia_driver", lambda: says["driver"])
    return says


def test_a_gpu_is_named_with_its_driver(site: Path, gpu: dict[str, Any]) -> None:
    put(site, "framework-x", "1.0", "framework_x")
    found = look(replace(INFO, device="cuda"))
    assert (found.reason, found.facts) == (None, {"framework-x": "1.0", **gpu["driver"]})
    assert look(INFO).facts == {"framework-x": "1.0"}


def test_a_device_or_a_library_that_is_missing_is_the_reason(site: Path, gpu: dict[str, Any]) -> None:
    put(site, "framework-x", "1.0", "framework_x")
    gpu["library"] = "libcuda.so.1 cannot be loaded"
    assert look(replace(INFO, device="cuda")).reason == "libcuda.so.1 cannot be loaded"
    gpu["device"] = "no driver"
    found = look(replace(INFO, device="cuda"))
    assert (found.reason, found.facts) == ("no driver", {"framework-x": "1.0"})
    assert look(INFO).reason is None


def test_a_build_that_cannot_use_the_device_says_so(site: Path, gpu: dict[str, Any]) -> None:
    put(site, "framework-x", "1.0", "framework_x")
    put(site, "beside", "2.0")
    seen: list[Installation] = []

    def read(installed: Installation) -> Build:
        seen.append(installed)
        return Build({"built": "for nothing"}, "it is a toy")

    found = look(replace(INFO, device="cuda", read_build=read))
    assert (found.reason, found.facts) == ("it is a toy", {"framework-x": "1.0", "built": "for nothing"})
    assert seen[0].folder == site / "framework_x"
    assert {"framework-x": "1.0", "beside": "2.0"}.items() <= seen[0].packages.items()


def test_a_plug_in_that_fails_to_read_its_build_costs_its_own_line_alone(site: Path) -> None:
    put(site, "framework-x", "1.0", "framework_x")

    def fail(installed: Installation) -> Build:
        raise KeyError("version")

    one, other = survey([replace(INFO, read_build=fail), replace(INFO, name="y")])
    assert one.reason == "its build cannot be read: KeyError: 'version'"
    assert other.reason is None


VERSION = "__version__ = '{}'\ndebug = False\ncuda: Optional[str] = {}\ngit_version = 'e2d1'\nhip: Optional[str] = {}\n"


@pytest.mark.parametrize(
    ("text", "facts", "on_cuda", "on_xpu"),
    [
        (
            VERSION.format("2.13.0+cpu", None, None) + "rocm: Optional[str] = None\nxpu: Optional[str] = None\n",
            {"torch": "2.13.0+cpu"},
            "torch 2.13.0+cpu is a build without CUDA",
            "torch 2.13.0+cpu is a build without XPU",
        ),
        (VERSION.format("2.7.1+cu126", "'12.6'", None), {"torch": "2.7.1+cu126", "cuda": "12.6"}, None, None),
        (
            VERSION.format("2.9.0+rocm6.4", None, "'6.4.4'") + "xpu: Optional[str] = None\n",
            {"torch": "2.9.0+rocm6.4", "hip": "6.4.4"},
            None,
            "torch 2.9.0+rocm6.4 is a build without XPU",
        ),
        (
            VERSION.format("2.9.0+xpu", None, None) + "xpu: Optional[str] = '20250000'\n",
            {"torch": "2.9.0+xpu", "xpu": "20250000"},
            "torch 2.9.0+xpu is a build without CUDA",
            None,
        ),
        ("__version__ = '2.0.1'\ncuda = '11.7'\nhip = None\n", {"torch": "2.0.1", "cuda": "11.7"}, None, None),
        ("written by somebody else\n", {}, None, None),
        (None, {}, None, None),
    ],
    ids=["cpu", "cuda", "rocm", "xpu", "old", "nonsense", "no file"],
)  # fmt: skip
def test_the_build_of_torch_is_read_from_its_file_of_versions(
    tmp_path: Path, text: str | None, facts: dict[str, str], on_cuda: str | None, on_xpu: str | None
) -> None:
    if text is not None:
        (tmp_path / "version.py").write_text(text)
    installed = Installation(tmp_path, {})
    for info, unfit in ((TORCH_CPU, None), (TORCH_CUDA, on_cuda), (TORCH_XPU, on_xpu)):
        assert info.read_build is not None
        assert info.read_build(installed) == Build(facts, unfit)


def test_jax_reaches_a_gpu_through_a_plug_in_or_an_own_build(tmp_path: Path) -> None:
    read = JAX_CUDA.read_build
    assert read is not None
    packages = {"jax": "0.10.2", "jaxlib": "0.10.2", "jax-cuda-tools": "1.0"}
    assert "no plug-in for CUDA" in (read(Installation(tmp_path / "jax", packages)).unfit or "")
    plugins = {"jax-cuda13-plugin": "0.10.2", "jax-cuda13-pjrt": "0.10.2"}
    assert read(Installation(tmp_path / "jax", packages | plugins)) == Build(plugins)
    (tmp_path / "jaxlib" / "cuda").mkdir(parents=True)
    assert read(Installation(tmp_path / "jax", packages)) == Build()


def test_onnxruntime_reaches_a_gpu_through_a_library(tmp_path: Path) -> None:
    read = ONNXRUNTIME_CUDA.read_build
    assert read is not None
    (tmp_path / "capi").mkdir()
    (tmp_path / "capi" / "libonnxruntime_providers_shared.so").touch()
    assert "without CUDAExecutionProvider" in (read(Installation(tmp_path, {})).unfit or "")
    (tmp_path / "capi" / "libonnxruntime_providers_cuda.so").touch()
    assert read(Installation(tmp_path, {})) == Build()


def test_mxnet_for_a_gpu_is_a_package_of_another_name(guests: Path, gpu: dict[str, Any]) -> None:
    assert look(MXNET_CUDA).reason == "mxnet is not installed (opmark env create mxnet-cuda)"
    put(environment(guests, "mxnet"), "mxnet", "1.9.1", "mxnet")
    assert look(MXNET_CPU).facts == {"mxnet": "1.9.1", "environment": "mxnet"}
    assert look(MXNET_CUDA).reason == "mxnet is not installed (opmark env create mxnet-cuda)"
    put(environment(guests, "mxnet-cuda"), "mxnet-cu112", "1.9.1", "mxnet")
    found = look(MXNET_CUDA)
    assert found.reason is None
    assert found.facts == {"mxnet-cu112": "1.9.1", "cuda": "11.2", "environment": "mxnet-cuda", **gpu["driver"]}
    for_cpus = look(replace(MXNET_CUDA, python="mxnet"))
    assert for_cpus.reason == "mxnet is a build without CUDA (opmark env create mxnet-cuda)"


# All of them.


def test_where_nobody_is_named_everybody_is_looked_at() -> None:
    found = survey()
    assert [one.name for one in found] == list(backends())
    assert not any(one.probed for one in found)
    assert {one.name for one in found if one.reason is None} >= {"null", "null-device", "numpy-cpu"}
    assert survey([]) == []


def test_nothing_is_imported_and_nothing_is_started() -> None:
    code = (
        "import json, subprocess, sys\n"
        "subprocess.Popen = None\n"
        "from opmark.runner.survey import survey\n"
        "found = [one.name for one in survey() if one.reason is None]\n"
        "print(json.dumps([found, sorted({name.partition('.')[0] for name in sys.modules})]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    found, modules = json.loads(done.stdout)
    assert {"null", "numpy-cpu"} <= set(found)
    required = {info.requires.partition(".")[0] for info in backends().values() if info.requires}
    assert required >= {"torch", "jax", "tensorflow", "onnxruntime", "openvino", "tvm", "mxnet", "triton", "numpy"}
    assert not required & set(modules)
