"""Every operator of the ONNX tables that TVM accepts, verified, some of them in a worker; and those it rejects.

TVM takes up to seconds to compile, and a task compiles several times, so most operators are verified here, compiled
once."""

from __future__ import annotations

from typing import Any

import pytest
from outcomes import covered, outcomes

pytest.importorskip("tvm")

from opmark.api.run import run
from opmark.errors import TaskError, Unsupported, WrongResult
from opmark.plugin.registry import backend, implementations, operator
from opmark.schema import EFFORTS, Case, Settings, Task
from opmark.worker.verify.outputs import verify

pytestmark = pytest.mark.frameworks

BACKEND = "tvm-cpu"
# TVM's importer does not see that Dropout is in training mode.
WRONG = {"dropout", "softmax_dropout"}
# Sums in float32, one element after the other, are close to the tolerance and pass depending on the data.
IMPRECISE = {"bce_with_logits"}
IN_A_WORKER = ("add", "gelu", "softmax", "matmul", "conv2d", "layer_norm", "reduce_sum", "topk", "concat", "embedding")


@pytest.fixture(scope="module")
def live() -> Any:
    return backend(BACKEND).load(threads=1)


@pytest.mark.timeout(1800)
def test_every_row_computes_what_the_reference_says(live: Any) -> None:
    failed: dict[str, TaskError] = {}
    names, settings = covered(BACKEND), Settings(1, "quick", EFFORTS["quick"])
    for name in names:
        op = operator(name)
        case = Case.of(name, op.complete(op.preset("small")), "forward")
        try:
            verify(Task(case, BACKEND, "", settings), op, implementations(op, backend(BACKEND))[0], live)
        except TaskError as error:
            failed[name] = error
    assert failed.keys() - IMPRECISE == WRONG, failed
    assert all(isinstance(error, WrongResult) for error in failed.values()), failed
    assert len(names) - len(failed) >= 300


def test_in_a_worker_it_computes_also_after_timing_and_says_what_was_compiled() -> None:
    for name, records in outcomes(BACKEND, IN_A_WORKER).items():
        (record,) = records
        assert record.status == "ok", (name, record.reason)
        assert record.verification is not None
        assert record.verification.after == "same", name
        assert record.compilation is not None
        assert record.compilation.cold > 0
        assert record.compilation.cached is None  # TVM has no cache
        assert record.compilation.operators, name
        assert record.compilation.kernels, name


def test_what_is_said_to_be_lacking_is_refused_when_it_is_tried(live: Any) -> None:
    """An operator must leave the list when TVM supports it."""
    info = backend(BACKEND)
    for name in info.lacks:
        op = operator(name)
        params = op.complete(op.preset("small"))
        inputs = {key: live.tensor(spec, 0) for key, spec in op.inputs(params).items()}
        with pytest.raises(Unsupported):
            live.compile(implementations(op, info)[0].build(params, **inputs), inputs)


def test_what_it_gets_wrong_is_told_and_what_it_lacks_is_skipped() -> None:
    ran = run(
        ["dropout", "celu"], backend=BACKEND, size="small", samples=1, warmup=0, processes=1, threads=1, db=":memory:",
        say=lambda _: None,
    )  # fmt: skip
    told = {record.task.case.op: (record.status, record.reason) for record in ran.records}
    assert told["dropout"][0] == "wrong"
    assert told["celu"] == ("skipped", "TVM's importer has no Celu")
