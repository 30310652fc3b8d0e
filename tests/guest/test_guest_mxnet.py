"""MXNet's backend and tables, and opperf on it, in the environment of `opmark env create mxnet`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from outcomes import covered, outcomes

from opmark.api.run import run as api_run
from opmark.interop.opperf import run_performance_test
from opmark.interop.opperf.command import main
from opmark.interop.opperf.nd import Add
from opmark.plugin.registry import catalogue
from opmark.runner.guests import environments
from opmark.schema import Record

# Asked while this file is imported: a test has data directories of its own.
FOLDER = environments.environments_folder()
GUEST = environments.find_environment("mxnet")

pytestmark = [
    pytest.mark.skipif(GUEST is None, reason="no environment `mxnet` (opmark env create mxnet)"),
    pytest.mark.timeout(1200),  # the first test to ask for the table runs all of it
]

BACKEND = "mxnet-cpu"
Sabotage = Callable[[str], AbstractContextManager[None]]
OTHERWISE: dict[str, dict[str, Any]] = {
    "cast": {"to": "float16"},
    "batch_norm": {"training": False},
    "grid_sample": {"align_corners": True},
    "affine_grid": {"align_corners": True},
    "spatial_transformer": {"align_corners": True},
}
"""What MXNet cannot express as the preset has it, and the parameters that it can."""
WRONG_GRADIENTS = {
    "selu",  # without the outer factor where x is negative
    "eigvalsh", "rot90", "spatial_transformer",
    "cholesky_inverse",  # taken as that of a symmetric matrix
}  # fmt: skip
"""MXNet 1.9.1 computes these, and says so of no one: a record of them is `wrong`."""
ONCE = {"dropout", "dropout2d", "bias_dropout_add", "softmax_dropout", "det", "slogdet"}
"""Right on the first walk back over a graph only, and so in a step of training."""


@pytest.fixture(autouse=True)
def guests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environments.VARIABLE, str(FOLDER))


@pytest.fixture(scope="module")
def table() -> dict[str, list[Record]]:
    """Every row once."""
    return _in_the_guest([name for name in covered(BACKEND) if name not in OTHERWISE], "forward")


@pytest.fixture(scope="module")
def gradients() -> dict[str, list[Record]]:
    names = [name for name in covered(BACKEND) if catalogue()[name].gradients and name not in OTHERWISE]
    return _in_the_guest([*names, "batch_norm"], "backward")


def _in_the_guest(names: Sequence[str], phase: str) -> dict[str, list[Record]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(environments.VARIABLE, str(FOLDER))
        return outcomes(BACKEND, names, phase)


def run(*names: str, **asked: Any) -> list[Record]:
    given = {"size": "small", "samples": 1, "warmup": 0, "processes": 1, "threads": 1, "db": ":memory:", **asked}
    return api_run(list(names), backend=BACKEND, say=lambda _: None, **given).records


def verified(record: Record) -> bool:
    checked = record.verification
    return record.status == "ok" and checked is not None and checked.checked != "none" and checked.after == "same"


def unverified(records: Sequence[Record]) -> dict[str, str]:
    return {record.task.case.op: f"{record.status}: {record.reason}" for record in records if not verified(record)}


# -- the tables


def test_every_row_computes_what_the_catalogue_says(table: dict[str, list[Record]]) -> None:
    assert unverified([record for records in table.values() for record in records]) == {}
    assert len(table) >= 395


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_the_preset_cannot_have_is_skipped_and_other_parameters_are_right(name: str) -> None:
    assert {record.task.case.op: record.status for record in run(name, "exp")} == {name: "skipped", "exp": "ok"}
    assert unverified(run(name, params=OTHERWISE[name])) == {}


def test_every_gradient_is_right_or_found_out(gradients: dict[str, list[Record]]) -> None:
    found = [record for records in gradients.values() for record in records]
    assert {record.task.case.op: record.status for record in found if not verified(record)} == {
        **dict.fromkeys((WRONG_GRADIENTS - set(OTHERWISE)) | ONCE, "wrong"),
        "khatri_rao": "skipped",
    }
    assert len(found) >= 280


def test_a_step_of_training_goes_forth_and_back() -> None:
    names = sorted({*ONCE, "batch_norm", "matmul", "softmax", "atan2", "conv2d", "lstm", "cross_entropy"})
    assert unverified(run(*names, phase="both")) == {}


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types_are_computed_in_their_own(dtype: str) -> None:
    assert unverified(run("add", "exp", "relu", "concat", "embedding", "max_pool2d", params={"dtype": dtype})) == {}


def test_whole_numbers_stay_whole() -> None:
    names = ("add", "mul", "equal", "reduce_sum", "concat", "take", "amax")
    assert unverified(run(*names, params={"dtype": ["int32", "int64"]})) == {}


def test_a_result_may_have_no_axes() -> None:
    assert unverified(run("reduce_sum", "argmax", "norm", "var", "reduce_max", params={"shape": [[512]]})) == {}


def test_what_mxnet_cannot_express_is_skipped_with_a_reason() -> None:
    (record,) = run("pad", params={"mode": "circular"})
    assert (record.status, "has no circular mode" in record.reason) == ("skipped", True)


def test_a_wrong_row_is_found_out(sabotage: Sabotage) -> None:
    rows = (
        "kept = []\n"
        "def once(p, x, y):\n"
        "    kept.append(x + y)\n"
        "    return kept[0]\n"
        "wrong = computes('mxnet', lambda p, x, y: x + y + 1, name='off by one')\n"
        "still = computes('mxnet', once, name='computed once')\n"
        "IMPLEMENTATIONS = {'add': (wrong, still)}\n"
    )
    with sabotage(rows):
        by_name = {record.task.implementation: record.status for record in run("add")}
    assert by_name == {"mxnet": "ok", "off by one": "wrong", "computed once": "wrong"}


# -- the backend


def test_what_fails_inside_of_the_engine_is_a_record_of_its_own_task(sabotage: Sabotage) -> None:
    """The call returns before LAPACK has seen that the matrix is none that it can take."""
    rows = (
        "def late(p, x):\n"
        "    import mxnet as mx\n"
        "    mx.nd.linalg.potrf(-mx.nd.eye(4))\n"
        "    return mx.nd.exp(x)\n"
        "IMPLEMENTATIONS = {'exp': computes('mxnet', late, name='fails later')}\n"
    )
    with sabotage(rows):
        records = run("exp", "log")
    found = {(record.task.case.op, record.task.implementation): record for record in records}
    assert found["exp", "fails later"].status == "error"
    assert "potrf failed" in found["exp", "fails later"].reason
    assert verified(found["exp", "mxnet"])
    assert verified(found["log", "mxnet"])


def test_all_heads_are_normalised_where_no_number_of_them_is_given() -> None:
    for start in (0, 3):
        (record,) = run("head_rms_norm", params={"norm_heads": 0, "norm_start": start})
        assert verified(record), record.reason


def test_a_call_is_waited_for_and_what_the_caller_needs_is_told_apart() -> None:
    (record,) = run("matmul", quantity=["latency", "host_time", "throughput"])
    assert [m.quantity for m in record.measurements] == ["latency", "host_time", "throughput"]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_threads_are_those_asked_for_and_one_operator_runs_at_a_time(threads: int) -> None:
    seen: list[Any] = []
    run("add", threads=threads, on_environment=seen.append)
    facts = seen[0].facts if isinstance(seen[0].facts, dict) else {}
    found = facts.get("backend_facts", facts)
    assert (found["threads"], found["workers"]) == (threads, 1)
    assert found["mxnet"] == "1.9.1"
    assert found["mkldnn"] is True


def test_more_elements_than_this_build_can_count_are_skipped() -> None:
    (record,) = run("zeros", size=(), params={"shape": [[65536, 65536]], "dtype": "int8"}, verify=False)
    assert record.status in ("skipped", "oom")


def test_a_callable_of_the_framework_is_counted_and_a_view_is_told() -> None:
    (record,) = run("mxnet.nd.softsign", args=["8x64 float32"], size=())
    assert record.cost is not None
    assert (record.cost.bytes_read, record.cost.bytes_written) == (8 * 64 * 4, 8 * 64 * 4)
    (record,) = run("mxnet.nd.NDArray.detach", args=["8x64 float32"], size=())
    assert (record.status, record.view) == ("unchecked", True)


# -- opperf


def test_opperf_measures_mxnet_itself(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    asked = ["--framework", "mxnet", "--op", "exp,broadcast_equal", "-w", "1", "-r", "2", "-o", str(file)]
    assert main(asked) == 0
    found = json.loads(file.read_text())
    assert set(found) == {"exp", "broadcast_equal"}
    assert {"avg_time_forward_exp", "avg_time_backward_exp"} <= set(found["exp"][0])
    assert "avg_time_backward_broadcast_equal" not in found["broadcast_equal"][0]


def test_opperf_writes_a_table_of_a_category(tmp_path: Path) -> None:
    file = tmp_path / "found.md"
    asked = ["--framework", "mxnet", "--category", "binary-elementwise", "-f", "md", "-w", "1", "-r", "2"]
    assert main([*asked, "-o", str(file)]) == 0
    text = file.read_text()
    assert "MXNET : 1.9.1" in text
    assert "| elemwise_mul" in text
    assert "skipped" not in text


def test_the_calls_of_opperf_measure_mxnet_too() -> None:
    add = Add(inputs={"lhs": (8, 8), "rhs": (8, 8)}, runs=2, warmup=1, framework="mxnet", db=":memory:")
    add.run_benchmark()
    assert set(add.results) == {"MX_Add_Forward_Backward_Time"}
    (found,) = run_performance_test(
        "exp", inputs=[{"data": (8, 8)}], run_backward=True, warmup=1, runs=2, framework="mxnet", db=":memory:"
    )
    assert set(found) == {"exp"}
