"""Schedules of models and traces on this machine: searched, saved, read, compiled, run and verified."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import closing, nullcontext
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rich.console import Console

torch = pytest.importorskip("torch")

import opmark  # noqa: E402
from opmark.analysis.rows import RunView  # noqa: E402
from opmark.api.extract import ModelOperators, extract, model_case  # noqa: E402
from opmark.api.items import view_stored_run  # noqa: E402
from opmark.api.predict import predict  # noqa: E402
from opmark.api.program_times import case_of_call  # noqa: E402
from opmark.api.result import open_store  # noqa: E402
from opmark.api.schedule import Scheduling, joules_of, schedule_view  # noqa: E402
from opmark.errors import UserError  # noqa: E402
from opmark.models.execution import original  # noqa: E402
from opmark.models.family import source_of  # noqa: E402
from opmark.plugin.registry import backend  # noqa: E402
from opmark.prediction.predictor import Predictor, shipped  # noqa: E402
from opmark.report.charts.schedule import schedules  # noqa: E402
from opmark.report.charts.svg.picture import svg  # noqa: E402
from opmark.report.console.schedule import print_schedule  # noqa: E402
from opmark.runner.plan import make_plan, settings_for  # noqa: E402
from opmark.runner.selection import select_cases  # noqa: E402
from opmark.runner.worker_process import environ_for  # noqa: E402
from opmark.schema.company import Companion  # noqa: E402
from opmark.schema.corun import CorunMember, CorunRatio  # noqa: E402
from opmark.schema.options import MeasureOptions, Selection  # noqa: E402
from opmark.schema.schedule import SCHEDULE, Schedule, ScheduleQuestion  # noqa: E402
from opmark.store.runs import find_run  # noqa: E402
from opmark.traces import schedule_child  # noqa: E402
from opmark.traces.schedule_question import ProgramProcess  # noqa: E402

pytestmark = pytest.mark.tuning
MODEL = "model:two-towers"
SMALL = {"size": "small", "batch": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("schedules")


@pytest.fixture(scope="module")
def found(folder: Path) -> Scheduling:
    """A schedule of two towers, whose units are made of what takes any time at all."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("opmark.prediction.units.make_units.__defaults__", (0.0, 9))
        return opmark.schedule(
            MODEL, params=SMALL, method="stages", measure=False, search="0.5s", threads=2,
            save=folder / "towers.json", times=folder / "cpu.yaml",
        )  # fmt: skip


def module_and_inputs() -> tuple[Any, list[Any]]:
    source = source_of("two-towers")
    assert source is not None
    params = {**SMALL, "dtype": "float32"}
    return original(source, params), [torch.rand(spec.shape) for spec in source.inputs(params).values()]


def test_predictions_have_intervals_and_an_executable_schedule(found: Scheduling) -> None:
    methods = [one.method for one in found.predictions]
    assert methods[:2] == ["sequential", "stages"]
    for one in found.predictions[:2]:
        assert one.low is not None
        assert one.high is not None
        assert 0 < one.low <= one.seconds <= one.high
        assert one.schedule is not None
    assert found.measured is None
    assert found.slowdown is not None
    assert found.slowdown >= 1


def test_a_schedule_becomes_a_callable_that_gives_the_results_of_the_module(found: Scheduling) -> None:
    module, inputs = module_and_inputs()
    with torch.no_grad():
        expected = module(*inputs)
    with found.compile() as compiled:
        torch.testing.assert_close(compiled(*inputs), expected)
        assert compiled.schedule.width >= 1
        with pytest.raises(UserError, match="expected 2 inputs"):
            compiled(inputs[0])
        with pytest.raises(UserError, match="input `user`: expected") as refused:
            compiled(inputs[0][:1], inputs[1])
        assert "-p batch=N" in str(refused.value.hint)
        with pytest.raises(UserError, match="input `user`: expected a tensor of torch, got list"):
            compiled(inputs[0].tolist(), inputs[1])
    with pytest.raises(UserError, match="the schedule is closed"):
        compiled(*inputs)


def test_a_module_of_the_same_graph_brings_its_own_weights(found: Scheduling) -> None:
    module, inputs = module_and_inputs()
    import copy

    own = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.mul_(0.5)
        with found.compile(own) as compiled:
            torch.testing.assert_close(compiled(*inputs), own(*inputs))
    with pytest.raises(UserError, match="made for another program"):
        found.compile(torch.nn.Bilinear(64, 48, 16))


