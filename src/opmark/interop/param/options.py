"""The options of PARAM's command line, as arguments of `opmark.run`."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opmark.errors import UnknownName, UserError
from opmark.interop.visible_devices import select_device


@dataclass(frozen=True)
class Device:
    backend: str
    kind: str
    """The device of the backend, as in `cpu` or `cuda`."""
    environ: dict[str, str] = field(default_factory=dict)
    """Variables that let its processes see only this one of several devices."""


def device_of(text: str, *, compiled: bool = False) -> Device:
    """Return the device for `cpu`, `cuda`, `cuda:1`, `xpu`, `mps` or the name of a backend.

    With `compiled`, the backend is the one of the same device that uses torch.compile.
    """
    from opmark.plugin.registry import backends  # not needed for `-h`, which is to be quick

    known = backends()
    if text in known:
        info = known[text]
        kind = info.device if info.framework == "torch" else text  # backends of other frameworks have no compiled twin
        return Device(_compiling_backend(kind, text) if compiled else text, info.device)
    kind, colon, number = text.partition(":")
    eager = _by_device(compiled=False)
    if kind not in eager:
        raise UnknownName("device", text, [*eager, *known])
    name = _compiling_backend(kind, text) if compiled else eager[kind]
    if not colon:
        return Device(name, kind)
    if not re.fullmatch(r"\d+", number):
        raise UserError(f"--device {text}: expected a number behind the colon, got `{number}`", f"as in {kind}:0")
    return Device(name, kind, select_device(kind, int(number), f"--device {text}"))


def _compiling_backend(kind: str, text: str) -> str:
    found = _by_device(compiled=True)
    if kind not in found:
        raise UserError(
            f"--pt2-model: no backend compiles with torch.compile for --device {text}",
            f"leave it out, or use one of {', '.join(sorted(found))}",
        )
    return found[kind]


def _by_device(*, compiled: bool) -> dict[str, str]:
    """Return the names of torch's backends by device."""
    from opmark.plugin.registry import backends

    torch = (info for info in backends().values() if info.framework == "torch")
    return {info.device: info.name for info in torch if info.compiles == compiled}


# The options of PARAM's run_benchmark, and a few of opmark's own.

MODES = ("discrete", "continuous", "continuous_events")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="opmark param",
        description="PARAM's run_benchmark: the same configs, options and result files.",
        epilog="`opmark param comms -h`: PARAM's comms.py, collectives of several ranks. `opmark param driver -h`: its "
        "older driver.py, kernels with fixed data sets.",
    )
    _add_selection(made)
    _add_measurement(made)
    _add_profilers(made)
    _add_output(made)
    _add_own_options(made.add_argument_group("options of opmark, not of PARAM"))
    return made


