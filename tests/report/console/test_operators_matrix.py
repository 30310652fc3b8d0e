"""Numbers of operators by category and backend."""

from __future__ import annotations

import io
import json
from typing import Any

from rich.console import Console

from opmark.api.coverage import matrix
from opmark.report.console.operators import matrix_text, matrix_view
from opmark.schema.coverage import ImplementedOperator, Matrix
from opmark.store.memory import MemoryStore

BACKENDS = {"torch-cpu": "torch", "torch-cuda": "torch", "openvino-cpu": "openvino", "numpy-cpu": "numpy"}
EVERY = {name: ["x"] for name in BACKENDS}
VERIFIED = {"torch-cpu": ["forward", "backward"], "numpy-cpu": ["forward"]}
FOUND = Matrix(
    BACKENDS,
    ["torch-cpu", "torch-cuda"],
    [
        ImplementedOperator("exp", "element-wise", True, EVERY, {}, VERIFIED),
        ImplementedOperator("sin", "element-wise", True, EVERY, {"openvino-cpu": "not in its opset"}),
        ImplementedOperator("argsort", "sorting", False, {"numpy-cpu": ["x"]}),
    ],
    3,
)  # fmt: skip


def cells(found: Matrix) -> dict[str, list[list[str]]]:
    """Rows by their first word, which `verified` is twice."""
    rows: dict[str, list[list[str]]] = {}
    for line in printed(found).splitlines():
        if line.strip():
            first, *rest = line.split()
            rows.setdefault(first, []).append(rest)
    return rows


def printed(found: Matrix, width: int = 300) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(matrix_text(found))
    return out.getvalue()


def test_operators_are_counted_by_category_and_backend() -> None:
    rows = cells(FOUND)
    assert rows["category"] == [["all", "torch", "openvino", "numpy"]]
    assert rows["element-wise"] == [["2", "2", "1", "2"]], "what an engine does not take does not count"
    assert rows["sorting"] == [["1", "-", "-", "1"]]
    assert rows["forward"] == [["3", "2", "1", "3"]]
    assert rows["backward"] == [["2", "2", "-", "-"]]


def test_what_stored_runs_verified_stands_below_each_phase() -> None:
    assert cells(FOUND)["verified"] == [["1", "-", "1"], ["1", "-", "-"]]
    assert "verified: in 3 stored runs" in printed(FOUND)
    without = Matrix(BACKENDS, [], [])
    assert "verified" not in cells(without)
    assert "no stored runs" in printed(without)


def test_a_column_names_its_backends() -> None:
    assert "columns: torch (cpu, cuda), openvino (cpu), numpy (cpu)" in printed(FOUND)


def test_devices_that_have_other_operators_have_columns_of_their_own() -> None:
    fewer = [
        ImplementedOperator("exp", "element-wise", True, {name: ["x"] for name in BACKENDS if name != "torch-cuda"})
    ]
    head = " ".join(printed(Matrix(BACKENDS, [], fewer)).split("category")[0].split())
    assert head == "torch- torch-", "a head breaks at its hyphens"
    assert cells(Matrix(BACKENDS, [], fewer))["element-wise"] == [["1", "1", "-", "1", "1"]]


def test_every_operator_with_its_backends_is_in_the_data() -> None:
    seen: dict[str, Any] = json.loads(json.dumps(matrix_view(FOUND)))
    assert (seen["operators"], seen["runs"]) == (3, 3)
    assert seen["backends"]["openvino-cpu"] == {
        "forward": 1, "backward": 0, "verified_forward": 0, "verified_backward": 0,
    }  # fmt: skip
    assert [one["op"] for one in seen["details"]] == ["exp", "sin", "argsort"]
    assert seen["details"][1]["lacks"] == {"openvino-cpu": "not in its opset"}
    assert seen["details"][2]["backends"] == {"numpy-cpu": ["x"]}


def test_the_whole_catalogue_fits_a_terminal() -> None:
    text = printed(matrix(MemoryStore()), 100)
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
