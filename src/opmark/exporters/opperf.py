"""A run as opperf writes its results: JSON, and tables in Markdown and CSV. Failures are included with reasons."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opmark.exporters.opperf_rows import MEMORY, Line, Profiler, lines, profiler_of
from opmark.interfaces import Results

_NATIVE = {"Max Mem Usage (Storage) (Bytes)": MEMORY, "Avg Forward Time (ms)": "avg_time_forward",
           "Avg. Backward Time (ms)": "avg_time_backward"}  # fmt: skip
_PYTHON = {f"{word} Time (ms)": f"{word.lower()}_time" for word in ("Avg", "P50", "P90", "P99")}
_NOTHING = "---"
_DOUBTFUL = " !"
_PRIVATE = ("machine", "variables", "sensors")
"""Facts of the environment that are not features of the software."""


class _Json:
    name = "opperf-json"
    summary = "MXNet opperf's results: times in ms and memory by operator and inputs"

    def files(self, results: Results) -> Mapping[str, str]:
        return {"opperf.json": json_text(lines(results))}


class _Markdown:
    name = "opperf-md"
    summary = "MXNet opperf's results as a table"

    def files(self, results: Results) -> Mapping[str, str]:
        found = lines(results)
        return {"opperf.md": markdown_text(found, profiler_of(results), results.environments)}


JSON = _Json()
MARKDOWN = _Markdown()


def document(found: Iterable[Line]) -> dict[str, list[dict[str, Any]]]:
    """Return results by operator, one for each set of inputs, as opperf returns and writes them."""
    whole: dict[str, list[dict[str, Any]]] = {}
    for line in found:
        whole.setdefault(line.name, []).append(line.result())
    return whole


def json_text(found: Iterable[Line]) -> str:
    return json.dumps(document(found), indent=4) + "\n"


def markdown_text(found: Sequence[Line], profiler: Profiler, environments: Mapping[str, Mapping[str, Any]]) -> str:
    titles = _titles(profiler)
    text = ["# Runtime Features", *_features(environments), "# Benchmark Results", _row(titles)]
    text.append(_row([":---:"] * (len(titles) - 1) + [":---"]))
    ordered = sorted(found, key=lambda line: line.name)
    for line in ordered:
        name, *others = map(str, _cells(line, titles))
        text.append(_row([name + _DOUBTFUL * bool(line.cautions), *others]))
    doubts = [(line, caution) for line in ordered for caution in line.cautions]
    if doubts:
        text += [f"# To Be Doubted ({_DOUBTFUL.strip()})", _row(("Operator", "Inputs", "Reason")), _row([":---"] * 3)]
        text += [_row([line.name, line.format_inputs(), _one_line(caution)]) for line, caution in doubts]
    failed = [(line, failure) for line in found for failure in line.failed]
    if failed:
        text += ["# Not Measured", _row(("Operator", "Inputs", "Phase", "Status", "Reason")), _row([":---"] * 5)]
        text += [_row([line.name, line.format_inputs(), *map(_one_line, failure.values())]) for line, failure in failed]
    return "\n".join(text) + "\n"


def csv_text(found: Sequence[Line], profiler: Profiler) -> str:
    """Write the columns of the Markdown table; cautions and failures are in the last two."""
    titles = _titles(profiler)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*titles, "To Be Doubted", "Not Measured"])
    for line in found:
        reasons = "; ".join(f"{f['phase']}: {f['status']}: {f['reason']}" for f in line.failed)
        writer.writerow([*_cells(line, titles), "; ".join(line.cautions), reasons])
    return text.getvalue()


def _titles(profiler: Profiler) -> list[str]:
    return ["Operator", *_PYTHON, "Inputs"] if profiler == "python" else ["Operator", "Inputs", *_NATIVE]


def _cells(line: Line, titles: Sequence[str]) -> list[Any]:
    return [_cell(line, title) for title in titles]


def _cell(line: Line, title: str) -> Any:
    if title == "Operator":
        return line.name
    if title == "Inputs":
        return line.format_inputs()
    start = (_NATIVE | _PYTHON)[title]
    if start == MEMORY and line.memory_resolution:
        return f"< {line.memory_resolution}"
    return next((value for key, value in line.numbers.items() if key.startswith(start)), _NOTHING)


def _features(environments: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the features as a list; as in MXNet, all are numbered 0."""
    found: dict[str, None] = {}
    for facts in environments.values():
        for key, value in facts.items():
            if key not in _PRIVATE and value is not None:
                found[f"0. {key.upper()} : {value}"] = None
    return list(found)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _one_line(text: Any) -> str:
    """Return a text as a cell of a table, without line breaks and bars."""
    return " ".join(str(text).split()).replace("|", "\\|")
