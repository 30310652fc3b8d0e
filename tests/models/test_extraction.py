"""Operators of a model: found with their counts, alike with and without data, recognised only where they are the same
call."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmark.api.extract import FusedGraph, ModelOperators, extract
from opmark.catalogue.expansion import expand
from opmark.errors import UserError
from opmark.models.family import source_of
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Entry

torch = pytest.importorskip("torch")


def counted(found: ModelOperators) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in found.workload.cases:
        counts[entry.op] = counts.get(entry.op, 0) + entry.count
    return counts


def small(model: str, **options: object) -> ModelOperators:
    found = extract(model, size="small", **options)  # type: ignore[arg-type]
    assert isinstance(found, ModelOperators)
    return found


def test_a_network_of_convolutions_is_made_of_operators_of_the_catalogue() -> None:
    found = small("model:resnet-18")
    counts = counted(found)
    source = source_of("resnet-18")
    assert source is not None
    layers = [type(one).__name__ for one in source.construct(found.model.params).modules()]
    assert counts["conv2d"] == layers.count("Conv2d")
    assert counts["batch_norm"] == counts["conv2d"]
    assert counts["linear"] == 1
    assert not found.problems
    assert sum(counts.values()) == found.calls
    assert all(entry.source == f"model:resnet-18#{found.model.id}" for entry in found.workload.cases)


def test_what_is_written_can_be_read_and_expands_to_as_many_cases(tmp_path: Path) -> None:
    from opmark.catalogue.workload_file import load

    found = small("model:gpt2", with_model=True)
    path = tmp_path / "ops.yaml"
    path.write_text(found.text)
    cases = expand(load(path), find_operator, str(path))
    assert len(cases) == len(found.workload.cases)
    assert cases[0].op == "model:gpt2"
    assert sum(case.count for case in cases[1:]) == found.calls


@pytest.mark.parametrize("model", ["model:bert-base", "model:yolov5n"])
def test_computing_the_model_finds_the_same_operators(model: str) -> None:
    """Layouts too: a call of other strides would be another operator."""
    without, computed = small(model), small(model, real=True)
    assert computed.computed
    assert not without.computed
    assert [(e.op, e.params, e.args, e.count) for e in computed.workload.cases] == [
        (e.op, e.params, e.args, e.count) for e in without.workload.cases
    ]


def test_a_layout_that_the_catalogue_does_not_have_stays_a_call_of_torch() -> None:
    """GPT-2 keeps its weights transposed: `linear` would be another layout."""
    ops = counted(small("model:gpt2"))
    assert "linear" not in ops
    assert ops["torch.ops.aten.addmm.default"] > 0


def test_an_operator_is_recognised_only_if_the_call_is_the_same() -> None:
    from opmark.models.tracing import _recognised
    from opmark.schema import TensorSpec

    def product(strides: tuple[int, ...]) -> list[TensorSpec]:
        return [
            TensorSpec((8,), "float32", strides=(1,)),
            TensorSpec((4, 16), "float32", strides=(16, 1)),
            TensorSpec((16, 8), "float32", strides=strides),
        ]

    assert _recognised("addmm.default", product((1, 16)), {}, "cpu") is not None
    assert _recognised("addmm.default", product((8, 1)), {}, "cpu") is None


def test_indices_lie_inside_of_the_table() -> None:
    entry: Entry = next(e for e in small("model:bert-base").workload.cases if e.op == "embedding")
    assert entry.params["rows"] > 1


def test_the_nodes_of_the_onnx_graph_are_listed_and_the_others_named() -> None:
    pytest.importorskip("onnxscript")
    found = small("model:bert-base", graph="onnx")
    counts = counted(found)
    assert counts["layer_norm"] == 5
    assert any(e.op == "add" and e.params["y"] == "row" for e in found.workload.cases)
    assert all(problem.where.startswith("node ") for problem in found.problems)


def test_a_backend_that_compiles_nothing_has_no_graph() -> None:
    with pytest.raises(UserError, match="torch-cpu has no graph of its own"):
        extract("model:conv-pointwise", size="small", graph="torch-cpu")


def test_the_graph_of_a_backend_has_kernels_that_are_fused() -> None:
    pytest.importorskip("onnxruntime")
    found = extract("model:conv-pointwise", size="small", graph="onnxruntime-cpu")
    assert isinstance(found, FusedGraph)
    assert "Relu" in found.operators
    assert found.kernels["Conv"] == 1
    assert "Relu" not in found.kernels


def test_several_cases_at_once_are_refused() -> None:
    with pytest.raises(UserError, match="expected one case"):
        extract("model:gpt2", size="small", params={"batch": [1, 2]})
