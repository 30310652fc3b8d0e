"""Captures of torch programs in this process: what is in the files, schedules, and what goes wrong."""

from __future__ import annotations

import getpass
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opmark
from opmark.errors import InvalidParameter, UserError
from opmark.traces.capture import file_names, rank_of
from opmark.traces.reading import read_trace
from opmark.traces.trace import TensorRef

torch = pytest.importorskip("torch")

Step = Callable[[], None]
EPSILON = 1.2345678e-8


@pytest.fixture(scope="module")
def step() -> Step:
    model = torch.nn.Sequential(torch.nn.Embedding(50, 4), torch.nn.Linear(4, 4))
    optimizer = torch.optim.Adam(model.parameters(), eps=EPSILON, foreach=True)
    tokens = torch.arange(3, 43)

    def make_step() -> None:
        optimizer.zero_grad()
        model(tokens).sum().backward()
        optimizer.step()

    make_step()
    return make_step


def nodes_of(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_bytes())["nodes"])


def test_a_block_is_captured_with_shapes_strides_scalars_and_ranges(tmp_path: Path, step: Step) -> None:
    with opmark.capture(tmp_path / "step.json") as capture:
        step()
    assert capture.files == [tmp_path / "step.json", tmp_path / "step.kineto.json"]
    assert sorted(tmp_path.iterdir()) == capture.files
    trace = read_trace(tmp_path / "step.json")
    assert trace.problems == []
    found = {node.name: node for node in trace.nodes}
    table, tokens = found["aten::embedding"].inputs[:2]
    assert isinstance(table, TensorRef)
    assert (table.shape, table.strides, table.dtype) == ((50, 4), (4, 1), "float32")
    assert (tokens.low, tokens.high) == (3, 42)
    assert found["aten::addmm"].duration is not None
    # torch writes six decimals; the profiler's file knows all of them
    scalars = [node.inputs[1] for node in trace.nodes if node.name == "aten::_foreach_add_" and len(node.inputs) == 2]
    assert scalars == [EPSILON]
    assert capture.operators == sum(bool(node.schema) for node in trace.nodes)


def test_a_schedule_leaves_steps_out_and_labels_the_others_in_both_files(tmp_path: Path, step: Step) -> None:
    with opmark.capture(tmp_path / "step.json", skip=2, warmup=1, steps=2) as capture:
        for number in range(7):
            assert capture.done == (number >= 5)
            step()
            capture.step()
    assert capture.passed == 7
    labels = ["ProfilerStep#3", "ProfilerStep#4"]
    assert [node["name"] for node in nodes_of(tmp_path / "step.json") if "Step#" in node["name"]] == labels
    events = json.loads((tmp_path / "step.kineto.json").read_bytes())["traceEvents"]
    assert [event["name"] for event in events if "Step#" in event["name"]] == labels
    with opmark.capture(tmp_path / "rest.json", skip=1) as capture:
        for _ in range(3):
            step()
            capture.step()
    names = [node["name"] for node in nodes_of(tmp_path / "rest.json")]
    assert [name for name in names if "Step#" in name][:2] == ["ProfilerStep#1", "ProfilerStep#2"]


def test_an_exception_leaves_the_files_of_what_was_captured(tmp_path: Path, step: Step) -> None:
    def fail() -> None:
        with opmark.capture(tmp_path / "step.json"):
            step()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert any(node["name"] == "aten::addmm" for node in nodes_of(tmp_path / "step.json"))
    with pytest.raises(ZeroDivisionError) as caught, opmark.capture(tmp_path / "none.json"):
        raise ZeroDivisionError
    assert not (tmp_path / "none.json").exists()
    assert "no operator of torch was called" in str(
        getattr(caught.value, "__notes__", "no operator of torch was called")
    )


def test_what_cannot_be_captured_is_refused_with_a_message(tmp_path: Path, step: Step) -> None:
    path = tmp_path / "step.json"

    def refused(match: str, block: Step = step, where: Path = path, **options: Any) -> None:
        with pytest.raises(UserError, match=match), opmark.capture(where, **options):
            block()

    def nested() -> None:
        with opmark.capture(tmp_path / "inner.json"):
            step()

    def profiled() -> None:
        with torch.profiler.profile():
            step()

    refused("no operator of torch was called", block=lambda: None)
    refused("a capture is running in this program already, into .*step.json", block=nested)
    refused("the program started torch's profiler itself", block=profiled)
    refused("nothing was captured: 0 steps ended, and step 4 is the first", skip=2, warmup=1)
    with torch.profiler.profile():
        refused("torch's profiler is running already")
    refused("a capture is written to a file NAME.json", where=tmp_path / "step.txt")
    refused("step.json: exists already", where=_touched(tmp_path / "there" / "step.json"))
    (tmp_path / "folder.json").mkdir()
    refused("is a folder", where=tmp_path / "folder.json")
    refused("cannot be written", where=_touched(tmp_path / "file") / "step.json")
    with pytest.raises(InvalidParameter, match="steps: expected a whole number of at least 1, got 0"):
        opmark.capture(path, steps=0)
    assert not path.exists()
    with opmark.capture(tmp_path / "there" / "step.json", overwrite=True):  # and all is well after that
        step()
    assert nodes_of(tmp_path / "there" / "step.json")


