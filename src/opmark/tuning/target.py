"""Reads the target of a tuning from this machine: chip, driver and versions. Nothing is imported or started, because
a run with tuned configurations looks it up before it plans."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from opmark.hardware.host import cpu_model, nvidia_driver
from opmark.hardware.sensors import visible_gpu
from opmark.plugin import BackendInfo
from opmark.runner.guests.placement import choose_interpreter
from opmark.runner.survey import survey
from opmark.schema.tuned import TuningTarget

_PACKAGES = {
    "torch": ("torch", "triton", "pytorch-triton"),
    "triton": ("triton", "torch"),
    "tvm": ("apache-tvm", "apache-tvm-ffi"),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
    "openvino": ("openvino",),
    "jax": ("jax", "jaxlib"),
    "numpy": ("numpy",),
}
"""Packages whose versions change what is compiled or called, by the module that a backend requires."""


@cache
def _chip(device: str) -> tuple[str, str]:
    """Return the name of the chip that computes, and the version of its driver."""
    if device == "cuda":
        found = nvidia_driver() | visible_gpu()  # the second names the GPU that is used, if there are several kinds
        return found.get("gpu", "unknown"), found.get("driver", "")
    return cpu_model() if device == "cpu" else f"{device} of {cpu_model()}", ""


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def read_target(info: BackendInfo, threads: int) -> TuningTarget:
    chip, driver = _chip(info.device)
    module = (info.requires or "").partition(".")[0]
    if choose_interpreter(info).own:
        names = _PACKAGES.get(module, (module.replace("_", "-"),) if module else ())
        versions = {name: found for name in names if (found := _version(name))}
    else:
        facts = survey([info])[0].facts
        versions = {name: str(value) for name, value in sorted(facts.items()) if name not in ("driver", "gpu")}
    named = info.device_facts()
    chip = named.pop("chip", chip)
    return TuningTarget(info.device, chip, driver, versions | named, threads if info.device == "cpu" else 0)
