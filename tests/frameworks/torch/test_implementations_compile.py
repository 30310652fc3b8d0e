"""Operators of all kinds through torch.compile, each verified; the whole catalogue would take half an hour."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from outcomes import outcomes
from param_runs import ADD, Command

from opmark.api.run import run as api_run
from opmark.schema import Record

pytestmark = pytest.mark.frameworks

PLAIN = ("add", "softmax", "layer_norm", "matmul", "reduce_sum", "cumsum", "conv2d", "max_pool2d", "where", "einsum")
ODD = {
    "in-place": ("relu_", "neg_", "iadd", "fill"),
    "views": ("transpose", "reshape", "split"),
    "random": ("dropout", "random_uniform"),
    "several outputs": ("topk", "moments"),
    "no inputs": ("zeros", "arange"),
    "closures": ("adam_update", "lstm"),
}
EAGER = ("linear_add", "lstsq")
"""An operator of which one implementation is compiled already, and one that torch.compile leaves to eager."""
BACKWARD = ("add", "softmax", "layer_norm", "matmul", "gelu")


@pytest.fixture(scope="module")
def forward() -> dict[str, list[Record]]:
    return outcomes("torch-compile-cpu", [*PLAIN, *(name for names in ODD.values() for name in names), *EAGER])


def test_operators_of_all_kinds_are_verified(forward: dict[str, list[Record]]) -> None:
    records = [record for name, found in forward.items() if name not in EAGER for record in found]
    failed = {(r.task.case.op, r.task.implementation): (r.status, r.reason) for r in records if r.status != "ok"}
    assert failed.keys() == {("adam_update", "fused")}, failed
    assert "left it to eager" in failed["adam_update", "fused"][1]  # torch does not trace into fused optimizers
    assert {r.verification.after for r in records if r.verification} == {"same"}


def test_what_was_compiled_is_stored(forward: dict[str, list[Record]]) -> None:
    for name in PLAIN:
        told = forward[name][0].compilation
        assert told is not None
        assert told.graphs == 1
        assert told.operators
        assert told.kernels
        assert told.cached is not None


def test_backward_passes_are_verified() -> None:
    records = [record for found in outcomes("torch-compile-cpu", BACKWARD, "backward").values() for record in found]
    assert [(r.task.case.op, r.reason) for r in records if r.status != "ok"] == []
    assert {r.verification.after for r in records if r.verification} == {"same"}


def test_what_is_compiled_already_and_what_is_left_to_eager_is_skipped_with_a_reason(
    forward: dict[str, list[Record]],
) -> None:
    reasons = {r.task.implementation: r.reason for r in forward["linear_add"] if r.status == "skipped"}
    assert "compiles it already" in reasons["compiled"]
    assert [r.status for r in forward["lstsq"]] == ["skipped"]
    assert "left it to eager" in forward["lstsq"][0].reason


def test_max_autotune_is_another_column_of_the_same_case() -> None:
    (record,) = outcomes("torch-compile-cpu/max-autotune", ["matmul"])["matmul"]
    assert (record.status, record.reason) == ("ok", "")
    assert record.task.backend == "torch-compile-cpu/max-autotune"


def test_rotating_through_other_data_compiles_nothing_in_the_timed_part() -> None:
    run = partial(api_run, backend="torch-compile-cpu", size="small", samples=2, warmup=0, processes=1, threads=2)
    records = run("softmax", cache=["warm", "cold"], db=":memory:", say=lambda _: None).records
    assert [(r.status, r.reason) for r in records] == [("ok", "")]
    assert {m.cache for m in records[0].measurements} == {"warm", "cold"}


def test_param_compiles_what_it_is_asked_to_compile(tmp_path: Path) -> None:
    ran = Command(tmp_path)(ADD, "--pt2-model", "-d", "cpu", "-b", "--db", str(tmp_path / "store.db"))
    assert ran.code == 0
    assert ran.header["run_options"]["pt2_model"] is True
    (case,) = ran.cases
    assert case["metric"]["forward"]["measure.time"]
    assert case["metric"]["backward"]["measure.time"]
