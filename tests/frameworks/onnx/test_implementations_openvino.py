"""Every operator of the ONNX tables that OpenVINO accepts, run and verified in a worker; and those it rejects."""

from __future__ import annotations

import pytest
from outcomes import covered, outcomes

pytest.importorskip("openvino")

from opmark.api.run import plan, run
from opmark.errors import Unsupported
from opmark.plugin.registry import backend, implementations, operator
from opmark.schema import Record

pytestmark = pytest.mark.frameworks

BACKEND = "openvino-cpu"
# OpenVINO makes normal numbers from one uniform draw instead of two, so their distribution is wrong.
WRONG = {"random_normal", "sample_normal"}
SEEDED_BY_THE_SECOND = {"multinomial"}
"""Calls within one second draw the same, which is found out unless the calls that are compared lie in two of them."""
NARROW = ("exp", "mul", "softmax", "layer_norm", "matmul", "conv2d", "max_pool2d", "reduce_sum", "concat")


@pytest.fixture(scope="module")
def found() -> dict[str, list[Record]]:
    return outcomes(BACKEND)


@pytest.mark.timeout(1800)
def test_every_row_computes_what_the_reference_says_also_after_timing(found: dict[str, list[Record]]) -> None:
    assert sorted(found) == sorted(covered(BACKEND))
    failed = {
        name: f"{record.status}: {record.reason or (record.verification and record.verification.after)}"
        for name, records in found.items()
        for record in records
        if record.status != "ok" or record.verification is None or record.verification.after != "same"
    }
    assert failed.keys() - SEEDED_BY_THE_SECOND == WRONG, failed
    assert all(reason.startswith("wrong: ") for reason in failed.values())
    assert len(found) - len(failed) >= 300


def test_every_row_says_what_was_compiled_and_that_float32_stayed_float32(found: dict[str, list[Record]]) -> None:
    for name, (record, *_) in found.items():
        if record.status == "ok":
            assert record.compilation is not None, name
            assert record.compilation.cold > 0, name
            assert record.compilation.cached is None, name  # OpenVINO has no cache
            assert record.compilation.operators, name
            assert not [kernel for kernel in record.compilation.kernels if kernel.endswith(("_bf16", "_f16"))], name


def test_what_is_said_to_be_lacking_is_refused_when_it_is_tried() -> None:
    """An operator must leave the list when OpenVINO supports it."""
    info = backend(BACKEND)
    live = info.load(threads=1)
    for name in info.lacks:
        op = operator(name)
        params = op.complete(op.preset("small"))
        inputs = {key: live.tensor(spec, 0) for key, spec in op.inputs(params).items()}
        with pytest.raises(Unsupported):
            live.compile(implementations(op, info)[0].build(params, **inputs), inputs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_verified_too(dtype: str) -> None:
    ran = run(
        list(NARROW), backend=BACKEND, size="small", params={"dtype": dtype}, samples=1, warmup=0, processes=1,
        threads=1, db=":memory:", say=lambda _: None,
    )  # fmt: skip
    assert {record.task.case.op: record.status for record in ran.records} == dict.fromkeys(NARROW, "ok")


def test_with_several_requests_at_a_time_the_results_are_the_same() -> None:
    names = ("softmax", "matmul", "conv2d", "sort", "layer_norm")
    ran = run(
        list(names), backend=f"{BACKEND}/throughput", size="small", quantity=("latency", "throughput"), samples=20,
        warmup=0, processes=1, threads=1, db=":memory:", say=lambda _: None,
    )  # fmt: skip
    for record in ran.records:
        assert record.status == "ok", record.reason
        assert record.verification is not None
        assert record.verification.after == "same"
        assert {measurement.quantity for measurement in record.measurements} == {"latency", "throughput"}


def test_a_type_that_it_computes_with_less_is_skipped_and_says_so() -> None:
    ran = run(
        ["add"], backend=BACKEND, size="small", params={"dtype": ["int32", "int64"]}, samples=1, warmup=0, processes=1,
        threads=1, db=":memory:", say=lambda _: None,
    )  # fmt: skip
    assert {record.task.case.params["dtype"]: (record.status, record.reason) for record in ran.records} == {
        "int32": ("ok", ""),
        "int64": ("skipped", "OpenVINO computes it in int32, not in int64"),
    }


def test_no_row_of_float64_is_computed_in_float32() -> None:
    names = ("layer_norm", "where", "reshape", "masked_fill", "matmul")
    ran = run(
        list(names), backend=BACKEND, size="small", params={"dtype": "float64"}, samples=1, warmup=0, processes=1,
        threads=1, db=":memory:", say=lambda _: None,
    )  # fmt: skip
    told = {record.task.case.op: (record.status, record.reason) for record in ran.records}
    assert told == dict.fromkeys(names, ("skipped", "OpenVINO computes it in float32, not in float64"))


def test_what_is_lacking_is_planned_as_skipped_with_its_reason() -> None:
    whole = plan(["celu", "det"], backend=BACKEND, size="small", processes=1)
    assert [task.case.op for task in whole.tasks] == ["celu"]
    assert [(record.task.case.op, record.reason) for record in whole.skipped] == [("det", "OpenVINO has no Det")]
