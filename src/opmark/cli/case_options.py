"""Options that choose cases and say how to measure them: those of `opmark run`, and of what measures besides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from opmark.cli.output import split
from opmark.errors import InvalidParameter

Ops = Annotated[
    list[str] | None, typer.Argument(help="Operators, as in `opmark list ops`; any callable, as in torch.add.")
]
Workload = Annotated[
    Path | None, typer.Option("-w", "--workload", help="A workload file or a folder; also one of another system.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop if a part of a foreign file is no use.")]
Suite = Annotated[str | None, typer.Option(help="A workload that ships with opmark.")]
Op = Annotated[list[str] | None, typer.Option(help="Of a workload only these, as in 'conv*'; alone, of all.")]
Category = Annotated[list[str] | None, typer.Option(help="Only operators of these categories.")]
Tag = Annotated[list[str] | None, typer.Option(help="Of a workload, only cases with one of these tags.")]
Params = Annotated[
    list[str] | None, typer.Option("-p", "--param", help="NAME=VALUE or NAME=VALUE,VALUE; lists multiply.")
]
Args = Annotated[str | None, typer.Option(help="Of a callable such as torch.add: [8x64 float32, 8x64 float32].")]
Kwargs = Annotated[str | None, typer.Option(help="Of a callable, by name: {alpha: 2}.")]
Build = Annotated[
    str | None, typer.Option(help="Of a class such as torch.nn.Linear, before it is called: {args: [64, 32]}.")
]
Size = Annotated[list[str] | None, typer.Option(help="small, typical, large: presets; of a workload, only these.")]
Phase = Annotated[
    list[str] | None, typer.Option(help="forward, backward, both; of a workload, only these. [default: forward]")
]
Backend = Annotated[
    list[str] | None, typer.Option(help="As in `opmark list backends`, or `all`. [default: torch-cpu, or numpy-cpu]")
]
Python = Annotated[
    list[str] | None,
    typer.Option(help="Interpreters to run the backends in, by path or as in `opmark env list`; each in turn."),
]
Threads = Annotated[list[str] | None, typer.Option(help="[default: $OMP_NUM_THREADS, or all cores]")]
Ranks = Annotated[
    list[str] | None, typer.Option(help="Processes that communicate, as in 2,4. [default: as the case says]")
]
GroupSize = Annotated[
    list[str] | None, typer.Option(help="Ranks of one group, as in 2,4; all groups at once. [default: all ranks]")
]
Effort = Annotated[str, typer.Option(help="quick, standard, thorough.")]
Quantity = Annotated[
    list[str] | None, typer.Option(help="device_time, device_span, latency, host_time, throughput, event_time, energy.")
]
Cache = Annotated[
    list[str] | None, typer.Option(help="cold, warm. [default: both for what a device did, warm for the rest]")
]
Processes = Annotated[
    int | None,
    typer.Option(help="Fresh processes a case, in turns. [default: 1, 5, 10 by effort; on a device 1, 1, 5]"),
]
RelCi = Annotated[float | None, typer.Option(help="Stop at this half-width of the median's interval.")]
MinTime = Annotated[float | None, typer.Option(help="Seconds to sample at least.")]
MaxTime = Annotated[float | None, typer.Option(help="Seconds to sample at most.")]
Warmup = Annotated[int | None, typer.Option(help="Exactly so many calls of warm-up.")]
Samples = Annotated[int | None, typer.Option(help="Exactly so many samples, of one call each.")]
Mode = Annotated[str, typer.Option(help="As in PARAM: discrete, continuous, continuous_events.")]
CudaL2Cache = Annotated[
    str | None, typer.Option("--cuda-l2-cache", help="As in PARAM: on is --cache warm, off is --cache cold.")
]
Timer = Annotated[str, typer.Option(help="For what a device did: cupti (on AMD roctracer), events, graph.")]
Wrt = Annotated[list[str] | None, typer.Option(help="Gradients of these inputs only.")]
Seed = Annotated[int, typer.Option(help="Of the input data.")]
Verify = Annotated[bool, typer.Option(help="Check results before timing.")]
Timeout = Annotated[float, typer.Option(help="Seconds that a task may take.")]
CompileTimeout = Annotated[float, typer.Option(help="Seconds that compiling may take.")]
Label = Annotated[str, typer.Option(help="A name for this run.")]

# Arguments of `opmark.run` by the same name: as they are, those that take several values, and numbers of these.
_AS_GIVEN = ("workload", "strict", "suite", "effort", "processes", "rel_ci", "min_time", "max_time", "warmup",
             "samples", "mode", "timer", "seed", "verify")  # fmt: skip
_LISTS = ("op", "category", "tag", "size", "phase", "backend", "python", "wrt", "quantity")
_NUMBERS = ("threads", "ranks", "group_size")


def asked(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given on the command line, by name, as arguments of `opmark.run`. A command may lack some of them."""
    from opmark.runner.request import parse_params

    names = split(given["ops"] or [])
    return {
        **{name: given[name] for name in _AS_GIVEN if name in given},
        **{name: split(given[name] or []) for name in _LISTS if name in given},
        "ops": names,
        "params": parse_params(names, given["params"] or []),
        **{name: _whole_numbers(split(given[name] or []), name) for name in _NUMBERS if name in given},
        "cache": _caches(split(given["cache"] or []), given.get("l2")),
        **_call(args=given["args"], kwargs=given["kwargs"], build=given["build"]),
    }


def _call(**texts: str | None) -> dict[str, Any]:
    """What a callable is called with, as written: YAML, of the right kind."""
    from opmark.workloads.load import read_yaml

    found: dict[str, Any] = {}
    for name, text in texts.items():
        if text is None:
            continue
        value = read_yaml(text, f"--{name}")
        kinds = {"args": list, "kwargs": dict, "build": list | dict}
        if not isinstance(value, kinds[name]):
            expected = {"args": "a list, as in [8x64 float32, 2]", "kwargs": "a mapping, as in {dim: 1}"}
            raise InvalidParameter(f"--{name}: expected {expected.get(name, 'a list or a mapping')}, got `{text}`")
        found[name] = value
    return found


def _caches(caches: list[str], l2: str | None) -> list[str]:
    words = {"on": ["warm"], "off": ["cold"]}
    if l2 is None:
        return caches
    if l2 not in words:
        raise InvalidParameter(f"--cuda-l2-cache: expected on or off, got `{l2}`")
    if caches:
        raise InvalidParameter("--cuda-l2-cache and --cache say the same thing", "leave one of them out")
    return words[l2]


def _whole_numbers(values: list[str], name: str) -> list[int]:
    option = f"--{name.replace('_', '-')}"
    for value in values:
        if not value.isdecimal():
            raise InvalidParameter(f"{option}: expected whole numbers, got `{value}`", f"as in {option} 1,2")
    return [int(value) for value in values]
