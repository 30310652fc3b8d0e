"""Modules of StableHLO and MHLO: files as operators, what is wrong with them, the front end, executables in files."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opmark
from opmark.api.model import export
from opmark.errors import InvalidFile, InvalidParameter, Unsupported, UserError
from opmark.models import facts
from opmark.models.family import source_of
from opmark.plugin import Backend, registry
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.runner.selection import select_cases
from opmark.schema import EFFORTS, Record, Settings, Task
from opmark.schema.options import Selection
from opmark.worker.task_runner import TaskRunner

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.models

MLP = """
module @mlp {
  func.func @main(%x: tensor<4x3xf32>) -> (tensor<4x2xf32>, tensor<4xf32>) {
    %w = stablehlo.constant dense<[[1.0, -2.0], [0.25, 4.0], [5.0, 0.5]]> : tensor<3x2xf32>
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
    %1 = func.call @activate(%0) : (tensor<4x2xf32>) -> tensor<4x2xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<4x2xf32>, tensor<f32>) -> tensor<4xf32>
    func.return %1, %2 : tensor<4x2xf32>, tensor<4xf32>
  }
  func.func private @activate(%x: tensor<4x2xf32>) -> tensor<4x2xf32> {
    %0 = stablehlo.tanh %x : tensor<4x2xf32>
    func.return %0 : tensor<4x2xf32>
  }
}
"""
MHLO = """
func.func @main(%a: tensor<4x3xf32>, %b: tensor<3x2xf32>) -> tensor<4x2xf32> {
  %0 = mhlo.constant dense<1.0> : tensor<4x2xf32>
  %1 = "mhlo.dot"(%a, %b) : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
  %2 = "mhlo.add"(%1, %0) : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
  %3 = mhlo.erf %2 : tensor<4x2xf32>
  func.return %3 : tensor<4x2xf32>
}
"""
OPEN = """
func.func @main(%a: tensor<?x3xf32>) -> tensor<?x2xf32> {
  %w = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.5]]> : tensor<3x2xf32>
  %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
        : (tensor<?x3xf32>, tensor<3x2xf32>) -> tensor<?x2xf32>
  func.return %0 : tensor<?x2xf32>
}
"""


def forget() -> None:
    for cached in (source_of, facts._find, registry._make_by_family):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty folder. This process loads models itself, as a worker does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPMARK_LOADS_MODELS", "1")
    forget()
    yield
    forget()


@pytest.fixture(scope="module")
def live() -> Backend:
    return find_backend("jax-cpu").load(threads=1)


def write(text: str | bytes, name: str = "net.mlir") -> str:
    Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    return name


def program_of(text: str) -> Any:
    from opmark.models.mlir_file import describe_entry, parse_module

    return describe_entry(parse_module(text.encode(), "net.mlir"), "net.mlir")


def run(live: Backend, name: str, artifact: str = "", **params: Any) -> Record:
    """Compile and verify a case."""
    settings = Settings(1, "quick", EFFORTS["quick"], compile_only=True, artifact=artifact)
    forget()
    size = {"size": "small"} if name.endswith("-mhlo") else {}
    (case,) = select_cases(Selection(f"model:{name}", params={**size, **params})).cases
    return TaskRunner(find_backend("jax-cpu"), live).run(Task(case, "jax-cpu", "jax", settings))


# Files that run


def test_a_module_is_compiled_as_a_whole_and_verified(live: Backend) -> None:
    record = run(live, write(MLP))
    assert (record.status, record.reason) == ("ok", "")
    assert record.verification.checked == "full"
    assert record.verification.outputs == ("output", "output 1")
    assert "stablehlo.dot_general" in record.compilation.operators
    coverage = record.compilation.coverage
    assert coverage.taken == coverage.operators == 6
    assert record.cost.flops == 2 * 4 * 3 * 2


def test_a_wrong_result_is_noticed(live: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    from opmark.models import mlir_execution

    right = mlir_execution.call_program
    wrong = program_of(MLP.replace("-2.0", "-2.01"))
    name = write(MLP)
    assert run(live, name).status == "ok"
    monkeypatch.setattr(
        mlir_execution,
        "call_program",
        lambda program: right(wrong if program.inputs[0].dtype == "float32" else program),
    )
    record = run(live, name)
    assert record.status == "wrong"


def test_the_reference_in_float64_agrees_with_stablehlos_own_interpreter(live: Backend) -> None:
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import stablehlo

    from opmark.models.mlir_execution import reference

    source = source_of(write(MLP))
    x = np.random.default_rng(0).normal(size=(4, 3))
    found = reference(source, {"batch": 1, "dtype": "float32"}, x=x, arg0=x)
    module = program_of(MLP.replace("f32", "f64")).module
    with module.context, ir.Location.unknown():
        expected = stablehlo.eval_module(module, [ir.DenseElementsAttr.get(x)])
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, np.asarray(other), rtol=1e-14)


def test_mhlo_is_converted(live: Backend) -> None:
    record = run(live, write(MHLO))
    assert (record.status, record.reason) == ("ok", "")
    assert set(record.compilation.operators) == {
        "stablehlo.constant", "stablehlo.dot", "stablehlo.add", "stablehlo.custom_call",
    }  # fmt: skip


def test_bytecode_is_read_portable_or_not(live: Backend) -> None:
    program, plain = program_of(MLP), io.BytesIO()
    program.module.operation.write_bytecode(plain)
    assert run(live, write(program.serialize(), "portable.mlirbc")).status == "ok"
    assert run(live, write(plain.getvalue(), "plain.mlir")).status == "ok"


def test_operations_of_chlo_are_run_too(live: Backend) -> None:
    """JAX writes an error function so, and XLA has one of its own."""
    text = MLP.replace("stablehlo.tanh %x : tensor<4x2xf32>", "chlo.erf %x : tensor<4x2xf32> -> tensor<4x2xf32>")
    assert program_of(text).operators["chlo.erf"] == 1
    record = run(live, write(text))
    assert (record.status, record.reason) == ("ok", "")


def test_serializing_leaves_the_module_as_it_is() -> None:
    program = program_of(MLP)
    assert program.serialize() == program.serialize()
    assert program.operators["stablehlo.tanh"] == 1


def test_an_open_first_axis_is_the_batch(live: Backend) -> None:
    name = write(OPEN)
    operator = find_operator(f"model:{name}")
    assert operator.inputs({"batch": 5, "dtype": "float32"})["arg0"].shape == (5, 3)
    record = run(live, name, batch=5)
    assert (record.status, record.reason) == ("ok", "")
    assert record.cost.flops == 2 * 5 * 3 * 2


def test_a_batch_of_a_module_with_fixed_sizes_is_refused() -> None:
    operator = find_operator(f"model:{write(MLP)}")
    with pytest.raises(InvalidParameter, match="has no axis for it"):
        operator.inputs({"batch": 2, "dtype": "float32"})


def test_another_element_type_than_the_modules_is_refused() -> None:
    operator = find_operator(f"model:{write(MLP)}")
    with pytest.raises(InvalidParameter, match="computes in float32, and the case says float16"):
        operator.inputs({"batch": 1, "dtype": "float16"})


def test_ranges_of_whole_numbers_can_be_given() -> None:
    text = MLP.replace("%x: tensor<4x3xf32>) -> (", "%x: tensor<4x3xf32>, %ids: tensor<7xi32>) -> (")
    operator = find_operator(f"model:{write(text)}")
    params = {"batch": 1, "dtype": "float32"}
    assert operator.inputs(params)["arg1"].high == 2
    assert operator.inputs({**params, "inputs": {"arg1": "7 int32 0..1000"}})["arg1"].high == 1000
    with pytest.raises(InvalidParameter, match=r"`arg1` of `net\.mlir` is 7 int32, got"):
        operator.inputs({**params, "inputs": {"arg1": "8 int32 0..1000"}})
    with pytest.raises(InvalidParameter, match="has no input `ids`"):
        operator.inputs({**params, "inputs": {"ids": "7 int32"}})


def test_what_cannot_be_computed_in_float64_is_unchecked(live: Backend) -> None:
    bits = """
    func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
      %0 = stablehlo.bitcast_convert %a : (tensor<8xf32>) -> tensor<8xi32>
      %1 = stablehlo.bitcast_convert %0 : (tensor<8xi32>) -> tensor<8xf32>
      %2 = stablehlo.add %1, %a : tensor<8xf32>
      func.return %2 : tensor<8xf32>
    }"""
    record = run(live, write(bits))
    assert record.status == "unchecked"
    assert "cannot be computed in float64" in record.reason


def test_a_call_that_xla_does_not_know_is_a_record(live: Backend) -> None:
    text = MHLO.replace(
        "mhlo.erf %2 : tensor<4x2xf32>", "stablehlo.custom_call @mine(%2) : (tensor<4x2xf32>) -> tensor<4x2xf32>"
    )
    record = run(live, write(text))
    assert record.status in ("skipped", "error")
    assert "mine" in record.reason


# Files that are wrong


def body(line: str, kind: str = "tensor<2xf32>") -> str:
    return f"func.func @main(%a: {kind}) -> {kind} {{\n  {line}\n  func.return %1 : {kind}\n}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (body("%1 = stablehlo.add %a %a : tensor<2xf32>"), "cannot be read as MLIR: line 2: expected ','"),
        (body("%1 = stablehlo.adt %a : tensor<2xf32>"), "line 2: custom op 'stablehlo.adt' is unknown"),
        (body('%1 = "tosa.abs"(%a) : (tensor<2xf32>) -> tensor<2xf32>'), "line 2: `tosa.abs` is of a dialect"),
        (body("%1 = tosa.abs %a : tensor<2xf32>"), "line 2: Dialect `tosa' not found for custom op 'tosa.abs'"),
        (body("%1 = arith.negf %a : tensor<2xf32>"), "line 2: `arith.negf` is no operation of StableHLO"),
        (body('%1 = "mhlo.copy"(%a) : (tensor<2xf32>) -> tensor<2xf32>'),
         "is MHLO and cannot be converted to StableHLO: line 2: failed to legalize operation 'mhlo.copy'"),
        (body('%1 = "stablehlo.add"(%a, %a) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi32>'),
         "line 3: use of value"),
        (body("%1 = stablehlo.abs %a : tensor<2xi4>", "tensor<2xi4>"),
         "input `arg0` of `net.mlir` has the element type"),
        ("func.func @main(%a: tensor<*xf32>) -> tensor<*xf32> { func.return %a : tensor<*xf32> }", "of known rank"),
        ("func.func @main(%a: !stablehlo.token) { func.return }", "is a `!stablehlo.token`, expected a tensor"),
        (body("%1 = stablehlo.abs %a : tensor<2x?xf32>", "tensor<2x?xf32>"), "the size of axis 1 is open"),
        (OPEN.replace("@main", "@forward"), "has no function @main; its functions: @forward"),
        ("", "has no function @main; its functions: none"),
        ("func.func @main() { func.return }", "@main of `net.mlir` returns nothing"),
        (b"\xff\xfe\x00", "neither text nor bytecode"),
        (b"ML\xefR\rStableHLO_v1.0.0\x00", "its bytecode is damaged"),
        (b"ML\xefR", "cannot be read as MLIR"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_refused_with_the_place(text: str | bytes, message: str) -> None:
    operator = find_operator(f"model:{write(text)}")
    with pytest.raises(UserError) as caught:
        operator.cost({"batch": 1, "dtype": "float32"})
    assert message in str(caught.value)
    assert caught.value.hint


def test_bytecode_that_was_cut_is_refused() -> None:
    whole = program_of(MLP).serialize()
    with pytest.raises(InvalidFile, match="its bytecode is damaged"):
        find_operator(f"model:{write(whole[: len(whole) // 2])}").inputs({"batch": 1, "dtype": "float32"})


# The front end


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of the zoo as a module, with its weights beside it. A process of its own exports it: torch.compile
    does not work any more where torchax was imported."""
    if find_spec("torchax") is None:
        pytest.skip("torchax is not installed")
    folder = tmp_path_factory.mktemp("exported")
    found = export("model:widedeep", output=folder / "net.mlir", size="small")
    assert found.files == (str(folder / "net.mlir"), str(folder / "net.safetensors"))
    assert found.seconds > 0
    assert found.operators > 0
    return folder / "net.mlir"