def _add_selection(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add("-c", "--config", type=lambda text: Path(text) if text else None, help="The benchmark config file.")
    add("-w", "--warmup", type=int, default=1, help="Number of warm up iterations. [1]")
    add("-i", "--iteration", type=int, default=1, help="Number of benchmark iterations. [1]")
    add("-b", "--backward", action=argparse.BooleanOptionalAction, default=False, help="Include backward pass.")
    add("-d", "--device", default="cpu", help="Target device: cpu, cuda, cuda:1, xpu, mps, or a backend. [cpu]")
    add("-r", "--resume-id", help="Begin at this op_run_id ([file#]op|config|build|input), skip all before it.")
    add("-s", "--stop_id", "--stop-id", dest="stop_id", help="Stop before this op_run_id (exclusive).")


def _add_measurement(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add("--cuda-l2-cache", nargs="?", const="off", default="on", choices=("on", "off"),
        help="off, or no value: overwrite the GPU's caches before each call in discrete mode. [on]")  # fmt: skip
    add("--exec-mode", nargs="?", const="discrete", default="discrete", choices=MODES,
        help="One call at a time; back to back; back to back with events around each. [discrete]")  # fmt: skip
    add("--cuda-graph", action=argparse.BooleanOptionalAction, default=False,
        help="Capture the calls as a CUDA graph and time its replay.")  # fmt: skip
    add("--pt2-model", action=argparse.BooleanOptionalAction, default=False,
        help="Compile with torch.compile, which is not timed.")  # fmt: skip


def _add_profilers(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    for name, title, iterations in (("ncu", "NSight Compute", 1), ("nsys", "NSight Systems", 10)):
        add(f"--{name}", action="store_true", help=f"Run {title} to collect metrics.")
        add(f"--{name}-bin", help=f"Path to the {title} ({name}) binary.")
        add(f"--{name}-args-file", type=Path, help=f"{title} extra command line options (metrics etc.).")
        add(f"--{name}-warmup", type=int, default=5, help=f"{title}: number of warmup runs. [5]")
        add(
            f"--{name}-iteration",
            type=int,
            default=iterations,
            help=f"{title}: number of measured runs. [{iterations}]",
        )
    add("--run-batch-size", type=int, default=50, help="Cases in one launch of a profiler. [50]")
    add("--batch-cuda-device", type=int, help="CUDA device that profilers run on. [the one of --device]")
    add("--batch-cmd", help="Command that runs a batch under the profiler; the arguments are appended.")
    add("-p", "--profile", action="store_true", help="Write a trace of the run, to be opened in Perfetto.")
    add("--cupti-profiler", action="store_true", help="Not implemented yet; --ncu collects such metrics.")
    add("--cupti-profiler-metrics", help="Not implemented yet.")
    add("--cupti-profiler-measure-per-kernel", action="store_true", help="Not implemented yet.")
    add("--et", action="store_true", help="Write PyTorch's execution trace of the run, to PREFIX_..._et.json.")


def _add_output(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add("-o", "--output-prefix", default="benchmark_result",
        help="Results go to PREFIX_<pid>_<time>.json. [benchmark_result]")  # fmt: skip
    add("-a", "--append", action="store_true", help="Append to PREFIX.json instead.")
    add("-l", "--log-level", default="INFO", help="debug, info, warning or error: messages during the run. [info]")
    add("--version", action="store_true", help="Print version.")


def _add_own_options(made: argparse._ArgumentGroup) -> None:
    add = made.add_argument
    add("--plugin", action="append", default=[], metavar="FILE.py",
        help="Load the operators, iterators and generators that this file registers.")  # fmt: skip
    add("--allow", default="", metavar="MODULES",
        help="Modules whose functions the config may call, beside those that compute. [$OPMARK_ALLOW]")  # fmt: skip
    add("--threads", type=int, default=1, help="Threads of the framework; PARAM always uses 1. [1]")
    add("--seed", type=int, default=0, help="Seed of input data and of random values of the config. [0]")
    add("--dry-run", action="store_true", help="Print ids and arguments and run nothing.")
    add("--strict", action="store_true", help="Stop if a part of the config cannot be imported.")
    add("--timeout", type=float, default=600.0, help="Seconds that one case may take; PARAM has no limit. [600]")
    add("--db", help="The store of runs. [$OPMARK_DB or the data directory]")


@dataclass(frozen=True)
class ParamOptions:
    """Options with PARAM's names and defaults."""

    warmup: int = 1
    iteration: int = 1
    backward: bool = False
    device: str = "cpu"
    exec_mode: str = "discrete"
    cuda_l2_cache: bool = True
    """If false, a GPU's caches are overwritten before each call."""
    cuda_graph: bool = False
    pt2_model: bool = False
    """Whether operators are compiled with torch.compile before they are timed."""
    resume_id: str | None = None
    stop_id: str | None = None
    threads: int = 1
    seed: int = 0
    allow: str | Sequence[str] = ()
    """Modules whose functions the config may call, beside those that compute."""
    strict: bool = False
    timeout: float = 600.0
    db: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        for name in ("warmup", "iteration"):
            count = getattr(self, name)
            if count < 0:
                raise UserError(f"--{name}: expected a whole number of at least 0, got {count}", f"as in --{name} 10")
        if self.exec_mode not in MODES:
            raise UnknownName("execution mode", self.exec_mode, MODES)

    @property
    def times(self) -> bool:
        """Whether operators are called at all: with -w 0 -i 0, PARAM only lists its cases."""
        return bool(self.warmup or self.iteration)

    @property
    def phases(self) -> list[str]:
        return ["forward", "backward"] if self.backward else ["forward"]

    def target(self) -> Device:
        return device_of(self.device, compiled=self.pt2_model)

    def run_arguments(self, target: Device) -> dict[str, Any]:
        """Return arguments of `opmark.run`; with warm-up alone, one sample is taken and left out of the results."""
        found: dict[str, Any] = {
            "backend": target.backend,
            "threads": self.threads,
            "processes": 1,
            "warmup": self.warmup,
            "samples": max(1, self.iteration),
            "seed": self.seed,
            "timeout": self.timeout,
            "db": self.db,
            "cache": ["cold" if self._flushes(target) else "warm"],
        }
        if self.cuda_graph:
            if target.kind == "cpu":
                raise UserError("--cuda-graph: a CPU captures no graph", "leave it out, or add -d cuda")
            return found | {"quantity": ["device_span"], "timer": "graph"}
        return found | {"mode": self._mode(target)}

    def notes(self, target: Device) -> list[str]:
        """Return a line for each option that has no effect with this target."""
        lines = []
        if self.cuda_graph and self.exec_mode != "discrete":
            lines.append(f"--exec-mode {self.exec_mode}: a captured graph is replayed in one way only")
        elif self._mode(target) != self.exec_mode:
            lines.append(f"{self.exec_mode}: {target.backend} has no events; each call is timed by the host's clock")
        if not self.cuda_l2_cache and not self._flushes(target):
            lines.append("--cuda-l2-cache off has an effect only on a GPU in discrete mode")
        return lines

    def _mode(self, target: Device) -> str:
        return "discrete" if self.exec_mode == "continuous_events" and target.kind == "cpu" else self.exec_mode

    def _flushes(self, target: Device) -> bool:
        return not (self.cuda_l2_cache or self.cuda_graph or target.kind == "cpu") and self.exec_mode == "discrete"

    def as_param(self) -> dict[str, Any]:
        """Return the run options under PARAM's names, without those that always have defaults."""
        from opmark.interop.param import exporter

        return {
            "device": self.device,
            "pass_type": exporter.PASSES[self.backward],
            "warmup": self.warmup,
            "iteration": self.iteration,
            "op_exec_mode": exporter.MODES[self.exec_mode],
            "cuda_l2_cache": self.cuda_l2_cache,
            "resume_op_run_id": self.resume_id,
            "stop_op_run_id": self.stop_id,
            "pt2_model": self.pt2_model,
            "cuda_graph": self.cuda_graph,
        }


def may_be_batch(path: Path) -> bool:
    """Whether a file looks like a batch file, which has run options of its own; it is not parsed."""
    try:
        return path.is_file() and b"op_info" in path.read_bytes()
    except (OSError, ValueError):  # it is reported when it is read
        return False


def options_of(given: argparse.Namespace) -> ParamOptions:
    found: dict[str, Any] = {name: getattr(given, name) for name in ParamOptions.__dataclass_fields__}
    return ParamOptions(**found | {"cuda_l2_cache": given.cuda_l2_cache == "on"})
