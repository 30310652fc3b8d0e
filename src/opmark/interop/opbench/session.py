"""One call of `opmark opbench`: operators, times, spaces, and where it is asked for tuning and comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from opmark.analysis.rows import Row, rows_of_records
from opmark.api.extract import find_operators, model_operators
from opmark.api.requests import RunRequest, talk
from opmark.api.run import run_request
from opmark.catalogue.expansion import cases_of
from opmark.interop.opbench.files import ResultFolder
from opmark.interop.opbench.models import ChosenModel, model_inputs
from opmark.interop.opbench.operators import (
    HEADS,
    KeyOperator,
    describe_operator,
    key_operators,
    table_lines,
    with_times,
)
from opmark.interop.opbench.options import OpbenchOptions
from opmark.interop.opbench.targets import ChosenTarget
from opmark.interop.opbench.tuning import OpbenchTuning
from opmark.interop.opperf.command import ProgressLine
from opmark.models.family import source_of
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Case, Entry, Workload
from opmark.schema.case import MODEL_PREFIX
from opmark.schema.record import MEASURED
from opmark.schema.workload import VERSION
from opmark.tuning.spaces import Tunable, export_space, find_tunables
from opmark.units import count_noun, percent, seconds

_SHOWN = 40
"""Operators that the table on the terminal has; the file has all."""


class OpbenchSession:
    def __init__(self, options: OpbenchOptions, target: ChosenTarget, models: Sequence[ChosenModel]) -> None:
        self.options, self.target, self.models = options, target, models
        self.info = find_backend(target.backend)
        self.folder = ResultFolder(options.output, "+".join(model.name for model in models), target.name)
        self.cases: dict[str, Case] = {}
        """The operators of all models by id."""
        self.counts: dict[str, dict[str, int]] = {}
        """By the id of an operator: how often each model calls it."""
        self.failed = False

    @property
    def written(self) -> list[Path]:
        return self.folder.written

    def run(self) -> int:
        for model in self.models:
            self._add_operators(model)
        tunables = {case.id: find_tunables(case, self.info) for case in self.cases.values()}
        operators = [describe_operator(case, self.counts[key], tunables[key]) for key, case in self.cases.items()]
        self._write_spaces({key: [export_space(one) for one in found] for key, found in tunables.items()})
        rows: dict[str, Row] = {}
        if not self.options.iftime:
            talk("not timed: --iftime false")
        elif self.target.timed:
            rows = self._time()
            operators = with_times(operators, rows)
        else:
            talk(f"not timed: {self.target.why_not_timed}")
            operators = self._compile(operators)
        kept = key_operators(operators, self.options.top)
        self._print_operators(kept, len(operators), rows)
        self.folder.write_operators(
            {
                "models": {model.name: model_inputs(model.case) for model in self.models},
                "target": self.options.target,
                "backend": self.info.name,
                "batchsize": self.options.batchsize,
                "top": self.options.top,
                "model_seconds": {model.name: self._model_seconds(model, rows) for model in self.models},
                "operators": [{"count": one.count, **_plain(one)} for one in kept],
            }
        )
        if self.options.iftune or self.options.ifcompare:
            self._tune(kept, tunables, rows)
        for path in self.written:
            print(f"wrote {path}")
        return 1 if self.failed else 0

    def _tune(
        self, kept: Sequence[KeyOperator], tunables: Mapping[str, Sequence[Tunable]], rows: Mapping[str, Row]
    ) -> None:
        """Tune and compare the key operators of each model that have knobs."""
        for model in self.models:
            keys = [one.case for one in kept if model.name in one.models and tunables[one.case]]
            if not keys:
                talk(
                    f"no key operator of {model.name} has knobs on {self.info.name}: there is nothing to tune\n"
                    "hint: --top 100% keeps all operators"
                )
                self.failed = True
                continue
            folder = ResultFolder(self.options.output, model.name, self.target.name)
            counts = {key: self.counts[key][model.name] for key in keys}
            work = OpbenchTuning(self.options, self.info, folder, model, [self.cases[key] for key in keys], counts)
            if self.options.iftune:
                found = work.tune()
                # A note has said why no candidate could be measured.
                searches = [one.search for one in found.cases if one.search is not None]
                self.failed |= any(search.stopped and not search.tied for search in searches)
            if self.options.ifcompare:
                self.failed |= not work.compare()
            if self.options.ifpartial:
                self.failed |= not work.partial(self._model_seconds(model, rows))
            self.folder.written += folder.written

    # The operators.

    def _add_operators(self, model: ChosenModel) -> None:
        source = source_of(model.case.op.removeprefix(MODEL_PREFIX))
        assert source is not None
        # TVM is given the ONNX graph of a model, so that its operators are the nodes of that graph.
        graph: Any = "onnx" if self.info.framework == "onnx" else "torch"
        found = model_operators(model.case, find_operators(source, model.case.params, graph, "cpu"))
        if found.problems:
            nodes = count_noun(len(found.problems), "node")
            talk(
                f"{model.name}: {nodes} of its graph cannot be timed one by one; the first: {found.problems[0].message}"
            )
        for entry in found.workload.cases:
            for case in cases_of(entry, find_operator):
                self.cases.setdefault(case.id, replace(case, count=1, sources=(), written_as=()))
                counts = self.counts.setdefault(case.id, {})
                counts[model.name] = counts.get(model.name, 0) + entry.count
        talk(found.summary)

    def _write_spaces(self, spaces: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Write every space, without tuning: that is what OpBench's first example promises."""
        listed = [{**space, "count": self.counts[key]} for key, found in spaces.items() for space in found]
        without = [key for key, found in spaces.items() if not found]
        self.folder.write_space(
            {
                "models": [model.name for model in self.models],
                "target": self.options.target,
                "backend": self.info.name,
                "batchsize": self.options.batchsize,
                "spaces": listed,
                "operators_without_knobs": [
                    {"op": self.cases[key].op, "params": self.cases[key].params} for key in without
                ],
            }
        )
        total = sum(int(space["size"]) for space in listed)
        talk(f"{count_noun(len(listed), 'configuration space')} with {total} combinations; "
             f"{count_noun(len(without), 'operator')} without knobs on {self.info.name}")  # fmt: skip

    # Times.

    def _time(self) -> dict[str, Row]:
        """Measure the operators and the models in one run, and return the rows by the ids of their cases."""
        cases = [*(model.case for model in self.models), *self.cases.values()]
        entries = [
            Entry(case.op, {k: [v] if isinstance(v, list) else v for k, v in case.params.items()}) for case in cases
        ]
        progress = ProgressLine("Ctrl-C stops")
        options = self.options
        result = run_request(
            RunRequest(
                workload=Workload(VERSION, self.folder.model, entries),
                backend=[self.info.name],
                quantity=["latency"] if self.info.device == "cpu" else ["device_time"],
                processes=1,
                threads=options.threads or (),
                effort=options.effort,
                timeout=options.timeout,
                db=options.db,
                label=f"opbench {self.folder.model} {options.target}",
                retries=1,
                on_start=progress.start,
                on_record=progress.advance,
                say=progress.say,
            )
        )
        progress.end()
        talk(result.storage)
        rows = rows_of_records(result.records, result.run.id, result.peaks)
        for row in rows:
            if row.status not in MEASURED:
                self.failed = True
                talk(f"{row.name}: {row.status}: {row.reason}")
        return {row.case: row for row in rows}

    def _compile(self, operators: list[KeyOperator]) -> list[KeyOperator]:
        from opmark.interop.opbench.code import compile_operators

        found, failed = compile_operators(operators, self.cases, self.options, talk)
        self.failed |= failed
        return found

    def _model_seconds(self, model: ChosenModel, rows: Mapping[str, Row]) -> float | None:
        row = rows.get(model.case.id)
        return row.headline.median if row and row.headline and row.status in MEASURED else None

    # The table.

    def _print_operators(self, kept: Sequence[KeyOperator], known: int, rows: Mapping[str, Row]) -> None:
        from rich.console import Console

        from opmark.report.console.table import print_rows

        optional = (("schedule configurations",), ("parameter data",), ("models",), ("input data",))
        print_rows(HEADS, table_lines(kept[:_SHOWN]), Console(), 1, left=HEADS[1:5], optional=optional)
        if len(kept) > _SHOWN:
            talk(f"{len(kept) - _SHOWN} more are in the file")
        if len(kept) < known:
            share = sum(one.share or 0.0 for one in kept)
            talk(f"{count_noun(len(kept), 'key operator')} of {known}: {percent(share)} of the time of all operators")
        for model in self.models:
            whole = self._model_seconds(model, rows)
            if whole is None:
                continue
            parts = [
                (row.headline.median, counts[model.name])
                for key, counts in self.counts.items()
                if model.name in counts and (row := rows.get(key)) and row.headline and row.headline.median
            ]
            total = sum(one * count for one, count in parts)
            talk(f"{model.name}: {seconds(whole)} as a whole; its operators one by one: {seconds(total)}, "
                 f"{percent(total / whole)} of that")  # fmt: skip


def _plain(one: KeyOperator) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(one)
    return found
