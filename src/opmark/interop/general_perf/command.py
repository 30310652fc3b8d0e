"""opmark general-perf: ByteMLPerf's launch.py of general_perf, measured by opmark. Reports are written in its tree."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from opmark.api.evaluate import choose_data
from opmark.api.requests import talk
from opmark.api.result import interruption_line, open_store, storage_line
from opmark.api.run import run
from opmark.catalogue.workload_file import read_plain
from opmark.errors import UnknownName, UserError, one_line
from opmark.interop.general_perf import files, tasks
from opmark.interop.general_perf.files import TaskFile
from opmark.interop.general_perf.hardware import HARDWARE
from opmark.interop.general_perf.pictures import draw_pictures, load_charts
from opmark.interop.general_perf.reference import read_reference
from opmark.interop.general_perf.report import METRIC_NAMES, TaskResults, make_report, performance
from opmark.interop.general_perf.resolution import (
    BackendChoice,
    ResolvedTask,
    TaskFolders,
    choose_backend,
    override,
    read_workload,
    resolve_task,
)
from opmark.interop.general_perf.results import read_results, results_of
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import dataset_names
from opmark.runner.survey import survey
from opmark.schema import Record, Run, Workload
from opmark.schema.evaluation import DataChoice
from opmark.schema.options import LONGEST
from opmark.schema.record import MEASURED
from opmark.schema.task import EFFORTS
from opmark.schema.workload import VERSION
from opmark.units import count_noun

_TIMEOUT = 3600.0
"""Seconds for one batch size: the number of requests is fixed, and a large model on a CPU takes long for them."""
_REQUEST_TIMEOUT = 300.0
_OPTION = re.compile(r"--data-option (\w+)=")
"""How `opmark evaluate` spells a further file of a data set; here it is --data NAME.OPTION=VALUE."""
DataPlaces = Mapping[str, tuple[str, Mapping[str, str]]]
"""Path and further files of each data set."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit code is 0 if everything that was asked for is in the reports, 1 if a part failed or is
    missing, 130 after Ctrl-C."""
    options = _parser().parse_args([_with_underscores(one) for one in arguments])
    if options.workload and not options.workload.is_file():
        raise UserError(f"--workload: there is no file {options.workload}", "--task takes one that ships with opmark")
    workload_folder = options.workload_dir or (options.workload.parent if options.workload else None)
    folders = TaskFolders(
        files.find_folder(workload_folder, "workloads", "--workload_dir"),
        files.find_folder(options.model_zoo, "model_zoo", "--model_zoo"),
    )
    if options.show_hardware_list:
        return _show_hardware()
    if options.show_task_list:
        return _show_tasks(folders)
    if not options.hardware_type:
        raise UserError("--hardware_type: no hardware is named", "as in --hardware_type CPU; --show_hardware_list")
    if not options.task and not options.workload:
        raise UserError("--task: no task is named", f"as in --task bert-torch-fp32; `{tasks.LISTING}` lists them")
    data = _parse_data(options.data)
    if options.reference:
        find_backend(options.reference)
    chosen = [(task, choose_backend(options.hardware_type, task)) for task in _resolve_tasks(options, folders)]
    results = read_results(options.results)
    code = 0
    for task, choice in chosen:
        code = max(code, TaskSession(task, choice, options, data, results).run())
        if code == 130:
            break
    return code


def _resolve_tasks(options: argparse.Namespace, folders: TaskFolders) -> list[ResolvedTask]:
    """Return what is measured; all tasks are resolved before the first one runs, so that a mistake shows at once."""
    workloads: list[tuple[str, TaskFile, list[str]]] = []
    if options.workload:
        read = files.read_task_file(read_plain(options.workload).data, str(options.workload))
        workloads.append((read[0].model, *read))
    for name in filter(None, (part.strip() for part in (options.task or "").split(","))):
        workloads.append((name, *read_workload(name, folders)))
    found = []
    for name, workload, notes in workloads:
        given = override(
            workload, clients=max(options.clients) if options.clients else None, iterations=options.iterations,
            batch_sizes=options.batch_sizes, data_percent=options.data_percent,
            compile_only=options.compile_only or None,
        )  # fmt: skip
        task = resolve_task(name, given, folders, weights=options.weights, size=options.size)
        found.append(replace(task, notes=(*notes, *task.notes)))
    return found


class TaskSession:
    """Measures one task and writes its report, whatever becomes of the parts."""

    def __init__(
        self,
        task: ResolvedTask,
        choice: BackendChoice,
        options: argparse.Namespace,
        data: DataPlaces,
        results: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.task, self.choice, self.options, self.data = task, choice, options, data
        beside = results_of(task.workload.model, results)
        self.reference = [*read_reference(task), *beside]
        """What others measured of the same model: the stored reference, and results of ByteMLPerf that are named."""
        self.folder: Path = options.report_dir / options.hardware_type.upper() / task.name
        self.date = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        self.records: list[Record] = []
        self.evaluations: list[Record] = []
        self._run = ""
        """The run that goes on now."""
        self.runs: list[str] = []
        self.notes: list[str] = []
        if results and not beside:
            known = ", ".join(dict.fromkeys(one["Task"] for one in results))
            self.notes.append(f"--results has nothing on {task.workload.model}; it has {known}")
        self.unfinished: dict[str, str] = {}
        self.pictures: dict[str, str] = {}
        self._said: set[str] = set()
        """Lines of batch sizes that are printed."""

    def run(self) -> int:
        workload = self.task.workload
        for line in (*([self.choice.note] if self.choice.note else ()), *self.task.notes, *self.notes):
            talk(line)
        _make_folder(self.folder)
        try:
            self._measure_model()
            if workload.test_accuracy and not workload.compile_only:
                self._evaluate()
        except KeyboardInterrupt:
            self.unfinished["Run"] = "interrupted"
            talk(interruption_line(self.runs, self.options.db, "the report holds what was measured"))
            return 130
        finally:
            self._write()
        lines = self._content().get("Performance", [])
        charts = load_charts(self.task.name, lines, self.reference)
        self.pictures, notes = draw_pictures(self.task, charts, self.runs, self.folder, self.options.db)
        self.notes += notes
        path = self._write()
        self._print(path)
        return self._exit_code()

    def _measure_model(self) -> None:
        """Measure performance and numerics in one run: results are verified before they are timed."""
        workload = self.task.workload
        loaded = workload.test_perf and not workload.compile_only
        if not (loaded or workload.test_numeric or workload.compile_only):
            return
        load: dict[str, Any] = {"compile_only": True}
        if loaded:
            load = {"clients": self.options.clients or workload.clients, "requests": workload.iterations,
                    "request_timeout": self.options.request_timeout}  # fmt: skip
        try:
            run(
                workload=Workload(VERSION, self.task.name, self.task.entries()), backend=self.choice.backend,
                verify=workload.test_numeric, on_record=self._keep_measured, **load, **self._common(),
            )  # fmt: skip
        except UserError as error:
            self._fail("Performance" if loaded else "Graph Compile", one_line(error))

    def _evaluate(self) -> None:
        """Evaluate on the data that the user has, with the first batch size, as ByteMLPerf does."""
        data = self._data_choice()
        if data is None:
            return
        backends = list(dict.fromkeys(filter(None, (self.options.reference, self.choice.backend))))
        try:
            run(
                workload=Workload(VERSION, self.task.name, self.task.entries()[:1]), backend=backends,
                verify=False, data_choice=data, on_record=partial(self._keep, self.evaluations), **self._common(),
            )  # fmt: skip
        except UserError as error:
            self._fail("Accuracy", one_line(error))
            return
        for record in self.evaluations:
            if record.evaluation is None:
                self._fail("Accuracy", f"{record.task.backend}: {record.status_text}: {record.reason}")

    def _data_choice(self) -> DataChoice | None:
        """Return the data to evaluate on; where there is none, say why."""
        name, percent = self.task.dataset, self.task.workload.data_percent
        if not name or name == "fake_dataset":
            self.notes.append("Accuracy: the model has no data set (dataset_name is null), so there is no accuracy; "
                              "ByteMLPerf reports the constant 0")  # fmt: skip
            return None
        kind = tasks.DATA_SETS.get(name, name)
        if kind not in self.data:
            self._fail("Accuracy", f"no data: --data {kind}=PATH names the place of {name} on this machine; nothing is "
                       "downloaded")  # fmt: skip
            return None
        path, more = self.data[kind]
        try:
            return choose_data(f"{kind}:{path}" if path else kind, percent, more)
        except UserError as error:
            self._fail("Accuracy", one_line(error))
            return None

    def _common(self) -> dict[str, Any]:
        options = self.options
        return {
            "processes": options.processes, "threads": options.threads or (), "effort": options.effort,
            "timeout": options.timeout, "db": options.db, "label": options.label or self.task.name,
            "retries": options.retries, "on_start": lambda run, plan, done: self._start(run), "say": talk,
        }  # fmt: skip

    def _start(self, run: Run) -> None:
        self._run = run.id

    def _keep(self, records: list[Record], record: Record) -> None:
        """Keep a record. A run is in the store from its first record on that was tried."""
        records.append(record)
        if not record.untried and self._run not in self.runs:
            self.runs.append(self._run)

    def _keep_measured(self, record: Record) -> None:
        """Keep a record, and print its line as soon as all its processes are there: a large model takes minutes."""
        self._keep(self.records, record)
        same = [one for one in self.records if _case_and_load(one) == _case_and_load(record)]
        if len(same) < self.options.processes:
            return
        size = next(size for size in self.task.workload.sizes if self.task.source(size) in record.task.case.sources)
        if self.task.workload.test_perf and not self.task.workload.compile_only:
            for line in performance(size, same):
                self._print_line(line)
        else:
            self._print_once(f"{self.task.name} BS {size}: {_describe_compilation(record)}")

    def _fail(self, part: str, reason: str) -> None:
        reason = _OPTION.sub(rf"--data {tasks.DATA_SETS.get(self.task.dataset or '', 'NAME')}.\1=", reason)
        self.unfinished[part] = reason
        talk(f"{self.task.name}: {part}: {reason}")

    def _content(self) -> dict[str, Any]:
        return make_report(
            TaskResults(
                self.task, self.options.hardware_type.upper(), self.choice, self.date, self.records, self.evaluations,
                self._environments(), self.runs, self.notes, self.unfinished, self.reference, self.pictures,
            )
        )  # fmt: skip

    def _write(self) -> Path:
        """Write the report whole or not at all, because somebody may be reading the one of an earlier run."""
        path = self.folder / f"result-{self.task.precision.lower()}.json"
        part = path.with_name(f".{path.name}.part")
        try:
            part.write_text(json.dumps(self._content(), indent=4, ensure_ascii=False) + "\n", encoding="utf-8")
            part.replace(path)
        except OSError as error:
            raise UserError(f"{path}: the report cannot be written: {error.strerror}", "--report_dir names a folder"
                            ) from None  # fmt: skip
        return path

    def _environments(self) -> dict[str, Mapping[str, Any]]:
        wanted = {record.environment for record in (*self.records, *self.evaluations) if record.environment}
        if not wanted:
            return {}
        with closing(open_store(self.options.db)) as store:
            return {key: one.facts for key, one in store.environments(sorted(wanted)).items()}

    def _print(self, path: Path) -> None:
        """Print what is not printed yet: batch sizes that nothing ran for, outputs, accuracy, the report's place."""
        found = json.loads(path.read_text(encoding="utf-8"))
        for line in found.get("Performance", ()):
            if line["QPS"] is not None or line["Reason"] not in self.unfinished.values():
                self._print_line(line)
        accuracy = found.get("Accuracy", {})
        if accuracy.get("Verdict"):
            wrong = [size for size, verdict in accuracy["Verdict by BS"].items() if verdict == "FAIL"]
            where = f" with BS {', '.join(wrong)}" if wrong else ""
            print(f"{self.task.name} outputs: {accuracy['Verdict']}{where}, Max Diff {accuracy['Max Diff']:.3g}, "
                  f"Mean Diff {accuracy['Mean Diff']:.3g}")  # fmt: skip
        if "Samples" in accuracy:
            figures = [
                f"{name} {accuracy[name]:.5g}" + (f" ({low:.5g} to {high:.5g})" if low is not None else "")
                for name in METRIC_NAMES
                if name in accuracy
                for low, high in [accuracy.get(f"{name} Interval", (None, None))]
            ]
            print(f"{self.task.name} accuracy: {', '.join(figures)}, {count_noun(accuracy['Samples'], 'sample')}")
        print(f"report: {path}")
        if self.runs:
            talk(storage_line(self.runs, self.options.db))

    def _print_line(self, line: Mapping[str, Any]) -> None:
        """Print a line of the report's `Performance`; the number of clients only where there are several numbers."""
        several = len(set(self.options.clients or ())) > 1 and line.get("Clients")
        clients = f", {count_noun(line['Clients'], 'client')}" if several else ""
        head = f"{self.task.name} BS {line['BS']}{clients}"
        if line["QPS"] is None:
            self._print_once(f"{head}: {line['Status']}: {line['Reason']}")
            return
        tail = line["P99 Latency"]
        shown = f"{tail} ms" if tail is not None else f"not known ({line.get('P99 Latency Reason', '')})"
        self._print_once(f"{head}: QPS {line['QPS']}, AVG Latency {line['AVG Latency']} ms, P99 Latency {shown}"
                         f"{'' if line['Status'] == 'ok' else ', ' + line['Status']}")  # fmt: skip

    def _print_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            print(line, flush=True)

    def _exit_code(self) -> int:
        """Return 1 where a part that was asked for failed or is missing."""
        records = [*self.records, *self.evaluations]
        good = bool(records) and all(record.status in MEASURED for record in records)
        return 0 if good and not self.unfinished else 1


