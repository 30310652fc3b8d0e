"""opmark opperf: the command line of MXNet's opperf.py, with its progress."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opmark.errors import UserError
from opmark.files import check_writable
from opmark.units import count_noun

if TYPE_CHECKING:
    from opmark.interop.opperf.exporter import OpperfResult
    from opmark.interop.opperf.performance import SuiteRequest
    from opmark.runner.plan import Plan
    from opmark.schema import Record, Run

_FORMATS = ("json", "md", "csv")
_INTERRUPTED = 130
_ABOUT_OP = (
    "only these operators, A,B or repeated: a name of opperf (elemwise_add) selects it alone; a name of opmark (add) "
    "selects the operator under all of opperf's names; patterns with * and ? (broadcast_*) match opperf's names, or "
    "opmark's if none of opperf's matches"
)


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(list(arguments))
    if options.list:
        return _list()
    file = Path(options.output_file or f"./mxnet_operator_benchmarks.{options.output_format}")
    if file.exists():
        raise UserError(f"{file} exists already", "name another file with -o; results are never overwritten")
    if not file.parent.is_dir():
        raise UserError(f"{file.parent} is not a folder", "create it first, or name another file with -o")
    check_writable(file)
    return _measure(options, file)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="opmark opperf",
        description="Measure the operators of MXNet's opperf with the inputs of the suite `opperf`, and write a file. "
        "The inputs are opperf's own, except where those measure nothing.",
    )
    add = parser.add_argument
    add("--ctx", default="cpu", help="cpu, gpu, gpu(0), gpu(1) ... [default: cpu]")
    add("--dtype", default="float32", help="element type of the tensors: float32, float64, float16, int32, int64 ...")
    add("-f", "--output-format", default="json", choices=_FORMATS, help="[default: json]")
    add("-o", "--output-file", help="a new file [default: ./mxnet_operator_benchmarks.FORMAT]")
    add("-p", "--profiler", default="native", choices=("native", "python"),
        help="native: mean times of forward and backward; python: mean and percentiles of both together")  # fmt: skip
    add(
        "--int64-tensor",
        default="off",
        type=str.lower,
        choices=("on", "off"),
        help="tensors of at least 2**32 elements",
    )
    add("-w", "--warmup", type=int, default=25, help="calls before the measured ones [default: 25]")
    add("-r", "--runs", type=int, default=100, help="measured calls [default: 100]")
    more = parser.add_argument_group("options of opmark, not of opperf")
    more.add_argument(
        "--memory-unit", default="bytes", choices=("bytes", "kB"),
        help="kB: memory as opperf writes it under its header (Bytes), to compare with its files [default: bytes]",
    )  # fmt: skip
    more.add_argument("--framework", default="torch", help="torch, mxnet, numpy, jax ... [default: torch]")
    more.add_argument("--op", action="append", default=[], help=_ABOUT_OP)
    more.add_argument("--category", action="append", default=[], help="only operators of these categories of opperf")
    more.add_argument("--list", action="store_true", help="list operators by category and measure nothing")
    more.add_argument(
        "--threads", type=int, metavar="N", help="threads of an operator [default: $OMP_NUM_THREADS, or one per core]"
    )
    more.add_argument("--timeout", type=float, help="seconds that one measurement may take [default: 600]")
    more.add_argument("--db", help="the store [default: $OPMARK_DB or the data directory]")
    more.add_argument("--no-verify", action="store_true", help="skip the check of results, the slowest part")
    more.add_argument("--resume", action="store_true", help="continue the interrupted run of the same options")
    return parser


def _list() -> int:
    from opmark.interop.opperf.operators import CATEGORIES

    for category, names in CATEGORIES.items():
        print(f"{category}: {', '.join(names)}")
    return 0


def _measure(options: argparse.Namespace, file: Path) -> int:
    from opmark.api.requests import talk
    from opmark.interop.opperf.exporter import MEMORY, in_kilobytes
    from opmark.interop.opperf.measurement import backend_of
    from opmark.interop.opperf.performance import SuiteRequest, operators_without_benchmark, part_of_suite

    backend_of(options.ctx, options.framework)
    request = SuiteRequest(
        options.dtype, options.profiler, options.int64_tensor == "on", _split(options.op), _split(options.category)
    )
    part = part_of_suite(request)
    lines: list[OpperfResult] = list(part.refused)
    environments: dict[str, Any] = {}
    failed = bool([line for line in part.refused if any(f["status"] == "oom" for f in line.failed)])
    result = None
    if part.entries:
        result = _run(options, request, part.entries)
        if result is None:
            return _INTERRUPTED
        from opmark.interop.opperf.exporter import lines as lines_of

        lines = [*lines_of(result.results(), request.profiler, part.names), *lines]
        environments = result.environments
        failed |= result.failed or bool(result.journals)
    if options.memory_unit == "kB":
        lines = [in_kilobytes(line) for line in lines]
    _write(file, options.output_format, lines, request, environments)
    if options.memory_unit == "bytes" and any(key.startswith(MEMORY) for line in lines for key in line.numbers):
        talk("memory is in bytes; opperf writes units of 1000 bytes under the same name: --memory-unit kB does so too")
    _print_remarks(lines, result)
    if not request.ops and not request.categories:
        print("Operators not covered by benchmarks:")
        print(operators_without_benchmark())
    return 1 if failed or not any(line.numbers for line in lines) else 0


def _run(options: argparse.Namespace, request: SuiteRequest, entries: Sequence[Any]) -> Any:
    from opmark.api.requests import talk
    from opmark.interop.opperf.measurement import measure

    progress = ProgressLine()
    try:
        result = measure(
            entries, ctx=options.ctx, framework=options.framework, warmup=options.warmup, runs=options.runs,
            profiler=request.profiler, threads=options.threads, timeout=options.timeout, db=options.db,
            resume=options.resume, verify=not options.no_verify,
            on_start=progress.start, on_record=progress.advance, say=progress.say,
        )  # fmt: skip
    except KeyboardInterrupt:
        progress.report_interruption(options.db)
        return None
    progress.end()
    talk(result.storage)
    return result


def _write(
    file: Path, form: str, lines: Sequence[OpperfResult], request: SuiteRequest, environments: dict[str, Any]
) -> None:
    from opmark.api.requests import talk
    from opmark.interop.opperf.exporter import csv_text, json_text, markdown_text
    from opmark.units import count_noun

    texts = {
        "json": lambda: json_text(lines),
        "md": lambda: markdown_text(lines, request.profiler, environments),
        "csv": lambda: csv_text(lines, request.profiler),
    }
    file.write_text(texts[form](), encoding="utf-8")
    operators = count_noun(len({line.name for line in lines}), "operator")
    talk(f"wrote {count_noun(len(lines), 'result')} of {operators} to {file}")


def _print_remarks(lines: Sequence[OpperfResult], result: Any) -> None:
    from opmark.api.requests import talk
    from opmark.interop.opperf.exporter import groups
    from opmark.interop.opperf.measurement import brief_reason, print_doubts_of_file
    from opmark.units import count_noun

    if result is not None:
        cases = len(groups(result.records))
        if len([line for line in lines if line.numbers]) > cases:
            talk(f"{count_noun(cases, 'case')} measured; some have several names in opperf")
        print_doubts_of_file(lines, result)
    for line in lines:
        for failure in line.failed:
            reason = brief_reason(failure["reason"])
            talk(f"{line.name} {line.format_inputs()} {failure['phase']}: {failure['status']}: {reason}")


def _split(values: Sequence[str]) -> list[str]:
    return [part for value in values for part in value.split(",") if part]


# Progress of a long run: one line that is updated on a terminal, and elsewhere a new line every 30 seconds.

_SECONDS = 30.0
_WIDTH = 79


class ProgressLine:
    def __init__(self, advice: str = "Ctrl-C stops, --resume continues") -> None:
        self._advice = advice
        self._total = self._done = self._before = 0
        self._run = ""
        self._stored_runs: list[str] = []
        self._began = self._printed = time.monotonic()
        self._is_terminal = sys.stderr.isatty()

    def start(self, run: Run, plan: Plan, done: list[Record]) -> None:
        self._run = run.id
        self._total = len(done) + len(plan.tasks) + len(plan.skipped)
        self._done = self._before = len(done)
        self._stored_runs = [run.id] if done else []
        self._began = time.monotonic()
        self.say(f"{count_noun(self._total - self._done, 'measurement')}; {self._advice}")

    def advance(self, record: Record) -> None:
        self._done += 1
        self._stored_runs = self._stored_runs if record.untried else [self._run]
        if self._is_terminal:
            self._print("\r" + self._line(record).ljust(_WIDTH), end="")
        elif time.monotonic() - self._printed > _SECONDS:
            self._printed = time.monotonic()
            self._print(self._line(record))

    def say(self, message: str) -> None:
        self._print(("\r" + " " * _WIDTH + "\r" if self._is_terminal else "") + message)

    def end(self) -> None:
        if self._is_terminal:
            self._print("\r" + " " * _WIDTH + "\r", end="")

    def report_interruption(self, db: str | None) -> None:
        from opmark.api.result import interruption_line

        advice = (
            f"{self._done} of {self._total} are measured; the same command with --resume goes on, `opmark export "
            f"{self._run} -f opperf-json -o FILE` writes these results"
        )
        self.say(interruption_line(self._stored_runs, db, advice))

    def _line(self, record: Record) -> str:
        spent, made = time.monotonic() - self._began, max(1, self._done - self._before)
        left = spent / made * (self._total - self._done)
        case = record.task.case
        return f"{self._done}/{self._total} {case.op} {case.phase}, about {left / 60:.0f} min left"[:_WIDTH]

    def _print(self, text: str, end: str = "\n") -> None:
        print(text, file=sys.stderr, end=end, flush=True)
