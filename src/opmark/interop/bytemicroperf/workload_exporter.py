"""Cases as a workload of ByteMicroPerf's third generation: one file, each operator with its objects.

Neighbours with the same arguments are one object: its lists multiply if the cases are a whole product, and otherwise a
dotted key has one row per case. A case with lists as arguments (`batch_llm`) is an object of its own, as ByteMicroPerf
requires. Operators of earlier generations are written in the same way; the third generation ignores them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise, product
from math import prod
from typing import Any

from opmark.interop.bytemicroperf.operators import FORMS, to_bytemicroperf
from opmark.schema import Case
from opmark.units import count_noun

Arguments = dict[str, Any]


class _Cases:
    name = "bytemicroperf"
    summary = "a workload of ByteMicroPerf's third generation (xpu-perf): one JSON file, every operator in it"

    def files(self, name: str, cases: Sequence[Case]) -> tuple[dict[str, str], list[str]]:
        tasks: dict[str, list[Arguments]] = {}
        left_out: Counter[str] = Counter()
        for case in cases:
            found = to_bytemicroperf(case)
            if found is None:
                left_out[_why_left_out(case)] += 1
            else:
                tasks.setdefault(found.op, []).append(found.arguments)
        objects = {task: _join_points(points) for task, points in tasks.items()}
        lines = [f"{why} ({count_noun(count, 'case')})" for why, count in left_out.items()]
        return ({_file_name(name): _text(objects)} if objects else {}), lines


def _why_left_out(case: Case) -> str:
    if case.phase != "forward":
        return f"{case.op}: ByteMicroPerf measures no {case.phase} phase"
    if not any(form.op == case.op and form.exported for forms in FORMS.values() for form in forms):
        return f"{case.op}: ByteMicroPerf has no such operator"
    return f"{case.op}: ByteMicroPerf has no argument for some of its parameters: {json.dumps(case.params)}"


def _file_name(workload: str) -> str:
    stem = re.sub(r"[^\w.-]+", "_", workload).strip(".")
    return f"{stem or 'workload'}.json"


def _text(objects: dict[str, list[Arguments]]) -> str:
    """Format the file with one object per line."""
    tasks = []
    for task, listed in objects.items():
        lines = ",\n".join(f"        {json.dumps(item)}" for item in listed)
        tasks.append(f"    {json.dumps(task)}: [\n{lines}\n    ]")
    return "{\n" + ",\n".join(tasks) + "\n}\n"


def _join_points(points: Sequence[Arguments]) -> list[Arguments]:
    found: list[Arguments] = []
    for _, group in groupby(points, key=lambda point: (point["arg_type"], *point)):
        alike = list(group)
        found += alike if "batch" in alike[0]["arg_type"] else [_object(alike)]
    return found


def _object(points: Sequence[Arguments]) -> Arguments:
    first = points[0]
    changing = [name for name in first if any(point[name] != first[name] for point in points)]
    constant = {name: _wrap_list(value) for name, value in first.items() if name not in changing}
    if not changing:
        return constant if len(points) == 1 else {**constant, "arg_type": [first["arg_type"]] * len(points)}
    return {**constant, **_axes(points, changing)}


def _wrap_list(value: Any) -> Any:
    """Put a value that is a list into another list, because a plain list would be an axis."""
    return [value] if isinstance(value, list) else value


def _axes(points: Sequence[Arguments], names: list[str]) -> Arguments:
    """Return axes, the slowest first, or rows under a dotted key if the points are not a whole product."""
    slowest = sorted(names, key=lambda name: _changes([point[name] for point in points]))
    axes = {name: _distinct([point[name] for point in points]) for name in slowest}
    rows = [[point[name] for name in slowest] for point in points]
    if len(slowest) == 1:
        return {slowest[0]: [row[0] for row in rows]}
    # The number of points is compared first: the product of many axes may be too large to make.
    whole = prod(map(len, axes.values())) == len(points)
    whole = whole and rows == [list(row) for row in product(*axes.values())]
    return axes if whole else {".".join(slowest): rows}


def _changes(values: Sequence[Any]) -> int:
    return sum(one != other for one, other in pairwise(values))


def _distinct(values: Sequence[Any]) -> list[Any]:
    return list({json.dumps(value): value for value in values}.values())


BYTEMICROPERF = _Cases()
