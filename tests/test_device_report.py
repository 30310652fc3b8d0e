"""The page of results of a device, on the device that is not there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks import device_report as script

import opmark
from opmark.store.sql import open_sql

FEW = {
    "schema": 1,
    "name": "few",
    "cases": [
        {"op": "matmul", "sizes": ["small"], "params": {"dtype": ["tfloat32", "float16"]}},
        {"op": "copy", "sizes": ["small"]},
    ],
}
Report = Callable[..., tuple[str, str]]


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Report:
    """Run the script with small cases; return (its page, the last line that it printed)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(script, "_TOP_QUANTITIES", ("device_time",))
    monkeypatch.setattr(script, "SPEED_SUITES", ("fused",))
    monkeypatch.setattr(script, "top_line_workload", lambda size: FEW)

    def run(*arguments: str, suites: str = "vision") -> tuple[str, str]:
        given = ["--backend", "null-device", "--size", "small", "--page", "page.md", "--suites", suites, *arguments]
        assert script.main(given) == 0
        return Path("page.md").read_text(), capsys.readouterr().out.splitlines()[-1]

    return run


def cells(page: str, first: str) -> list[str]:
    (line,) = (line for line in page.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_page_has_every_part_with_rates_and_how_to_repeat_it(report: Report) -> None:
    page, said = report("--sample", "3", "--budget", "300", suites="vision,fused")
    assert said == "wrote page.md"
    tasks = {name: cells(page, name)[1:3] for name in ("vision", "fused", "fused, all quantities")}
    assert tasks == {name: ["3", "3"] for name in tasks}
    assert float(cells(page, "vision")[6]) > 0  # per minute
    assert "TFLOP/s" in page
    assert "GB/s" in page
    assert "| gemm | float16 |" in page
    assert "--backend null-device --suites vision,fused --sample 3" in page
    # Products in tfloat32 are what this device cannot do: it is said once, with the reason.
    assert "| top-line | skipped |" in page


def test_a_second_call_goes_on_where_the_first_one_ended(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    later = iter(range(0, 10_000, 20))
    with monkeypatch.context() as patched:  # each look at the clock finds 20 s gone
        patched.setattr(script.time, "monotonic", lambda: next(later))
        page, said = report("--sample", "4", "--budget", "100")
    assert "not finished: top-line" in said
    page, said = report("--sample", "4", "--budget", "300")
    assert said == "wrote page.md"
    assert cells(page, "vision")[2] == "4"
    with closing(open_sql("device-report.db")) as store:
        labels = [run.label for run in store.runs()]
    assert sorted(labels) == ["top-line", "vision"]  # each part is one run


def test_a_backend_that_cannot_run_here_leaves_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert script.main(["--backend", "torch-hpu", "--suites", "vision", "--page", "page.md", "--size", "small"]) == 1
    assert "habana" in capsys.readouterr().err
    assert not Path("page.md").exists()


def test_a_backend_that_nobody_knows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--backend", "torch-cuad"]) == 2
    assert "torch-cuad" in capsys.readouterr().err


def test_failures_are_listed_once_for_each_reason() -> None:
    def row(status: str, reason: str) -> SimpleNamespace:
        return SimpleNamespace(
            failed=status in ("oom", "error"), status=status, reason=reason, name=f"add {reason[:5]}"
        )

    rows = [
        row("oom", "needs 3.2 GiB, 1.0 GiB are free"), row("oom", "needs 7 GiB, 2 GiB are free"), row("ok", ""),
        row("error", "a | b\na traceback"), row("skipped", "no tfloat32"),
    ]  # fmt: skip
    lines = list(script._failures({"llm": SimpleNamespace(rows=rows)}))  # type: ignore[dict-item]
    assert lines[5:] == [
        "| llm | oom | 2 | needs 3.2 GiB, 1.0 GiB are free | add needs |",
        r"| llm | error | 1 | a \| b | add a \| b |",
        "| llm | skipped | 1 | no tfloat32 | add no tf |",
    ]


@pytest.mark.parametrize("size", ["small", "typical", "large"])
def test_the_top_line_cases_exist(size: str) -> None:
    plan = opmark.plan(workload=script.top_line_workload(size), backend="torch-cuda", effort="quick")
    assert not plan.skipped
    ops = [task.case.op for task in plan.tasks]
    assert {"matmul", "quant_matmul", "copy", "scaled_dot_product_attention", "layer_norm", "conv2d"} <= {*ops}
    assert plan.tasks[-1].case.params["shape"] == [1024]
