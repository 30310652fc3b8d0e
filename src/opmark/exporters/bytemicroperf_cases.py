"""Cases as a workload of ByteMicroPerf's third generation: one file, each operator with its objects.

Neighbours that differ in their arguments alone are one object: its lists multiply where they are a whole product, else
a dotted key has a row for each case. What has lists as arguments (`batch_llm`) stands alone, as it has to there.
An operator that only an earlier generation has stands in the same way; the third passes over it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise, product
from typing import Any

from opmark.importers.bytemicroperf.foreign import to_bytemicroperf
from opmark.importers.bytemicroperf.tasks import FORMS
from opmark.schema import Case
from opmark.units import counted

Arguments = dict[str, Any]


class _Cases:
    name = "bytemicroperf"
    summary = "a workload of ByteMicroPerf's third generation (xpu-perf): one JSON file, every operator in it"

    def files(self, name: str, cases: Sequence[Case]) -> tuple[dict[str, str], list[str]]:
        tasks: dict[str, list[Arguments]] = {}
        unsaid: Counter[str] = Counter()
        for case in cases:
            found = to_bytemicroperf(case)
            if found is None:
                unsaid[_why_not(case)] += 1
            else:
                tasks.setdefault(found.op, []).append(found.arguments)
        objects = {task: _joined(points) for task, points in tasks.items()}
        lines = [f"{why} ({counted(count, 'case')})" for why, count in unsaid.items()]
        return ({_file_name(name): _text(objects)} if objects else {}), lines


def _why_not(case: Case) -> str:
    if case.phase != "forward":
        return f"{case.op}: ByteMicroPerf measures no {case.phase} phase"
    if not any(form.op == case.op and form.exported for forms in FORMS.values() for form in forms):
        return f"{case.op}: ByteMicroPerf has no such operator"
    return f"{case.op}: ByteMicroPerf has no argument for some of its parameters: {json.dumps(case.params)}"


def _file_name(workload: str) -> str:
    stem = re.sub(r"[^\w.-]+", "_", workload).strip(".")
    return f"{stem or 'workload'}.json"


def _text(objects: dict[str, list[Arguments]]) -> str:
    """An object on a line of its own."""
    tasks = []
    for task, listed in objects.items():
        lines = ",\n".join(f"        {json.dumps(item)}" for item in listed)
        tasks.append(f"    {json.dumps(task)}: [\n{lines}\n    ]")
    return "{\n" + ",\n".join(tasks) + "\n}\n"


def _joined(points: Sequence[Arguments]) -> list[Arguments]:
    found: list[Arguments] = []
    for _, group in groupby(points, key=_keys):
        alike = list(group)
        found += alike if "batch" in alike[0]["arg_type"] else [_object(alike)]
    return found


def _keys(point: Arguments) -> tuple[str, ...]:
    return (point["arg_type"], *point)


def _object(points: Sequence[Arguments]) -> Arguments:
    first = points[0]
    changing = [name for name in first if any(point[name] != first[name] for point in points)]
    constant = {name: _alone(value) for name, value in first.items() if name not in changing}
    if not changing:
        return constant if len(points) == 1 else {**constant, "arg_type": [first["arg_type"]] * len(points)}
    return {**constant, **_axes(points, changing)}


def _alone(value: Any) -> Any:
    """A list that is one value stands in a list of its own."""
    return [value] if isinstance(value, list) else value


def _axes(points: Sequence[Arguments], names: list[str]) -> Arguments:
    """The slowest first. Rows where the points are no whole product."""
    slowest = sorted(names, key=lambda name: _changes([point[name] for point in points]))
    axes = {name: _distinct([point[name] for point in points]) for name in slowest}
    rows = [[point[name] for name in slowest] for point in points]
    if len(slowest) == 1:
        return {slowest[0]: [row[0] for row in rows]}
    whole = [list(row) for row in product(*axes.values())] if _is_small(axes, len(points)) else []
    return axes if rows == whole else {".".join(slowest): rows}


def _changes(values: Sequence[Any]) -> int:
    return sum(one != other for one, other in pairwise(values))


def _distinct(values: Sequence[Any]) -> list[Any]:
    return list({json.dumps(value): value for value in values}.values())


def _is_small(axes: Arguments, points: int) -> bool:
    """Whether the product of the axes has as many points, found without making it."""
    total = 1
    for values in axes.values():
        total *= len(values)
    return total == points


BYTEMICROPERF = _Cases()
