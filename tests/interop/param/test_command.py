"""`opmark param`: its result file, its exit code, its output."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from param_runs import ADD, GENERATOR, IDS, THREE, Command, Ran, lines_of, number, op, tensor

import opmark
from opmark.api.export import export
from opmark.errors import UserError
from opmark.interop.param.command import main
from opmark.interop.param.exporter import DEFAULT_OPTIONS
from opmark.interop.param.options import ParamOptions
from opmark.interop.param.results import CaseResult, ParamLog, RecordsInOrder, read
from opmark.runner.plan import Plan
from opmark.schema import Record, Run, Task


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


# One line as PARAM documents it: the keys, their order, their types.
LITERAL = """{"op_name": "torch.add", "id": "0|0|0", "metric": {"forward": {"warmup.time": [8.570132],
"warmup.gpu.memory": [0], "measure.time": [0.243317], "measure.gpu.memory": [0]}}, "config": {"build": null, "input":
{"args": [{"dtype": "float", "shape": [256, 256], "type": "tensor"}, {"dtype": "float", "shape": [256, 256],
"type": "tensor"}]}}}"""


def shape(value: Any) -> Any:
    """Return the structure of JSON: keys in their order, types in place of numbers."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else type(value).__name__.replace("int", "float")


def test_a_line_is_one_of_param_with_opmark_behind_it(command: Command) -> None:
    ran = command(ADD)
    expected, (line,) = json.loads(LITERAL), ran.cases
    assert list(line) == [*expected, "opmark"]
    assert list(line["metric"]["forward"]) == list(expected["metric"]["forward"])
    assert shape(line["metric"]) == shape(expected["metric"])
    assert line["config"] == expected["config"]
    assert (line["op_name"], line["id"]) == (expected["op_name"], expected["id"])
    assert line["opmark"]["source"] == "config.json#torch.add|0|0|0"
    assert line["opmark"]["forward"]["cautions"] == ["1 sample, so that the spread is unknown; use -i 50"]


def test_a_run_that_waits_for_its_store_is_not_called_stored(command: Command, waiting: Path) -> None:
    assert command(ADD).code == 1


def test_header_cases_end(command: Command) -> None:
    ran = command(THREE, "-w", "2", "-i", "3")
    assert ran.code == 0
    assert list(ran.lines[0])[:3] == ["run_options", "sys_info", "start_time"]
    assert list(ran.lines[-1]) == ["finish_time"]
    assert ran.ids == IDS
    assert re.fullmatch(r"out_\d+_\d+\.json", ran.file.name)
    options = ran.header["run_options"]
    assert set(options) == set(DEFAULT_OPTIONS)
    assert (options["warmup"], options["iteration"], options["time_unit"]) == (2, 3, "millisecond")
    assert options["pass_type"] == "ExecutionPass.FORWARD"
    assert options["op_exec_mode"] == "OpExecutionMode.DISCRETE"
    assert options["cmd_args"]["iteration"] == 3
    assert {"hostname", "pid", "cwd", "python_version", "cuda_available", "pytorch_version"} <= set(
        ran.header["sys_info"]
    )


def test_times_are_milliseconds_and_as_many_as_asked(command: Command) -> None:
    """The null backend needs 1 µs plus 10 ps per byte, and up to half a percent more."""
    (line,) = command(ADD, "-w", "2", "-i", "3").cases
    forward = line["metric"]["forward"]
    exact = 1e3 * (1e-6 + 2 * 256 * 256 * 4 / 1e11)
    assert (len(forward["warmup.time"]), len(forward["measure.time"])) == (2, 3)
    assert (len(forward["warmup.gpu.memory"]), len(forward["measure.gpu.memory"])) == (2, 3)
    assert all(exact <= value < 1.05 * exact for value in forward["warmup.time"] + forward["measure.time"])
    assert line["opmark"]["forward"]["median_ms"] == sorted(forward["measure.time"])[1]
    assert line["opmark"]["forward"]["cautions"] == []
    assert line["opmark"]["forward"]["interval_ms"] == [min(forward["measure.time"]), max(forward["measure.time"])]


def test_the_same_case_twice_is_two_lines_where_they_stand(command: Command) -> None:
    twice = {"torch.add": op([tensor(4, 4), number(1)], [tensor(4, 4), number(2)], [tensor(4, 4), number(1)])}
    ran = command(twice)
    assert ran.ids == ["torch.add|0|0|0", "torch.add|0|0|1", "torch.add|0|0|2"]
    first, _, third = ran.cases
    assert first["metric"] == third["metric"]
    assert first["opmark"]["forward"]["case"] == third["opmark"]["forward"]["case"]


