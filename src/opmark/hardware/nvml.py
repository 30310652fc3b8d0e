"""An NVIDIA GPU's sensors through NVML: clock, power, temperature, why the clock is held down, energy."""

from __future__ import annotations

import os
from typing import Any

from opmark.schema import Reading

# Bits of the "clocks event reasons" that mean less speed than the work asks for, and the word for each.
_REASONS = {
    0x0000000000000004: "power",  # software power cap
    0x0000000000000008: "hardware",  # hardware slowdown
    0x0000000000000020: "temperature",  # software thermal slowdown
    0x0000000000000040: "temperature",  # hardware thermal slowdown
    0x0000000000000080: "power",  # hardware power brake
}


def throttle_reasons(bits: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for bit, word in _REASONS.items() if bits & bit))


class NvmlSensors:
    """One GPU, by the UUID that the framework calls it by."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def read(self) -> Reading:
        clock = self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM)
        power = self._ask("nvmlDeviceGetPowerUsage")
        heat = self._ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU)
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # what older drivers and libraries call it
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return Reading(
            clock=None if clock is None else clock * 1e6,
            power=None if power is None else power * 1e-3,
            temperature=None if heat is None else float(heat),
            throttle=throttle_reasons(bits or 0),
        )

    def energy(self) -> float | None:
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules * 1e-3

    def _ask(self, function: str, *arguments: Any) -> Any:
        """None for what this GPU or this driver does not tell."""
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except (self._nvml.NVMLError, AttributeError):  # an old driver; an old library
            return None


def nvml_sensors(uuid: str) -> tuple[NvmlSensors | None, str]:
    """(the sensors of a GPU, or None; why there are none)."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return None, "nvidia-ml-py is not installed (pip install 'opmark[nvidia]')"
    try:
        pynvml.nvmlInit()
        return NvmlSensors(pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")), ""
    except pynvml.NVMLError as error:
        return None, f"NVML does not answer: {error}"


def visible_gpu() -> dict[str, str]:
    """Name and UUID of the GPU that a framework finds first, for one that does not tell; nothing if NVML does not."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return {}
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    try:
        pynvml.nvmlInit()
        by_index = pynvml.nvmlDeviceGetHandleByIndex
        handle = by_index(int(first)) if first.isdecimal() else pynvml.nvmlDeviceGetHandleByUUID(first)
        name, uuid = _text(pynvml.nvmlDeviceGetName(handle)), _text(pynvml.nvmlDeviceGetUUID(handle))
    except pynvml.NVMLError:
        return {}
    return {"gpu": name, "gpu_uuid": uuid.removeprefix("GPU-")}


def _text(value: str | bytes) -> str:
    """Older versions of the library give bytes."""
    return value.decode() if isinstance(value, bytes) else value
