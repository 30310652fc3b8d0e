"""Results that ByteMLPerf wrote, in both of its spellings, beside one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opmark.errors import UserError
from opmark.interop.general_perf.pictures import load_charts
from opmark.interop.general_perf.results import read_results, results_of

STC: dict[str, Any] = {
    "Model": "BERT-TORCH-FP32", "Backend": "STC", "Dataset": "OPEN_SQUAD",
    "Graph Compile": {"Compile Duration": 448.5, "Compile Precision": "fp16", "Subgraph Coverage": 99.76},
    "Accuracy": {"Data Percent": 100, "Exact Match": 78.99742, "F1 Score": 86.14194},
    "Performance": [{"BS": 2, "AVG_Latency": 19.67, "P99_Latency": 21.42, "QPS": 813.86}],
}  # fmt: skip
IPU: dict[str, Any] = {
    "Model": "BERT-TF-FP32", "Backend": "IPU", "Execution Date": "2023-05-01 10:00:00",
    "Performance": [{"BS": 4, "QPS": 1052, "AVG Latency": 3.8, "P99 Latency": 3.88}],
}  # fmt: skip


def write(folder: Path, name: str, data: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path


def test_a_folder_of_results_in_both_spellings(tmp_path: Path) -> None:
    write(tmp_path, "STC/bert-torch-fp32/result.json", STC)
    write(tmp_path, "IPU/bert-tf-fp32/result-fp16.json", IPU)
    write(tmp_path, "IPU/roformer-tf-fp32.json", {**IPU, "Model": "ROFORMER-TF-FP32"})
    write(tmp_path, "other.json", {"questions": []})
    found = results_of("bert-torch-fp32", read_results([tmp_path]))
    assert [(one["Machine"], one["Precision"], one["Date"]) for one in found] == [
        ("IPU", None, "2023-05-01"),
        ("STC", "fp16", ""),
    ]
    (line,) = found[1]["Performance"]
    assert (line["BS"], line["QPS"], line["AVG Latency"], line["P99 Latency"]) == (2, 813.86, 19.67, 21.42)
    assert line["In Flight"] == pytest.approx(8.0, abs=0.01)
    assert any("divides by the number of features" in note for note in found[1]["Notes"])


def test_results_are_dashed_lines_beside_the_own_ones(tmp_path: Path) -> None:
    results = read_results([write(tmp_path, "result.json", STC)])
    throughput, latency = load_charts("bert", [], results)
    (series,) = throughput.series
    assert series.stated
    assert "STC" in series.name
    assert series.marks[0].y == 813.86
    assert latency.series[0].marks[0].y == pytest.approx(0.01967)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "expected a result of ByteMLPerf"),
        ({"Model": "X", "Performance": {}}, "expected a result of ByteMLPerf"),
        ({"Model": "X", "Performance": [3]}, r"Performance\[0\]: expected an object"),
        ({"Model": "X", "Performance": [{"BS": 1, "QPS": "fast"}]}, "expected a number as `QPS`, got `fast`"),
        ({"Model": "X", "Performance": [{"QPS": 3}]}, "expected a number as `BS`"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path: Path, data: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_results([write(tmp_path, "result.json", data)])


def test_a_place_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file or folder"):
        read_results([tmp_path / "nowhere"])
    with pytest.raises(UserError, match="is a result of ByteMLPerf"):
        read_results([tmp_path])
