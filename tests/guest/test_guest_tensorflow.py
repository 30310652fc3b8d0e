"""TensorFlow's backend and tables, in the environment of `opmark env create tensorflow`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from outcomes import outcomes

from opmark.api.run import run as api_run
from opmark.plugin import registry
from opmark.runner.guests import environments
from opmark.schema import Record

# Asked while this file is imported: a test has data directories of its own.
FOLDER = environments.environments_folder()
GUEST = environments.find_environment("tensorflow")

pytestmark = [
    pytest.mark.skipif(GUEST is None, reason="no environment `tensorflow` (opmark env create tensorflow)"),
    pytest.mark.timeout(1200),  # the first test to ask for the table runs all of it
]

BACKEND = "tensorflow-cpu"
Sabotage = Callable[[str], AbstractContextManager[None]]
CONSTANT = {
    "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "arange", "linspace", "logspace", "eye",
    "shape_array", "size_array",
}  # fmt: skip
"""What depends on no input: a traced function computes it once, so it is measured eagerly only."""
DIFFERENTIATED = [
    "matmul", "softmax", "layer_norm", "conv2d", "embedding", "cross_entropy", "batch_norm", "sort", "gelu",
]  # fmt: skip


@pytest.fixture(autouse=True)
def guests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environments.VARIABLE, str(FOLDER))


@pytest.fixture(scope="module")
def table() -> dict[str, list[Record]]:
    """Every row once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(environments.VARIABLE, str(FOLDER))
        return outcomes(BACKEND)


def run(*names: str, backend: str = BACKEND, **asked: Any) -> list[Record]:
    given = {"size": "small", "samples": 1, "warmup": 0, "processes": 1, "threads": 1, "db": ":memory:", **asked}
    return api_run(list(names), backend=backend, say=lambda _: None, **given).records


def verified(record: Record) -> bool:
    checked = record.verification
    return record.status == "ok" and checked is not None and checked.checked != "none" and checked.after == "same"


def unverified(records: list[Record]) -> dict[str, str]:
    return {
        f"{r.task.case.op} ({r.task.implementation})": f"{r.status}: {r.reason}" for r in records if not verified(r)
    }


# -- the tables


def test_every_row_computes_what_the_catalogue_says(table: dict[str, list[Record]]) -> None:
    left_out = CONSTANT | {"multinomial"}
    computed = [record for name, records in table.items() if name not in left_out for record in records]
    assert unverified(computed) == {}
    assert len({record.task.case.op for record in computed}) >= 330


def test_draws_that_repeat_between_threads_are_found_out() -> None:
    """TensorFlow 2.21 skips too few random numbers for all threads but the first, so rows repeat draws of others."""
    assert unverified(run("multinomial", threads=1)) == {}
    (record,) = run("multinomial", threads=2)
    assert (record.status, "drew is not independent" in record.reason) == ("wrong", True)


def test_what_a_function_would_compute_once_is_refused_there_and_measured_eagerly(
    table: dict[str, list[Record]],
) -> None:
    refused = {name: record for name in CONSTANT for record in table[name]}
    assert {record.status for record in refused.values()} == {"skipped"}
    assert all("depends on no input" in record.reason for record in refused.values())
    assert unverified(run(*CONSTANT, backend=f"{BACKEND}/eager")) == {}


@pytest.mark.parametrize("way", registry.backend(BACKEND).variants)
def test_gradients_are_right(way: str) -> None:
    phases = ["backward", "both"]
    records = run(*DIFFERENTIATED, backend=f"{BACKEND}/{way}", phase=phases)
    assert unverified(records) == {}
    found = {(record.task.case.op, record.task.case.phase) for record in records}
    assert found == {(name, phase) for name in DIFFERENTIATED for phase in phases}


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_other_types_are_computed_in_their_own(dtype: str) -> None:
    assert unverified(run("add", "softmax", "layer_norm", "matmul", "reduce_sum", params={"dtype": dtype})) == {}


def test_a_function_without_a_gradient_says_so() -> None:
    (record,) = run("fmod", phase="backward")
    assert (record.status, "gradient" in record.reason) == ("skipped", True)


def test_a_wrong_row_is_found_out(sabotage: Sabotage) -> None:
    rows = (
        "wrong = computes('tensorflow', lambda p, x, y: x + y + 1, name='off by one')\n"
        "still = computes('tensorflow', lambda p, x, y: x + 0 * y, name='one left out')\n"
        "IMPLEMENTATIONS = {'add': (wrong, still)}\n"
    )
    with sabotage(rows):
        by_name = {record.task.implementation: record.status for record in run("add")}
    assert by_name == {"tensorflow": "ok", "off by one": "wrong", "one left out": "wrong"}


# -- the backend


def test_what_tracing_took_is_kept_apart_with_the_operators_in_the_graph(table: dict[str, list[Record]]) -> None:
    (record,) = table["softmax"]
    compilation = record.compilation
    assert compilation is not None
    assert compilation.cold > 0
    assert compilation.cached is None  # a function is traced anew each time
    assert compilation.operators == ("Softmax",)
    assert compilation.kernels == ("Softmax",)