def _touched(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.touch()
    return path


SECRET, NUMBER, FRACTION = "hunter2-hunter2", 987654321, 271.828125


def test_secrets_are_not_in_the_files(tmp_path: Path, step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / SECRET
    folder.mkdir()
    monkeypatch.setenv("OPMARK_SECRET", SECRET)
    monkeypatch.chdir(folder)
    with opmark.capture("step.json") as capture:
        step()
        weights = torch.tensor([FRACTION, 1.0])
        assert weights[0].item() == FRACTION
        assert torch.tensor([NUMBER]).add(1).max().item() == NUMBER + 1
        with torch.profiler.record_function("label", SECRET):
            weights.sum()
    for file in capture.files:
        text = file.read_text()
        assert '"aten::sum"' in text
        for secret in (SECRET, str(NUMBER), str(NUMBER + 1), str(FRACTION), str(tmp_path)):
            assert secret not in text, (file, secret)
        top = json.loads(text)
        assert not {"host_name", "traceName", "username"} & top.keys()
        if len(platform.node()) > 5:
            assert platform.node() not in text
        if len(getpass.getuser()) > 5:
            assert getpass.getuser() not in text
    assert "label" in capture.files[0].read_text()


def test_values_are_kept_where_they_are_asked_for(tmp_path: Path) -> None:
    table = torch.nn.Embedding(10, 2)
    indices = torch.tensor([7, 3])
    with opmark.capture(tmp_path / "step.json", values=True) as capture:
        table(indices)
        torch.tensor(FRACTION).item()
    found = {node["name"]: node for node in nodes_of(tmp_path / "step.json")}
    assert found["aten::item"]["outputs"]["values"] == [FRACTION]
    attributes = {one["name"]: one["value"] for one in found["aten::embedding"]["attrs"]}
    assert attributes["tensor_range"] == '{"1":[3,7]}'
    assert capture.files[2] == tmp_path / "step_resources"
    stored = (capture.files[2] / f"nid_{found['aten::embedding']['id']}_tid_1.dat").read_bytes()
    assert stored == indices.numpy().tobytes()
    with opmark.capture(tmp_path / "none.json", ranges=False):
        table(torch.arange(10))
    assert "[0,9]" not in (tmp_path / "none.json").read_text()


def test_an_element_type_among_the_arguments_of_an_inner_call_is_no_value(tmp_path: Path) -> None:
    with opmark.capture(tmp_path / "loss.json"):
        torch.nn.functional.cross_entropy(torch.randn(4, 3), torch.zeros(4, dtype=torch.int64))
    (inner,) = (node for node in nodes_of(tmp_path / "loss.json") if node["name"] == "aten::log_softmax")
    assert inner["inputs"]["values"][2] == 6  # float32, as torch numbers its types


def test_a_number_of_an_inner_call_that_is_dropped_can_be_divided_by(tmp_path: Path) -> None:
    values = torch.randn(1, 2, 8, 4)
    with opmark.capture(tmp_path / "attention.json"):
        torch.nn.functional.dropout(torch.ones(8), 0.25)
        torch.nn.functional.scaled_dot_product_attention(values, values, values, dropout_p=0.25)
    divisors = [node["inputs"]["values"][1] for node in nodes_of(tmp_path / "attention.json") if "div_" in node["name"]]
    numbers = [one for one in divisors if isinstance(one, float)]
    assert numbers
    assert all(numbers)


def test_calls_of_a_program_that_compiles_are_captured_without_those_of_the_compiler(tmp_path: Path) -> None:
    table = torch.nn.Embedding(50, 4)
    compiled = torch.compile(lambda tokens: table(tokens).sum(), backend="aot_eager")
    tokens = torch.arange(3, 43)
    calls = []
    for name in ("compiles", "compiled"):
        with opmark.capture(tmp_path / f"{name}.json"):
            compiled(tokens)
            table(tokens)
        trace = read_trace(tmp_path / f"{name}.json")
        calls.append([node.name for node in trace.calls if node.name in ("aten::embedding", "aten::sum")])
    assert calls == [["aten::embedding", "aten::sum", "aten::embedding"]] * 2


def test_a_label_with_quotation_marks_is_mended(tmp_path: Path) -> None:
    with opmark.capture(tmp_path / "step.json"), torch.profiler.record_function('a "quoted" label'):
        torch.ones(3).sum()
    assert 'a "quoted" label' in [node["name"] for node in nodes_of(tmp_path / "step.json")]
    assert read_trace(tmp_path / "step.json").problems == []


def test_every_rank_has_its_own_files() -> None:
    assert rank_of({"RANK": "3", "WORLD_SIZE": "4"}) == 3
    assert rank_of({"RANK": "0", "WORLD_SIZE": "1"}) is None
    assert rank_of({"RANK": "x", "WORLD_SIZE": "2"}) is None
    names = file_names(Path("a/step.json"), 3)
    assert [name.as_posix() for name in names] == [
        "a/step.rank-3.json", "a/step.rank-3.kineto.json", "a/step.rank-3_resources",
    ]  # fmt: skip
    assert "ENABLE_PYTORCH_EXECUTION_TRACE_SAVE_INTEGRAL_TENSOR_RANGE" not in os.environ
