"""The options of PARAM's run_benchmark, and a few of opmark's own."""

from __future__ import annotations

import argparse
from pathlib import Path

MODES = ("discrete", "continuous", "continuous_events")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="opmark param",
        description="PARAM's run_benchmark: the same configs, options and result files.",
        epilog="`opmark param comms -h`: PARAM's comms.py, collectives of several ranks.",
    )
    _add_selection(made)
    _add_measurement(made)
    _add_profilers(made)
    _add_output(made)
    _add_own_options(made.add_argument_group("options of opmark, not of PARAM"))
    return made


def _add_selection(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add("-c", "--config", type=Path, help="The benchmark config file.")
    add("-w", "--warmup", type=int, default=1, help="Number of warm up iterations. [1]")
    add("-i", "--iteration", type=int, default=1, help="Number of benchmark iterations. [1]")
    add("-b", "--backward", action="store_true", help="Include backward pass.")
    add("-d", "--device", default="cpu", help="Target device: cpu, cuda, cuda:1, xpu, mps, or a backend. [cpu]")
    add("-r", "--resume-id", help="Begin at this op_run_id ([file#]op|config|build|input), skip all before it.")
    add("-s", "--stop_id", "--stop-id", dest="stop_id", help="Stop before this op_run_id (exclusive).")


def _add_measurement(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add("--cuda-l2-cache", nargs="?", const="off", default="on", choices=("on", "off"),
        help="off, or no value: overwrite the GPU's caches before each call in discrete mode. [on]")  # fmt: skip
    add("--exec-mode", nargs="?", const="discrete", default="discrete", choices=MODES,
        help="One call at a time; back to back; back to back with events around each. [discrete]")  # fmt: skip
    add("--cuda-graph", action="store_true", help="Capture the calls as a CUDA graph and time its replay.")
    add("--pt2-model", action="store_true", help="Compile with torch.compile, which is not timed.")


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
    add("--et", action="store_true", help="Collect an execution trace; not implemented yet.")


def _add_output(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add("-o", "--output-prefix", default="benchmark_result",
        help="Results go to PREFIX_<pid>_<time>.json. [benchmark_result]")  # fmt: skip
    add("-a", "--append", action="store_true", help="Append to PREFIX.json instead.")
    add("-l", "--log-level", default="INFO", help="debug, info, warning or error: messages during the run. [info]")
    add("--version", action="store_true", help="Print version.")


def _add_own_options(made: argparse._ArgumentGroup) -> None:
    add = made.add_argument
    add("--threads", type=int, default=1, help="Threads of the framework; PARAM always uses 1. [1]")
    add("--seed", type=int, default=0, help="Seed of input data and of random values of the config. [0]")
    add("--dry-run", action="store_true", help="Print ids and arguments and run nothing.")
    add("--strict", action="store_true", help="Stop if a part of the config cannot be imported.")
    add("--timeout", type=float, default=600.0, help="Seconds that one case may take; PARAM has no limit. [600]")
    add("--db", type=Path, help="The store of runs. [$OPMARK_DB or the data directory]")