def test_an_eager_call_compiles_nothing() -> None:
    (record,) = run("softmax", backend=f"{BACKEND}/eager")
    assert verified(record)
    assert record.compilation is None


def test_a_layer_is_fused_where_it_is_traced(table: dict[str, list[Record]]) -> None:
    (record,) = table["linear_relu"]
    assert record.compilation is not None
    assert {"MatMul", "BiasAdd", "Relu"} <= set(record.compilation.operators)
    assert "Relu" not in record.compilation.kernels


def test_a_step_computes_its_outputs_also_where_no_gradient_needs_them() -> None:
    (record,) = run("add", phase="both")
    assert verified(record)
    assert record.compilation is not None
    assert "AddV2" in record.compilation.kernels


def test_a_step_computes_the_outputs_that_have_no_gradient_too() -> None:
    forward, both = run("topk", phase=["forward", "both"])
    assert verified(forward)
    assert verified(both)
    assert set(_kernels(forward)) <= set(_kernels(both))  # the cast of the indices to 64 bits, above all
    assert "Cast" in _kernels(forward)


@pytest.mark.parametrize("phase", ["backward", "both"])
def test_a_filter_and_its_gradient_stay_in_the_layout_in_which_they_are_kept(phase: str) -> None:
    records = run("conv2d", "depthwise_conv2d", "conv_transpose2d", phase=phase)
    assert unverified(records) == {}
    transposing = {record.task.implementation for record in records if "Transpose" in _kernels(record)}
    assert transposing == {"nhwc with transposes"}


def _kernels(record: Record) -> tuple[str, ...]:
    assert record.compilation is not None
    return record.compilation.kernels


@pytest.mark.parametrize("threads", [1, 2])
def test_the_threads_are_those_asked_for(threads: int) -> None:
    seen: list[Any] = []
    run("add", threads=threads, on_environment=seen.append)
    facts = [environment.facts for environment in seen]
    assert _found(facts, "threads") == threads
    assert _found(facts, "inter_op_threads") == 1
    assert _found(facts, "synchronous") is True
    assert GUEST is not None
    assert _found(facts, "tensorflow") in GUEST.packages.values()


def _found(facts: Any, key: str) -> Any:
    """However deep it lies."""
    if isinstance(facts, dict) and key in facts:
        return facts[key]
    parts = facts.values() if isinstance(facts, dict) else facts if isinstance(facts, list) else ()
    return next((value for part in parts if (value := _found(part, key)) is not None), None)


def test_what_tensorflow_cannot_express_is_skipped_with_a_reason() -> None:
    (record,) = run("pad", params={"mode": "circular"})
    assert (record.status, "circular" in record.reason) == ("skipped", True)


def test_a_convolution_of_volumes_in_groups_is_skipped_with_a_reason() -> None:
    records = run("conv3d", params={"groups": 2})
    assert len(records) == 2
    assert {(record.status, "groups" in record.reason) for record in records} == {("skipped", True)}


def test_a_type_without_a_kernel_for_this_layout_is_skipped_and_the_transposing_one_is_not() -> None:
    by_name = {record.task.implementation: record for record in run("conv2d", params={"dtype": "float64"})}
    assert by_name["tensorflow"].status == "skipped"
    assert "NHWC" in by_name["tensorflow"].reason
    assert verified(by_name["nhwc with transposes"])


def test_a_callable_of_the_framework_runs_both_ways() -> None:
    for way in ("function", "eager"):
        (record,) = run("tensorflow.math.softplus", backend=f"{BACKEND}/{way}", args=["8x64 float32"], size=())
        assert record.status == "unchecked", record.reason
        assert record.cost is not None
        assert record.cost.bytes_written == 8 * 64 * 4


# -- a guest that breaks


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """An environment whose TensorFlow is a file that one writes."""
    assert GUEST is not None
    place = tmp_path / "envs" / "tensorflow"
    subprocess.run([GUEST.python, "-m", "venv", "--without-pip", "--symlinks", place], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (own,) = GUEST.folder.glob("lib/python*/site-packages")
    (packages / "the_real_one.pth").write_text(f"{own}\n")  # behind its own: all but TensorFlow is there
    (place / "opmark.json").write_bytes((GUEST.folder / "opmark.json").read_bytes())
    monkeypatch.setenv(environments.VARIABLE, str(place.parent))

    def write(source: str) -> None:
        (packages / "tensorflow.py").write_text(source)

    return write


@pytest.mark.parametrize(
    "source", ["os.abort()", "os._exit(0)", "raise ImportError('libtensorflow_cc.so.2: cannot open')"]
)
def test_a_guest_that_breaks_is_a_record_and_the_others_go_on(broken: Callable[[str], None], source: str) -> None:
    broken(f"import os\n{source}\n")
    records = api_run(
        ["add"], backend=[BACKEND, "numpy-cpu"], size="small", samples=1, warmup=0, processes=1, threads=1,
        db=":memory:", say=lambda _: None,
    ).records  # fmt: skip
    by_backend = {record.task.backend: record for record in records}
    assert by_backend[BACKEND].status in ("error", "skipped")
    assert by_backend[BACKEND].reason
    assert by_backend["numpy-cpu"].status == "ok"