def _case_and_load(record: Record) -> tuple[str, object]:
    return record.task.case.id, record.task.settings.load


def _describe_compilation(record: Record) -> str:
    """Return what became of a case that is compiled and verified, and not timed."""
    if record.status not in MEASURED:
        return f"{record.status_text}: {record.reason}"
    found = record.compilation
    if found is None:
        return f"{record.status_text}, {record.task.backend} compiles nothing ahead of the first call"
    taken = found.coverage
    share = f", {taken.taken} of {taken.operators} operators taken" if taken and taken.operators else ""
    return f"{record.status_text}, compiled in {found.cold:.3g} s{share}"


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--report_dir: {folder} cannot be created: {error.strerror}", "name another folder") from None


def _parse_data(texts: Sequence[str]) -> DataPlaces:
    """Return the place and the further files of each data set, from NAME=PATH and NAME.OPTION=VALUE."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise UserError(f"--data: expected NAME=PATH, got `{text}`", "as in --data imagenet=/data/imagenet")
        kind, _, option = name.partition(".")
        kind = tasks.DATA_SETS.get(kind, kind)
        if kind not in dataset_names():
            raise UnknownName("data set", kind, dataset_names(), "opmark list datasets")
        path, more = found.get(kind, ("", {}))
        found[kind] = (path, {**more, option: value}) if option else (value, more)
    return found


def _show_tasks(folders: TaskFolders) -> int:
    """Print the tasks of the user's folder, then those that ship."""
    own = files.names_in(folders.workloads)
    for name in dict.fromkeys([*own, *tasks.known_tasks()]):
        print(name)
    return 0


