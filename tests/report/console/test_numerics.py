"""Tables of errors against the reference."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from rich.console import Console

from opmark.analysis.rows import rows_of_records
from opmark.report.console.numerics import print_numerics
from opmark.report.row_view import row_view
from opmark.schema import Numerics, Record, Verification

MakeRecord = Callable[..., Record]

NEAR = Numerics(8, 8, 0, 0, 0, 0, max_abs=1.5e-6, mean_abs=5e-7, max_rel=0.0, cosine=1 - 2**-40, max_ulp=3.0)
NOTHING = Numerics(8, 0, 8, 0, 2, 6)
"""Every element is NaN here or not finite in the reference: nothing can be told of errors."""


def drawn(records: Sequence[Record], width: int = 1000) -> list[str]:
    out = io.StringIO()
    print_numerics(records, Console(file=out, width=width, force_terminal=width < 1000, color_system=None))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line)


@pytest.fixture
def checked(make_record: MakeRecord) -> Callable[..., Record]:
    def make(backend: str, *numerics: Numerics, **fields: Any) -> Record:
        check = Verification("full", numerics=numerics)
        return make_record(backend=backend, implementation="", verification=check, **fields)

    return make


Checked = Callable[..., Record]


def test_a_case_has_a_row_a_backend(checked: Checked) -> None:
    title, head, first, second, *_ = drawn([checked("torch-cpu", NEAR), checked("numpy-cpu", NEAR)])
    assert title == "matmul M=256 N=128 K=64 float32 forward"
    assert cells(head) == ["backend", "max abs", "mean abs", "RMSE", "max rel", "1-cosine", "max ulp", "NaN", "Inf", "checked", "status"]  # fmt: skip # noqa: E501
    assert cells(first) == [
        "torch-cpu ×2",
        "1.5e-06",
        "5e-07",
        "-",
        "0",
        "9.1e-13",
        "3",
        "0 / 0",
        "0 / 0",
        "full",
        "ok",
    ]
    assert cells(second)[0] == "numpy-cpu ×2"


def test_what_is_not_known_is_no_zero(checked: Checked) -> None:
    row = drawn([checked("torch-cpu", NOTHING)])[2]
    assert cells(row)[1:9] == ["-", "-", "-", "-", "-", "-", "8 / 2", "0 / 6"]


def test_in_json_it_is_null(checked: Checked) -> None:
    seen = json.loads(msgspec.json.encode(row_view(rows_of_records([checked("torch-cpu", NOTHING)])[0])))
    (found,) = seen["verification"]["numerics"]
    assert [found[name] for name in ("max_abs", "mean_abs", "max_rel", "mean_rel", "cosine", "max_ulp")] == [None] * 6
    assert (found["nan"], found["nan_expected"], found["inf"], found["inf_expected"]) == (8, 2, 0, 6)


def test_of_a_wrong_result_it_is_told_how_wrong(checked: Checked) -> None:
    far = msgspec.structs.replace(NEAR, max_abs=12.5)
    row = drawn([checked("torch-cpu", far, status="wrong", reason="far off")])[2]
    assert (cells(row)[1], cells(row)[-1]) == ("12", "wrong")


def test_every_output_has_a_row(checked: Checked) -> None:
    _, head, first, second, *_ = drawn([checked("torch-cpu", NEAR, NOTHING)])
    assert cells(head)[:3] == ["backend", "output", "max abs"]
    assert [cells(line)[1] for line in (first, second)] == ["0", "1"]


def test_a_gradient_without_a_reference_has_what_its_check_says(make_record: MakeRecord) -> None:
    check = Verification("full", max_abs_error=1e-3, max_rel_error=2e-4)
    row = drawn([make_record(phase="backward", verification=check)])[2]
    assert cells(row)[1:6] == ["along random directions", "0.001", "-", "-", "0.0002"]


def test_what_was_not_checked_is_counted(checked: Checked, make_record: MakeRecord) -> None:
    records = [checked("torch-cpu", NEAR), make_record(backend="numpy-cpu", status="skipped", reason="no")]
    records.append(make_record(verification=Verification("none", "not asked for")))
    assert drawn(records)[-1] == "2 tasks of 3 without: skipped, failed or not verified"


def test_nine_backends_fit_a_terminal(checked: Checked) -> None:
    lines = drawn([checked("onnxruntime-cpu", NEAR), checked("torch-cpu", NOTHING)], width=100)
    assert max(map(len, lines)) <= 100
    assert len([line for line in lines if line.startswith(("onnxruntime-cpu ×2", "torch-cpu ×2"))]) == 2


def test_outputs_with_bounds_of_their_own_have_names_and_verdicts(make_record: MakeRecord) -> None:
    near = msgspec.structs.replace(NEAR, rms=1.0, rmse=6e-7, histogram=(0,) * 6 + (8,) + (0,) * 9)
    check = Verification("full", numerics=(near, near), outputs=("boxes", "scores"), bounds=(1e-5, 1e-6))
    _, head, first, second, *_ = drawn([make_record(verification=check, status="wrong")])
    assert cells(head)[-5:] == ["errors", "bound", "verdict", "checked", "status"]
    assert cells(first)[1:5] == ["boxes", "1.5e-06", "5e-07", "6e-07"]
    assert cells(first)[-5:-2] == ["......█.........", "1e-05 rms", "PASS"]
    assert (cells(second)[1], cells(second)[-3]) == ("scores", "FAIL")
