"""DL Operator Benchmarks and opperf in Python: their calls, their results, through the null backend's known times."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from opmark import api
from opmark.compat import opperf
from opmark.compat.opperf import nd
from opmark.compat.opperf.benchmark_executor import run_all_mxnet_operator_benchmarks
from opmark.compat.opperf.classes import FUNCTIONS, members
from opmark.compat.opperf.context import backend_of, device_of, visible
from opmark.compat.opperf.gluon import loss, nn, rnn
from opmark.compat.opperf.performance import CATEGORY_FUNCTIONS
from opmark.errors import OpmarkError, UserError
from opmark.importers.opperf.classes import CLASSES
from opmark.importers.opperf.names import CATEGORIES

NULL: dict[str, Any] = {"framework": "null", "db": ":memory:"}
# The null backend takes 1 µs and a second for 100 GB; forward and backward in one step three times as long.
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


def test_without_backward_it_is_forward_only() -> None:
    add = nd.Add(inputs={"run_backward": False, "lhs": (8, 8), "rhs": (8, 8)}, warmup=0, runs=3, **NULL)
    add.run_benchmark()
    assert list(add.results) == ["MX_Add_Forward_Time"]


def test_an_unknown_input_is_a_value_error_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean `lhs`"):
        nd.Add(inputs={"lsh": (4, 4)})


def test_an_initializer_of_ones_own_is_warned_about() -> None:
    with pytest.warns(UserWarning, match="initializer"):
        nd.Add(inputs={"initializer": print})


def test_all_of_a_category_in_the_order_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_every_class_and_every_function_is_where_it_was() -> None:
    modules = {"nd": nd, "gluon.nn": nn, "gluon.rnn": rnn, "gluon.loss": loss}
    for name, module in modules.items():
        for found in members(name):
            assert callable(getattr(module, found))
            assert getattr(opperf, found) is getattr(module, found)
    assert len(CLASSES) == 73
    assert sum(len(members(name)) for name in modules) == 72 + len(FUNCTIONS) - 1
    with pytest.raises(AttributeError, match="did you mean Add"):
        _ = nd.Ad


def test_star_import_has_them_all() -> None:
    scope: dict[str, Any] = {}
    exec("from opmark.compat.opperf.gluon.nn import *", scope)
    assert scope["Conv2D"] is nn.Conv2D


def test_all_classes_at_once() -> None:
    found = run_all_mxnet_operator_benchmarks(warmup=0, runs=1, **NULL)
    assert len(found) == 73
    assert found["MX_Add_Forward_Backward_Time"] == pytest.approx(ADD, rel=0.05)


@pytest.mark.parametrize("name", ["Conv1DTranspose", "LSTM", "L2Loss", "Lesser", "Arange", "GlobalAvgPool2D"])
def test_classes_of_each_module(name: str) -> None:
    found = getattr(opperf, name)(warmup=0, runs=2, **NULL)
    found.run_benchmark()
    (key,) = found.results
    forward_only = name in ("L2Loss", "Lesser", "Arange")
    assert key.startswith("MX_")
    assert key.endswith("_Forward_Time" if forward_only else "_Forward_Backward_Time")


def test_what_cannot_be_measured_says_why() -> None:
    with pytest.raises(OpmarkError, match="float16"):
        nd.Exp(inputs={"dtype": "int8"}, **NULL).run_benchmark()


def test_results_are_kept_unless_told_otherwise(isolated: Path) -> None:
    nd.Negative(inputs={"data": (8, 8)}, framework="null", warmup=0, runs=2).run_benchmark()
    (record,) = api.show().records
    assert (record.task.case.op, record.task.settings.sampling.samples) == ("negative", 2)
    before = (isolated / "data" / "opmark" / "opmark.db").stat().st_size
    nd.Negative(inputs={"data": (8, 8)}, warmup=0, runs=2, **NULL).run_benchmark()
    assert len(api.show().records) == 1
    assert (isolated / "data" / "opmark" / "opmark.db").stat().st_size == before


def test_run_performance_test_returns_opperfs_structure() -> None:
    inputs = [{"lhs": (4, 8), "rhs": (4, 8)}, {"lhs": (4, 8), "rhs": (4, 8)}, {"lhs": (2, 2), "rhs": (2, 1)}]
    found = opperf.run_performance_test(["add", "subtract"], inputs, warmup=0, runs=3, **NULL)
    assert [list(result) for result in found] == [["add"], ["subtract"]]
    first = found[0]["add"]
    assert [result["inputs"] for result in first] == inputs
    assert all({"avg_time_forward_add", "avg_time_backward_add"} <= set(result) for result in first)
    assert first[0]["avg_time_forward_add"] == pytest.approx(1e3 * (1e-6 + 2 * 32 * 4 / 1e11), rel=0.05)


def test_run_performance_test_takes_functions_and_values() -> None:
    def sample_poisson() -> None: ...

    inputs = [{"lam": [1, 8], "shape": (100,)}]
    found = opperf.run_performance_test(sample_poisson, inputs, warmup=0, runs=3, profiler="python", **NULL)
    (result,) = found[0]["sample_poisson"]
    names = {f"{p}_time_sample_poisson" for p in ("avg", "p50", "p90", "p99")}
    assert set(result) - {"cautions"} == names | {"inputs"}
    with pytest.raises(UserError, match="needs `rhs`"):
        opperf.run_performance_test("add", [{"lhs": (1,)}], **NULL)


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
def test_the_usual_element_type_is_for_those_that_have_it(name: str, inputs: dict[str, Any]) -> None:
    found = opperf.run_performance_test(name, [inputs], warmup=0, runs=1, **NULL)
    assert f"avg_time_forward_{name}" in found[0][name][0]


def test_a_function_for_each_category() -> None:
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
def test_contexts_that_are_none(ctx: Any) -> None:
    with pytest.raises(UserError, match="ctx: expected cpu, gpu"):
        device_of(ctx)


def test_a_worker_sees_the_gpu_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7")
    with visible("gpu(2)"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "5,6,7"
    with pytest.raises(UserError, match="only 3 can be seen"), visible("gpu(3)"):
        pass
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with visible("gpu(1)"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_backends_of_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert backend_of("cpu", "torch") == "torch-cpu"
    assert backend_of("gpu(1)", "torch") == "torch-cuda"
    assert backend_of("cpu", "null") == "null"
    with pytest.raises(UserError, match="no backend runs tensorflow on a cpu"):
        backend_of("cpu", "tensorflow")
    monkeypatch.setattr("opmark.compat.opperf.context.backends", lambda: {"mxnet-cpu": None})
    assert backend_of("cpu", "mxnet") == "mxnet-cpu"
