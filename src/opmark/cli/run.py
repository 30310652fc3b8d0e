"""opmark run"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from opmark.cli.options import Db
from opmark.cli.output import console, print_json_lines, print_records, split
from opmark.cli.profile_options import profiling
from opmark.errors import InvalidParameter
from opmark.units import counted

# Options that are arguments of `opmark.run` by the same name: as they are, and those that take several values.
_AS_GIVEN = ("workload", "strict", "suite", "effort", "processes", "rel_ci", "min_time", "max_time", "warmup",
             "samples", "mode", "timer", "seed", "verify")  # fmt: skip
_LISTS = ("op", "category", "tag", "size", "phase", "backend", "python", "wrt", "quantity")


def run(
    ops: Annotated[
        list[str] | None, typer.Argument(help="Operators, as in `opmark list ops`; any callable, as in torch.add.")
    ] = None,
    workload: Annotated[
        Path | None, typer.Option("-w", "--workload", help="A workload file or a folder; also one of another system.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop if a part of a foreign file is no use.")] = False,
    suite: Annotated[str | None, typer.Option(help="A workload that ships with opmark.")] = None,
    op: Annotated[
        list[str] | None, typer.Option(help="Of a workload only these, as in 'conv*'; alone, of all.")
    ] = None,
    category: Annotated[list[str] | None, typer.Option(help="Only operators of these categories.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Of a workload, only cases with one of these tags.")] = None,
    params: Annotated[
        list[str] | None, typer.Option("-p", "--param", help="NAME=VALUE or NAME=VALUE,VALUE; lists multiply.")
    ] = None,
    args: Annotated[
        str | None, typer.Option(help="Of a callable such as torch.add: [8x64 float32, 8x64 float32].")
    ] = None,
    kwargs: Annotated[str | None, typer.Option(help="Of a callable, by name: {alpha: 2}.")] = None,
    build: Annotated[
        str | None, typer.Option(help="Of a class such as torch.nn.Linear, before it is called: {args: [64, 32]}.")
    ] = None,
    size: Annotated[
        list[str] | None, typer.Option(help="small, typical, large: presets; of a workload, only these.")
    ] = None,
    phase: Annotated[
        list[str] | None, typer.Option(help="forward, backward, both; of a workload, only these. [default: forward]")
    ] = None,
    backend: Annotated[
        list[str] | None,
        typer.Option(help="As in `opmark list backends`, or `all`. [default: torch-cpu, or numpy-cpu]"),
    ] = None,
    python: Annotated[
        list[str] | None,
        typer.Option(help="Interpreters to run the backends in, by path or as in `opmark env list`; each in turn."),
    ] = None,
    threads: Annotated[list[str] | None, typer.Option(help="[default: $OMP_NUM_THREADS, or all cores]")] = None,
    ranks: Annotated[
        list[str] | None, typer.Option(help="Processes that communicate, as in 2,4. [default: as the case says]")
    ] = None,
    group_size: Annotated[
        list[str] | None, typer.Option(help="Ranks of one group, as in 2,4; all groups at once. [default: all ranks]")
    ] = None,
    effort: Annotated[str, typer.Option(help="quick, standard, thorough.")] = "standard",
    quantity: Annotated[
        list[str] | None,
        typer.Option(help="device_time, device_span, latency, host_time, throughput, event_time, energy."),
    ] = None,
    cache: Annotated[
        list[str] | None, typer.Option(help="cold, warm. [default: both for what a device did, warm for the rest]")
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(help="Fresh processes a case, in turns. [default: 1, 5, 10 by effort; on a device 1, 1, 5]"),
    ] = None,
    rel_ci: Annotated[float | None, typer.Option(help="Stop at this half-width of the median's interval.")] = None,
    min_time: Annotated[float | None, typer.Option(help="Seconds to sample at least.")] = None,
    max_time: Annotated[float | None, typer.Option(help="Seconds to sample at most.")] = None,
    warmup: Annotated[int | None, typer.Option(help="Exactly so many calls of warm-up.")] = None,
    samples: Annotated[int | None, typer.Option(help="Exactly so many samples, of one call each.")] = None,
    mode: Annotated[str, typer.Option(help="As in PARAM: discrete, continuous, continuous_events.")] = "",
    l2: Annotated[
        str | None, typer.Option("--cuda-l2-cache", help="As in PARAM: on is --cache warm, off is --cache cold.")
    ] = None,
    timer: Annotated[str, typer.Option(help="For what a device did: cupti (on AMD roctracer), events, graph.")] = "",
    wrt: Annotated[list[str] | None, typer.Option(help="Gradients of these inputs only.")] = None,
    seed: Annotated[int, typer.Option(help="Of the input data.")] = 0,
    verify: Annotated[bool, typer.Option(help="Check results before timing.")] = True,
    profiler: Annotated[
        str | None, typer.Option(help="Look at what was measured, afterwards: trace, ncu, nsys, command.")
    ] = None,
    program: Annotated[
        str | None, typer.Option("--profiler-bin", help="The profiler's program. [default: found on PATH]")
    ] = None,
    arguments: Annotated[
        Path | None, typer.Option("--profiler-args", help="A file with more arguments for the profiler.")
    ] = None,
    command: Annotated[
        str | None, typer.Option("--profiler-command", help='Any other: "vendorprof -o {output}.csv {program}".')
    ] = None,
    seen: Annotated[int, typer.Option("--profile-iterations", help="Calls of each task that it sees.")] = 1,
    batch: Annotated[int, typer.Option("--profile-batch", help="Tasks a start of it, at most.")] = 50,
    within: Annotated[float, typer.Option("--profile-timeout", help="Seconds that a batch may take.")] = 600.0,
    folder: Annotated[
        Path | None, typer.Option("--profile-dir", help="Where its files go. [default: opmark-profiles]")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that a task may take.")] = 60.0,
    compile_timeout: Annotated[float, typer.Option(help="Seconds that compiling may take.")] = 300.0,
    label: Annotated[str, typer.Option(help="A name for this run.")] = "",
    db: Db = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, run nothing.")] = False,
    long: Annotated[bool, typer.Option("--long", help="A row a task, also where backends stand side by side.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a record.")] = False,
) -> None:
    """Measure operators; print a table, store a run."""
    from opmark.runner.request import parse_params

    given = dict(locals())
    names = split(ops or [])
    asked: dict[str, Any] = {
        **{name: given[name] for name in _AS_GIVEN},
        **{name: split(given[name] or []) for name in _LISTS},
        "ops": names,
        "params": parse_params(names, params or []),
        **{name: _whole_numbers(split(given[name] or []), name) for name in ("threads", "ranks", "group_size")},
        "cache": _caches(split(cache or []), l2),
        **_call(args=args, kwargs=kwargs, build=build),
    }
    if dry_run:
        _print_plan(asked, as_json=as_json)
        return
    asked |= {name: given[name] for name in ("timeout", "compile_timeout", "label", "db", "resume")}
    asked["profile"] = profiling(profiler, program, arguments, command, folder, seen, batch, within)
    _measure(asked, as_json=as_json, long=long)


def _measure(asked: dict[str, Any], *, as_json: bool, long: bool) -> None:
    from opmark import api
    from opmark.cli.progress import Progress

    with Progress(as_json=as_json) as progress:
        try:
            result = api.run(**asked, on_start=progress.start, on_record=progress.advance, say=progress.say)
        except KeyboardInterrupt:
            progress.interrupted()
            raise typer.Exit(130) from None
    if result.rank:
        raise typer.Exit(result.exit_code)
    if not as_json:
        print_records(result.records, result.peaks, long=long)
    untried = sum(record.untried for record in result.records)
    more = f", without {counted(untried, 'task')} that nobody was left to do: --resume goes on" if untried else ""
    api.talk(f"stored as run {result.run.id} in {result.db}{more}")
    if not any(record.status == "ok" for record in result.records):
        api.talk("nothing was measured")
    if result.exit_code:
        raise typer.Exit(result.exit_code)


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


def _print_plan(asked: dict[str, Any], *, as_json: bool) -> None:
    from opmark import api
    from opmark.report.plan import plan_rows, plan_table
    from opmark.runner.intake import complaints

    plan = api.plan(**asked)
    for line in complaints(plan.problems, plan.notes):
        api.talk(line)
    if as_json:
        print_json_lines(plan_rows(plan.tasks, plan.skipped))
    else:
        console().print(plan_table(plan.tasks, plan.skipped))
    if plan.problems:
        raise typer.Exit(1)