def test_a_saved_schedule_is_read_compiled_and_refused_when_the_model_has_changed(
    found: Scheduling, folder: Path
) -> None:
    again = opmark.schedule(str(folder / "towers.json"), measure=False)
    assert again.chosen.schedule == found.chosen.schedule
    module, inputs = module_and_inputs()
    with again.compile() as compiled, torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), module(*inputs))
    document = msgspec.json.decode((folder / "towers.json").read_bytes())
    document["params"]["batch"] = 16
    (folder / "other.json").write_bytes(msgspec.json.encode(document))
    with pytest.raises(UserError, match="made for another program"):
        opmark.schedule(str(folder / "other.json"), measure=False).compile()
    with pytest.raises(UserError, match="those that it was made for"):
        opmark.schedule(str(folder / "towers.json"), size="small")
    with pytest.raises(UserError, match="is for 2 threads, not 1"):
        opmark.schedule(str(folder / "towers.json"), threads=1)


def test_times_of_this_machine_are_a_table_for_another_one(found: Scheduling, folder: Path) -> None:
    table = opmark.schedule(str(folder / "cpu.yaml"))
    assert table.lanes == ("cpu",)
    assert table.program == MODEL
    assert table.sequential is not None
    assert table.sequential.seconds == pytest.approx(table.chosen.seconds)


def test_a_run_is_verified_and_stored_with_its_timeline(found: Scheduling, folder: Path) -> None:
    db = folder / "run.db"
    done = opmark.schedule(str(folder / "towers.json"), processes=2, budget=1.0, db=db)
    assert done.compared is not None
    assert len(done.runs) == 2
    with closing(open_store(db)) as store:
        view: RunView = view_stored_run(store, find_run(store, done.runs[1]), whole=True)
        records = [record for row in view.rows for record in row.records or ()]
        assert {record.task.implementation for record in records} == {"scheduled"}
        assert all(record.status in ("ok", "disturbed") for record in records), [one.reason for one in records]
        assert all(record.verification is not None for record in records if record.status == "ok")
        assert all(SCHEDULE in dict(record.task.settings.configuration) for record in records)
    if done.timeline and done.chosen.timeline:
        assert schedules(view)
    if done.measured:
        assert done.error is not None


def test_cores_that_are_not_shared_have_an_equilibrium_that_runs(folder: Path) -> None:
    found = opmark.schedule(
        MODEL, params=SMALL, on="cpu:1,cpu:1", method="equilibrium", measure=False, search="0.3s", threads=2
    )
    assert found.lanes == ("cpu:1 (1)", "cpu:1 (2)")
    assert found.chosen.schedule is not None
    module, inputs = module_and_inputs()
    with found.compile() as compiled, torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), module(*inputs))


