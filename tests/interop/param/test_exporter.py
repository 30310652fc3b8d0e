"""A stored run as PARAM's result file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import opmark
from opmark.api.export import export
from opmark.interop.param.exporter import DEFAULT_OPTIONS, OPTIONS, PARAM, problem_line
from opmark.schema import Case, ImportProblem

FLOATS = {"type": "tensor", "dtype": "float", "shape": [8, 8]}


def exported(**asked: Any) -> list[dict[str, Any]]:
    result = opmark.run(backend="null", processes=1, threads=1, db=":memory:", **asked)
    ((name, text),) = PARAM.files(result.results()).items()
    assert name == f"benchmark_result_{result.run.id}.json"
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    inputs = [{"args": [FLOATS, {"type": "int", "value": value}]} for value in (1, 2, 1)]
    return {"torch.add": {"input_data_generator": "PyTorch:DefaultDataGenerator", "config": [{"input": inputs}]}}


def test_a_run_of_a_param_config_gets_its_ids_and_specs_back(config: dict[str, Any]) -> None:
    header, *cases, end = exported(workload=config, warmup=1, samples=2, mode="discrete")
    assert [line["id"] for line in cases] == ["0|0|0", "0|0|1", "0|0|2"]
    assert [line["config"]["input"] for line in cases] == config["torch.add"]["config"][0]["input"]
    assert all(len(line["metric"]["forward"]["measure.time"]) == 2 for line in cases)
    assert (header["run_options"]["warmup"], header["run_options"]["iteration"]) == (1, 2)
    assert list(end) == ["finish_time"]


def test_the_command_and_the_export_write_the_same_lines(config: dict[str, Any], tmp_path: Path) -> None:
    from opmark.interop.param.command import main

    (tmp_path / "c.json").write_text(json.dumps(config))
    db, prefix = str(tmp_path / "x.db"), str(tmp_path / "out")
    assert main(["-c", str(tmp_path / "c.json"), "-d", "null", "-i", "3", "--db", db, "-a", "-o", prefix]) == 0
    written = [json.loads(line) for line in (tmp_path / "out.json").read_text().splitlines()]
    ((_, text),) = export(format="param", db=db).items()
    assert [json.loads(line) for line in text.splitlines()][1:-1] == written[1:-1]


def test_other_runs_are_counted_by_operator() -> None:
    _, *cases, _ = exported(ops=["add", "exp"], params={"shape": [[4], [8]]}, effort="quick")
    places = [(line["op_name"], line["id"]) for line in cases]
    assert places == [("add", "0|0|0"), ("add", "0|0|1"), ("exp", "0|0|0"), ("exp", "0|0|1")]
    assert cases[0]["config"]["build"] is None
    assert cases[0]["config"]["input"]["params"]["shape"] == [4]


def test_a_callable_is_echoed_in_param_s_notation() -> None:
    _, line, _ = exported(ops=["torch.add"], args=["8x8 float32 0..1", 2], effort="quick")
    assert line["config"]["input"] == {"args": [FLOATS, {"type": "int", "value": 2}]}


def test_a_case_that_param_cannot_express_is_echoed_with_parameters() -> None:
    _, line, _ = exported(ops=["torch.zeros"], args=[[4]], kwargs={"dtype": {"dtype": "float16"}}, effort="quick")
    assert line["config"]["input"]["params"]["kwargs"] == {"dtype": {"dtype": "float16"}}


def test_both_phases_are_one_line_and_processes_are_joined() -> None:
    result = opmark.run("add", params={"shape": [4]}, phase=["forward", "backward", "both"], backend="null",
                        processes=2, threads=1, warmup=1, samples=3, db=":memory:")  # fmt: skip
    ((_, text),) = PARAM.files(result.results()).items()
    _, line, _ = (json.loads(part) for part in text.splitlines())
    assert list(line["metric"]) == ["forward", "backward", "forward_backward"]
    assert all(len(metric["measure.time"]) == 6 for metric in line["metric"].values())


def test_the_run_options_alone() -> None:
    result = opmark.run("add", params={"shape": [4]}, backend="null", processes=1, threads=1, warmup=2, samples=3,
                        cache="cold", db=":memory:")  # fmt: skip
    ((name, text),) = OPTIONS.files(result.results()).items()
    options = json.loads(text)
    assert name == "run_options.json"
    assert list(options) == list(DEFAULT_OPTIONS)
    assert (options["warmup"], options["iteration"], options["cuda_l2_cache"]) == (2, 3, False)
    assert options["device"] == "null"


def test_a_failure_has_no_metric_and_says_why() -> None:
    result = opmark.run("add", params={"shape": [4]}, backend="null", processes=1, threads=1, effort="quick",
                        db=":memory:")  # fmt: skip
    results = result.results()
    failed = replace(results.records[0], status="oom", reason="too large", measurements=(), memory=None)
    ((_, text),) = PARAM.files(results._replace(records=[failed])).items()
    line = json.loads(text.splitlines()[1])
    assert line["metric"] == {}
    assert line["error"] == {"status": "oom", "phase": "forward", "reason": "too large"}
    assert line["opmark"]["forward"]["status"] == "oom"


def test_a_part_that_was_not_imported_names_its_place() -> None:
    line = problem_line(ImportProblem("c.json: torch.mm|0|0|3", "expected a type", "did you mean tensor?"))
    assert (line["op_name"], line["id"], line["metric"]) == ("torch.mm", "0|0|3", {})
    assert line["error"]["reason"] == "expected a type"
    assert problem_line(ImportProblem("c.json: $.x", "?"))["op_name"] is None
    at = problem_line(ImportProblem('a: b.json: $["torch.\\"add"].config[0].input[1].args', "?"))
    assert (at["op_name"], at["id"]) == ('torch."add', None)


def test_gradients_that_differ_are_lines_that_differ() -> None:
    """The records of both choices are made here, because the null backend has no gradients."""
    result = opmark.run("torch.add", args=["8x8 float32", "8x8 float32"], backend="null", processes=1, threads=1,
                        warmup=1, samples=2, db=":memory:")  # fmt: skip
    results = result.results()
    (forward,) = results.records

    def record(phase: Any, wrt: tuple[str, ...], milliseconds: float, *sources: str) -> Any:
        case = Case.of(forward.task.case.op, forward.task.case.params, phase, wrt=wrt, sources=sources)
        measured = replace(forward.measurements[0], samples=(milliseconds / 1e3,))
        return replace(forward, task=replace(forward.task, case=case), measurements=(measured,))

    def text_of(*records: Any) -> str:
        ((_, text),) = PARAM.files(results._replace(records=list(records))).items()
        return text

    def times(*records: Any) -> list[tuple[str, dict[str, float]]]:
        lines = [json.loads(part) for part in text_of(*records).splitlines()][1:-1]
        return [(x["id"], {phase: m["measure.time"][0] for phase, m in x["metric"].items()}) for x in lines]

    first, second = "c.json#torch.add|0|0|0", "c.json#torch.add|0|0|1"
    expected = [
        ("0|0|0", {"forward": 1.0, "backward": 2.0}), ("0|0|1", {"forward": 1.0, "backward": 3.0}),
    ]  # fmt: skip
    ours = (record("forward", (), 1), record("backward", (), 2), record("backward", ("args.0",), 3))
    assert times(*ours) == expected
    _, _, second_line, _ = (json.loads(part) for part in text_of(*ours).splitlines())
    assert [arg.get("requires_grad") for arg in second_line["config"]["input"]["args"]] == [None, False]
    ours = (record("forward", (), 1, first, second), record("backward", (), 2, first),
            record("backward", ("args.0",), 3, second))  # fmt: skip
    assert times(*ours) == expected
