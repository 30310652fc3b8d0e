"""Operator inputs of real models, as tritonbench lists them: calls become entries, or are refused by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opmark.errors import InvalidFile
from opmark.interop.operator_inputs import OPERATOR_INPUTS, read_text
from opmark.models.calls import KnownCall
from opmark.runner.workload_source import read_source
from opmark.schema import Entry, Imported

PATH = Path("model.txt")
BERT = """Operator: aten._softmax.default
cnt: 12, ((T([2, 4, 8, 8], f16), -1, False), {})
Operator: aten.add.Tensor
cnt: 4, ((T([2, 8], f16), T([2, 8], f16)), {})
cnt: 1, ((T([2, 8], f16), 1.0), {})
"""


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call is recognised, so that no process starts."""
    names = lambda calls: [KnownCall(call.name) for call in calls]  # noqa: E731
    monkeypatch.setattr("opmark.interop.operator_inputs.recognise_calls", names)


def read(operator: str, *calls: str) -> Imported:
    return read_text(PATH, "\n".join([f"Operator: {operator}", *(f"cnt: 1, {call}" for call in calls)]))


def entry(operator: str, call: str) -> Entry:
    found = read(operator, call)
    assert found.problems == ()
    return found.entries[0]


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("call", "args", "kwargs"),
    [
        ("((T([2, 3], f16),), {})", ["2x3 float16"], None),
        ("((T([2, 3], f32, stride=(1, 2)),), {})", ["2x3 float32 strides 1x2"], None),
        ("((T([2, 3], f32, [1, 2]),), {})", ["2x3 float32 strides 1x2"], None),
        ("((T([], i64), [1, -2], None, True), {})", ["() int64", [1, -2], None, True], None),
        ("(([T([2], b8), T([3], u8)], 0), {})", [["2 bool", "3 uint8"], 0], None),
        ("((T([2], bf16), [1, 1], -inf), {})", ["2 bfloat16", [1, 1], {"float": "-inf"}], None),
        ("((T([2], f32),), {'dtype': f16})", ["2 float32"], {"dtype": {"dtype": "float16"}}),
        ("((T([2], f32),), {'dtype': 'f16', 'layout': torch.strided, 'device': 'cuda', 'pin_memory': False})",
         ["2 float32"], {"dtype": {"dtype": "float16"}}),
        ("((T([2], f32),), {'dtype': torch.bool, 'device': \"torch.device('cpu')\"})",
         ["2 float32"], {"dtype": {"dtype": "bool"}}),
        ("((T([2], f32),), {'memory_format': torch.channels_last})", ["2 float32"], {"memory_format": 2}),
        ("((T([2], f32),), {'approximate': 'tanh'})", ["2 float32"], {"approximate": "tanh"}),
        ("((T([2], f32), device(type='cuda', index=0)), {})", ["2 float32", "cuda"], None),
        ("((T([2], c64), 1e-05), {})", ["2 complex64", 1e-05], None),
    ],
)  # fmt: skip
def test_arguments_are_read(call: str, args: list[Any], kwargs: dict[str, Any] | None) -> None:
    found = entry("aten.thing.default", call)
    assert (found.op, found.args, found.kwargs) == ("torch.ops.aten.thing.default", args, kwargs)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("operator", "call", "place", "written"),
    [
        ("aten.embedding.default", "((T([100, 8], f16), T([5], i64)), {})", 1, "5 int64 0..100"),
        ("aten.nll_loss_forward.default", "((T([64, 1000], f16), T([64], i64), None, 1, -100), {})", 1,
         "64 int64 0..1000"),
        ("aten.index.Tensor", "((T([3, 7], f16), [None, T([5], i64)]), {})", 1, [None, "5 int64 0..7"]),
        ("aten._embedding_bag.default", "((T([10, 4], f16), T([6], i64), T([2], i64)), {})", 2,
         "2 int64 0..6 offsets"),
    ],
)  # fmt: skip
def test_indices_stay_in_range(operator: str, call: str, place: int, written: Any) -> None:
    args = entry(operator, call).args
    assert args is not None
    assert args[place] == written


