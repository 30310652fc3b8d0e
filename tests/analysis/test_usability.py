"""Which stage models reached."""

from __future__ import annotations

from typing import Any

from opmark.analysis.rows import rows_of_records
from opmark.analysis.usability import UsabilityRow, usability
from opmark.schema import EFFORTS, Case, Compilation, Record, Settings, Task, Verification

SETTINGS = Settings(1, "quick", EFFORTS["quick"], compile_only=True)
MADE = Compilation(1.0)


def line(backend: str, implementation: str, status: Any, op: str = "model:gone", **fields: Any) -> UsabilityRow:
    case = Case.of(op, {"batch": 1, "dtype": "float32"}, "forward")
    record = Record(Task(case, backend, implementation, SETTINGS), status, environment="e", **fields)
    (found,) = usability(rows_of_records([record]), {"e": {"variables": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}})
    return found


def answers(found: UsabilityRow) -> list[str]:
    return [found.exported, found.compiled, found.ran, found.right, found.stage, found.edits]


def test_a_model_that_ran_everywhere() -> None:
    checked = Verification("full")
    assert answers(line("torch-cpu", "torch", "ok", verification=checked)) == ["", "", "yes", "yes", "", "none"]
    found = line("onnxruntime-cpu", "onnx", "ok", verification=checked, compilation=MADE)
    assert answers(found) == ["yes", "yes", "yes", "yes", "", "none"]


def test_each_stage_may_be_the_last() -> None:
    onnx = "onnxruntime-cpu", "onnx"
    found = line(*onnx, "skipped", reason="no such operator\nand a page of addresses", stage="export")
    assert answers(found) == ["no", "", "", "", "export", ""]
    assert found.reason == "no such operator"
    assert answers(line(*onnx, "timeout", stage="compile")) == ["yes", "no", "", "", "compile", ""]
    assert answers(line(*onnx, "oom", stage="run")) == ["yes", "yes", "no", "", "run", ""]
    wrong = line(*onnx, "wrong", stage="verify", verification=Verification("full"))
    assert answers(wrong) == ["yes", "yes", "yes", "no", "verify", "none"]
    assert answers(line(*onnx, "error", stage="measure", verification=None))[2:5] == ["yes", "?", "measure"]


def test_what_was_not_tried_reached_nothing_and_what_is_unchecked_is_not_called_right() -> None:
    assert answers(line("onnxruntime-cpu", "onnx", "skipped", reason="no bfloat16")) == ["", "", "", "", "", ""]
    unchecked = line("torch-cpu", "torch", "unchecked", verification=Verification("none", "not asked for"))
    assert answers(unchecked)[2:4] == ["yes", "?"]


def test_variants_and_variables_are_special_options() -> None:
    found = line("torch-compile-cpu/max-autotune", "torch", "ok", compilation=MADE)
    assert found.options == "max-autotune ONEDNN_MAX_CPU_ISA=AVX2"


def test_operators_are_not_in_the_matrix() -> None:
    case = Case.of("add", {"shape": [2], "dtype": "float32"}, "forward")
    assert usability(rows_of_records([Record(Task(case, "torch-cpu", "torch", SETTINGS), "ok")]), {}) == []
