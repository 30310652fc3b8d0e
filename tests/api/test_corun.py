"""`opmark corun` from Python and from the command line: what it measures, stores and refuses."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from typer.testing import CliRunner

from opmark.analysis.ranking import _by_task
from opmark.analysis.rows import RunView, rows_of_records
from opmark.api.corun import CorunOperator, CorunSession, corun, corun_view, known_slowdown, read_cores, split_cores
from opmark.api.program_requests import CorunRequest
from opmark.api.result import open_store
from opmark.cli.app import make_app
from opmark.errors import InvalidParameter, UserError
from opmark.hardware.host import affinity
from opmark.plugin.registry import backend
from opmark.report.charts.corun import corun as corun_charts
from opmark.schema import Case
from opmark.schema.measurement import CORUN_LATENCY, MAKESPAN, SEQUENCE_TIME

pytestmark = pytest.mark.verdicts
QUICK = {"effort": "quick", "say": lambda message: None}
NEEDS_TWO_CORES = pytest.mark.skipif(len(affinity()) < 2, reason="two operators have cores of their own")


@pytest.fixture(scope="module")
def on_streams(tmp_path_factory):
    db = tmp_path_factory.mktemp("corun") / "runs.db"
    return db, corun(["matmul", "softmax"], backend="null-device", processes=4, db=db, **QUICK)


@pytest.fixture(scope="module")
def in_group(tmp_path_factory):
    db = tmp_path_factory.mktemp("group") / "runs.db"
    found = corun(["matmul", "softmax", "add"], backend="null-device", processes=1, group=True, db=db, **QUICK)
    return db, found


def test_streams_are_measured_alone_together_and_in_sequence(on_streams):
    _, found = on_streams
    (pair,) = found.results
    assert pair.together.verdict == "faster"
    assert pair.members[0].slowdown.verdict == "slower"
    assert pair.members[0].slowdown.ratio == pytest.approx(1.4, rel=0.02)  # the made-up device's
    assert pair.efficiency == pytest.approx(pair.sequence / pair.makespan, rel=0.01)
    assert pair.fairness == pytest.approx(1.0, abs=0.01)
    quantities = {one.quantity for record in found.records for one in record.measurements}
    assert quantities == {CORUN_LATENCY, MAKESPAN, SEQUENCE_TIME}


def test_no_figure_of_a_corun_is_taken_for_a_solo_one(in_group):
    db, found = in_group
    assert [len(one.members) for one in found.results] == [2, 2, 2, 3]
    with closing(open_store(db)) as store:
        figures = store.figures(runs=[found.run.id])
    assert all(figure.load for figure in figures)
    series = {figure.series for figure in figures if figure.process == 0}
    matmul = {one.load for one in series if one.case == found.results[0].members[0].case}
    # alone; beside each of the two; beside both
    assert len(matmul) == 4
    assert _by_task(found.records) == []  # nothing to rank


def test_a_scheduler_reads_slowdowns_from_the_store(on_streams):
    db, found = on_streams
    cases = {record.task.case.op: record.task.case for record in found.records}
    with closing(open_store(db)) as store:
        known = known_slowdown(store, cases["matmul"], cases["softmax"], "null-device")
        assert known == found.results[0].members[0].slowdown
        assert known.low < known.ratio < known.high
        assert known_slowdown(store, cases["matmul"], cases["matmul"], "null-device") is None
        assert known_slowdown(store, cases["matmul"], cases["softmax"], "torch-cpu") is None
        assert known_slowdown(store, cases["matmul"], cases["softmax"], "null-device", threads=77) is None
        assert known_slowdown(store, cases["matmul"], cases["softmax"], "null-device", machine="nowhere") is None


def test_the_figures_of_a_run_have_the_matrix(in_group):
    _, found = in_group
    charts = corun_charts(RunView(found.run, tuple(rows_of_records(found.records))))
    matrix, makespans = charts
    assert len(matrix.x.names) == 3
    assert len(matrix.series[0].marks) == 6
    assert {round(mark.value, 1) for mark in matrix.series[0].marks} == {1.4}
    assert len(makespans.series[0].marks) == 4


@NEEDS_TWO_CORES
def test_processes_pinned_to_cores_verify_their_results_together(tmp_path):
    db = tmp_path / "runs.db"
    found = corun(
        ["add", "add"], params=["shape=4096", "2.shape=512"], backend="numpy-cpu", processes=1, db=db, **QUICK
    )
    (result,) = found.results
    assert [one.cores for one in result.members] == [(affinity()[0],), (affinity()[1],)]
    assert [one.params for one in result.members] == ["4096 float32", "512 float32"]
    assert {record.status for record in found.records} <= {"ok", "disturbed"}
    beside = [record for record in found.records if not record.task.settings.company.alone]
    assert [record.verification.after for record in beside] == ["same", "same"]
    # beside, alone, and with both cores
    assert len(found.records) == 6
    assert result.makespan > 0
    with closing(open_store(db)) as store:
        facts = store.environments({record.environment for record in beside})
    assert sorted(one.facts["affinity"] for one in facts.values()) == [[core] for core in affinity()[:2]]


def test_shared_cores_need_no_other_way_to_run_in_sequence(tmp_path):
    found = corun(["add", "add"], backend="null", cores="shared", processes=1, db=tmp_path / "runs.db", **QUICK)
    (result,) = found.results
    assert {one.cores for one in result.members} == {tuple(affinity())}
    assert len(found.records) == 4
    assert len({record.task.id for record in found.records}) == 4  # the same operator twice


def test_cores_and_knobs_are_tuned_together(tmp_path):
    found = corun(
        ["add", "exp"], backend="null", tune=True, trials=2, processes=1, budget=60, db=tmp_path / "runs.db", **QUICK
    )
    (result,) = found.results
    assert result.together is not None
    assert any(note.startswith("best together") for note in found.notes)
    assert any(note.startswith("best alone") for note in found.notes)


def test_a_backend_that_applies_what_was_tuned_is_refused(tmp_path):
    """Its default would run under the name of the tuned one."""
    with pytest.raises(UserError, match="null/tuned applies what was tuned"):
        corun(["add", "exp"], backend="null/tuned", db=tmp_path / "runs.db", **QUICK)


def test_each_operator_of_a_workload_runs_beside_itself_too(tmp_path):
    file = tmp_path / "ops.yaml"
    file.write_text(
        "schema: 1\nname: two\ncases: [{op: add, params: {shape: [64]}}, {op: exp, params: {shape: [64]}}]\n"
    )
    found = corun(workload=file, backend="null-device", processes=1, db=tmp_path / "runs.db", **QUICK)
    assert [tuple(one.op for one in result.members) for result in found.results] == [
        ("add", "add"), ("add", "exp"), ("exp", "exp"),
    ]  # fmt: skip
    one, other = found.results[0].members
    assert one.case == other.case


@pytest.mark.parametrize(
    ("backends", "cores", "expected"),
    [
        (("null", "null"), (), [(0, 0), (0, 1), (1, 1)]),
        (("null", "jax-cuda"), (), [(0, 0), (0, 1)]),  # without streams, processes take turns on the device
        (("null", "torch-cuda"), (), [(0, 0), (0, 1), (1, 1)]),
        (("null", "null"), ("0", "1"), [(0, 1)]),  # each has cores of its own, and none for a second one
        (("null", "null"), ("shared",), [(0, 0), (0, 1), (1, 1)]),
    ],
)
def test_an_operator_runs_beside_itself_only_where_both_have_a_place(monkeypatch, backends, cores, expected):
    monkeypatch.setattr("opmark.api.corun.cores_by_place", lambda: [0, 1])
    cases = [Case.of(op, {"shape": [64]}, "forward") for op in ("add", "exp")]
    operators = [CorunOperator(case, backend(name), "") for case, name in zip(cases, backends, strict=True)]
    session = CorunSession(CorunRequest(workload="ops.yaml", cores=cores), operators)
    found = [tuple(cases.index(one.task.case) for one in members) for members in session.companies()]
    assert found == expected
    monkeypatch.setattr("opmark.api.corun.cores_by_place", lambda: [0])
    if len(set(backends)) == 2:  # one core is enough for one operator on the host
        alone = CorunSession(CorunRequest(workload="ops.yaml", cores=cores), operators).companies()
        assert (cases[0], cases[0]) not in [tuple(one.task.case for one in members) for members in alone]


def interrupt_after(count):
    seen = []

    def on_record(record):
        seen.append(record)
        if len(seen) == count:
            raise KeyboardInterrupt

    return on_record


def test_an_interrupted_co_run_is_resumed_round_by_round(tmp_path):
    given = {"backend": "null-device", "processes": 3, "db": tmp_path / "runs.db", **QUICK}
    with pytest.raises(KeyboardInterrupt):
        corun(["matmul", "softmax"], on_record=interrupt_after(8), **given)
    measured = []
    found = corun(["matmul", "softmax"], resume=True, on_record=measured.append, **given)
    assert len(measured) == 4  # the third round: each operator beside the other one, and alone
    assert {record.task.settings.process for record in measured} == {2}
    assert len(found.records) == 12
    (pair,) = found.results
    assert pair.together.processes == 3
    with closing(open_store(tmp_path / "runs.db")) as store:
        assert [run.id for run in store.runs()] == [found.run.id]
    with pytest.raises(UserError, match="no stored run has this plan"):
        corun(["matmul", "add"], resume=True, **given)


def test_no_co_run_is_begun_when_time_is_up_and_a_longer_budget_resumes_them(tmp_path):
    given = {"backend": "null-device", "processes": 1, "db": tmp_path / "runs.db", **QUICK}
    short = corun(["matmul", "softmax", "add"], budget=1e-6, **given)
    assert len(short.results) == 1
    (note,) = short.notes
    assert note.startswith("2 of 3 co-runs not measured, because --budget is over: --resume")
    whole = corun(["matmul", "softmax", "add"], resume=True, **given)
    assert whole.run.id == short.run.id
    assert len(whole.results) == 3
    assert whole.notes == ()


def test_an_interrupted_search_is_resumed_and_then_judged(tmp_path):
    given = {"backend": "null", "tune": True, "trials": 2, "processes": 1, "budget": 60, "db": tmp_path / "runs.db"}
    with pytest.raises(KeyboardInterrupt):
        corun(["add", "exp"], on_record=interrupt_after(2), **given, **QUICK)
    said = []
    found = corun(["add", "exp"], resume=True, **given, effort="quick", say=said.append)
    assert any("2 records of run" in line and "measured already" in line for line in said)
    assert found.results[0].together is not None


@pytest.mark.parametrize(
    ("records", "more", "expected"),
    [
        (1, [], "the same command with --resume goes on"),
        (0, ["--resume"], "the same command with --resume goes on"),
        (0, [], "nothing was stored"),
    ],
)
def test_an_interrupted_command_says_how_to_go_on(tmp_path, monkeypatch, records, more, expected):
    def interrupt(request):
        for number in range(records):
            request.on_record(number)
        raise KeyboardInterrupt

    monkeypatch.setattr("opmark.api.corun.corun_request", interrupt)
    done = CliRunner().invoke(make_app(), ["corun", "add", "exp", "--db", str(tmp_path / "runs.db"), *more])
    assert done.exit_code == 130
    assert expected in " ".join(done.stderr.split())


def test_the_command_prints_a_table_and_json(tmp_path):
    db = ["--db", str(tmp_path / "runs.db")]
    command = ["corun", "add", "exp", "--backend", "null-device", "--processes", "4", *db]
    shown = CliRunner().invoke(make_app(), command)
    assert shown.exit_code == 0, shown.output
    assert "faster together" in shown.output
    parsed = CliRunner().invoke(make_app(), [*command, "--json"])
    found = json.loads(parsed.stdout)
    assert [len(one["members"]) for one in found["results"]] == [2]
    assert found["results"][0]["together"]["verdict"] == "faster"


def test_the_view_is_plain_data(on_streams):
    _, found = on_streams
    assert json.loads(json.dumps(corun_view(found)))["run"] == found.run.id


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ops": ["add"]}, "expected at least two operators that run at the same time, got 1"),
        ({"ops": []}, "expected operators or a workload, got nothing"),
        ({"ops": ["add", "exp"], "backend": "null,null,null"},
         "--backend: expected one value for all or one for each of 2 operators, got 3"),
        ({"ops": ["add", "exp"], "cores": "nowhere"},
         "--cores: expected split, shared, or a set for each of 2 operators, got 1 value"),
        ({"ops": ["add", "exp"], "cores": ["0", "4096"]}, "--cores 4096: this process may not use core 4096"),
        ({"ops": ["matmul", "exp"], "params": ["M=4"]}, "-p M=4: `exp` has no parameter `M`, and this is for all"),
        ({"ops": ["matmul", "exp"], "params": ["3.M=4"]}, "-p 3.M=4: there is no operator 3 among 2"),
        ({"ops": ["matmul", "exp"], "params": ["1.M=4,8", "1.N=4", "1.K=4"]},
         "`matmul` stands for 2 cases, and one place is for one"),
        ({"ops": ["all_reduce", "exp"], "params": ["1.ranks=2"]}, "all_reduce takes several processes of its own"),
        ({"ops": ["add"] * 5000}, "expected at most 32 operators"),
        ({"ops": ["add"] * 32, "group": True, "backend": "null"}, "there is no core for each"),
        ({"ops": ["add", "exp"], "backend": "null-device", "cores": ["0", "0"]},
         "runs on null-device, not on cores of this machine"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_with_a_hint(arguments, message, tmp_path):
    if arguments.get("group") and len(affinity()) >= 32:
        pytest.skip("there is a core for each")
    with pytest.raises(UserError) as caught:
        corun(**{"backend": "null", **arguments}, db=tmp_path / "runs.db", say=lambda text: None)
    assert message in caught.value.message
    assert caught.value.hint
    assert not (tmp_path / "runs.db").exists()


def test_two_backends_do_not_share_one_device(plugin, tmp_path):
    for name in ("one", "other"):
        plugin(name, device="npu")
    with pytest.raises(UserError, match="would each have a process on the same npu"):
        corun(["add", "exp"], backend="one,other", db=tmp_path / "runs.db")
    with pytest.raises(UserError, match="one cannot run several operators at the same time: it has no streams"):
        corun(["add", "exp"], backend="one", db=tmp_path / "runs.db")


def test_cores_are_read_and_divided():
    assert read_cores("0-2,5") == (0, 1, 2, 5)
    with pytest.raises(InvalidParameter):
        read_cores("3-1")
    assert split_cores([0, 4, 1, 5], 2) == [(0, 4), (1, 5)]
    assert [len(one) for one in split_cores(range(7), 3)] == [2, 3, 2]
