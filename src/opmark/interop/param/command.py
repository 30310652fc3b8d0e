"""opmark param: PARAM's run_benchmark, with its options, its ids and its result file."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opmark.errors import UserError
from opmark.interop.param.options import may_be_batch, parser
from opmark.interop.visible_devices import set_variables

if TYPE_CHECKING:
    from opmark.api.result import Result
    from opmark.interop.param.options import Device, ParamOptions
    from opmark.interop.param.results import CaseResult, Config, ParamLog
    from opmark.runner.supervisor import WorkerPool

_NOT_YET = {
    "cupti_profiler": ("--cupti-profiler is not implemented yet", "--ncu collects the same metrics, kernel by kernel"),
    "cupti_profiler_metrics": ("--cupti-profiler-metrics is not implemented yet", "use --ncu with --ncu-args-file"),
    "cupti_profiler_measure_per_kernel": (
        "--cupti-profiler-measure-per-kernel is not implemented yet",
        "--ncu reports every kernel",
    ),
}


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit code is 0 for success, 1 if a case failed or was not imported, 130 after Ctrl-C."""
    if list(arguments[:1]) == ["comms"]:
        from opmark.interop.param.comms.command import main as comms

        return comms(arguments[1:])
    if list(arguments[:1]) == ["driver"]:
        from opmark.interop.param.driver import main as driver

        return driver(arguments[1:])
    given = parser().parse_args(list(arguments))
    if given.version:
        from opmark.version import VERSION

        print(f"opmark {VERSION}: PARAM train compute, run_benchmark")
        return 0
    for name, (message, hint) in _NOT_YET.items():
        if getattr(given, name):
            raise UserError(message, hint)
    if given.config is None:
        raise UserError("-c: no config is named", "as in `opmark param -c simple_add.json`; -h lists all options")
    from opmark.interop.param.profiles import refuse_without_profiler

    refuse_without_profiler(given)
    if may_be_batch(given.config):
        given = _parse_over_file(arguments, given.config)
    return _run(given)


def _parse_over_file(arguments: Sequence[str], path: Path) -> argparse.Namespace:
    """Parse the command line with the run options of a batch file as defaults, and say which of them apply."""
    from opmark.interop.param.importer import options_in_file
    from opmark.interop.param.results import ParamLog
    from opmark.interop.param.run_options import describe_field

    found = options_in_file(path)
    if "cuda_l2_cache" in found:
        found["cuda_l2_cache"] = "on" if found["cuda_l2_cache"] else "off"
    given = parser().parse_args(list(arguments), argparse.Namespace(**found))
    applied = [describe_field(name, value) for name, value in found.items() if getattr(given, name) == value]
    if applied:
        said = f"run_options of {path}: {', '.join(applied)}; what the command line says comes first"
        ParamLog(given.log_level).info(said)
    return given


def _run(given: argparse.Namespace) -> int:
    """Start the worker before the config is read, so that it imports its framework meanwhile."""
    from opmark.interop.param.options import options_of
    from opmark.runner.supervisor import WorkerPool

    if given.plugin:
        from opmark.interop.param.plugin import load_plugin

        for path in given.plugin:
            load_plugin(path)
    options = options_of(given)
    target = options.target()
    options.run_arguments(target)  # a wrong option is reported before anything starts
    with set_variables(target.environ), closing(WorkerPool()) as pool:
        if not given.dry_run and options.times:
            pool.prestart(target.backend, options.threads)
        return _read_and_run(given, options, target, pool)


def _read_and_run(given: argparse.Namespace, options: ParamOptions, target: Device, pool: WorkerPool) -> int:
    from opmark.interop.param.results import ParamLog, read
    from opmark.runner.workload_source import problem_lines

    talk, config = ParamLog(given.log_level), read(given.config, options)
    for line in [*problem_lines(config.problems, config.notes), *options.notes(target)]:
        talk.warning(line)
    if given.dry_run:
        return _print_plan(config)
    return _Invocation(given, options, target, config, talk).run(pool)


def _print_plan(config: Config) -> int:
    """Print one JSON line per case, with its id and its specs."""
    import json

    from opmark.interop.param.results import rows_of

    for row in rows_of(config):
        print(json.dumps(row))
    return 1 if config.problems else 0