@pytest.mark.parametrize(
    ("on", "method", "why", "hint"),
    [
        ("cpu:1,cpu:1", "stages", "no stages: they share resources", "--method equilibrium"),
        ("cpu", "equilibrium", "no equilibrium: it needs several resources", "--on cpu:1,cpu:1"),
        ("cpu", "optimum", "no optimum: no solver", "--method stages"),
        ("cpu:1,cpu:1", "optimum", "no optimum: no solver", "--method equilibrium"),
    ],
)
def test_a_method_without_a_schedule_is_refused_before_anything_starts(
    on: str, method: str, why: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opmark.api.schedule.why_no_solver", lambda: "no solver")
    monkeypatch.delattr("opmark.api.schedule.ProgramProcess")
    with pytest.raises(UserError, match=why) as refused:
        opmark.schedule(MODEL, params=SMALL, on=on, method=method, threads=2)
    assert hint in str(refused.value.hint)


def test_too_many_units_for_the_solver_are_known_before_stages_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.api.schedule.MOST_UNITS", 0)
    monkeypatch.setattr("opmark.api.schedule.why_no_solver", str)
    monkeypatch.delattr("opmark.api.schedule.StageSearch")
    with pytest.raises(UserError, match=r"no optimum: the graph has \d+ units, and the solver is asked for at most 0"):
        opmark.schedule(MODEL, params=SMALL, method="optimum", measure=False, threads=2)


@pytest.mark.parametrize("option", ["save", "times"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_starts(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("opmark.api.schedule.ProgramProcess")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written: File exists"):
        opmark.schedule(MODEL, params=SMALL, measure=False, **{option: tmp_path / "file" / "out"})


def test_handing_a_result_to_another_core_costs_time(folder: Path) -> None:
    found = opmark.schedule(
        "model:multi-head", size="typical", on="cpu:1,cpu:1", method="equilibrium", measure=False, search=0.3, threads=2
    )
    assert found.devices is not None
    costs = [each for edge in found.devices.times.transfers.values() for each in edge.items()]
    assert {pair for pair, _ in costs} == {(0, 1), (1, 0)}
    assert all(0 < seconds < 0.01 for _, seconds in costs)  # a thread wakes up, and nothing is copied


class OneChip:
    """The model that ships, as if it had learnt this machine."""

    def __init__(self, unknown: str = "") -> None:
        self.predictor = shipped()
        self.predictor.data_hash = "of my own"
        for kind, model in list(self.predictor.models.items()):
            model.own = {"Tesla T4": model.own["Tesla T4"]}
            if kind == unknown:
                del self.predictor.models[kind]

    def __call__(self, *_: object) -> Predictor:
        return self.predictor


def test_chips_that_are_not_here_are_devices_of_one_schedule_by_predicted_times(tmp_path: Path) -> None:
    table = tmp_path / "gpus.yaml"
    found = opmark.schedule("model:two-towers", size="typical", predict="A100,T4", times=table)
    assert found.lanes == ("NVIDIA A100-PCIE-40GB", "Tesla T4")
    assert found.compared is None
    assert found.devices is not None
    assert found.devices.equilibria is not None
    assert any("not run" in note for note in found.notes)
    again = opmark.schedule(str(table))
    assert again.chosen.seconds == pytest.approx(found.chosen.seconds, rel=1e-3)


def test_predicted_times_of_this_machine_give_a_schedule_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.api.schedule.find_predictor", OneChip())
    monkeypatch.setattr("opmark.prediction.units.make_units.__defaults__", (0.0, 9))
    found = opmark.schedule(MODEL, params=SMALL, predict="here", method="stages", measure=False, threads=2)
    plain, staged = found.predictions[:2]
    assert staged.seconds <= plain.seconds
    for one in (plain, staged):
        assert one.low is not None
        assert one.high is not None
        assert one.low < one.seconds < one.high
    assert any("--slowdowns" in note for note in found.notes)
    module, inputs = module_and_inputs()
    with found.compile() as compiled, torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), module(*inputs))


def test_what_cannot_be_predicted_is_measured_here_and_refused_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.api.schedule.find_predictor", OneChip("linear"))
    found = opmark.schedule(MODEL, params=SMALL, predict="here", method="sequential", measure=False, threads=2)
    assert any("measured, not predicted: linear: nothing was learnt" in note for note in found.notes)
    with pytest.raises(UserError, match="cannot be predicted on Tesla T4: linear: nothing was learnt") as refused:
        opmark.schedule(MODEL, params=SMALL, predict="T4")
    assert "--times FILE" in str(refused.value.hint)


class InProcess:
    """Stands in for the process of a program, so that the second device can be a stand-in too."""

    def __init__(self, name: str, params: dict[str, Any], backend: str, threads: int, *_: object) -> None:
        self.asked = name, params, "torch-cpu", threads

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _ask(self, task: Any, **options: Any) -> Any:
        return schedule_child.answer_question(msgspec.json.encode(ScheduleQuestion(task, *self.asked, **options)))

    def profile(self) -> Any:
        return self._ask("profile")

    def time_schedules(self, schedules: list[Schedule], budget: float) -> Any:
        return self._ask("time", schedules=schedules, budget=budget)

    def transfers(self, devices: list[str]) -> Any:
        return self._ask("transfer", devices=devices)


def test_two_devices_of_this_machine_share_a_program_by_measured_times(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []

    def copy(tensor: Any, device: str) -> Any:
        copied.append(device)
        return tensor.clone()

    monkeypatch.setattr("opmark.models.scheduled.copy_to", copy)
    monkeypatch.setattr("opmark.models.scheduled.device_of", lambda name: torch.device("cpu"))
    monkeypatch.setattr(torch, "get_device_module", lambda name: SimpleNamespace(synchronize=lambda: None))
    monkeypatch.setattr("opmark.api.schedule.ProgramProcess", InProcess)
    monkeypatch.setattr(
        "opmark.api.schedule.find_backend", lambda name: backend(name.replace("torch-npu", "torch-cpu"))
    )
    monkeypatch.setattr("opmark.prediction.units.make_units.__defaults__", (0.0, 9))
    before = torch.get_num_threads()
    try:
        found = opmark.schedule(
            MODEL, params=SMALL, on="cpu,npu", method="equilibrium", measure=False, search="0.2s", threads=2
        )
    finally:
        torch.set_num_threads(before)
    assert found.lanes == ("cpu", "npu")
    assert {"cpu", "npu"} <= set(copied)
    assert found.devices is not None
    assert all(seconds > 0 for own in found.devices.times.transfers.values() for seconds in own.values())
    assert found.sequential is not None
    assert found.sequential.schedule is not None
    assert found.chosen.schedule is not None
    module, inputs = module_and_inputs()
    with found.compile() as compiled, torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), module(*inputs))
    with pytest.raises(UserError, match="schedules over two devices are made of measured times"):
        opmark.schedule(MODEL, on="cpu,npu", predict="here")


def test_energy_is_predicted_for_every_schedule_and_read_from_records(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times, energy = OneChip(), OneChip()
    energy.predictor.quantity = "energy"
    monkeypatch.setattr("opmark.api.schedule.find_predictor", lambda *given: (energy if "energy" in given else times)())
    found = opmark.schedule("model:two-towers", size="typical", predict="T4,V100", far=True)
    view = schedule_view(found)
    for one in view["predictions"]:
        assert one["joules"] > 0
        assert one["energy_delay"] == pytest.approx(one["joules"] * one["seconds"])
    here = opmark.schedule(MODEL, params=SMALL, predict="here", measure=False, threads=2, far=True)
    assert len(here.predictions) > 1
    assert all(one.joules for one in here.predictions)
    print_schedule(view, Console(width=200))
    assert "energy × delay" in capsys.readouterr().out
    done = opmark.run(["matmul"], backend="null-device", quantity="energy", samples=3, warmup=0, db=":memory:")
    joules = joules_of(done.records)
    assert joules is not None
    assert joules > 0
    assert joules_of([]) is None


def test_slowdowns_of_stored_co_runs_stand_in_for_timing_stages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("opmark.prediction.units.make_units.__defaults__", (0.0, 9))
    db = tmp_path / "corun.db"
    with pytest.raises(UserError, match="the store has no co-run of two operators of model:two-towers") as refused:
        opmark.schedule(MODEL, params=SMALL, slowdowns=True, measure=False, search="0.1s", threads=2, db=db)
    hint = str(refused.value.hint)
    assert "`opmark extract model:two-towers -p size=small -p batch=8 -o ops.yaml`" in hint
    assert f"`opmark corun -w ops.yaml --backend torch-cpu --db {db}`" in hint
    asked: list[str] = []

    def stored(store: object, machine: str) -> Iterator[tuple[tuple[Any, Any], CorunRatio]]:
        asked.append(machine)
        for one, other in product(set(seen), repeat=2):
            member = CorunMember("linear", "", "forward", "torch-cpu", "torch", 1, (), one, "ok", "", None, None, None)
            yield (member, msgspec.structs.replace(member, case=other)), CorunRatio(1e6, 1e6, 1e6, "slower", 5)

    seen: list[str] = []

    def noted(call: Any) -> Any:
        case = case_of_call(call)
        seen.extend([case.id] if case else [])
        return case

    monkeypatch.setattr("opmark.api.schedule.case_of_call", noted)
    monkeypatch.setattr("opmark.api.schedule.stored_slowdowns", stored)
    monkeypatch.setattr("opmark.api.schedule.existing_store", lambda db: nullcontext(object()))
    found = opmark.schedule(
        MODEL, params=SMALL, slowdowns=True, measure=False, search="0.1s", threads=2, db=db, method="stages"
    )
    assert asked == [platform.node()]
    assert any("from co-runs" in note for note in found.notes)
    assert found.chosen.schedule is not None
    assert found.chosen.schedule.width == 1  # nobody runs beside another one so slowly
    assert (found.chosen.low, found.chosen.high) == (None, None)


@pytest.mark.parametrize("model", [MODEL, "model:multi-head", "model:mixture-of-experts"])
def test_co_runs_of_extracted_operators_have_the_cases_that_a_program_describes(model: str, tmp_path: Path) -> None:
    case, info = model_case(model, None, "small"), backend("torch-cpu")
    file = tmp_path / "ops.yaml"
    listed = extract(model, size="small")
    assert isinstance(listed, ModelOperators)
    file.write_text(listed.text)
    tasks = make_plan(select_cases(Selection(workload=file)).cases, [info.name], settings_for(MeasureOptions())).tasks
    stored = {Companion.of(task, (0,)).case.id for task in tasks}  # as `stored_slowdowns` reads them from a record
    with ProgramProcess(case.op, dict(case.params), info.name, 1, environ_for(info, 1)) as process:
        calls = [call for called in process.describe().calls for call in called]
    described = {made.id for call in calls if (made := case_of_call(call))}
    assert described
    assert described <= stored


def test_options_that_need_a_search_are_refused_where_there_is_none(found: Scheduling, folder: Path) -> None:
    with pytest.raises(UserError, match="--predict: a saved schedule was searched already"):
        opmark.schedule(str(folder / "towers.json"), predict="here")
    with pytest.raises(UserError, match="--method: a saved schedule was searched already"):
        opmark.schedule(str(folder / "towers.json"), method="optimum", measure=False)
    with pytest.raises(UserError, match="--times: a saved schedule was searched already"):
        opmark.schedule(str(folder / "towers.json"), times=folder / "no.yaml", measure=False)
    with pytest.raises(UserError, match="--slowdowns: cores of their own are not shared"):
        opmark.schedule(MODEL, on="cpu:1,cpu:1", slowdowns=True, measure=False)
    with pytest.raises(UserError, match="--predict A100: nothing of these chips is here"):
        opmark.schedule(MODEL, predict="A100", save=folder / "no.json")
    with pytest.raises(UserError, match="--far goes with --predict"):
        opmark.schedule(MODEL, far=True)


def test_finding_the_graph_has_its_time() -> None:
    with pytest.raises(UserError, match="it had no answer within 0 s"):
        opmark.schedule(MODEL, params=SMALL, measure=False, compile_timeout=0.1)


def test_a_trace_is_scheduled_like_a_model(
    tmp_path: Path,
) -> None:
    module, inputs = module_and_inputs()
    path = tmp_path / "step.json"
    with opmark.capture(path), torch.no_grad():
        module(*inputs)
    found = opmark.schedule(f"trace:{path}", method="stages", measure=False, search="0.3s", threads=2)
    assert found.sequential is not None
    assert found.sequential.seconds > 0
    assert found.chosen.schedule is not None
    with pytest.raises(UserError, match="only a model becomes a callable"):
        found.compile()
    with pytest.raises(UserError, match="--size is for models"):
        opmark.schedule(f"trace:{path}", size="small", measure=False)
    assert any("last step of the trace" in note for note in predict(f"trace:{path}", on="T4").notes)


def test_the_chart_of_a_timeline_has_both_and_can_be_drawn() -> None:
    from opmark.report.charts.schedule import timeline_chart
    from opmark.schema.schedule import PlacedUnit, Timeline

    placed = (PlacedUnit(0, 0, 0.0, 1e-3), PlacedUnit(1, 1, 0.0, 2e-3), PlacedUnit(2, 0, 2e-3, 3e-3))
    chart = timeline_chart("towers on torch-cpu", Timeline(("a", "b", "c"), placed, placed[::-1]))
    assert [one.name for one in chart.series] == ["predicted", "measured"]
    assert chart.y.names == ("1: a (0)", "2: b (1)", "1: c (2)")
    for series in chart.series:
        assert {(mark.low, mark.high, mark.y) for mark in series.marks} == {
            (0.0, 1e-3, 0), (0.0, 2e-3, 1), (2e-3, 3e-3, 2)}  # fmt: skip
    assert svg(chart).startswith("<svg")
