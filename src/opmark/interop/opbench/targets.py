"""The target of `opmark opbench`: which backend times it, or that none does."""

from __future__ import annotations

from dataclasses import dataclass

from opmark.errors import UserError
from opmark.interop.tuning_logs import split_target
from opmark.plugin.registry import backend as find_backend
from opmark.runner.survey import survey

_FPGAS = frozenset({"pynq", "vta", "fpga", "zynq", "ultra96", "ultrascale", "de10nano", "ext_dev"})
_PLAIN = frozenset({"keys", "num-cores", "link-params", "arch", "max_num_threads", "thread_warp_size", "model"})
"""Options of a target that do not make it another machine's."""
_LOCAL = {"llvm": "tvm-cpu", "cuda": "tvm-cuda"}
_GPUS = frozenset({"cuda", "nvptx", "opencl", "vulkan", "rocm", "metal", "webgpu"})


@dataclass(frozen=True)
class ChosenTarget:
    text: str
    backend: str
    """`tvm-board`, or the backend of this machine whose schedules and knobs fit: `tvm-cpu` or `tvm-cuda`."""
    timed: bool
    """Whether that backend can time it, as far as metadata tells: the target is this machine's or that of a board."""
    why_not_timed: str = ""

    @property
    def name(self) -> str:
        """The target as a part of a file's name."""
        return "_".join(self.text.replace("=", "-").replace("/", "-").split()).replace("_-", "_")


def choose_target(text: str, *, board: bool) -> ChosenTarget:
    """Return where a target is timed. UserError for FPGAs, which TVM has no code for any more."""
    kind, options = split_target(text)
    if not kind:
        raise UserError(
            "--target: no target is named", "as in --target llvm or --target 'llvm -mtriple=aarch64-linux-gnu'"
        )
    if kind.lower() in _FPGAS or options.get("device") == "vta":
        raise UserError(
            f"--target: `{text}` is an FPGA, and TVM has none any more: it removed VTA in February 2025, after 0.19",
            "a vendor's compiler becomes a backend by a plug-in (docs/add-a-backend.md), which `opmark run --backend "
            "NAME` measures",
        )
    own = "tvm-cuda" if kind in _GPUS or (text.startswith("{") and '"llvm"' not in text) else "tvm-cpu"
    if board:
        return ChosenTarget(text, "tvm-board", True)
    if kind not in _LOCAL or set(options) - _PLAIN:
        return ChosenTarget(
            text, own, False, f"`{text}` is not the target of this machine; --host and --port name a board"
        )
    (found,) = survey([find_backend(_LOCAL[kind])])
    return ChosenTarget(text, own, found.reason is None, found.reason or "")
