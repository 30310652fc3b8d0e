"""Cases to tasks, and what cannot run to records that say why."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from opmark.errors import UnknownName, UserError
from opmark.plugin import BackendInfo
from opmark.plugin.registry import backend, backends, implementations, operator
from opmark.runner import plan as module
from opmark.runner.plan import Plan, make_plan, settings_for
from opmark.schema import Case, Settings, TensorSpec
from opmark.schema.case import Phase
from opmark.schema.options import MeasureOptions

Plugin = Callable[..., BackendInfo]


def case(op: str = "exp", phase: Phase = "forward", **params: object) -> Case:
    given = params or {"shape": [4]}
    return Case.of(op, operator(op).complete(given), phase)


def settings(*threads: int, effort: str = "quick") -> list[Settings]:
    return settings_for(MeasureOptions(threads=threads or (1,), effort=effort))


def reasons(plan: Plan) -> list[str]:
    return [record.reason for record in plan.skipped]


CASES = [case("exp"), case("matmul", M=2, N=2, K=2), case("add")]


# Tasks.


def test_there_is_a_task_for_every_case_backend_and_setting() -> None:
    plan = make_plan(CASES, ["null", "numpy-cpu"], settings(1, 2))
    assert len(plan.tasks) == 3 * 2 * 2
    assert len({task.id for task in plan.tasks}) == 12
    assert plan.skipped == ()


def test_tasks_are_ordered_so_that_each_worker_starts_once() -> None:
    plan = make_plan(CASES, ["null", "numpy-cpu"], settings(1, 2))
    groups = list(plan.groups())
    assert [(name, threads) for name, threads, *_ in groups] == [
        ("null", 1), ("null", 2), ("numpy-cpu", 1), ("numpy-cpu", 2),
    ]  # fmt: skip
    for name, threads, _, tasks, _ in groups:
        assert [task.case for task in tasks] == CASES
        assert {(task.backend, task.settings.threads) for task in tasks} == {(name, threads)}


def test_every_round_of_processes_has_every_case_on_every_backend() -> None:
    plan = make_plan(
        CASES, ["null", "numpy-cpu"], settings_for(MeasureOptions(threads=[1, 2], effort="quick", processes=2))
    )
    assert [(name, threads) for name, threads, *_ in plan.groups()] == 2 * [
        ("null", 1), ("null", 2), ("numpy-cpu", 1), ("numpy-cpu", 2),
    ]  # fmt: skip
    for _, _, _, tasks, _ in plan.groups():
        assert [task.case for task in tasks] == CASES
        assert len({task.settings.process for task in tasks}) == 1
    processes = [task.settings.process for task in plan.tasks]
    assert processes == sorted(processes)


def test_two_rounds_of_one_worker_are_two_workers() -> None:
    """Where there is one backend and one number of threads, only the round tells the processes apart."""
    plan = make_plan(CASES, ["null"], settings_for(MeasureOptions(threads=[1], effort="quick", processes=3)))
    assert [len(tasks) for _, _, _, tasks, _ in plan.groups()] == [3, 3, 3]
    assert len({task.id for task in plan.tasks}) == 9
    assert len({task.across_processes.id for task in plan.tasks}) == 3


def test_the_rest_of_a_round_is_still_a_round() -> None:
    plan = make_plan(CASES, ["null"], settings_for(MeasureOptions(threads=[1], effort="quick", processes=2)))
    rest = plan.without({task.id for task in plan.tasks[:4]})
    assert [(tasks[0].settings.process, len(tasks)) for _, _, _, tasks, _ in rest.groups()] == [(1, 2)]


def test_what_cannot_run_is_told_once_and_not_for_every_process() -> None:
    cases = [*CASES, case("exp", "backward")]
    plan = make_plan(cases, ["numpy-cpu"], settings_for(MeasureOptions(threads=[1], effort="quick", processes=4)))
    assert len(plan.tasks) == 12
    (record,) = plan.skipped
    assert record.task.settings.process == 0


def test_a_backend_that_is_named_twice_runs_once() -> None:
    assert len(make_plan(CASES, ["null", "null"], settings()).tasks) == 3


def test_a_task_names_the_implementation() -> None:
    plan = make_plan([case()], ["null", "numpy-cpu"], settings())
    assert [task.implementation for task in plan.tasks] == ["null", "numpy"]


def test_a_backend_that_computes_nothing_takes_every_operator() -> None:
    assert [i.framework for i in implementations(operator("conv2d"), backend("null"))] == ["null"]
    assert [i.framework for i in implementations(operator("conv2d"), backend("numpy-cpu"))] == ["numpy"]


# Several ranks.


def _rank_case(op: str = "all_reduce", **params: object) -> Case:
    found = operator(op)
    return Case.of(found.name, found.complete({"size": 8, **params}), "forward")


def test_a_world_of_ranks_is_started_once_for_all_its_cases() -> None:
    cases = [_rank_case(ranks=2), case(), _rank_case(ranks=4), _rank_case(ranks=2, dtype="int8"), case("add")]
    groups = list(make_plan(cases, ["torch-cpu"], settings(4)).groups())
    assert [(group.ranks, len(group.tasks)) for group in groups] == [(0, 2), (2, 2), (4, 1)]


def test_ranks_share_the_cores_where_nobody_asked_for_threads() -> None:
    cases = [case(), _rank_case(ranks=3), _rank_case(ranks=16)]
    plan = make_plan(cases, ["torch-cpu"], settings(8), divided=True)
    assert [task.settings.threads for task in plan.tasks] == [8, 2, 1]
    assert {task.settings.threads for task in make_plan(cases, ["torch-cpu"], settings(8)).tasks} == {8}


def test_ranks_are_measured_in_as_few_processes_as_a_device() -> None:
    every = settings_for(MeasureOptions(threads=[1], effort="standard"))
    plan = make_plan([case(), _rank_case(ranks=2)], ["torch-cpu"], every, by_device=True)
    counts = Counter(task.case.op for task in plan.tasks)
    assert (counts["exp"], counts["all_reduce"]) == (5, 1)


@pytest.mark.parametrize(
    ("name", "op", "reason"),
    [("torch-cpu", "host2device", "there is no device"), ("torch-compile-cpu", "all_reduce", "is not compiled"),
     ("numpy-cpu", "all_reduce", "no implementation for numpy"), ("null", "all_reduce", "no implementation for null")],
)  # fmt: skip
def test_what_a_backend_cannot_communicate_is_skipped_with_a_reason(name: str, op: str, reason: str) -> None:
    plan = make_plan([case(), _rank_case(op)], [name], settings())
    assert [record.task.case.op for record in plan.skipped] == [op]
    assert reason in plan.skipped[0].reason


# Identity.


def test_the_id_of_a_case_stays_what_it_was() -> None:
    """Every store that was ever written refers to cases by this: a new value loses all history."""
    assert case("exp", shape=[2048, 2048]).id == "147c2f0e5abfe9b8"


def test_ids_are_the_same_in_another_process() -> None:
    script = "import opmark; p = opmark.plan('exp', backend='null', threads=1); print(p.id, p.tasks[0].id)"
    environ = {**os.environ, "PYTHONHASHSEED": "12345"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environ)
    plan = make_plan([case("exp", shape=[2048, 2048])], ["null"], settings(effort="standard"), by_device=True)
    assert done.stdout.split() == [plan.id, plan.tasks[0].id]


def test_the_id_of_a_plan_does_not_depend_on_the_order() -> None:
    one = make_plan(CASES, ["null", "numpy-cpu"], settings(1, 2))
    two = make_plan(CASES[::-1], ["numpy-cpu", "null"], settings(2, 1))
    assert one.id == two.id


@pytest.mark.parametrize(
    "other",
    [
        lambda: make_plan(CASES[:2], ["null"], settings()),
        lambda: make_plan(CASES, ["numpy-cpu"], settings()),
        lambda: make_plan(CASES, ["null"], settings(2)),
        lambda: make_plan(CASES, ["null"], settings(effort="standard")),
        lambda: make_plan(CASES, ["null"], settings_for(MeasureOptions(threads=[1], effort="quick", seed=1))),
        lambda: make_plan(CASES, ["null"], settings_for(MeasureOptions(threads=[1], effort="quick", verify=False))),
        lambda: make_plan(
            CASES, ["null"], settings_for(MeasureOptions(threads=[1], effort="quick", quantity=["throughput"]))
        ),
        lambda: make_plan(CASES, ["null"], settings_for(MeasureOptions(threads=[1], effort="quick", cache=["cold"]))),
        lambda: make_plan(CASES, ["null"], settings_for(MeasureOptions(threads=[1], effort="quick", mode="discrete"))),
        lambda: make_plan(CASES, ["null"], settings_for(MeasureOptions(threads=[1], effort="quick", timer="events"))),
        lambda: make_plan(CASES, ["null"], settings_for(MeasureOptions(threads=[1], effort="quick", processes=2))),
        lambda: make_plan(CASES, ["null"], settings_for(MeasureOptions(threads=[1], effort="quick", samples=9))),
    ],
    ids=[
        "cases",
        "backend",
        "threads",
        "effort",
        "seed",
        "verify",
        "quantity",
        "cache",
        "mode",
        "timer",
        "processes",
        "samples",
    ],
)
def test_another_plan_has_another_id(other: Callable[[], Plan]) -> None:
    assert make_plan(CASES, ["null"], settings()).id != other().id


def test_what_is_skipped_belongs_to_the_identity_of_a_plan() -> None:
    with_skipped = make_plan([*CASES, case("exp", "backward")], ["numpy-cpu"], settings())
    assert len(with_skipped.tasks) == 3
    assert with_skipped.id != make_plan(CASES, ["numpy-cpu"], settings()).id


def test_what_is_done_can_be_taken_away() -> None:
    plan = make_plan([*CASES, case("exp", "backward")], ["numpy-cpu"], settings())
    rest = plan.without({plan.tasks[1].id})
    assert rest.tasks == (plan.tasks[0], plan.tasks[2])
    assert rest.skipped == plan.skipped
    assert plan.without({plan.skipped[0].task.id}).skipped == ()


# What cannot run.


def test_an_operator_without_an_implementation_is_skipped(plugin: Plugin) -> None:
    plugin("stranger", framework="nobody", computes=True)
    plan = make_plan([case("exp")], ["null", "stranger"], settings())
    assert reasons(plan) == ["`exp` has no implementation for nobody"]


def test_an_element_type_that_the_backend_lacks_is_skipped() -> None:
    plan = make_plan([case("exp"), case("exp", shape=[4], dtype="bfloat16")], ["numpy-cpu"], settings())
    assert [task.case.params["dtype"] for task in plan.tasks] == ["float32"]
    assert reasons(plan) == ["numpy-cpu has no bfloat16"]


def test_every_element_type_of_a_case_counts() -> None:
    cast = case("cast", shape=[4], dtype="float32", to="bfloat16")
    assert reasons(make_plan([case("exp"), cast], ["numpy-cpu"], settings())) == ["numpy-cpu has no bfloat16"]


def test_a_backend_that_cannot_differentiate_skips_the_backward_phase() -> None:
    plan = make_plan([case("exp"), case("exp", "backward")], ["numpy-cpu", "null"], settings())
    (reason,) = reasons(plan)
    assert "numpy-cpu" in reason
    assert "backward" in reason
    assert [(task.backend, task.case.phase) for task in plan.tasks] == [
        ("numpy-cpu", "forward"), ("null", "forward"), ("null", "backward"),
    ]  # fmt: skip


def test_a_step_of_training_needs_differentiation_too() -> None:
    plan = make_plan([case("exp"), case("exp", "both")], ["numpy-cpu", "null"], settings())
    (reason,) = reasons(plan)
    assert "no phase both" in reason
    assert [(task.backend, task.case.phase) for task in plan.tasks[1:]] == [("null", "forward"), ("null", "both")]


def test_an_operator_without_a_gradient_has_no_backward_phase() -> None:
    fault = case("fault", "backward", kind="none")
    assert reasons(make_plan([case(), fault], ["null"], settings())) == ["`fault` has no gradient"]


def test_there_is_no_gradient_through_integers() -> None:
    cast = case("cast", "backward", shape=[4], dtype="float32", to="int32")
    assert reasons(make_plan([case(), cast], ["null"], settings())) == ["`cast` has no gradient through int32"]


def test_a_framework_that_is_missing_is_told_with_the_way_to_get_it(plugin: Plugin) -> None:
    plugin("absent", requires="module_that_nobody_has", install="pip install 'opmark[absent]'")
    plan = make_plan([case()], ["absent", "null"], settings())
    assert reasons(plan) == ["module_that_nobody_has is not installed (pip install 'opmark[absent]')"]


def test_a_skipped_record_is_the_task_it_would_have_been() -> None:
    plan = make_plan([case(), case("exp", "backward")], ["numpy-cpu"], settings(3))
    (record,) = plan.skipped
    assert record.status == "skipped"
    assert (record.task.backend, record.task.settings.threads, record.task.case.phase) == ("numpy-cpu", 3, "backward")
    assert record.measurements == ()


def test_a_plan_of_nothing_but_skipped_is_a_mistake() -> None:
    with pytest.raises(UserError, match="nothing can run of 2 tasks") as caught:
        make_plan([case("exp", "backward"), case("exp", shape=[4], dtype="bfloat16")], ["numpy-cpu"], settings())
    assert "no automatic differentiation" in caught.value.message
    assert "numpy-cpu has no bfloat16" in caught.value.message
    assert caught.value.hint


def test_products_in_tf32_are_planned_where_a_backend_has_them() -> None:
    product = case("matmul", M=8, N=8, K=8, dtype="tfloat32")
    with pytest.raises(UserError, match="torch-cpu has no tfloat32"):
        make_plan([product], ["torch-cpu"], settings())
    assert {"torch-cuda", "torch-compile-cuda", "jax-cuda"} <= {
        name for name, info in backends().items() if "tfloat32" in info.dtypes
    }


def test_an_element_type_that_was_added_later_has_its_default_in_older_cases() -> None:
    older = case("quantize", shape=[4], per="tensor", zero_point=0, dtype="float32")
    assert "quantized_dtype" not in older.params
    assert len(make_plan([older], ["numpy-cpu"], settings()).tasks) == 1


def test_many_reasons_are_cut_short() -> None:
    dtypes = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]
    cases = [Case.of("exp", {"shape": [4], "dtype": dtype}, "forward") for dtype in dtypes]
    with pytest.raises(UserError) as caught:
        make_plan([case("exp", "backward"), *cases], ["numpy-cpu"], settings())
    assert caught.value.message.endswith("; ...")
    assert caught.value.message.count(";") == 3


def test_an_unknown_backend_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no backend named `nunpy-cpu`") as caught:
        make_plan(CASES, ["nunpy-cpu"], settings())
    assert "`numpy-cpu`" in (caught.value.hint or "")


def test_an_operator_that_is_broken_is_an_error_and_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def inputs(params: object) -> dict[str, TensorSpec]:
        raise KeyError("shap")

    broken = replace(operator("exp"), inputs=inputs)
    monkeypatch.setattr(module, "find_operator", lambda name: broken if name == "exp" else operator(name))
    plan = make_plan([case("exp", "backward"), case("add")], ["null"], settings())
    (record,) = plan.skipped
    assert record.status == "error"
    assert "operator `exp` is broken: KeyError: 'shap'" in record.reason
    assert [task.case.op for task in plan.tasks] == ["add"]


# Implementations by name, and functions of the user.


def labels(plan: Plan) -> list[str]:
    return [task.implementation for task in plan.tasks]


def test_functions_run_beside_the_built_in_ones_unless_one_is_named(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels.py"
    kernels.write_text("raise RuntimeError('planning imports nothing')\n")
    mine, cases = f"{kernels}:f", [case("exp")]
    assert labels(make_plan(cases, ["numpy-cpu"], settings(), impl=[mine])) == ["numpy", mine]
    assert labels(make_plan(cases, ["numpy-cpu"], settings(), impl=[mine], alone=True)) == [mine]
    assert labels(make_plan(cases, ["numpy-cpu"], settings(), impl=["numpy"])) == ["numpy"]
    assert labels(make_plan(cases, ["torch-cpu", "numpy-cpu"], settings(), impl=["numpy", mine])) == [
        mine, "numpy", mine,
    ]  # fmt: skip


def test_an_implementation_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="`exp` has no implementation `cudnn` for numpy"):
        make_plan([case("exp")], ["numpy-cpu"], settings(), impl=["cudnn"])
    with pytest.raises(UserError, match=r"--impl: there is no file .*nothing.py"):
        make_plan([case("exp")], ["numpy-cpu"], settings(), impl=[f"{tmp_path}/nothing.py:f"])
