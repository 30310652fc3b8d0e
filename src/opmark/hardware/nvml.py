"""Sensors of an NVIDIA GPU through NVML: clock, power, temperature, throttle reasons, energy."""

from __future__ import annotations

import os
from typing import Any

from opmark.schema import Reading

# Bits of the "clocks event reasons" that mean throttling, and opmark's word for each.
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
    """The sensors of one GPU."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def read(self) -> Reading:
        clock = self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM)
        power = self._ask("nvmlDeviceGetPowerUsage")
        heat = self._ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU)
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # the name in older drivers and libraries
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
        """Call an NVML function; None if this GPU, driver or library does not support it."""
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except (self._nvml.NVMLError, AttributeError):  # an old driver; an old library
            return None


def nvml_sensors(uuid: str) -> tuple[NvmlSensors | None, str]:
    """Return (sensors of the GPU with that UUID or None, the reason if there are none)."""
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
    """Return name and UUID of the GPU that a framework uses first, for frameworks that do not report it.

    Empty if NVML does not report it either.
    """
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
    """Decode a text: older versions of the library return bytes."""
    return value.decode() if isinstance(value, bytes) else value