def _show_hardware() -> int:
    """Print ByteMLPerf's names and every backend, each with the reason why it cannot run here, as far as metadata
    tells."""
    known = {found.name: found for found in survey()}
    for hardware in HARDWARE.values():
        installed = [name for name in hardware.backends.values() if name in known and not known[name].reason]
        reasons = [known[name].reason or "" for name in hardware.backends.values() if name in known]
        why = "; ".join(filter(None, dict.fromkeys(reasons))) or hardware.why_missing()
        print(f"{hardware.name}\t{', '.join(installed) or f'not here: {why}'}")
    for found in known.values():
        print(f"{found.name}\t{found.summary}" + (f"\tnot here: {found.reason}" if found.reason else ""))
    return 0


def _with_underscores(argument: str) -> str:
    """Return an option as ByteMLPerf spells it: `--hardware-type` is `--hardware_type`."""
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"expected whole numbers of at least 1, as in 1,4,8, got `{text}`")
    return numbers


def _number(text: str) -> int:
    return _numbers(text)[0]


def _positive(most: float, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= most:
        raise argparse.ArgumentTypeError(f"expected a number above 0 and up to {most:g}, got `{text}`")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="opmark general-perf",
        description="ByteMLPerf's launch.py of general_perf: measures performance, numerics and accuracy of a model, "
        "and writes reports/HARDWARE/TASK/result-PRECISION.json. Options may have dashes or underscores.",
    )
    theirs = parser.add_argument_group("as in ByteMLPerf")
    theirs.add_argument("--task", help="a task, as bert-torch-fp32; several with commas between them")
    theirs.add_argument("--hardware_type", help="CPU, GPU, HPU, or a backend of opmark, as openvino-cpu")
    theirs.add_argument("--compile_only", action="store_true", help="compile and verify; measure nothing")
    theirs.add_argument("--show_task_list", action="store_true", help="print the tasks and end")
    theirs.add_argument("--show_hardware_list", action="store_true", help="print the hardware and end")
    own = parser.add_argument_group("further options")

    def add(name: str, text: str, **more: Any) -> None:
        own.add_argument(name, help=text, **more)

    add("--workload", "a workload file, in place of --task", type=Path)
    add("--workload_dir", "folder with TASK.json [./workloads, ./general_perf/workloads]", type=Path)
    add("--model_zoo", "folder with MODEL.json [./model_zoo, ./general_perf/model_zoo]", type=Path)
    add("--report_dir", "folder for the reports [reports]", type=Path, default=Path("reports"))
    add("--data", "NAME=PATH: a data set for the accuracy; NAME.OPTION=VALUE: a further file of it", action="append",
        default=[])  # fmt: skip
    add("--weights", "checkpoint for the zoo's model, whose weights are random without", default="")
    add("--size", "`small`: a small model of the same structure, to try things out", choices=("full", "small"),
        default="full")  # fmt: skip
    add("--clients", "clients at the same time; several numbers, as in 1,2,4, in turn [as the workload says]",
        type=_numbers)  # fmt: skip
    add("--iterations", "requests of each client [as the workload says]", type=_number)
    add("--batch_sizes", "as in 1,4,8 [as the workload says]", type=_numbers)
    add("--reference", "backend that the accuracy is compared with, on the same samples [none]", default="")
    add("--results", "results of ByteMLPerf to show beside: a result*.json, or a folder of them", type=Path,
        action="append", default=[])  # fmt: skip
    add("--data_percent", "share of the data [as the workload says]", type=partial(_positive, 100))
    add("--threads", "threads of the processor [all cores]", type=_number)
    add("--processes", "fresh processes per batch size [1]", type=_number, default=1)
    add("--effort", "how long to warm up [quick]", choices=tuple(EFFORTS), default="quick")
    add("--timeout", f"seconds for a batch size [{_TIMEOUT:.0f}]", type=partial(_positive, LONGEST), default=_TIMEOUT)
    add(
        "--request_timeout",
        f"seconds for a request [{_REQUEST_TIMEOUT:.0f}]",
        type=partial(_positive, LONGEST),
        default=_REQUEST_TIMEOUT,
    )
    add("--retries", "further tries of what other work disturbed [0]", type=int, default=0)
    add("--label", "a name for the runs [the task]", default="")
    add("--db", "the store [$OPMARK_DB or the data directory]")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