def test_an_exported_module_is_verified_against_its_model_in_torch(live: Backend, exported: Path) -> None:
    text = exported.read_text()
    assert 'opmark.model = "wide-and-deep"' in text
    assert len(text) < 100_000  # weights are no constants in it
    record = run(live, str(exported))
    assert (record.status, record.reason) == ("ok", "")
    from opmark.models.mlir_file import find_twin, read_program

    source = source_of(str(exported))
    twin = find_twin(read_program(source, source.stamp({})), source.weights_path)
    assert twin is not None
    assert twin[0].name == "wide-and-deep"


def test_weights_that_are_missing_or_other_ones_are_named(live: Backend, exported: Path) -> None:
    name = write(exported.read_text())
    record = run(live, name)
    assert record.status == "error"
    assert "the weights of `net.mlir` cannot be read from `net.safetensors`" in record.reason
    from safetensors.numpy import save_file

    save_file({"other": np.zeros(3, np.float32)}, "net.safetensors")
    assert "lacks the weight" in run(live, name).reason


def test_a_model_of_the_zoo_runs_as_a_module(tmp_path: Path) -> None:
    if find_spec("torchax") is None:
        pytest.skip("torchax is not installed")
    operator = find_operator("model:widedeep-mhlo")
    assert [one.framework for one in operator.implementations] == ["jax"]
    (record,) = opmark.run(
        "model:widedeep-mhlo", size="small", backend="jax-cpu", effort="quick", db=tmp_path / "store.db"
    ).records
    assert (record.status, record.reason) == ("ok", "")
    assert record.compilation.export > 0
    assert record.compilation.coverage.taken > 0