NOTHING = ("-w", "0", "-i", "0")

AS_IT_STANDS: dict[str, Any] = {
    "torch.add": {
        "config": [
            {
                "build": [],
                "input": [
                    {"args": [tensor(4, requires_grad=False, name="x"), tensor(4)], "kwargs": {}, "why": "a bias"},
                    {"args": [tensor(4, dtype="long"), {"type": "long", "value": 2}]},
                    {"args": [tensor(4, dtype="half"), {"type": "double", "value": 2}]},
                ],
            }
        ]
    },
    "torch.mean": op([tensor([2, 4, 2], 3, __range__=["shape"])], input_iterator="RangeConfigIterator"),
    "torch.cat": op([{"type": "list", "value": [tensor(4), tensor(4)]}]),
    "torch.zeros": op([{"type": "int", "value_range": [4, 4]}, {"type": "none"}]),
}


@pytest.mark.parametrize("options", [NOTHING, (*NOTHING, "-b"), ()])
def test_the_config_of_a_line_is_that_of_the_file(command: Command, options: tuple[str, ...]) -> None:
    lines = command(AS_IT_STANDS, *options).cases
    adds = AS_IT_STANDS["torch.add"]["config"][0]["input"]
    expected = [{"build": [], "input": given} for given in adds]
    expected += [{"build": None, "input": {"args": [tensor(n, 3)]}} for n in (2, 4)]
    expected += [{"build": None, **AS_IT_STANDS[name]["config"][0]} for name in ("torch.cat", "torch.zeros")]
    for found, said in zip(lines, expected, strict=True):
        if isinstance(said["input"], list):
            (said["input"],) = said["input"]
        assert found["config"] == said


