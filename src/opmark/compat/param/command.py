"""opmark param: PARAM's run_benchmark, with its options, its ids and its result file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from opmark.compat.param.parser import parser
from opmark.compat.visible import environment
from opmark.errors import UserError

if TYPE_CHECKING:
    from opmark.compat.param.devices import Device
    from opmark.compat.param.execute import Config
    from opmark.compat.param.options import Options
    from opmark.compat.param.result import CaseResult
    from opmark.compat.param.talk import Talk
    from opmark.result import Result
    from opmark.runner.supervisor import WorkerPool

_NOT_YET = {
    "et": ("--et: execution traces cannot be written yet", "-p writes a trace of the run for Perfetto"),
    "cupti_profiler": ("--cupti-profiler: not yet", "--ncu collects the same metrics, kernel by kernel"),
    "cupti_profiler_metrics": ("--cupti-profiler-metrics: not yet", "--ncu with --ncu-args-file collects metrics"),
    "cupti_profiler_measure_per_kernel": ("--cupti-profiler-measure-per-kernel: not yet", "--ncu tells every kernel"),
}


def main(arguments: Sequence[str]) -> int:
    """0: all well. 1: a case failed, or a part of the config was not understood. 130: interrupted."""
    if list(arguments[:1]) == ["comms"]:
        from opmark.compat.param_comms.command import main as comms

        return comms(arguments[1:])
    given = parser().parse_args(list(arguments))
    if given.version:
        from opmark.version import VERSION

        print(f"opmark {VERSION}: PARAM train compute, run_benchmark")
        return 0
    for name, (message, hint) in _NOT_YET.items():
        if getattr(given, name):
            raise UserError(message, hint)
    if given.config is None:
        raise UserError("no config is named", "as in `opmark param -c simple_add.json`; -h lists all options")
    from opmark.compat.param.profiles import refuse_without_profiler

    refuse_without_profiler(given)
    return _run(given)


def _run(given: argparse.Namespace) -> int:
    """The worker begins to import its framework while the config is still being read."""
    from opmark.compat.param.options import options_of
    from opmark.runner.supervisor import WorkerPool

    options = options_of(given)
    target = options.target()
    options.asked(target)  # a mistake is named before anything starts
    with environment(target.environ), closing(WorkerPool()) as pool:
        if not given.dry_run and options.times:
            pool.prestart(target.backend, options.threads)
        return _read_and_run(given, options, target, pool)


def _read_and_run(given: argparse.Namespace, options: Options, target: Device, pool: WorkerPool) -> int:
    from opmark.compat.param.execute import read
    from opmark.compat.param.talk import Talk
    from opmark.runner.intake import complaints

    talk, config = Talk(given.log_level), read(given.config, options)
    for line in [*complaints(config.problems, config.notes), *options.notes(target)]:
        talk.warning(line)
    if given.dry_run:
        return _print_plan(config)
    return _Invocation(given, options, target, config, talk).run(pool)


def _print_plan(config: Config) -> int:
    """Ids on standard output, a line each, with what is called."""
    import json

    from opmark.compat.param.execute import rows_of

    for row in rows_of(config):
        print(json.dumps(row))
    return 1 if config.problems else 0


class _Invocation:
    """One command: its result file, what it prints, its exit code."""

    def __init__(self, given: argparse.Namespace, options: Options, target: Device, config: Config, talk: Talk) -> None:
        from opmark.compat.param.output import ResultFile
        from opmark.compat.param.profiles import Batches, profilings

        self._given = given
        self._options = options
        self._target = target
        self._config = config
        self._talk = talk
        self._file = ResultFile(given.output_prefix, append=given.append)
        self._profilings = profilings(given, self._file.stem)
        self._batches = Batches(self._profilings)
        self._failed = bool(config.problems)

    def run(self, pool: WorkerPool) -> int:
        from opmark.compat.param.execute import run

        if self._talk.shows_results:
            import opmark.report.console  # noqa: F401 - now, while the worker is busy with an import of its own

        with closing(self._file):
            try:
                found = run(
                    self._config, self._options, self._target, self._add, profile=self._profilings, pool=pool,
                    on_environment=lambda environment: self._begin(environment.facts), say=self._talk.warning,
                )  # fmt: skip
            except KeyboardInterrupt:
                self._talk.warning(f"interrupted: what was done until then is in {self._file.path}")
                return 130
            self._end()
        if found:
            if self._talk.shows_results and self._options.iteration:
                _print_table(found)
            self._talk.info(f"stored as run {found.run.id} in {found.db}")
        self._talk.info(f"Benchmark result: {self._file.path}")
        return 1 if self._failed or self._batches.missing else 0

    def _begin(self, facts: dict[str, Any]) -> None:
        """The header, and behind it what of the config could not be understood."""
        from opmark.exporters.param_lines import not_imported

        if self._file.begun:
            return
        args = {f"{asked.profiler}_args": " ".join(asked.args) for asked in self._profilings if asked.args}
        self._file.begin({**run_options(self._given, self._options), **args}, facts)
        for problem in self._config.problems:
            self._file.write(not_imported(problem))

    def _add(self, result: CaseResult) -> None:
        self._begin({})
        for batch in self._batches.add(result):
            self._file.write(batch.line(self._options.as_param()))
        self._file.write(result.line)
        self._failed = self._failed or result.error is not None
        self._talk.result(result)

    def _end(self) -> None:
        from opmark.compat.param.profiles import named_as_param

        self._begin({})
        for batch in self._batches.left():
            self._file.write(batch.line(self._options.as_param()))
        self._file.finish()
        for trace in self._batches.traces:
            name = named_as_param(trace, self._file.stem)
            self._file.write({"trace_file": name})
            self._talk.info(f"Trace: {name}")


def run_options(given: argparse.Namespace, options: Options) -> dict[str, Any]:
    """Of the first line: PARAM's names for what was asked, and the command line itself."""
    names = ("ncu_bin", "ncu_warmup", "ncu_iteration", "nsys_bin", "nsys_warmup", "nsys_iteration", "run_batch_size",
             "batch_cuda_device", "batch_cmd")  # fmt: skip
    own = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    profilers = {"run_ncu": given.ncu, "run_nsys": given.nsys}
    written = {name: _plain(value) for name, value in vars(given).items()}
    return {
        **options.as_param(), **own, **profilers, "out_file_prefix": given.output_prefix, "cmd_args": written,
    }  # fmt: skip


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _print_table(found: Result) -> None:
    from rich.console import Console

    from opmark.report.console import print_records

    console = Console() if sys.stdout.isatty() else Console(width=1000, highlight=False)
    print_records(found.records, console, found.peaks)