@pytest.mark.parametrize("name", ["resnet50-mhlo", "bert-mhlo"])
def test_the_modules_of_bytemlperf_are_known_by_name(name: str) -> None:
    assert find_operator(f"model:{name}").params


# The compiler and the runtime


def test_an_executable_is_written_and_loaded_without_compiling(
    live: Backend, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = run(live, str(exported), artifact="artifacts")
    path = record.task.artifact_path
    assert path.exists()
    assert path.with_suffix(".safetensors").exists()
    monkeypatch.setattr("opmark.frameworks.jax.backend.Programs.compiled", None)  # nothing may be compiled
    loaded = run(live, str(path))
    assert (loaded.status, loaded.reason) == ("ok", "")
    assert loaded.verification.checked in ("full", "sampled")
    assert loaded.compilation.cache.startswith("none: loaded from a file")
    assert loaded.compilation.cached is None


def changed(path: Path, **about: Any) -> str:
    """Write the same executable with another description."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    members["about.json"] = json.dumps({**json.loads(members["about.json"]), **about}).encode()
    with zipfile.ZipFile("other.xla", "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return "other.xla"


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ({"jaxlib": "0.1.0"}, "it was compiled for jaxlib 0.1.0, and here is"),
        ({"platform": "gpu"}, "it was compiled for platform gpu, and here is cpu"),
        ({"machine": "riscv64"}, "it was compiled for machine riscv64"),
        ({"features": ["warp_drive"]}, "it was compiled for a CPU with warp_drive, which this one lacks"),
    ],
)
def test_an_executable_of_another_version_or_machine_is_refused(
    live: Backend, about: dict[str, Any], reason: str
) -> None:
    path = run(live, write(MLP), artifact="artifacts").task.artifact_path
    record = run(live, changed(path, **about))
    assert record.status == "skipped"
    assert reason in record.reason


def test_an_executable_that_is_not_whole_is_refused(live: Backend) -> None:
    path = run(live, write(MLP), artifact="artifacts").task.artifact_path
    data = path.read_bytes()
    name = write(data[: len(data) // 2], "cut.xla")
    with pytest.raises(InvalidFile, match="no executable of XLA, or not all of it"):
        find_operator(f"model:{name}").inputs({"batch": 1, "dtype": "float32"})


def test_what_is_no_module_has_no_artefact(live: Backend) -> None:
    settings = Settings(1, "quick", EFFORTS["quick"], compile_only=True, artifact="artifacts")
    case = select_cases(Selection("matmul", size="small", params={"dtype": "float32"})).cases[0]
    record = TaskRunner(find_backend("jax-cpu"), live).run(Task(case, "jax-cpu", "jax", settings))
    assert record.status == "skipped"
    assert "artefacts of StableHLO modules only" in record.reason
    with pytest.raises(Unsupported, match="numpy-cpu writes no compiled artefacts"):
        find_backend("numpy-cpu").load(threads=1).save(lambda: None, Path("x.xla"))
