"""Tuning and comparing for `opmark opbench`: what `opmark tune` and `opmark ab` do, for a model's key operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opmark.api.ab import ab_request
from opmark.api.progress import TuneProgress
from opmark.api.requests import ABRequest, TuneRequest, talk
from opmark.api.tune import Tuning, tune_request, tuning_view
from opmark.interop.autotvm import AUTOTVM
from opmark.interop.opbench.files import ResultFolder
from opmark.interop.opbench.models import ChosenModel
from opmark.interop.opbench.options import OpbenchOptions
from opmark.plugin import BackendInfo
from opmark.plugin.registry import TUNED
from opmark.schema import Case, Entry, Workload
from opmark.schema.comparison import Compared, Pairing
from opmark.schema.workload import VERSION
from opmark.units import seconds, significant

PARTIAL = (100, 300, 500, 1000)
"""Numbers of trials after which OpBench looks at the model."""


@dataclass
class OpbenchTuning:
    """The tuning of one model's key operators."""

    options: OpbenchOptions
    info: BackendInfo
    folder: ResultFolder
    model: ChosenModel
    operators: Sequence[Case]
    """The key operators that have knobs."""
    counts: Mapping[str, int]
    """Calls in the model, by the id of the case."""
    found: Tuning | None = None
    verdicts: dict[str, Any] = field(default_factory=dict)

    def tune(self) -> Tuning:
        """Tune the key operators, and where the backend takes them the model with them; write what was found."""
        options = self.options
        progress = TuneProgress(
            f"opbench {self.model.name}", options.trials, options.seconds * max(1, len(self.operators))
        )
        shared: dict[str, Any] = {
            "backend": [self.info.name], "tuner": options.tuner, "trials": options.trials, "db": options.db,
            "budget": progress.budget, "threads": options.threads or (), "timeout": options.timeout,
            "processes": options.processes, "label": f"opbench {self.model.name} {options.tuner}",
            "library": options.library, "on_case": progress.case, "on_trial": progress.trial,
            "on_turn": progress.turn, "say": progress.say,
        }  # fmt: skip
        if self.info.takes_tuned_operators:
            entries = [_entry(self.model.case)]
            shared["operators"] = frozenset(case.id for case in self.operators)
        else:
            entries = [_entry(case) for case in self.operators]
        with progress:
            self.found = tune_request(TuneRequest(workload=Workload(VERSION, self.model.name, entries), **shared))
        lines, left_out = AUTOTVM.files([entry for entry in self.found.entries if not entry.default_stays])
        self.folder.write_log(options.tuner, lines["autotvm.json"])
        self.folder.write_tuned(options.tuner, tuning_view(self.found))
        for line in left_out:
            talk(f"not in the log of AutoTVM's kind: {line}")
        return self.found

    # The comparison.

    def compare(self) -> bool:
        """Print and write the verdicts of tuned against default, measured in turns, and return whether all that were
        measured have one. What this call has tuned was measured in turns already."""
        pairs = self._pairs_of_tuning() if self.found else self._measure()
        rows: list[dict[str, Any]] = []
        for pair in pairs:
            name = f"{pair.op} {pair.params}".strip()
            speed = f", {significant(1 / pair.ratio, 3)}x as fast" if pair.ratio else ""
            note = f"; {pair.note}" if pair.note else ""
            print(f"{name}: default {_time(pair.a)}, tuned {_time(pair.b)}: {pair.verdict}{speed}{note}")
            rows.append({
                "case": name, "default_seconds": pair.a, "tuned_seconds": pair.b, "ratio": pair.ratio, "low": pair.low,
                "high": pair.high, "verdict": pair.verdict, "note": pair.note,
            })  # fmt: skip
        whole = [pair for pair in pairs if pair.case == self.model.case.id]
        if not whole:
            talk(f"{self.model.name} as a whole: {self._why_no_model()}")
        self.folder.write_comparison(
            self.options.tuner,
            {
                "model": self.model.name,
                "target": self.options.target,
                "in_turns": True,
                "cases": rows,
                "model_compared": bool(whole),
                "reason": "" if whole else self._why_no_model(),
            },
        )
        return all(pair.ratio is not None for pair in pairs)

    def _why_no_model(self) -> str:
        if not self.info.takes_tuned_operators:
            return f"{self.info.name} compiles a model in one piece, and takes no configurations of single operators"
        return "no tuned operator is surely faster, so that the tuned model is the default one"

    def _pairs_of_tuning(self) -> list[Pairing]:
        assert self.found is not None
        return [one.against_default for one in self.found.cases if one.against_default is not None]

    def _measure(self) -> list[Pairing]:
        """Measure what the store has as tuned against the default, in turns."""
        entries = [_entry(self.model.case), *(_entry(case) for case in self.operators)]
        workload = Workload(VERSION, self.model.name, entries)
        backends = [self.info.name, f"{self.info.name}/{TUNED}"]
        found: Compared = ab_request(
            ABRequest(
                workload=workload, backend=backends, threads=self.options.threads or (), db=self.options.db,
                timeout=self.options.timeout, processes=self.options.processes, say=talk,
                label=f"opbench {self.model.name} compare",
            )
        )  # fmt: skip
        return list(found.pairs)

    # After the first so many trials.

    def partial(self, whole: float | None) -> bool:
        """Write the time of the model with the best of the first trials, and return whether it is known. It is computed
        from the times of the operators: the model's, less what its calls of each operator gain."""
        assert self.found is not None
        if whole is None:
            talk(f"{self.model.name} after so many trials: unknown, since the model could not be measured")
            return False
        times: dict[int, float | None] = {0: whole}
        for trials in (*(one for one in PARTIAL if one < self.options.trials), self.options.trials):
            gain = 0.0
            for one in self.found.cases:
                if one.search is None or one.search.default.seconds is None:
                    continue
                first = [each.seconds for each in one.search.candidates[:trials] if each.seconds]
                best = min([*first, one.search.default.seconds])
                gain += (one.search.default.seconds - best) * self.counts.get(one.case.id, 0)
            times[trials] = max(0.0, whole - gain)
        self.folder.write_partial(self.options.tuner, times)
        shown = ", ".join(f"{trials}: {_time(one)}" for trials, one in times.items())
        print(f"{self.model.name} after so many trials, computed from the operators: {shown}")
        return True


def _entry(case: Case) -> Entry:
    return Entry(case.op, {name: [value] if isinstance(value, list) else value for name, value in case.params.items()})


def _time(value: float | None) -> str:
    return "unknown" if value is None else seconds(value)
