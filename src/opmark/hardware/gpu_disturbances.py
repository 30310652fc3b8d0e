"""Find what would make times on the NVIDIA GPUs of this machine unsteady, as NVML tells it, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from opmark.hardware.clock_guard import LIMITED, lease_state, reset_command
from opmark.hardware.sensors import NvmlSensors, decode_text, throttle_reasons, visible_handles
from opmark.schema import DiagnosisItem
from opmark.units import count_bytes, count_noun

_NEAR_SLOWDOWN = 10
"""Degrees Celsius below the temperature at which the GPU slows itself down."""
_MPS = "nvidia-cuda-mps"
"""How the names of the processes of CUDA's Multi-Process Service begin."""


class _Gpu:
    """One GPU, and what NVML says about it."""

    def __init__(self, nvml: Any, index: int, handle: Any) -> None:
        self.nvml = nvml
        self.index = index
        self.sensors = NvmlSensors(nvml, handle)
        self.ask = self.sensors.ask
        self.name = decode_text(nvml.nvmlDeviceGetName(handle))
        self.uuid = decode_text(nvml.nvmlDeviceGetUUID(handle)).removeprefix("GPU-")

    def command(self, options: str) -> str:
        return f"sudo nvidia-smi -i {self.index} {options}"


def gpu_disturbances() -> list[DiagnosisItem]:
    """Return what NVML reports of the GPUs that frameworks may use: for each a line with all that is well, and one for
    each thing that is not. Empty where there is no driver."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return []
    found: list[DiagnosisItem] = []
    try:
        pynvml.nvmlInit()
        gpus = [_Gpu(pynvml, index, handle) for index, handle in visible_handles(pynvml)]
    except pynvml.NVMLError as error:
        if error.value in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED):
            return []  # there is no NVIDIA GPU
        hint = "`nvidia-smi` may say more; a GPU that is lost needs a reset, another driver than library a reboot"
        return [DiagnosisItem("GPUs", False, f"NVML does not answer: {error}", hint)]
    for gpu in gpus:
        items = [item for check in _CHECKS for item in check(gpu)]
        well = ", ".join(f"{item.name} {item.found}" for item in items if item.ok)
        found.append(DiagnosisItem(f"GPU {gpu.index}", ok=True, found=": ".join(filter(None, (gpu.name, well)))))
        found += [
            DiagnosisItem(f"{item.name} of GPU {gpu.index}", ok=False, found=item.found, hint=item.hint)
            for item in items
            if not item.ok
        ]
    return [*found, *_multi_process_service()] if gpus else []


def _persistence(gpu: _Gpu) -> Iterator[DiagnosisItem]:
    mode = gpu.ask("nvmlDeviceGetPersistenceMode")
    if mode is not None:
        found = "on" if mode else "off: the driver unloads between processes, which forgets settings and slows starts"
        yield DiagnosisItem("persistence mode", bool(mode), found, gpu.command("-pm 1"))


def _clocks(gpu: _Gpu) -> Iterator[DiagnosisItem]:
    now = gpu.ask("nvmlDeviceGetClockInfo", gpu.nvml.NVML_CLOCK_SM)
    if now is None:
        return
    lease, held = lease_state(gpu.uuid)
    if lease and not held:
        at = f" at {lease.mhz} MHz" if lease.mhz else ""
        yield DiagnosisItem("clock", False, f"left locked{at} by a run that was killed", reset_command(gpu.uuid))
    elif lease or gpu.sensors.clock_event_bits() & LIMITED:
        by = "a run of opmark" if lease else "a user's setting"
        yield DiagnosisItem("clock", True, f"{now} MHz, held by {by}")
    else:
        highest = gpu.ask("nvmlDeviceGetMaxClockInfo", gpu.nvml.NVML_CLOCK_SM)
        upto = f" of up to {highest}" if highest else ""
        root = "which this user is" if os.geteuid() == 0 else "which this user is not"
        yield DiagnosisItem(
            "clock", False, f"not locked, {now}{upto} MHz now: it follows load, power and temperature",
            f"`opmark run --clocks lock` locks it while it measures; that takes root, {root}",
        )  # fmt: skip


def _auto_boost(gpu: _Gpu) -> Iterator[DiagnosisItem]:
    """Only GPUs before Pascal have it."""
    states = gpu.ask("nvmlDeviceGetAutoBoostedClocksEnabled")
    if states is not None:
        yield DiagnosisItem(
            "auto boost", not states[0], "on" if states[0] else "off", gpu.command("--auto-boost-default=0")
        )


def _power_limit(gpu: _Gpu) -> Iterator[DiagnosisItem]:
    limit, default = (
        gpu.ask(f"nvmlDeviceGetPowerManagement{which}") for which in ("Limit", "DefaultLimit")
    )  # milliwatts
    if limit is None:
        return
    bounds = gpu.ask("nvmlDeviceGetPowerManagementLimitConstraints")
    more = f", {bounds[1] / 1e3:.0f} W is possible" if bounds and bounds[1] > limit else ""
    usual = f", below its default of {default / 1e3:.0f} W" if default and limit < default else ""
    hint = gpu.command(f"-pl {(default or limit) // 1000}")
    yield DiagnosisItem("power limit", not usual, f"{limit / 1e3:.0f} W{usual}{more}", hint)


def _throttling(gpu: _Gpu) -> Iterator[DiagnosisItem]:
    reasons = throttle_reasons(gpu.sensors.clock_event_bits())
    if reasons:
        hint = "wait until it has cooled down and nothing else uses it; look at its cooling and its power supply"
        yield DiagnosisItem("throttling", False, f"the clock is held down by {' and '.join(reasons)}", hint)


def _temperature(gpu: _Gpu) -> Iterator[DiagnosisItem]:
    nvml = gpu.nvml
    now = gpu.ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)
    limit = gpu.ask("nvmlDeviceGetTemperatureThreshold", nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
    if now is not None:
        near = bool(limit) and now > limit - _NEAR_SLOWDOWN
        found = f"{now} °C" + (f", and from {limit} °C on it slows itself down" if near else "")
        yield DiagnosisItem("temperature", not near, found, "let it cool down, and look at its fans and its air")


def _processes(gpu: _Gpu) -> Iterator[DiagnosisItem]:
    kinds = ("Compute", "Graphics", "MPSCompute")
    answers = [gpu.ask(f"nvmlDeviceGet{kind}RunningProcesses") for kind in kinds]
    if answers[0] is None:
        return
    memory = {one.pid: one.usedGpuMemory for found in answers for one in found or ()}
    listed = [f"{_process_name(pid)} ({count_bytes(used or 0)})" for pid, used in memory.items() if pid != os.getpid()]
    if not listed:
        yield DiagnosisItem("other processes", True, "none")
        return
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    hint = "stop them while measuring, or choose another GPU: CUDA_VISIBLE_DEVICES"
    found = f"{count_noun(len(listed), 'process', 'processes')}: {', '.join(listed[:3])}{more}"
    yield DiagnosisItem("other processes", False, found, hint)


def _process_name(pid: int) -> str:
    """Name a process; NVML may report processes that this container cannot see."""
    try:
        return f"{psutil.Process(pid).name()} {pid}"
    except psutil.Error:
        return f"pid {pid}"


def _memory_errors(gpu: _Gpu) -> Iterator[DiagnosisItem]:
    nvml = gpu.nvml
    modes = gpu.ask("nvmlDeviceGetEccMode")
    if modes is not None:
        now, pending = ("on" if mode else "off" for mode in modes)
        found = now if now == pending else f"{now}, and {pending} after the next reset: bandwidth may change with it"
        yield DiagnosisItem("ECC", now == pending, found, gpu.command("--gpu-reset"))
    errors = gpu.ask("nvmlDeviceGetTotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
    if errors:
        found = f"{count_noun(errors, 'error')} since the driver was loaded that ECC could not correct"
        yield DiagnosisItem("memory", False, found, "results may be wrong: replace the GPU if they go on")
    remapped = gpu.ask("nvmlDeviceGetRemappedRows")  # corrected, uncorrected, pending, failed
    if gpu.ask("nvmlDeviceGetRetiredPagesPendingStatus") or (remapped and remapped[2]):
        found = "bad memory is replaced at the next reset"
        yield DiagnosisItem("memory", False, found, gpu.command("--gpu-reset"))
    if remapped and remapped[3]:
        yield DiagnosisItem("memory", False, "bad memory could not be replaced", "replace the GPU")


def _instances(gpu: _Gpu) -> Iterator[DiagnosisItem]:
    modes = gpu.ask("nvmlDeviceGetMigMode")
    if modes is not None:
        found = "on: its instances share power, clock and temperature" if modes[0] else "off"
        yield DiagnosisItem("MIG mode", not modes[0], found, gpu.command("-mig 0"))


def _compute_mode(gpu: _Gpu) -> Iterator[DiagnosisItem]:
    nvml, mode = gpu.nvml, gpu.ask("nvmlDeviceGetComputeMode")
    hint = gpu.command("-c DEFAULT")
    if mode == nvml.NVML_COMPUTEMODE_PROHIBITED:
        yield DiagnosisItem("compute mode", False, "prohibited: no framework can use it", hint)
    elif mode == nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
        found = "exclusive: a second process on it fails, and `opmark judge` has two"
        yield DiagnosisItem("compute mode", False, found, hint)


def _link(gpu: _Gpu) -> Iterator[DiagnosisItem]:
    """Only the width counts: an idle GPU lowers the rate of its link, and raises it under load."""
    width, widest = (gpu.ask(f"nvmlDeviceGet{which}PcieLinkWidth") for which in ("Curr", "Max"))
    if width and widest:
        found = f"x{width}" if width >= widest else f"x{width} of x{widest}: copies from and to the host are slower"
        yield DiagnosisItem("PCIe link", width >= widest, found, "look at its slot and its riser, or ask the provider")


def _multi_process_service() -> Iterator[DiagnosisItem]:
    names = {process.info["name"] or "" for process in psutil.process_iter(["name"])}
    if any(name.startswith(_MPS) for name in names):
        yield DiagnosisItem(
            "MPS", False, "CUDA's Multi-Process Service runs: processes share the GPU at the same time",
            "echo quit | nvidia-cuda-mps-control",
        )  # fmt: skip


_CHECKS: tuple[Callable[[_Gpu], Iterator[DiagnosisItem]], ...] = (
    _persistence, _clocks, _auto_boost, _power_limit, _throttling, _temperature, _processes, _memory_errors, _instances,
    _compute_mode, _link,
)  # fmt: skip
