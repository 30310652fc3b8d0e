"""DL Operator Benchmarks and opperf in Python: functions and results, with the known times of the null backend."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from opperf_runs import PREEMPTED, SECONDS, without_workers

from opmark.api.show import show
from opmark.errors import OpmarkError, UserError
from opmark.interop import opperf
from opmark.interop.opperf import custom_operations, nd, nd_operations
from opmark.interop.opperf.benchmark_executor import run_all_mxnet_operator_benchmarks
from opmark.interop.opperf.class_inputs import CLASSES
from opmark.interop.opperf.classes import FUNCTIONS, members, run_all
from opmark.interop.opperf.gluon import loss, nn, rnn
from opmark.interop.opperf.measurement import backend_of, device_of, select_context
from opmark.interop.opperf.operators import CATEGORIES
from opmark.interop.opperf.performance import CATEGORY_FUNCTIONS
from opmark.interop.opperf.utils.benchmark_utils import run_benchmark_operator, run_op_benchmarks

WORTHLESS = "do not use numbers of a preempted call"
NULL: dict[str, Any] = {"framework": "null", "db": ":memory:"}
# The null backend takes 1 µs plus 1 s per 100 GB, and three times as long for forward and backward in one step.
ADD = 3 * (1e-6 + 2 * 1024 * 1024 * 4 / 1e11)


def test_the_readme_of_dl_operator_benchmarks(capsys: pytest.CaptureFixture[str]) -> None:
    add = nd.Add(**NULL)
    add.run_benchmark()
    add.print_benchmark_results()
    assert re.fullmatch(r"MX_Add_Forward_Backward_Time - 0\.\d{6} seconds\n", capsys.readouterr().out)
    assert add.get_benchmark_results() == {"MX_Add_Forward_Backward_Time": pytest.approx(ADD, rel=0.05)}


def test_inputs_on_top_of_the_defaults() -> None:
    add = nd.Add(inputs={"dtype": "float64"}, **NULL)
    text = re.sub(r"0x\w+", "0x0", str(add.inputs))
    assert text == (
        "{'lhs': (1024, 1024), 'rhs': (1024, 1024), 'initializer': <function normal at 0x0>, 'run_backward': True, "
        "'dtype': 'float64'}"
    )
    add.run_benchmark()
    assert add.results["MX_Add_Forward_Backward_Time"] == pytest.approx(2 * ADD, rel=0.06)


def test_instances_of_one_class_have_times_of_their_own() -> None:
    sizes = [(4, 4), (2048, 2048), (4, 4)]
    some = [nd.Add(inputs={"lhs": size, "rhs": size, "run_backward": False}, **NULL) for size in sizes]
    run_all(some)
    times = [one.results["MX_Add_Forward_Time"] for one in some]
    assert times[0] == times[2] < times[1] / 10


def test_without_backward_it_is_forward_only(monkeypatch: pytest.MonkeyPatch) -> None:
    without_workers(monkeypatch)
    add = nd.Add(inputs={"run_backward": False, "lhs": (8, 8), "rhs": (8, 8)}, warmup=0, runs=3, **NULL)
    add.run_benchmark()
    assert list(add.results) == ["MX_Add_Forward_Time"]


def test_an_unknown_input_is_a_value_error_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean `lhs`"):
        nd.Add(inputs={"lsh": (4, 4)})


def test_an_unknown_element_type_is_a_value_error_that_lists_them() -> None:
    with pytest.raises(ValueError, match=r"`dtype` of `Add`: expected one of float64, .*got 'float65'") as caught:
        nd.Add(inputs={"dtype": "float65"})
    assert isinstance(caught.value, UserError)
    assert caught.value.hint == "did you mean `float64`?"
    for wrong in (None, 3, ["float32"], [("dtype", "float32")]):
        with pytest.raises(ValueError, match="`Add`"):
            nd.Add(inputs={"dtype": wrong} if not isinstance(wrong, list) else wrong)
    with pytest.raises(ValueError, match="expected one of"):
        nd.run_all_arithmetic_operations_benchmarks(inputs={"dtype": "float65"}, **NULL)


def test_numbers_to_be_doubted_are_named_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_workers(monkeypatch, PREEMPTED)
    add = nd.Add(framework="null")
    add.run_benchmark()
    add.print_benchmark_results()
    assert add.get_benchmark_results() == {"MX_Add_Forward_Backward_Time": SECONDS}
    add.print_benchmark_results()
    out, err = capsys.readouterr()
    assert out == "MX_Add_Forward_Backward_Time - 0.002000 seconds\n" * 2
    (line,) = err.splitlines()
    assert line.startswith(
        "MX_Add_Forward_Backward_Time is to be doubted: preempted; do not use numbers of a preempted call"
    )
    assert re.search(r"; `opmark show [\d-]+\w+` shows details$", line)
    assert add.cautions == (PREEMPTED,)


def test_numbers_of_a_kind_to_be_doubted_are_named_each_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_workers(monkeypatch, PREEMPTED)
    nd.run_all_arithmetic_operations_benchmarks(framework="null", db="elsewhere.db")
    out, err = capsys.readouterr()
    printed = [line.split(" - ")[0] for line in out.splitlines()]
    assert [line.split(" is to be")[0] for line in err.splitlines()] == printed
    assert err.count("--db elsewhere.db`") == 12
    nd.run_all_arithmetic_operations_benchmarks(**NULL)
    assert "opmark show" not in capsys.readouterr().err  # nothing is stored


def test_without_doubts_nothing_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    without_workers(monkeypatch)
    nd.run_all_arithmetic_operations_benchmarks(**NULL)
    opperf.run_performance_test("add", {"lhs": (2,), "rhs": (2,)}, **NULL)
    assert capsys.readouterr().err == ""


def test_opperfs_own_calls_name_doubts_by_operator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_workers(monkeypatch, PREEMPTED)
    shapes = [{"lhs": (2,), "rhs": (2,)}, {"lhs": (3,), "rhs": (3,)}]
    opperf.run_performance_test("add", shapes, framework="null")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "add: 2 of 2 results to be doubted: preempted; do not use numbers of a preempted call; `opmark show"
    )
    found = opperf.run_pooling_operators_benchmarks(framework="null")
    said = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in said] == list(found) == ["Pooling", "ROIPooling"]


def test_threads_go_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = without_workers(monkeypatch)
    nd.Add(threads=1, **NULL).run_benchmark()
    nd.run_all_arithmetic_operations_benchmarks(threads=2, **NULL)
    opperf.run_performance_test("add", {"lhs": (2,), "rhs": (2,)}, threads=3, **NULL)
    opperf.run_pooling_operators_benchmarks(threads=4, **NULL)
    assert [one["threads"] for one in asked] == [1, 2, 3, 4]
    nd.Add(**NULL).run_benchmark()
    assert asked[-1]["threads"] == ()
    with pytest.raises(UserError, match="threads"):
        nd.Add(threads=0, **NULL).run_benchmark()


def test_an_initializer_of_ones_own_is_warned_about() -> None:
    with pytest.warns(UserWarning, match="initializer"):
        nd.Add(inputs={"initializer": print})


def test_all_of_a_category_in_the_order_of_the_readme(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_workers(monkeypatch)
    found = nd.run_all_arithmetic_operations_benchmarks(inputs={"dtype": "float32"}, warmup=0, runs=2, **NULL)
    printed = [line.split(" - ")[0] for line in capsys.readouterr().out.splitlines()]
    both, forward = "Forward_Backward_Time", "Forward_Time"
    assert printed == [
        *(f"MX_{n}_{both}" for n in ("Add", "Multiply", "Subtract", "Divide", "Modulo", "Power", "Negative")),
        *(f"MX_Inplace_{n}_{forward}" for n in ("Add", "Subtract", "Multiply", "Division", "Modulo")),
    ]
    assert [name for result in found for name in result] == printed
    with pytest.raises(ValueError, match="dtype"):
        nd.run_all_arithmetic_operations_benchmarks(inputs={"dtpye": 1}, **NULL)


def test_every_class_and_every_function_is_in_its_module() -> None:
    modules = {"nd": nd, "gluon.nn": nn, "gluon.rnn": rnn, "gluon.loss": loss}
    for name, module in modules.items():
        for found in members(name):
            assert callable(getattr(module, found))
            assert getattr(opperf, found) is getattr(module, found)
    assert len(CLASSES) == 73
    assert sum(len(members(name)) for name in modules) == 72 + len(FUNCTIONS) - 1
    with pytest.raises(AttributeError, match="did you mean Add"):
        _ = nd.Ad


def test_modules_list_their_names() -> None:
    assert {"Add", "run_all_arithmetic_operations_benchmarks"} <= set(dir(nd)) == set(members("nd"))
    assert "CustomOpElementwiseAdd" in dir(custom_operations)
    assert {"Add", "LSTM", "run_performance_test", "run_linalg_operators_benchmarks"} <= set(dir(opperf))
    for module in (opperf, nd, nn, rnn, loss, custom_operations):
        assert all(callable(getattr(module, name)) for name in dir(module))


def test_star_import_has_all_names() -> None:
    scope: dict[str, Any] = {}
    exec("from opmark.interop.opperf.gluon.nn import *", scope)
    assert scope["Conv2D"] is nn.Conv2D
    exec("from opmark.interop.opperf import *", scope)
    assert scope["run_performance_test"] is opperf.run_performance_test


def test_all_classes_at_once() -> None:
    found = run_all_mxnet_operator_benchmarks(warmup=0, runs=1, **NULL)
    assert len(found) == 73
    assert found["MX_Add_Forward_Backward_Time"] == pytest.approx(ADD, rel=0.05)


@pytest.mark.parametrize("name", ["Conv1DTranspose", "LSTM", "L2Loss", "Lesser", "Arange", "GlobalAvgPool2D"])
def test_classes_of_each_module(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_workers(monkeypatch)
    found = getattr(opperf, name)(warmup=0, runs=2, **NULL)
    found.run_benchmark()
    (key,) = found.results
    forward_only = name in ("L2Loss", "Lesser", "Arange")
    assert key.startswith("MX_")
    assert key.endswith("_Forward_Time" if forward_only else "_Forward_Backward_Time")


def test_an_operator_that_cannot_be_measured_says_why() -> None:
    with pytest.raises(OpmarkError, match="float16"):
        nd.Exp(inputs={"dtype": "int8"}, **NULL).run_benchmark()


def test_results_are_stored_by_default(isolated: Path) -> None:
    nd.Negative(inputs={"data": (8, 8)}, framework="null", warmup=0, runs=2).run_benchmark()
    (record,) = show().records
    assert (record.task.case.op, record.task.settings.sampling.samples) == ("negative", 2)
    before = (isolated / "data" / "opmark" / "opmark.db").stat().st_size
    nd.Negative(inputs={"data": (8, 8)}, warmup=0, runs=2, **NULL).run_benchmark()
    assert len(show().records) == 1
    assert (isolated / "data" / "opmark" / "opmark.db").stat().st_size == before


def test_run_performance_test_returns_opperfs_structure() -> None:
    inputs = [{"lhs": (4, 8), "rhs": (4, 8)}, {"lhs": (4, 8), "rhs": (4, 8)}, {"lhs": (2, 2), "rhs": (2, 1)}]
    found = opperf.run_performance_test(["add", "subtract"], inputs, warmup=0, runs=3, **NULL)
    assert [list(result) for result in found] == [["add"], ["subtract"]]
    first = found[0]["add"]
    assert [result["inputs"] for result in first] == inputs
    assert all({"avg_time_forward_add", "avg_time_backward_add"} <= set(result) for result in first)
    assert first[0]["avg_time_forward_add"] == pytest.approx(1e3 * (1e-6 + 2 * 32 * 4 / 1e11), rel=0.05)


def test_run_performance_test_takes_functions_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    without_workers(monkeypatch)

    def sample_poisson() -> None: ...

    inputs = [{"lam": [1, 8], "shape": (100,)}]
    found = opperf.run_performance_test(sample_poisson, inputs, warmup=0, runs=3, profiler="python", **NULL)
    (result,) = found[0]["sample_poisson"]
    names = {f"{p}_time_sample_poisson" for p in ("avg", "p50", "p90", "p99")}
    assert set(result) - {"cautions"} == names | {"inputs"}


@pytest.mark.parametrize(
    ("inputs", "more", "message"),
    [
        ([{"lhs": (1,)}], {}, "^`add` needs `rhs`"),
        (None, {}, "^inputs: expected a list of dictionaries, got None"),
        ([], {}, "^inputs: expected a list of dictionaries"),
        ([{"lhs": (1,), "rhs": (1,)}, (1,)], {}, r"^inputs\[1\]: expected a dictionary, got \(1,\)"),
        ([{"lhs": (1,), "rhs": (1,)}], {"profiler": "pyton"}, "^profiler: expected native or python, got 'pyton'"),
        ([{"lhs": (1,), "rhs": (1,)}], {"dtype": "float65"}, "^dtype: expected one of float64, .*got 'float65'"),
    ],
)
def test_wrong_calls_of_run_performance_test(inputs: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        opperf.run_performance_test("add", inputs, **more, **NULL)


def test_wrong_operators_and_profilers() -> None:
    with pytest.raises(UserError, match="an empty list names no operator"):
        opperf.run_performance_test([], {"lhs": (1,)}, **NULL)
    with pytest.raises(UserError, match="no operator of opperf named `ad`"):
        opperf.run_performance_test("ad", {"lhs": (1,)}, **NULL)
    with pytest.raises(UserError, match="profiler: expected native or python, got 'xx'"):
        opperf.run_pooling_operators_benchmarks(profiler="xx", **NULL)


def test_one_dictionary_of_inputs_is_a_list_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    without_workers(monkeypatch)
    inputs = {"lhs": (4, 8), "rhs": (4, 8)}
    ((result,),) = (found["add"] for found in opperf.run_performance_test("add", inputs=inputs, **NULL))
    assert result["inputs"] == inputs
    assert result["avg_time_forward_add"] == SECONDS * 1e3


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("one_hot", {"indices": (8,), "depth": 4}),
        ("mp_sgd_update", {"weight": (8, 8), "grad": (8, 8)}),
        ("transpose", {"data": (2, 3), "axes": [1, 0]}),
        ("broadcast_to", {"data": (1, 3), "shape": [2, 3]}),
        ("linalg_potrf", {"A": [[1, 0], [0, 1]]}),
    ],
)
def test_the_default_element_type_is_for_operators_that_have_it(
    name: str, inputs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_workers(monkeypatch)
    found = opperf.run_performance_test(name, [inputs], warmup=0, runs=1, **NULL)
    assert f"avg_time_forward_{name}" in found[0][name][0]


def test_a_function_for_each_category(monkeypatch: pytest.MonkeyPatch) -> None:
    without_workers(monkeypatch)
    assert set(CATEGORY_FUNCTIONS.values()) == set(CATEGORIES)
    found = opperf.run_mx_binary_element_wise_operators_benchmarks(warmup=0, runs=1, **NULL)
    assert set(found) == set(CATEGORIES["binary-elementwise"])
    assert [r["inputs"] for r in found["elemwise_sub"]][:3] == [
        {"lhs": shape, "rhs": shape} for shape in ([1024, 1024], [10000, 10], [10000, 1])
    ]
    doubles = opperf.run_rounding_operators_benchmarks(dtype="float64", warmup=0, runs=1, **NULL)
    assert doubles["ceil"][0]["inputs"] == {"data": [1024, 1024], "dtype": "float64"}


class Context:
    device_type, device_id = "gpu", 2


@pytest.mark.parametrize(
    ("ctx", "device"), [("cpu", ("cpu", 0)), ("GPU", ("gpu", 0)), ("gpu(3)", ("gpu", 3)), (Context(), ("gpu", 2))]
)
def test_contexts(ctx: Any, device: tuple[str, int]) -> None:
    assert device_of(ctx) == device


@pytest.mark.parametrize("ctx", ["tpu", "gpu(x)", "", None, 3])
def test_invalid_contexts_are_refused(ctx: Any) -> None:
    with pytest.raises(UserError, match="ctx: expected cpu, gpu"):
        device_of(ctx)


def test_a_worker_sees_the_gpu_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7")
    with select_context("gpu(2)"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "5,6,7"
    with pytest.raises(UserError, match="only 3 can be seen"), select_context("gpu(3)"):
        pass
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with select_context("gpu(1)"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_backends_of_frameworks() -> None:
    assert backend_of("cpu", "torch") == "torch-cpu"
    assert backend_of("gpu(1)", "torch") == "torch-cuda"
    assert backend_of("cpu", "null") == "null"
    assert backend_of("cpu", "mxnet") == "mxnet-cpu"
    assert backend_of("gpu", "mxnet") == "mxnet-cuda"
    for framework in ("tensorflow", "paddle"):
        with pytest.raises(UserError, match=f"no backend runs {framework} on a gpu"):
            backend_of("gpu", framework)


# Module paths of opperf.


def test_every_function_of_a_category_is_in_the_module_that_opperf_has_it_in() -> None:
    listed = [function for functions in nd_operations.MODULES.values() for function in functions]
    assert sorted(listed) == sorted(CATEGORY_FUNCTIONS)
    from opmark.interop.opperf.nd_operations.binary_operators import run_mx_binary_misc_operators_benchmarks as misc
    from opmark.interop.opperf.nd_operations.unary_operators import run_mx_unary_operators_benchmarks as unary

    assert (misc.__name__, unary) == (
        "run_mx_binary_misc_operators_benchmarks", opperf.run_mx_unary_operators_benchmarks,
    )  # fmt: skip


def test_one_operator_with_tensors_of_one_size() -> None:
    ((found,),) = run_benchmark_operator("add", size=(64, 64), **NULL)
    assert found["add"][0]["inputs"] == {"lhs": (64, 64), "rhs": (64, 64)}
    given = {"rhs": (64, 8)}
    ((found,),) = run_benchmark_operator("dot", (32, 64), given, run_backward=True, warmup=1, runs=2, **NULL)
    assert found["dot"][0]["inputs"] == {"rhs": (64, 8), "lhs": (32, 64)}
    assert any(key.startswith("avg_time_backward") for key in found["dot"][0])


def test_operators_by_name_with_default_inputs() -> None:
    found = run_op_benchmarks({"exp": {"has_backward": True}, "relu": {}}, warmup=1, runs=2, **NULL)
    assert list(found) == ["exp", "relu"]
