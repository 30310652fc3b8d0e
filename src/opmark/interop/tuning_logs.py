"""What the readers of tuning logs share: trials of other systems, and the entries that are made of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from opmark.catalogue.expansion import cases_of
from opmark.errors import UserError
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Case, Entry, ImportProblem
from opmark.schema.tuned import KnobValue, TunedEntry, TuningTarget
from opmark.units import count_noun

LONGEST_LINE = 16 << 20
METASCHEDULE_KNOB = "metaschedule"
"""Name under which a configuration that MetaSchedule has found here has records: JSON, a list of objects with workload
and record."""


@dataclass(frozen=True)
class ForeignTrial:
    """One configuration that another system has tried."""

    case: Case
    backend: str
    implementation: str
    configuration: Mapping[str, KnobValue]
    target: TuningTarget
    seconds: tuple[float, ...] = ()
    """Times of one call; empty if it failed."""
    failure: str = ""
    when: float | None = None
    """Seconds since 1970."""
    tuner: str = ""
    notes: tuple[str, ...] = field(default=())


def keep_best(trials: Sequence[ForeignTrial], origin: str) -> list[TunedEntry]:
    """Return an entry for each case, backend and target, in the order of the first trial: the fastest that was right,
    whichever implementation it is of. Where all failed, the entry has no configuration and says why."""
    groups: dict[tuple[str, str, str], list[ForeignTrial]] = {}
    for trial in trials:
        key = trial.case.id, trial.backend, trial.target.id
        groups.setdefault(key, []).append(trial)
    return [_best(group, origin) for group in groups.values()]


def _best(group: Sequence[ForeignTrial], origin: str) -> TunedEntry:
    right = [trial for trial in group if trial.seconds]
    best = min(right, key=lambda trial: median(trial.seconds), default=group[0])
    failures = Counter(trial.failure for trial in group if not trial.seconds)
    notes = [*best.notes, *(f"{count} failed: {why}" for why, count in failures.most_common())]
    return TunedEntry(
        op=best.case.op,
        params=dict(best.case.params),
        case=best.case.id,
        backend=best.backend,
        implementation=best.implementation if right else "",
        configuration=dict(best.configuration) if right else {},
        target=best.target,
        phase=best.case.phase,
        dtype=str(best.case.params.get("dtype", "")),
        tuned_seconds=median(best.seconds) if right else None,
        tuner=best.tuner,
        trials=len(group),
        made=datetime.fromtimestamp(best.when, timezone.utc).isoformat() if best.when else "",
        origin=origin,
        note="; ".join(notes),
    )


def describe_kept(trials: Sequence[ForeignTrial], entries: Sequence[TunedEntry]) -> list[str]:
    if len(trials) == len(entries):
        return []
    return [f"{count_noun(len(trials), 'trial')}: of each case and target the fastest is kept"]


def find_case(op: str, params: Mapping[str, Any]) -> Case:
    """Return the case of the catalogue with these parameters; UserError if it is none."""
    lists = {name: [value] if isinstance(value, list) else value for name, value in params.items()}
    (case,) = cases_of(Entry(op, lists), find_operator)
    return case


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file that are not empty, with their numbers. UserError if it is no text."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if len(line) > LONGEST_LINE:
                    raise UserError(f"{path}: line {number} is longer than 16 MiB", "is it a tuning log?")
                if line.strip():
                    yield number, line
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text: {error.reason}", "a tuning log has one JSON value per line") from None


def line_problem(path: Path, number: int, message: str, hint: str = "") -> ImportProblem:
    return ImportProblem(f"{path.name}: line {number}", message, hint)


_OPBENCH_NAME = re.compile(
    r"(?P<model>.+?)-(?P<tuner>gridsearch|grid|random|ga|xgb(?:[-_]\w+?)?)-(?P<target>\w+)-autotvm"
)


def tuner_of_name(path: Path) -> str:
    """Return the tuner that OpBench writes into the name of a file: MODEL-TUNER-TARGET-autotvm.json."""
    found = _OPBENCH_NAME.match(path.name)
    return found["tuner"] if found else ""


# Targets as TVM writes them: `llvm -keys=cpu -mcpu=skylake-avx512`.

_DEVICES = {"llvm": "cpu", "c": "cpu", "cuda": "cuda", "nvptx": "cuda", "rocm": "rocm", "ext_dev": "vta"}
_CHIP_ATTRIBUTES = ("model", "mcpu", "arch", "device", "mtriple")


def target_of_text(text: str, versions: Mapping[str, str]) -> TuningTarget:
    """Return the target that TVM writes as a text or as JSON. What a log does not say of a machine stays unknown."""
    kind, attributes = split_target(text)
    chip = next((attributes[name] for name in _CHIP_ATTRIBUTES if attributes.get(name, "unknown") != "unknown"), "")
    return TuningTarget(_DEVICES.get(kind, kind), chip or "unknown", versions={**versions, "target": text})


def backend_of(target: TuningTarget) -> str:
    """Return the backend that an imported entry is listed under. It is not applied there: its target is another."""
    return "tvm-cuda" if target.device == "cuda" else "tvm-cpu"


def split_target(text: str) -> tuple[str, dict[str, str]]:
    """Return the kind and the attributes of a target: `-mcpu=x` and `-mcpu x` are the same."""
    kind, _, rest = text.strip().partition(" ")
    found: dict[str, str] = {}
    words = rest.split()
    while words:
        name, equals, value = words.pop(0).lstrip("-").partition("=")
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        found[name] = value
    return kind, found


def text_of_target(target: TuningTarget) -> str:
    """Return a target as TVM writes it: as it was imported, else by device and chip."""
    if "target" in target.versions:
        return target.versions["target"]
    kind = {"cpu": "llvm", "vta": "ext_dev"}.get(target.device, target.device)
    return f"{kind} -model={re.sub(r'[^A-Za-z0-9_.-]+', '_', target.chip)}" if target.chip else kind
