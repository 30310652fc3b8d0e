"""Reads results that ByteMLPerf wrote: `reports/HARDWARE/TASK/result*.json` of vendors, shown beside one's own.

Its vendors spell keys in two ways (`AVG Latency`, `AVG_Latency`), and leave some out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opmark.catalogue.workload_file import read_plain
from opmark.errors import InvalidFile, UserError
from opmark.interop.general_perf import tasks
from opmark.interop.general_perf.report import ACCURACY_NOTES

_NUMBERS = ("BS", "QPS", "AVG Latency", "P99 Latency")
_NOTE = (
    "ByteMLPerf's P99 Latency is the largest of 100 samples on most backends. In Flight is QPS · AVG Latency / BS: as "
    "many requests were under way at the same time, whatever `clients` says."
)


def read_results(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the results in files and below folders, in the form of reference results; UserError where there are
    none."""
    found = []
    for path in paths:
        if not path.exists():
            raise UserError(f"--results: there is no file or folder {path}", "as in --results reports/STC")
        results = [_read(one) for one in _files(path)]
        if not results:
            raise UserError(f"--results: no file below {path} is a result of ByteMLPerf",
                            "it has reports/HARDWARE/TASK/result*.json")  # fmt: skip
        found += results
    return found


def results_of(task: str, results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the results of the model of a task, in whatever framework and precision they were measured."""
    return [one for one in results if _model(one["Task"]) == _model(task)]


def _model(task: str) -> str:
    try:
        return tasks.take_apart(task).model
    except UserError:
        return task.lower()


def _files(path: Path) -> Iterator[Path]:
    """Yield a file that is named, or those below a folder that look like results."""
    if path.is_file():
        yield path
        return
    for file in sorted(path.rglob("*.json")):
        data = read_plain(file).data
        if isinstance(data, dict) and {"Model", "Performance"} <= data.keys():
            yield file


def _read(path: Path) -> dict[str, Any]:
    data = read_plain(path).data
    if not isinstance(data, dict) or not isinstance(data.get("Model"), str) or not isinstance(
        data.get("Performance", []), list
    ):  # fmt: skip
        raise InvalidFile(
            f"{path}: expected a result of ByteMLPerf, which has `Model`, `Backend` and a list `Performance`",
            "as its reports/HARDWARE/TASK/result*.json",
        )
    compiled = data.get("Graph Compile")
    own = "Runs" in data  # written by opmark, whose figures are what their names say
    accuracy_note = filter(None, [ACCURACY_NOTES.get(str(data.get("Dataset") or "").lower())])
    return {
        "Task": data["Model"].lower(),
        "Machine": str(data.get("Backend") or path.parent.parent.name),
        "Backend": str(data.get("Backend") or ""),
        "Precision": compiled.get("Compile Precision") if isinstance(compiled, dict) else None,
        "Date": str(data.get("Execution Date") or "")[:10],
        "Source": str(path),
        "Accuracy": data.get("Accuracy") or {},
        "Notes": [] if own else [_NOTE, *accuracy_note],
        "Performance": [_line(one, f"{path}: $.Performance[{i}]") for i, one in enumerate(data.get("Performance", []))],
    }


def _line(line: Any, where: str) -> dict[str, Any]:
    """Return a line of `Performance` with the keys as general_perf itself writes them."""
    if not isinstance(line, dict):
        raise InvalidFile(f"{where}: expected an object, got `{line}`", "as in {'BS': 4, 'QPS': 100, ...}")
    plain = {key.replace("_", " "): value for key, value in line.items()}
    found: dict[str, Any] = {}
    for key in _NUMBERS:
        value = plain.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float | None) or (key == "BS" and not value):
            raise InvalidFile(f"{where}: expected a number as `{key}`, got `{value}`")
        found[key] = value
    flight = None
    if found["QPS"] and found["AVG Latency"]:
        flight = round(found["QPS"] * found["AVG Latency"] * 1e-3 / found["BS"], 2)
    return {**found, "In Flight": flight, "Clients": plain.get("Clients")}