@pytest.mark.usefixtures("plain")
def test_a_call_in_place_that_changes_the_shape_is_measured_as_one_that_can_be_repeated() -> None:
    assert entry("aten.unsqueeze_.default", "((T([2], f32), 0), {})").op == "torch.ops.aten.unsqueeze.default"


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("((T([-2], f16),), {})", "expected T(SHAPE, ELEMENT TYPE), got `T([-2], f16)`"),
        ("((T([2], f17),), {})", "expected tensors, numbers, element types and lists, got `f17`"),
        ("((T([2, 3], f16, stride=(1,)),), {})", "expected one stride per axis"),
        ("((ST([2, 3], f32, torch.sparse_coo, True, nnz=1),), {})", "a sparse tensor"),
        ("((T([2], f16),), {'layout': torch.sparse_coo})", "layout sparse_coo"),
        ("((__import__('os').system('true'),), {})", "expected T(SHAPE, ELEMENT TYPE)"),
        ("((T([2], f16),)", "not Python's syntax"),
        ("(1, 2)", "expected ((ARGUMENTS), {BY NAME})"),
        ("((" + "(" * 500 + ")" * 500 + ",), {})", "`((("),
        ("((1j,), {})", "an argument is a complex"),
        ("((T([2], f16), {'a': 1}), {})", "a mapping"),
    ],
)
def test_what_cannot_be_written_is_refused_with_its_line(call: str, why: str) -> None:
    found = read("aten.thing.default", call, "((T([2], f16),), {})")
    (problem,) = found.problems
    assert problem.where == "model.txt:2: aten.thing.default"
    assert why in problem.message
    assert len(found.entries) == 1


@pytest.mark.usefixtures("plain")
def test_lines_that_are_neither_operator_nor_call_are_named_and_alike_ones_are_counted() -> None:
    lines = ["cnt: 1, ((T([2], f16),), {})", "Operator: 1 + 1", "Operator: aten.relu.default", "cnt: 0, ((), {})", "hm",
             "# a remark", "", *["cnt: 2, ((ST([2], f16),), {})"] * 3]  # fmt: skip
    told = [(problem.where, problem.message) for problem in read_text(PATH, "\n".join(lines)).problems]
    assert [where for where, _ in told] == [
        "model.txt:1", "model.txt:2", "model.txt:4: aten.relu.default", "model.txt:5", "model.txt:8: aten.relu.default",
    ]  # fmt: skip
    assert told[-1][1] == "an argument is a sparse tensor, which a workload has no words for (3 lines)"


@pytest.mark.usefixtures("plain")
def test_files_are_known_by_their_first_line_and_a_folder_reads_them(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n# from a model\n" + BERT)
    (tmp_path / "b.log").write_text(BERT)
    (tmp_path / "notes.txt").write_text("nothing of the kind")
    found = read_source(tmp_path)
    assert found.foreign == "operator-inputs"
    assert found.problems == ()
    assert {source for case in found.distinct() for source in case.sources} == {
        f"{file}#{call}" for file in ("a.txt", "b.log") for call in ("_softmax.default", "add.Tensor")
    }
    assert sorted(case.count for case in found.distinct()) == [2, 8, 24]
    assert not OPERATOR_INPUTS.takes_file(Path("x.txt"), b"\xff\xfe\x00")


def test_calls_that_the_catalogue_makes_too_are_recognised_and_others_named(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "bert.txt"
    gone = "Operator: aten.no_such_thing.default\ncnt: 2, ((T([2], f16),), {})\n"
    renamed = "Operator: aten.sum.SymInt\ncnt: 2, ((T([2, 3], f16), [0], True), {})\n"
    path.write_text(BERT + renamed + gone)
    found = read_source(path)
    assert [(entry.op, entry.count) for entry in found.workload.cases] == [
        ("softmax", 12), ("add", 4), ("torch.ops.aten.add.Tensor", 1), ("torch.ops.aten.sum.dim_IntList", 2),
    ]  # fmt: skip
    assert found.workload.cases[0].params == {"shape": [[2, 4, 8, 8]], "dtype": "float16", "axis": -1}
    (problem,) = found.problems
    assert "has no operator torch.ops.aten.no_such_thing.default" in problem.message
    path.write_text(gone)
    with pytest.raises(InvalidFile, match="1 problem"):
        read_source(path)
