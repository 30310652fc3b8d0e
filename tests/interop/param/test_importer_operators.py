"""PARAM's operators: methods in place, schemas, networks, embedding tables, operators of the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opmark.catalogue.expansion import expand
from opmark.interop.param.importer import PARAM, keep_specs
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Entry, Imported, Workload

GENERATOR = "PyTorch:DefaultDataGenerator"
TENSOR = {"type": "tensor", "dtype": "float", "shape": [4, 4]}
NODE = "4x4 float32 0..1"
TABLES = "SplitTableBatchedEmbeddingBagsCodegen"


def arg(value: Any) -> dict[str, Any]:
    return {"type": {bool: "bool", int: "int", float: "float", str: "str"}[type(value)], "value": value}


def read(name: str, args: list[Any], build: list[Any] | None = None, **more: Any) -> Imported:
    config: dict[str, Any] = {"input": [{"args": args}]}
    if build is not None:
        config["build"] = [{"args": build}]
    return PARAM.read(Path("c.json"), {name: {"input_data_generator": GENERATOR, "config": [config], **more}}, 0)


def entry_of(*given: Any, **more: Any) -> Entry:
    found = read(*given, **more)
    assert found.problems == ()
    return found.entries[0]


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("torch.add_", "torch.Tensor.add_"),
        ("torch.clamp_", "torch.Tensor.clamp_"),
        ("torch.index_add_", "torch.Tensor.index_add_"),
        ("torch.selu_", "torch.selu_"),
        ("torch.add", "torch.add"),
        ("torch.nn.functional.relu_", "torch.nn.functional.relu_"),
        ("torch.Tensor.mul_", "torch.Tensor.mul_"),
        ("pytorch.model.alex_net", "opmark.interop.param.library:AlexNet"),
        ("pytorch.model.resnet", "opmark.interop.param.library:ResNet"),
    ],
)
def test_names(name: str, op: str) -> None:
    entry = entry_of(name, [TENSOR])
    assert (entry.op, entry.args, entry.source) == (op, [NODE], f"c.json#{name}|0|0|0")


def test_torch_has_the_methods_and_the_functions() -> None:
    torch = pytest.importorskip("torch")
    from opmark.interop.param.calls import operator_name

    in_place = [f"torch.{name}" for name in dir(torch) if name[0].islower() and name.endswith("_") and name[-2] != "_"]
    assert len(in_place) > 50
    for name in in_place:
        *_, owner, attribute = operator_name(name).split(".")
        assert hasattr(torch.Tensor if owner == "Tensor" else torch, attribute), name


SCHEMA = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"


def test_the_overload_that_a_schema_names() -> None:
    entry = entry_of("aten::add", [TENSOR, TENSOR, arg(2)], [arg(SCHEMA)])
    assert (entry.op, entry.args, entry.kwargs, entry.build) == ("aten::add.Tensor", [NODE, NODE], {"alpha": 2}, None)


@pytest.mark.parametrize(
    ("schema", "op", "args", "kwargs"),
    [
        ("aten::mm(Tensor self, Tensor mat2) -> (Tensor)", "aten::mm.default", [1, 2], {}),
        ("aten::f.x(int[2] a=[1, 2], str b='a,b', *, int? c=None, int d) -> ()", "aten::f.x", [1, 2], {"c": 3, "d": 4}),
        ("aten::f(*, int a) -> Tensor", "aten::f.default", [], {"a": 1}),
    ],
)
def test_arguments_of_a_schema(schema: str, op: str, args: list[int], kwargs: dict[str, int]) -> None:
    count = len(args) + len(kwargs)
    entry = entry_of(op.rpartition(".")[0], [arg(n) for n in range(1, count + 1)], [arg(schema)])
    assert (entry.op, entry.args, entry.kwargs or {}) == (op, args, kwargs)


def test_gradients_of_keyword_only_arguments() -> None:
    schema = "aten::f(Tensor a, *, Tensor b, Tensor c) -> Tensor"
    fixed = {**TENSOR, "requires_grad": False}
    entry = entry_of("aten::f", [fixed, fixed, TENSOR], [arg(schema)])
    assert (entry.kwargs, entry.wrt) == ({"b": NODE, "c": NODE}, ["kwargs.c"])


def test_types_in_place_of_a_schema() -> None:
    types = {"type": "genericlist", "value": [arg(name) for name in ("Tensor", "Tensor", "int", "Tensor")]}
    entry = entry_of("aten::add", [TENSOR, TENSOR, arg(3)], [types])
    assert (entry.op, entry.args, entry.kwargs, entry.build) == ("aten::add", [NODE, NODE], {"alpha": 3}, None)
    assert entry_of("aten::mm", [TENSOR, TENSOR]).op == "aten::mm"


@pytest.mark.parametrize(
    ("build", "words"),
    [
        ([arg("what")], "expected the schema of an operator"),
        ([arg("aten::mul.Tensor(Tensor self) -> Tensor")], "got `aten::mul`"),
        ([arg(SCHEMA), arg(1)], "expected only the schema"),
        ([arg("aten::add(Tensor self) -> Tensor")], "takes 1 arguments, got 2"),
    ],
)
def test_a_schema_that_does_not_fit(build: list[Any], words: str) -> None:
    (problem,) = read("aten::add", [TENSOR, TENSOR], build).problems
    assert words in problem.message
    assert problem.where.startswith('c.json: $["aten::add"].config[0].')


def test_a_function_is_not_built() -> None:
    found = read("torch.mm", [TENSOR, TENSOR], [arg(1)])
    assert found.entries[0].build is None
    assert found.notes == ("`torch.mm` is a function, so that its `build` is ignored",)


def test_a_build_takes_no_tensors() -> None:
    (problem,) = read("torch.nn.Linear", [TENSOR], [TENSOR]).problems
    assert problem.where == 'c.json: $["torch.nn.Linear"].config[0].build[0]'


def tables(build: list[Any], lookups: list[Any]) -> Imported:
    return read(
        TABLES, lookups, build, build_iterator="RangeConfigIterator", input_iterator=f"{TABLES}InputIterator",
        input_data_generator=f"{TABLES}InputDataGenerator",
    )  # fmt: skip


def numbers(*values: int) -> dict[str, Any]:
    return {"type": "genericlist", "value": [arg(value) for value in values]}


ONE_TABLE = [arg(1), arg(1000), arg(64), arg(0), arg(False), arg("fp16")]


def test_embedding_tables() -> None:
    found = tables(ONE_TABLE, [arg(512), arg(50)])
    assert found.problems == ()
    assert found.entries == (
        Entry(
            "batched_embedding_bag",
            {"tables": 1, "rows": 1000, "dim": 64, "bags": 512, "pooling": 50, "mode": "sum", "dtype": "float16"},
            source=f"c.json#{TABLES}|0|0_0|0_0",
        ),
    )
    assert "fbgemm" in found.notes[0]
    assert expand(Workload(1, "x", list(found.entries)), find_operator)


def test_several_tables_of_one_size_and_ranges_of_lookups() -> None:
    build = [arg(3), numbers(7, 7, 7), numbers(8, 8, 8), arg(1), arg(False), arg("fp32")]
    found = tables(
        build, [arg(0) | {"value": [2, 4, 2], "__range__": []}, numbers(1) | {"value": [5, 6], "__list__": 1}]
    )
    assert found.problems == ()
    assert [(e.params["bags"], e.params["pooling"]) for e in found.entries] == [(2, 5), (2, 6), (4, 5), (4, 6)]
    assert {e.params["mode"] for e in found.entries} == {"mean"}
    assert [e.source.rpartition("|")[2] for e in found.entries] == ["0_0", "0_1", "0_2", "0_3"]


def test_a_weighted_table() -> None:
    (entry,) = tables([*ONE_TABLE[:4], arg(True), arg("fp32")], [arg(2), arg(3)]).entries
    assert (entry.op, entry.params["weighted"]) == ("embedding_bag", True)
    assert expand(Workload(1, "x", [entry]), find_operator)


def params_of(build: list[Any], lookups: list[Any]) -> tuple[str, dict[str, Any]]:
    (entry,) = tables(build, lookups).entries
    assert expand(Workload(1, "x", [entry]), find_operator)
    return entry.op, entry.params


def test_tables_of_different_sizes() -> None:
    build = [arg(2), numbers(7, 9), numbers(8, 4), arg(0), arg(False), arg("fp32")]
    assert params_of(build, [arg(2), numbers(3, 5)]) == (
        "split_embedding_bag",
        {"rows": [7, 9], "dims": [8, 4], "bags": 2, "pooling": [3, 5], "mode": "sum", "dtype": "float32"},
    )
    op, params = params_of([*build[:4], arg(True), arg("fp16")], [arg(2), arg(3)])
    assert (op, params["weighted"], params["pooling"]) == ("split_embedding_bag", True, [3, 3])


def test_lookups_come_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"{name}_tensor": str(tmp_path / f"{name}.npy") for name in ("indices", "offsets")}
    np.save(files["indices_tensor"], np.array([0, 3, 3, 6]))
    np.save(files["offsets_tensor"], np.array([0, 1, 4]))
    op, params = params_of(ONE_TABLE, [arg(2), arg(1) | files])
    assert op == "split_embedding_bag"
    assert (params["indices_file"], params["offsets_file"]) == tuple(files.values())
    monkeypatch.setenv("split_embedding_indices", files["indices_tensor"])
    monkeypatch.setenv("split_embedding_offsets", files["offsets_tensor"])
    assert params_of(ONE_TABLE, [arg(2), arg(1)]) == (op, params)


def test_names_and_builds_of_older_files() -> None:
    spec = {"args": [*ONE_TABLE[:3], {"type": "int", "name": "location", "value": 0}, *ONE_TABLE[3:]]}
    info = {
        "build_iterator": "RangeConfigIterator",
        "input_iterator": "SplitTableBatchedEmbeddingInputIterator",
        "build_data_generator": "PyTorch::DefaultDataGenerator",
        "input_data_generator": "SplitTableBatchedEmbeddingInputDataGenerator",
        "config": [{"build": [spec], "input": [{"args": [arg(512), arg(50)]}]}],
    }
    name = "split_table_batched_embedding_bags"
    with keep_specs() as kept:
        found = PARAM.read(Path("c.json"), {name: info}, 0)
    assert found.problems == ()
    assert (found.entries[0].op, found.entries[0].params["bags"]) == ("batched_embedding_bag", 512)
    assert found.entries[0].source == f"c.json#{name}|0|0_0|0_0"
    assert kept["c.json", f"{name}|0|0_0|0_0"].build == spec


@pytest.mark.parametrize(
    ("build", "lookups", "words"),
    [
        ([arg(3), numbers(7, 9), numbers(8, 8), arg(0), arg(False), arg("fp32")], [arg(2), arg(3)], "`rows`"),
        ([*ONE_TABLE[:3], arg(2), arg(False), arg("fp32")], [arg(2), arg(3)], "pooling"),
        ([*ONE_TABLE[:5], arg("int8")], [arg(2), arg(3)], "weights_precision"),
        (ONE_TABLE[:4], [arg(2), arg(3)], "6 arguments"),
        ([*ONE_TABLE, *[arg(1)] * 7], [arg(2), arg(3)], "a build has no"),
        (ONE_TABLE, [arg(2)], "batch_size and pooling_factor"),
        (ONE_TABLE, [arg(2), arg(-1)], "pooling_factor"),
        (ONE_TABLE, [arg(2), arg(3) | {"indices_tensor": "a.pt", "offsets_tensor": "b.pt"}], "there is no file"),
        (ONE_TABLE, [arg(2), arg(3) | {"indices_tensor": "a.pt"}], "both `indices_tensor` and"),
    ],
)
def test_tables_without_a_counterpart(build: list[Any], lookups: list[Any], words: str) -> None:
    found = tables(build, lookups)
    assert found.entries == ()
    (problem,) = found.problems
    assert words in problem.message
    assert problem.where.startswith(f'c.json: $["{TABLES}"].config[0].')


def test_an_operator_of_the_catalogue_takes_its_parameters_by_name() -> None:
    config = {"input": [{"kwargs": {"M": arg(2), "N": arg(3), "K": arg(4)}}, {"args": [TENSOR]}]}
    found = PARAM.read(Path("c.json"), {"matmul": {"config": [config]}}, 0)
    assert found.entries == (Entry("matmul", {"M": 2, "N": 3, "K": 4}, source="c.json#matmul|0|0|0"),)
    assert "takes parameters" in found.problems[0].message


def test_tables_need_their_own_generator() -> None:
    found = read(TABLES, [arg(2), arg(3)], ONE_TABLE)
    assert found.entries == ()
    assert "expected lookups in tables" in found.problems[0].message