def test_an_id_twice_is_no_line_with_the_shapes_of_another(command: Command) -> None:
    inputs = [{"id": "0", "args": [tensor(n, n), number(1)]} for n in (4, 512)]
    batch = {"op_name": "torch.add", "config_build_id": "0|0", "op_info": {"config": [{"input": inputs}]}}
    ran = command(batch, *NOTHING)
    assert ran.code == 1
    bad, good = ran.cases
    assert bad["error"]["where"].endswith("$.op_info.config[0].input[1]")
    assert good["config"]["input"] == inputs[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two configs with the same ids."""
    configs = tmp_path / "configs"
    (configs / "more").mkdir(parents=True)
    (configs / "one.json").write_text(json.dumps(THREE))
    (configs / "more" / "two.json").write_text(json.dumps({"torch.add": op([tensor(4, 4), number(7)])}))
    return configs


def test_a_folder_of_configs_names_the_file_of_each_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = ["more/two.json#torch.add|0|0|0", *(f"one.json#{place}" for place in IDS)]
    run = ["-c", str(folder), "-d", "null", "-a", "-o", str(tmp_path / "out"), "-l", "error"]
    assert main([*run, "--dry-run"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["opmark"]["source"] for line in printed] == sources
    assert main([*run, *NOTHING, "-r", sources[1], "-s", sources[3]]) == 0
    lines = [line for line in lines_of(tmp_path / "out.json") if "op_name" in line]
    assert [line["opmark"]["source"] for line in lines] == sources[1:3]
    assert lines[0]["config"]["input"]["args"][1] == number(1)
    with pytest.raises(UserError, match=r"2 files have the id .*: more/two\.json, one\.json"):
        main([*run, "-r", IDS[0]])


def test_resume_and_stop(command: Command) -> None:
    assert command(THREE, *NOTHING, "-r", IDS[1]).ids == IDS[1:]
    assert command(THREE, *NOTHING, "-s", IDS[1], "-o", str(command.folder / "b")).ids == IDS[:1]
    ran = command(THREE, "--resume-id", IDS[1], "--stop-id", IDS[2], "-o", str(command.folder / "c"))
    assert ran.ids == [IDS[1]]
    assert ran.header["run_options"]["resume_op_run_id"] == IDS[1]


def test_an_unknown_id_runs_nothing_and_writes_nothing(command: Command) -> None:
    with pytest.raises(UserError, match="no case of this config"):
        command.code(THREE, "-r", "torch.add|0|0|9")
    assert not list(command.folder.glob("out*"))


def test_append_really_appends(command: Command) -> None:
    for _ in range(2):
        assert command.code(ADD, "-a", *NOTHING) == 0
    lines = lines_of(command.folder / "out.json")
    assert [next(iter(line)) for line in lines] == 2 * ["run_options", "op_name", "finish_time"]


def test_without_append_every_run_has_its_file(command: Command) -> None:
    first, second = (command(ADD, *NOTHING, "-o", str(command.folder / name)).file for name in "ab")
    assert first != second


def test_no_calls_at_all_list_the_cases(command: Command) -> None:
    ran = command(THREE, *NOTHING)
    assert ran.ids == IDS
    assert all(line["metric"] == {} for line in ran.cases)
    assert [line["opmark"] for line in ran.cases] == [{"source": f"config.json#{place}"} for place in IDS]


def test_warm_up_alone(command: Command, capfd: pytest.CaptureFixture[str]) -> None:
    (line,) = command(ADD, "-w", "3", "-i", "0").cases
    assert len(line["metric"]["forward"]["warmup.time"]) == 3
    assert line["metric"]["forward"]["measure.time"] == []
    assert "median_ms" not in line["opmark"]["forward"]
    assert "median" not in capfd.readouterr().out, "a table of the sample that nobody asked for"


def test_dry_run_prints_ids_and_arguments(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.code(THREE, "--dry-run", "-s", IDS[2]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["id"] for line in printed] == IDS[:2]
    assert printed[1]["input"]["args"][1] == number(2)
    assert printed[1]["opmark"] == {"source": f"config.json#{IDS[1]}"}
    assert not list(command.folder.glob("out*"))


def test_a_problem_of_the_config_is_a_line_and_the_rest_runs(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = {**ADD, "torch.nothing_like_that_at_all": {"config": "?"}}
    ran = command(broken)
    assert ran.code == 1
    bad, good = ran.cases
    assert bad["op_name"] == "torch.nothing_like_that_at_all"
    assert bad["error"]["status"] == "not imported"
    assert bad["metric"] == {}
    assert good["metric"]["forward"]["measure.time"]
    assert "not imported" in capsys.readouterr().err
    with pytest.raises(UserError):
        command.code(broken, "--strict")


def test_something_else_than_a_config_is_a_mistake(command: Command) -> None:
    own = {"schema": 1, "name": "mine", "cases": [{"op": "add", "params": {"shape": [4]}}]}
    with pytest.raises(UserError, match="expected a config of PARAM"):
        command.code(own)


def test_the_log_level_says_how_much(command: Command, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.code(ADD, "-l", "INFO") == 0
    out, err = capfd.readouterr()
    assert "torch.add" in out
    assert "median" in out
    assert "torch.add|0|0|0 forward" in err
    assert "Benchmark result" in err
    assert command.code(ADD, "-l", "error") == 0
    assert capfd.readouterr() == ("", "")


def test_the_run_is_stored_under_the_id_that_the_lines_name(command: Command) -> None:
    db = command.folder / "runs.db"
    ran = command(THREE, "--db", str(db))
    shown = opmark.show(db=db)
    assert {line["opmark"]["run"] for line in ran.cases} == {shown.run.id}
    assert [record.task.case.id for record in shown.records] == [
        line["opmark"]["forward"]["case"] for line in ran.cases
    ]


def test_events_on_a_device_and_one_mean_of_back_to_back_calls(command: Command) -> None:
    (events,) = command(ADD, "-d", "null-device", "--exec-mode", "continuous_events", "-i", "4").cases
    assert events["opmark"]["forward"]["quantity"] == "event_time"
    assert len(events["metric"]["forward"]["measure.time"]) == 4
    (mean,) = command(ADD, "--exec-mode", "continuous", "-i", "4", "-o", str(command.folder / "b")).cases
    assert mean["opmark"]["forward"]["quantity"] == "throughput"
    assert len(mean["metric"]["forward"]["measure.time"]) == 1
    assert "the mean of calls" in mean["opmark"]["forward"]["cautions"][-1]


def test_a_cold_cache_and_a_captured_graph_on_a_device(command: Command) -> None:
    (cold,) = command(ADD, "-d", "null-device", "--cuda-l2-cache", "off").cases
    assert (cold["opmark"]["forward"]["quantity"], cold["opmark"]["forward"]["cache"]) == ("latency", "cold")
    (graph,) = command(ADD, "-d", "null-device", "--cuda-graph", "-o", str(command.folder / "b")).cases
    assert (graph["opmark"]["forward"]["quantity"], graph["opmark"]["forward"]["timer"]) == ("device_span", "graph")


def test_an_interruption_leaves_the_finished_cases(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_disk: list[str] = []

    def interrupted(self: ParamLog, found: CaseResult) -> None:
        (file,) = command.folder.glob("out*.json")
        on_disk.extend(file.read_text().splitlines())
        raise KeyboardInterrupt

    monkeypatch.setattr(ParamLog, "result", interrupted)
    ran = command(THREE)
    assert ran.code == 130
    assert ran.ids == IDS[:1]
    assert "finish_time" not in ran.lines[-1]
    assert [json.loads(line) for line in on_disk] == ran.lines, "a line was written, but not yet to the file"
    err = capsys.readouterr().err
    assert re.search(r"^interrupted\nstored as run \S+ in ", err, re.MULTILINE), err
    assert f"the results until then are in {ran.file}; -r 'config.json#{IDS[1]}' goes on from there" in err
    monkeypatch.undo()
    assert command(THREE, "-r", f"config.json#{IDS[1]}", "-o", str(command.folder / "rest")).ids == IDS[1:]


def test_an_interruption_before_the_first_record_stores_nothing(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(self: RecordsInOrder[Any], *_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RecordsInOrder, "start", start)
    assert command.code(THREE) == 130
    err = capsys.readouterr().err
    assert "interrupted before the first record: nothing was stored" in err
    assert "the results until then" not in err


def test_the_first_implementation_stands_for_an_operator(command: Command) -> None:
    options = ParamOptions(backward=True)
    (spot,) = read(command.config(ADD), options).spots
    reported: list[tuple[Record, ...]] = []
    in_order = RecordsInOrder([spot], lambda _, records: reported.append(records))
    settings = opmark.plan("add", params={"shape": [4]}, backend="null", processes=1).tasks[0].settings
    tasks = [Task(case, "torch-cpu", way, settings) for case in spot.cases for way in ("merged", "loop")]
    in_order.start(Run("r", "", "", 4), Plan(tuple(tasks), (Record(tasks[0], "skipped"),)), [])
    assert reported == []
    for task in tasks:
        in_order.add(Record(task, "ok"))
    (records,) = reported
    assert [record.task.implementation for record in records] == ["merged", "merged"]
    assert [record.status for record in records] == ["ok", "ok"]


@pytest.fixture(scope="module")
def on_torch(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One run for several tests, because torch starts slowly."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("torch")
    # fmt: off
    config = {
        "torch.add": op(
            [tensor(8, 8), tensor(8, 8)],
            [tensor(4, 8), tensor(5, 8)],
            [tensor(8, dtype="long"), tensor(8, dtype="long")],
            [tensor(8, 8), tensor(8, 8, requires_grad=False)],
            [tensor(8, 8, requires_grad=False), tensor(8, 8, requires_grad=False)],
        ),
        "torch.add_": op([tensor(8, 8), number(1)]),
        "torch.nn.functional.embedding": op([tensor(6, dtype="long"), tensor(16, 4)]),
        "torch.nn.Linear": {
            "build_data_generator": GENERATOR,
            **op([tensor(2, 64)]),
            "config": [
                {"build": [{"args": [number(64), number(n)]} for n in (8, 16)], "input": [{"args": [tensor(2, 64)]}]}
            ],
        },
        "torch.nn.ReLU": {
            "build_data_generator": GENERATOR,
            **op([]),
            "config": [{"build": [{"args": [{"type": "bool", "value": True}]}],
                        "input": [{"args": [tensor(8, 8, requires_grad=False)]}]}],
        },
        "torch.nn.Bilinear": {
            "build_data_generator": GENERATOR,
            **op([]),
            "config": [{"build": [{"args": [number(4), number(4), number(2)]}],
                        "input": [{"args": [tensor(2, 4, requires_grad=False), tensor(2, 4, requires_grad=False)]}]}],
        },
        "torch.nn.Dropout": op([tensor(32, 32)]),
    }
    # fmt: on
    return Command(folder)(config, "-d", "cpu", "-b", "-w", "1", "-i", "2", "--db", str(folder / "x.db"))


def by_id(ran: Ran, place: str) -> dict[str, Any]:
    (line,) = (line for line in ran.cases if f"{line['op_name']}|{line['id']}" == place)
    return line


def test_a_failing_case_is_a_line_and_the_run_goes_on(on_torch: Ran) -> None:
    assert on_torch.code == 1
    assert len(on_torch.cases) == 12
    failed = by_id(on_torch, "torch.add|0|0|1")
    assert failed["metric"] == {}
    assert failed["error"]["status"] == "error"
    assert failed["error"]["phase"] == "forward"
    assert "size" in failed["error"]["reason"]
    assert sum("error" in line for line in on_torch.cases) == 1


def test_forward_and_backward_are_one_line(on_torch: Ran) -> None:
    line = by_id(on_torch, "torch.add|0|0|0")
    assert list(line["metric"]) == ["forward", "backward"]
    assert [len(line["metric"]["backward"][name]) for name in ("warmup.time", "measure.time")] == [1, 2]
    assert line["metric"]["backward"]["measure.time"] != line["metric"]["forward"]["measure.time"]
    assert on_torch.header["run_options"]["pass_type"] == "ExecutionPass.BACKWARD"


def test_whole_numbers_run_forward_and_have_no_backward(on_torch: Ran) -> None:
    line = by_id(on_torch, "torch.add|0|0|2")
    assert len(line["metric"]["forward"]["measure.time"]) == 2
    assert line["metric"]["backward"]["measure.time"] == []
    assert line["opmark"]["backward"]["status"] == "skipped"
    assert line["opmark"]["backward"]["reason"]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("torch.add|0|0|4", "no tensor has `requires_grad`"),
        ("torch.add_|0|0|0", "works in place"),
        ("torch.nn.ReLU|0|0|0", "no weights, and no input is to have a gradient"),
    ],
)
def test_a_case_without_backward_pass_runs_forward(on_torch: Ran, place: str, reason: str) -> None:
    line = by_id(on_torch, place)
    assert "error" not in line
    assert len(line["metric"]["forward"]["measure.time"]) == 2
    assert line["metric"]["backward"] == {name: [] for name in line["metric"]["forward"]}
    assert line["opmark"]["backward"]["status"] == "skipped"
    assert reason in line["opmark"]["backward"]["reason"]


def test_a_module_with_fixed_inputs_computes_the_gradients_of_its_weights(on_torch: Ran) -> None:
    line = by_id(on_torch, "torch.nn.Bilinear|0|0|0")
    assert len(line["metric"]["backward"]["measure.time"]) == 2


def test_modules_run_in_training_mode(on_torch: Ran) -> None:
    """A dropout in eval() mode would return its input; in training mode it writes what it leaves."""
    line = by_id(on_torch, "torch.nn.Dropout|0|0|0")
    assert line["opmark"]["forward"]["bytes"] >= 2 * 4 * 32 * 32


def test_a_line_has_the_requested_gradients(on_torch: Ran) -> None:
    both, one = (by_id(on_torch, f"torch.add|0|0|{i}") for i in (0, 3))
    assert both["metric"]["forward"] == one["metric"]["forward"]
    assert both["opmark"]["backward"]["case"] != one["opmark"]["backward"]["case"]


def test_an_exported_run_has_the_times_of_the_file(on_torch: Ran) -> None:
    """Cases that differ only in their gradients share the forward pass, but not the backward pass."""
    ((_, text),) = export(format="param", db=on_torch.file.parent / "x.db").items()
    lines = [json.loads(line) for line in text.splitlines()]
    exported = {f"{line['op_name']}|{line['id']}": line for line in lines if "op_name" in line}
    assert list(exported) == on_torch.ids
    for line in on_torch.cases:
        there = exported[f"{line['op_name']}|{line['id']}"]
        for phase, metric in there["metric"].items():
            assert metric == line["metric"][phase]
        assert there["opmark"]["source"] == line["opmark"]["source"]


def test_a_measured_phase_is_printed_though_another_failed(capsys: pytest.CaptureFixture[str]) -> None:
    ParamLog("info").result(_Half())  # type: ignore[arg-type]
    assert capsys.readouterr().err == "torch.f|0|0|0 forward 2.00 ms: backward error: no such thing\n"


class _Half:
    op_run_id, forward_ms, backward_ms = "torch.f|0|0|0", 2.0, None
    error = {"status": "error", "phase": "backward", "reason": "no such thing"}  # noqa: RUF012


def test_indices_are_inside_of_the_table(on_torch: Ran) -> None:
    line = by_id(on_torch, "torch.nn.functional.embedding|0|0|0")
    assert "error" not in line
    assert len(line["metric"]["backward"]["measure.time"]) == 2


def test_builds_have_ids_of_their_own(on_torch: Ran) -> None:
    built = [line for line in on_torch.cases if line["op_name"] == "torch.nn.Linear"]
    assert [line["id"] for line in built] == ["0|0|0", "0|1|0"]
    assert [line["config"]["build"]["args"][1]["value"] for line in built] == [8, 16]
    assert all(len(line["metric"]["backward"]["measure.time"]) == 2 for line in built)


def test_the_header_names_torch_and_one_thread(on_torch: Ran) -> None:
    from importlib.metadata import version

    assert on_torch.header["sys_info"]["pytorch_version"] == version("torch")
    assert on_torch.header["opmark"]["environment"]["threads"] == 1


def test_the_command_is_reached_from_the_shell(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert "opmark" in capsys.readouterr().out