class _Invocation:
    """One run of the command: its result file, its messages, its exit code."""

    def __init__(
        self, given: argparse.Namespace, options: ParamOptions, target: Device, config: Config, talk: ParamLog
    ) -> None:
        from opmark.interop.param.profiles import Batches, make_profilings
        from opmark.interop.param.results import ResultFile

        self._given = given
        self._options = options
        self._target = target
        self._config = config
        self._talk = talk
        self._file = ResultFile(given.output_prefix, append=given.append)
        self._profilings = make_profilings(given, self._file.stem)
        self._batches = Batches(self._profilings)
        self._failed = bool(config.problems)
        self._results = 0
        """Number of cases whose line is in the result file."""

    def run(self, pool: WorkerPool) -> int:
        from opmark.interop.param.results import run

        if self._talk.shows_results:
            import opmark.report.console  # noqa: F401 - imported now, while the worker imports its framework

        with closing(self._file):
            try:
                found = run(
                    self._config, self._options, self._target, self._add, profile=self._profilings, pool=pool,
                    on_environment=lambda environment: self._begin(environment.facts), say=self._talk.warning,
                )  # fmt: skip
            except KeyboardInterrupt:
                if self._results:
                    rest = self._config.spots[self._results :]
                    go_on = f"; -r {shlex.quote(rest[0].place.source)} goes on from there" if rest else ""
                    self._talk.warning(f"the results until then are in {self._file.path}{go_on}")
                return 130
            self._end()
        if found:
            if self._talk.shows_results and self._options.iteration:
                _print_table(found)
            (self._talk.warning if found.journals else self._talk.info)(found.storage)
        self._talk.info(f"Benchmark result: {self._file.path}")
        waiting = found and found.journals  # the run is not in its store yet
        return 1 if self._failed or self._batches.missing or waiting else 0

    def _begin(self, facts: dict[str, Any]) -> None:
        """Write the header, and the problems of the config."""
        from opmark.interop.param.exporter import problem_line

        if self._file.begun:
            return
        args = {f"{one.profiler}_args": " ".join(one.args) for one in self._profilings if one.args}
        self._file.begin({**run_options(self._given, self._options), **args}, facts)
        for problem in self._config.problems:
            self._file.write(problem_line(problem))

    def _add(self, result: CaseResult) -> None:
        self._begin({})
        for batch in self._batches.add(result):
            self._file.write(batch.line(self._options.as_param()))
        self._file.write(result.line)
        self._results += 1
        self._failed = self._failed or result.error is not None
        self._talk.result(result)

    def _end(self) -> None:
        from opmark.interop.param.profiles import rename_trace
        from opmark.schema.messages import execution_trace_beside

        self._begin({})
        for batch in self._batches.unfinished():
            self._file.write(batch.line(self._options.as_param()))
        self._file.finish()
        for trace in self._batches.traces:
            if self._given.profile:
                name = rename_trace(trace, f"{self._file.stem}_trace.json")
                self._file.write({"trace_file": name})
                self._talk.info(f"Trace: {name}")
            execution = execution_trace_beside(Path(trace))
            if self._given.et and execution.exists():
                self._talk.info(f"Execution trace: {rename_trace(str(execution), f'{self._file.stem}_et.json')}")
            elif self._given.et:
                self._talk.warning(f"--et: {self._target.backend} writes no execution traces; torch does")


def run_options(given: argparse.Namespace, options: ParamOptions) -> dict[str, Any]:
    """Return the run options of the first line: PARAM's names, and the command line itself."""
    names = ("ncu_bin", "ncu_warmup", "ncu_iteration", "nsys_bin", "nsys_warmup", "nsys_iteration", "run_batch_size",
             "batch_cuda_device", "batch_cmd")  # fmt: skip
    own = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    profilers = {"run_ncu": given.ncu, "run_nsys": given.nsys}
    written = {name: _plain(value) for name, value in vars(given).items()}
    return {
        **options.as_param(), **own, **profilers, "out_file_prefix": given.output_prefix, "cmd_args": written,
    }  # fmt: skip


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | list) else str(value)


def _print_table(found: Result) -> None:
    from rich.console import Console

    from opmark.report.console.records import print_records

    console = Console() if sys.stdout.isatty() else Console(width=1000, highlight=False)
    print_records(found.records, console, found.peaks)
