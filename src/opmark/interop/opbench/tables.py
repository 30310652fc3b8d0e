"""OpBench's own tables: exp/op_costs/MODEL_TUNER_TARGET/TASK.csv, one row per trial of a task, and
exp/partial_res/TARGET.csv, the time of a model after so many trials.

Neither has shapes or configurations. A task is therefore an operator `autotvm:TASK` of a model, and its entry has the
number of the best trial. OpBench's times of whole models are a tenth of the real ones (it divides times of one run by
the number of runs once more): they are corrected here, and the entry says so.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from opmark.errors import UserError
from opmark.interop.opbench.models import NAMES
from opmark.interop.tuning_logs import ForeignTrial, backend_of, keep_best, line_problem
from opmark.plugin.formats import TuningLog
from opmark.schema import Case, ImportProblem
from opmark.schema.case import MODEL_PREFIX
from opmark.schema.tuned import TunedEntry, TuningTarget

_COSTS = ("task_name", "trial", "costs")
_PARTIAL = ("modelname", "tuner", "0")
_DIVIDED_BY = 10
"""OpBench's times of models are divided by its `timing_repeat`, although they are times of one run."""
_FOLDER = re.compile(
    r"(?P<model>.+?)_(?P<tuner>gridsearch|grid|random|ga|xgb(?:_knob|_itervar|_curve|-rank)?)_(?P<target>\w+)"
)
_MODELS = {name: found.model for known in NAMES.values() for name, found in known.items()}


class OpbenchTables:
    name = "opbench"
    summary = "OpBench's tables: exp/op_costs/*/*.csv and exp/partial_res/*.csv"

    def recognises(self, path: Path, head: bytes) -> bool:
        first = head.partition(b"\n")[0].strip().decode("utf-8", "replace").split(",")
        return tuple(first[:3]) in (_COSTS, _PARTIAL)

    def read(self, path: Path) -> TuningLog:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
            names = tuple(rows[0])[:3] if rows else ()
        if names == _COSTS:
            return self._read_costs(path, rows)
        if names == _PARTIAL:
            return self._read_partial(path, rows)
        raise UserError(
            f"{path}: expected a table with the columns {', '.join(_COSTS)} or {', '.join(_PARTIAL)}",
            "OpBench writes them to exp/op_costs and exp/partial_res",
        )

    def _read_costs(self, path: Path, rows: Sequence[Mapping[str, str]]) -> TuningLog:
        place = _FOLDER.fullmatch(path.parent.name)
        facts = place.groupdict() if place else {"model": "unknown", "tuner": "", "target": "unknown"}
        trials, problems = list[ForeignTrial](), list[ImportProblem]()
        for number, row in enumerate(rows, 2):
            try:
                trial, seconds = int(row["trial"]), float(row["costs"])
            except (TypeError, ValueError):
                problems.append(line_problem(path, number, f"expected numbers in trial and costs, got {dict(row)}"))
                continue
            case = Case.of(f"autotvm:{row['task_name']}", {"model": facts["model"], "task": path.stem}, "forward")
            target = _target(facts["target"])
            right = (seconds,) if 0 < seconds < 1e9 else ()  # AutoTVM writes 1e9 for a trial that failed
            trials.append(
                ForeignTrial(case, backend_of(target), row["task_name"], {"trial": trial}, target, right,
                             "" if right else "failed", tuner=facts["tuner"])
            )  # fmt: skip
        notes = ["these tables have neither shapes nor configurations: the entry has the number of the best trial"]
        if place is None:
            notes.append(
                f"model, tuner and target are in the name of OpBench's folder, and `{path.parent.name}` is none"
            )
        return TuningLog(keep_best(trials, self.name), problems, notes)

    def _read_partial(self, path: Path, rows: Sequence[Mapping[str, str]]) -> TuningLog:
        entries, problems = list[TunedEntry](), list[ImportProblem]()
        for number, row in enumerate(rows, 2):
            try:
                times = {
                    int(name): float(row[name]) * _DIVIDED_BY / 1e3 for name in row if name.isdigit() and row[name]
                }
                default = times.pop(0)
                best = min(times, key=times.__getitem__)
            except (KeyError, TypeError, ValueError):
                problems.append(line_problem(path, number, f"expected times after 0, 100, ... trials, got {dict(row)}"))
                continue
            name = row["modelname"]
            case = Case.of(f"{MODEL_PREFIX}{_MODELS.get(name, name)}", {}, "forward")
            slower = times[max(times)] > default
            target = _target(path.stem)
            entries.append(
                TunedEntry(
                    op=case.op, params={}, case=case.id, backend=backend_of(target), implementation="autotvm",
                    configuration={"trials": best}, target=target, default_seconds=default, tuned_seconds=times[best],
                    tuner=row["tuner"], trials=max(times), origin=self.name,
                    note="times of OpBench, multiplied by 10" + "; slower than the default at the end" * slower,
                )
            )  # fmt: skip
        return TuningLog(
            entries, problems, ["OpBench's times of models are a tenth of the real ones, and are corrected"]
        )

    def files(self, entries: Sequence[TunedEntry]) -> tuple[Mapping[str, str], Sequence[str]]:
        """Write the tables of whole models; tasks without their trials are no table of OpBench's."""
        tables: dict[str, list[dict[Any, Any]]] = {}
        left_out: list[str] = []
        for entry in entries:
            if not entry.op.startswith(MODEL_PREFIX) or entry.default_seconds is None or entry.tuned_seconds is None:
                left_out.append(f"{entry.op} on {entry.backend}: OpBench's tables have times of whole models only")
                continue
            name = next((name for name, model in _MODELS.items() if f"{MODEL_PREFIX}{model}" == entry.op), entry.op)
            target = entry.target.versions.get("target", entry.target.device).split(" ")[0]
            times = {0: entry.default_seconds, entry.configuration.get("trials", entry.trials): entry.tuned_seconds}
            row: dict[Any, Any] = {trials: repr(seconds * 1e3 / _DIVIDED_BY) for trials, seconds in times.items()}
            tables.setdefault(f"{target}.csv", []).append({**row, "modelname": name, "tuner": entry.tuner})
        return {file: _csv_text(rows) for file, rows in tables.items()}, left_out


def _csv_text(rows: Sequence[Mapping[Any, Any]]) -> str:
    trials = sorted({name for row in rows for name in row if isinstance(name, int)})
    text = StringIO()
    writer = csv.DictWriter(text, ["modelname", "tuner", *trials], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _target(name: str) -> TuningTarget:
    device = {"llvm": "cpu", "pynq": "vta"}.get(name, name)
    return TuningTarget(device, "unknown", versions={"target": name})


OPBENCH_TABLES = OpbenchTables()
