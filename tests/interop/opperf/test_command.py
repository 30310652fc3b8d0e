"""opmark opperf: its options, its file, its list at the end."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opperf_runs import PREEMPTED, without_workers
from typer.testing import CliRunner

from opmark.api.show import show
from opmark.catalogue.workload_file import suite
from opmark.cli.app import make_app
from opmark.errors import UnknownName, UserError
from opmark.interop.opperf import command, measurement
from opmark.interop.opperf.command import main
from opmark.interop.opperf.exporter import names_of
from opmark.interop.opperf.operators import CATEGORIES
from opmark.interop.opperf.performance import SuiteRequest, operators_without_benchmark, part_of_suite
from opmark.schema.record import Memory

QUICK = ["--framework", "null", "-w", "0", "-r", "2"]


def test_a_category_in_the_native_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    assert main(["--ctx", "cpu", "--category", "gemm", "-f", "json", "-o", str(file), *QUICK]) == 0
    found = json.loads(file.read_text())
    assert set(found) == {"dot", "batch_dot", "khatri_rao"}
    assert {"inputs", "avg_time_forward_dot", "avg_time_backward_dot"} <= set(found["dot"][0])
    out, err = capsys.readouterr()
    assert out == ""  # operators without a benchmark are listed for the whole suite only
    assert "stored as run" in err
    assert "to be doubted" not in err
    assert f"to {file}" in err
    assert len(show().records) == 20


def test_a_run_that_waits_for_its_store_is_not_called_stored(
    tmp_path: Path, waiting: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--ctx", "cpu", "--op", "dot", "-f", "json", "-o", str(tmp_path / "out.json"), *QUICK]) == 1
    assert f"kept in the journal {waiting}" in capsys.readouterr().err


def test_a_run_of_everything_lists_operators_without_benchmark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_workers(monkeypatch, PREEMPTED)
    file = tmp_path / "out.json"
    assert main(["-o", str(file), "--threads", "1", *QUICK]) == 0
    out, err = capsys.readouterr()
    title, listed = out.splitlines()
    assert title == "Operators not covered by benchmarks:"
    assert ast.literal_eval(listed) == operators_without_benchmark()
    found = json.loads(file.read_text())
    assert set(found) >= {name for names in CATEGORIES.values() for name in names}
    count = sum(map(len, found.values()))
    assert f"wrote {count} results of {len(found)} operators" in err
    assert re.search(rf"{count} results to be doubted: preempted; .*; `opmark show \S+` shows details\n", err)
    assert re.search(r"\d+ cases measured; some have several names in opperf", err)


def test_threads_go_to_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = without_workers(monkeypatch)
    assert main(["--op", "exp", "--threads", "1", "-o", str(tmp_path / "a.json"), *QUICK]) == 0
    assert main(["--op", "exp", "-o", str(tmp_path / "b.json"), *QUICK]) == 0
    assert [one["threads"] for one in asked] == [1, ()]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--op", "elemwise_add"], {"elemwise_add"}),
        (["--op", "elemwise_add,broadcast_add"], {"elemwise_add", "broadcast_add"}),
        (["--op", "add"], {"elemwise_add", "broadcast_add", "broadcast_plus"}),
        (["--op", "elemwise_*"], {"elemwise_add", "elemwise_sub", "elemwise_mul", "elemwise_div"}),
        (["--op", "add", "--category", "binary-elementwise"], {"elemwise_add"}),
        (["--op", "conv_transpose2d"], {"Deconvolution"}),
        (["--op", "broadcast_to"], {"broadcast_to"}),
        (["--op", "iadd"], {"iadd"}),
    ],
)
def test_names_of_opperf_select_one_and_names_of_opmark_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], names: set[str]
) -> None:
    without_workers(monkeypatch)
    assert main([*arguments, "-o", str(tmp_path / "out.json"), *QUICK]) == 0
    assert set(json.loads((tmp_path / "out.json").read_text())) == names


def test_refused_operators_are_listed_under_the_selected_names() -> None:
    part = part_of_suite(SuiteRequest(dtype="bool", ops=["elemwise_add"]))
    assert {line.name for line in part.refused} == {"elemwise_add"}


def test_the_profiler_python_has_percentiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_workers(monkeypatch)
    file = tmp_path / "out.json"
    assert main(["--op", "broadcast_add,argmax", "-p", "python", "-o", str(file), *QUICK]) == 0
    found = json.loads(file.read_text())
    names = {f"{p}_time_broadcast_add" for p in ("avg", "p50", "p90", "p99")}
    assert set(found["broadcast_add"][0]) - {"cautions"} == names | {"inputs"}
    assert "p99_time_argmax" in found["argmax"][0]


@pytest.mark.parametrize("form", ["md", "csv"])
def test_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str) -> None:
    without_workers(monkeypatch)
    file = tmp_path / f"out.{form}"
    assert main(["--op", "smooth_l1", "-f", form, "-o", str(file), *QUICK]) == 0
    lines = file.read_text().splitlines()
    assert sum("smooth_l1" in line for line in lines) == 3
    assert any("Avg. Backward Time (ms)" in line for line in lines)


def test_another_element_type_and_what_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_workers(monkeypatch)
    file = tmp_path / "out.json"
    assert main(["--op", "broadcast_add,exp,one_hot", "--dtype", "int32", "-o", str(file), *QUICK]) == 0
    found = json.loads(file.read_text())
    assert found["broadcast_add"][0]["inputs"]["dtype"] == "int32"
    assert "avg_time_backward_broadcast_add" not in found["broadcast_add"][0]
    assert "avg_time_forward_one_hot" in found["one_hot"][0]  # its indices are integers anyway
    assert found["exp"][0]["failed"][0]["status"] == "skipped"
    assert "expected one of float64" in found["exp"][0]["failed"][0]["reason"]
    assert "exp" in capsys.readouterr().err


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        main(["-o", str(file), *QUICK])
    assert file.read_text() == "mine"
    with pytest.raises(UserError, match="is not a folder"):
        main(["-o", str(tmp_path / "no" / "out.json"), *QUICK])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--framework", "tensorflow", "--ctx", "gpu"], "no backend runs tensorflow on a gpu"),
        (["--ctx", "tpu"], "ctx: expected cpu, gpu"),
        (["--dtype", "float31"], "no data type named `float31`"),
        (["--category", "gem"], "no category of opperf named `gem`"),
        (["--op", "nonsense"], "no operator for nonsense"),
        (["--op", "exp", "--framework", "null", "-r", "0"], "samples: expected a whole number"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        main([*arguments, "-o", str(tmp_path / "out.json")])
    assert not (tmp_path / "out.json").exists()


def test_through_the_command_line(tmp_path: Path) -> None:
    runner = CliRunner()
    result = runner.invoke(make_app(), ["opperf", "--op", "erf", "-o", str(tmp_path / "x.json"), *QUICK])
    assert result.exit_code == 0
    assert runner.invoke(make_app(), ["opperf", "--list"]).output.startswith("unary: abs")
    assert "--int64-tensor" in runner.invoke(make_app(), ["opperf", "-h"]).output


def test_interrupted_it_is_stored_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from opmark.interop.opperf import command as progress

    advance = progress.ProgressLine.advance
    seen: list[str] = []

    def stop(self: progress.ProgressLine, record: object) -> None:
        advance(self, record)  # type: ignore[arg-type]
        seen.append("one")
        if len(seen) == 3:
            raise KeyboardInterrupt

    file = tmp_path / "out.json"
    arguments = ["--category", "gemm", "-o", str(file), *QUICK]
    with monkeypatch.context() as patch:
        patch.setattr(progress.ProgressLine, "advance", stop)
        assert main(arguments) == 130
    err = capsys.readouterr().err
    assert "interrupted; 3 of 20 are measured; the same command with --resume goes on" in err
    assert "\nstored as run " in err
    assert not file.exists()
    assert len(show().records) == 3
    assert main([*arguments, "--resume"]) == 0
    assert len(show().records) == 20
    assert len(json.loads(file.read_text())["dot"]) == 4


def test_large_tensors_have_enough_elements_or_say_why_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measurement.os, "sysconf", lambda name: 2**30)  # an exbibyte
    part = part_of_suite(SuiteRequest(large=True, ops=["exp", "broadcast_add", "linalg_det"]))
    (exp,) = [entry for entry in part.entries if entry.op == "exp"]
    rows, columns = exp.params["shape"]
    assert rows * columns >= 2**32
    assert all("2**32" in line.failed[0]["reason"] for line in part.refused)
    monkeypatch.setattr(measurement.os, "sysconf", lambda name: 2**15)  # a gibibyte
    file = tmp_path / "out.json"
    assert main(["--op", "exp", "--int64-tensor", "ON", "-o", str(file), *QUICK]) == 1
    failures = json.loads(file.read_text())["exp"][0]["failed"]
    assert {f["status"] for f in failures} == {"oom"}
    assert "needs 64.0 GiB" in failures[0]["reason"]


def test_memory_is_in_bytes_or_as_opperf_writes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for unit, options in (("bytes", []), ("kB", ["--memory-unit", "kB"])):
        without_workers(monkeypatch, memory=Memory(4_194_304, 0, "allocator", 1))
        file = tmp_path / f"{unit}.json"
        assert main(["--op", "exp", "-o", str(file), "--threads", "1", *options, *QUICK]) == 0
        assert ("--memory-unit kB does so too" in capsys.readouterr().err) == (unit == "bytes")
        found[unit] = json.loads(file.read_text())["exp"][0]
    assert found["bytes"]["max_storage_mem_alloc_cpu/0"] == 4_194_304
    assert found["kB"]["max_storage_mem_alloc_cpu/0"] == 4194.304
    assert found["kB"]["memory_unit"] == "kB"
    assert "memory_unit" not in found["bytes"]


def test_a_long_reason_is_one_short_line_and_whole_in_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "RuntimeError: " + "x" * 10_000 + "\n" + "trace\n" * 5_000
    without_workers(monkeypatch, error=reason)
    file = tmp_path / "out.json"
    assert main(["--op", "dot", "-o", str(file), *QUICK]) == 1
    lines = capsys.readouterr().err.splitlines()
    failures = [line for line in lines if "RuntimeError" in line]
    assert len(failures) == 8
    assert all(len(line) < 400 and line.endswith(" more characters are in the record)") for line in failures)
    assert "trace" not in lines
    assert json.loads(file.read_text())["dot"][0]["failed"][0]["reason"] == reason


@given(st.text())
def test_a_brief_reason_is_one_line_that_counts_the_rest(reason: str) -> None:
    brief = measurement.brief_reason(reason)
    assert "\n" not in brief
    assert len(brief) <= 260
    shown, _, rest = brief.rpartition(" ... (")
    if rest.endswith(" more characters are in the record)") and shown in reason:
        assert len(shown) + int(rest.partition(" ")[0]) == len(reason.strip())
    else:
        assert brief == reason.strip()


def test_the_suite_by_categories_and_names() -> None:
    part = part_of_suite(SuiteRequest(categories=["convolution"]))
    assert {entry.op for entry in part.entries} == {"conv1d", "conv2d"}
    with pytest.raises(UnknownName):
        part_of_suite(SuiteRequest(categories=["none"]))
    assert "exp" not in operators_without_benchmark()
    assert "Custom" in operators_without_benchmark()
    assert command._split(["a,b", "c"]) == ["a", "b", "c"]


def test_every_operator_of_every_category_is_in_the_suite() -> None:
    there = {name for entry in suite("opperf").cases for name in names_of(entry.op, [entry.source])}
    for category, names in CATEGORIES.items():
        assert set(names) <= there, category


def test_the_help_says_whose_inputs_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "with the inputs of the suite `opperf`" in text
    assert "default inputs" not in text
