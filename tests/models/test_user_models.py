"""Models that users bring: files as operators, their inputs and batches, and what is wrong with them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

from opmark.errors import InvalidFile, Unsupported, UserError
from opmark.models import facts
from opmark.models.family import source_of
from opmark.models.user_modules import count_user_model
from opmark.plugin import Backend, Operator, registry
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.runner.plan import make_plan
from opmark.runner.selection import default_backends, parse_params, select_cases
from opmark.schema import EFFORTS, Record, Settings, Task
from opmark.schema.options import Selection
from opmark.worker.task_runner import TaskRunner

SETTINGS = Settings(1, "quick", EFFORTS["quick"])
MODELS = """
import torch
from torch import nn

def build(batch=1):
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.9), nn.Linear(16, 4)), {"x": torch.randn(batch, 8)}

class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16)

    def forward(self, ids, scale):
        return {"found": self.table(ids) * scale, "cache": None}

def tokens(batch=1, seq=12):
    return Lookup(), {"scale": "1 float32 1..2", "ids": torch.arange(50).repeat(batch, 1)[:, -seq:]}

class Mean(nn.Module):
    def forward(self, x):
        return x.mean(0) * 3

def mean(batch=1):
    return Mean(), torch.randn(batch, 8)

class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return (x * self.scale).transpose(0, 1).contiguous()

def last(batch=1):
    return Last(), torch.randn(batch, 8)

def alone():
    return nn.Linear(8, 4), [torch.randn(5, 8)]

class Choosing(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(8, 4)

    def forward(self, x):
        return self.one(x) if float(x.sum()) > -1e9 else x

def choosing(batch=1):
    return Choosing(), torch.randn(batch, 8)

class Log(nn.Module):
    def forward(self, x):
        return torch.log(x - 100)

def undefined(batch=1):
    return Log(), torch.randn(batch, 8)

def raises(): raise ValueError("no such thing")
def number(): return 3
def no_tensor(): return nn.Linear(8, 4), {"x": 5}
def constant(): return nn.Embedding(5, 4), torch.zeros(1, 3, dtype=torch.int64)
def needs(width): return nn.Linear(8, 4), torch.randn(1, 8)
def wrong_shape(batch=1): return nn.Linear(8, 4), torch.randn(batch, 9)
def inner_batch(batch=1): return nn.Linear(8, 4), torch.randn(3, batch, 8)
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in a folder with the models. This process loads them itself, as a worker does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPMARK_LOADS_MODELS", "1")
    Path("mymodels.py").write_text(MODELS)
    forget()
    yield
    forget()


@pytest.fixture
def live_torch() -> Backend:
    return find_backend("torch-cpu").load(threads=1)


@pytest.fixture
def live_onnxruntime() -> Backend:
    return find_backend("onnxruntime-cpu").load(threads=1)


def forget() -> None:
    for cached in (source_of, facts._find, registry._make_by_family, registry.load_function):
        cached.cache_clear()


def task_of(name: str, backend: str = "torch-cpu", **params: Any) -> Task:
    (case,) = select_cases(Selection(f"model:{name}", params=params)).cases
    return Task(case, backend, find_backend(backend).framework, SETTINGS)


def inputs_of(name: str, **params: Any) -> dict[str, Any]:
    operator = find_operator(f"model:{name}")
    return operator.inputs(operator.complete(params))


def record_of(live: Backend, name: str, backend: str = "torch-cpu", **params: Any) -> Record:
    return TaskRunner(find_backend(backend), live).run(task_of(name, backend, **params))


def assert_checked(record: Record, how: str = "full") -> None:
    assert record.status in ("ok", "disturbed"), record.reason
    assert record.verification is not None
    assert record.verification.checked == how


# Functions of a Python file.


def test_a_function_of_a_file_is_a_model(live_torch: Backend) -> None:
    record = record_of(live_torch, "mymodels.py:build", batch=3)
    assert_checked(record)
    assert record.cost is not None
    assert record.cost.flops == 2 * 3 * (8 * 16 + 16 * 4)


def test_a_model_is_in_eval_mode() -> None:
    source = source_of("mymodels.py:build")
    assert source is not None
    assert not any(module.training for module in source.module({"batch": 1}).modules())


def test_weights_are_the_same_in_every_process() -> None:
    source = source_of("mymodels.py:build")
    assert source is not None
    torch.manual_seed(1)
    one = source.module({})
    torch.manual_seed(2)
    for some, other in zip(one.parameters(), source.module({}).parameters(), strict=True):
        assert torch.equal(some, other)


def test_inputs_come_from_examples_and_texts() -> None:
    found = inputs_of("mymodels.py:tokens", batch=2, seq=5)
    assert list(found) == ["ids", "scale"]  # the order of the module's arguments
    ids, scale = found.values()
    assert (ids.shape, ids.dtype, ids.low, ids.high) == ((2, 5), "int64", 45, 50)
    assert (scale.shape, scale.dtype, scale.low, scale.high) == ((1,), "float32", 1, 2)


def test_inputs_go_by_name_and_outputs_are_the_tensors(live_torch: Backend) -> None:
    assert_checked(record_of(live_torch, "mymodels.py:tokens", batch=2))


@pytest.mark.parametrize(
    ("name", "params", "rows", "axes"),
    [
        ("build", {}, True, {}),
        ("last", {}, True, {0: 1}),
        ("mean", {}, False, {}),
        ("alone", {}, False, {}),
        ("choosing", {}, True, {}),
    ],
)
def test_the_batch_is_found_in_the_outputs(name: str, params: Any, rows: bool, axes: Any) -> None:
    source = source_of(f"mymodels.py:{name}")
    assert source is not None
    assert (source.batched(params), source.batch_axes(params)) == (rows, axes)


@pytest.mark.parametrize(("name", "params"), [("mean", {"batch": 4}), ("alone", {}), ("last", {"batch": 3})])
def test_a_model_without_rows_is_checked_as_a_whole(name: str, params: Any, live_torch: Backend) -> None:
    assert_checked(record_of(live_torch, f"mymodels.py:{name}", **params))


def test_a_reference_that_is_nan_gives_a_wrong_record(live_torch: Backend) -> None:
    record = record_of(live_torch, "mymodels.py:undefined")
    assert record.status == "wrong"
    assert "NaN or Inf" in record.reason


def test_a_batch_that_does_not_fit_gives_a_record(live_torch: Backend) -> None:
    assert record_of(live_torch, "mymodels.py:build", batch=10**12).status == "oom"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", r"`mymodels.py:raises` raised ValueError: no such thing, at mymodels.py:\d+"),
        ("number", "`mymodels.py:number` returned int, expected a torch.nn.Module and its inputs"),
        ("no_tensor", "expected a tensor, or a text such as `8x64 float32`, got a int"),
        ("constant", "all values of its inputs are the same"),
        ("needs", "raised TypeError: .*width"),
        ("wrong_shape", "cannot be called with input 1x9 float32"),
        ("inner_batch", r"has the shape \(3, 1, 8\) for batch=1 and \(3, 2, 8\) for batch=2"),
        ("nothing", "has no `nothing`"),
    ],
)
def test_a_mistake_in_a_function_is_a_message_with_a_hint(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        inputs_of(f"mymodels.py:{name}")
    assert caught.value.hint


def test_a_parameter_that_a_function_does_not_take_is_refused() -> None:
    for params, said in (({"seq": 4}, "`seq`: mymodels.py:build does not take it"), ({"batch": 2}, "no axis")):
        with pytest.raises(UserError, match=said):
            inputs_of("mymodels.py:alone" if "batch" in params else "mymodels.py:build", **params)


def test_a_broken_model_is_a_record_beside_others() -> None:
    cases = select_cases(Selection("model:mymodels.py:raises,model:mymodels.py:build")).cases
    plan = make_plan(cases, ["torch-cpu"], [SETTINGS])
    assert [task.case.op for task in plan.tasks] == ["model:mymodels.py:build"]
    (record,) = plan.skipped
    assert record.status == "error"
    assert record.reason.startswith("`mymodels.py:raises` raised ValueError: no such thing")


# Processes.


def test_a_parent_executes_nothing_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process does, and what it found is kept until the file changes."""
    monkeypatch.delenv("OPMARK_LOADS_MODELS")
    Path("traced.py").write_text(
        "import os, torch\nopen('pids', 'a').write(f'{os.getpid()}\\n')\nprint('loaded')\n"
        "def build(batch=1): return torch.nn.Linear(8, 4), torch.randn(batch, 8)\n"
    )
    operator = find_operator("model:traced.py:build")
    assert not Path("pids").exists()
    for _ in range(2):
        assert operator.inputs(operator.complete({"batch": 2}))["input"].shape == (2, 8)
        facts._find.cache_clear()
    first = Path("pids").read_text().split()
    assert len(set(first)) == 1
    assert str(os.getpid()) not in first
    with Path("traced.py").open("a") as file:
        file.write("# changed\n")
    assert operator.inputs(operator.complete({}))
    assert len(set(Path("pids").read_text().split())) == 2


def test_a_parent_passes_on_the_message_of_its_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPMARK_LOADS_MODELS")
    with pytest.raises(UserError, match="raised ValueError: no such thing") as caught:
        inputs_of("mymodels.py:raises")
    assert "def build(batch=1)" in (caught.value.hint or "")


def test_naming_a_model_loads_no_framework() -> None:
    code = "import sys; from opmark.plugin.registry import operator; operator('model:mymodels.py:build'); " \
           "print([name for name in ('torch', 'onnx', 'transformers') if name in sys.modules])"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Files that are no models.


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.onnx", "there is no file `missing.onnx`"),
        ("missing.py:build", "there is no file `missing.py`"),
        ("./missing", "there is no file"),
        ("mymodels.py", "expected a function of it too"),
        ("notes.txt", "`notes.txt` is no model: expected FILE.py:FUNCTION"),
        ("folder", "`folder` is no checkpoint of transformers: it has no config.json"),
        ("list.json", "has neither `model_type` nor `architectures`"),
        ("broken.json", "is no JSON"),
    ],
)
def test_what_is_no_model_is_said(name: str, said: str) -> None:
    Path("notes.txt").write_text("hello")
    Path("folder").mkdir()
    Path("list.json").write_text("[]")
    Path("broken.json").write_text("{")
    with pytest.raises(UserError, match=said) as caught:
        find_operator(f"model:{name}")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "said"),
    [("junk.onnx", "cannot be read as ONNX"), ("junk.pt", "is no TorchScript"), ("junk.pt2", "is no program")],
)
def test_files_of_something_else_are_said(name: str, said: str) -> None:
    Path(name).write_text("hello")
    with pytest.raises(UserError, match=said) as caught:
        inputs_of(name)
    assert caught.value.hint


def test_a_state_dict_is_no_torchscript() -> None:
    torch.save(torch.nn.Linear(2, 2).state_dict(), "weights.pt")
    with pytest.raises(UserError, match="is no TorchScript") as caught:
        inputs_of("weights.pt", inputs=["1x2 float32"])
    assert "-p weights=FILE" in (caught.value.hint or "")


# TorchScript and torch.export.


def script(name: str = "net.pt") -> str:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(0.9))), name)
    return name


@pytest.mark.filterwarnings("ignore")
def test_torchscript_needs_its_inputs(live_torch: Backend) -> None:
    name = script()
    with pytest.raises(UserError, match=r"does not say the shapes of its inputs \(input\)"):
        inputs_of(name)
    assert_checked(record_of(live_torch, name, inputs=[["1x8 float32"]], batch=3))
    assert_checked(record_of(live_torch, name, inputs=[["5x8 float32"]]))
    with pytest.raises(UserError, match="no axis for it"):
        inputs_of(name, inputs=["5x8 float32"], batch=2)


@pytest.mark.filterwarnings("ignore")
def test_the_command_line_takes_inputs() -> None:
    op = f"model:{script()}"
    assert parse_params([op], ["inputs=[1x8 float32, 4 int64 0..9]"]) == {
        "inputs": [["1x8 float32", "4 int64 0..9"]],
    }
    assert parse_params([op], ["inputs={a: 1x8 float32, b: 4 int64 0..9}"]) == {
        "inputs": [{"a": "1x8 float32", "b": "4 int64 0..9"}],
    }


@pytest.mark.filterwarnings("ignore")
def test_torchscript_is_exported_to_onnx() -> None:
    operator, params = operator_and_params(script(), inputs=["1x8 float32"])
    (onnx_one,) = operator.implementations_for("onnx")
    model = onnx_one.build(params).model({"input": ((1, 8), "float32")})
    assert "Gemm" in {node.op_type for node in model.graph.node}


def operator_and_params(name: str, **params: Any) -> tuple[Operator, dict[str, Any]]:
    operator = find_operator(f"model:{name}")
    return operator, operator.complete(params)


@pytest.mark.filterwarnings("ignore")
def test_a_program_of_torch_export_brings_its_inputs(live_torch: Backend) -> None:
    module, example = torch.nn.Linear(8, 4).eval(), (torch.rand(2, 8),)
    free = torch.export.export(module, example, dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(free, "free.pt2")
    torch.export.save(torch.export.export(module, example), "fixed.pt2")
    assert_checked(record_of(live_torch, "free.pt2", batch=3))
    assert_checked(record_of(live_torch, "fixed.pt2"))
    with pytest.raises(UserError, match="no axis for it") as caught:
        inputs_of("fixed.pt2", batch=3)
    assert "dynamic_shapes" in (caught.value.hint or "")


# ONNX.


def save_onnx(name: str, node: Any, *, batch: Any = "batch", domain: str = "", **weights: Any) -> str:
    """Write a model of one node, from x of 8 columns to y of 4."""
    graph = helper.make_graph(
        [node], "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [batch, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [batch, 4])],
        [numpy_helper.from_array(array, key) for key, array in weights.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20), *([helper.make_opsetid(domain, 1)] if domain else [])]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), name)
    return name


def linear(name: str = "net.onnx", batch: Any = "batch") -> str:
    weight = np.random.default_rng(0).standard_normal((8, 4)).astype("float32")
    return save_onnx(name, helper.make_node("MatMul", ["x", "w"], ["y"]), batch=batch, w=weight)


def test_an_onnx_file_runs_its_own_graph(live_onnxruntime: Backend) -> None:
    record = record_of(live_onnxruntime, linear(), "onnxruntime-cpu", batch=5)
    assert_checked(record)
    assert record.verification is not None
    assert record.verification.reference.startswith("ONNX Runtime without graph optimisations")
    assert record.cost is not None
    assert record.cost.flops == 2 * 5 * 8 * 4
    assert record.compilation is not None
    assert record.compilation.operators == ("MatMul",)


def test_an_onnx_file_of_a_fixed_size_is_checked_as_a_whole(live_onnxruntime: Backend) -> None:
    name = linear("fixed.onnx", batch=3)
    assert_checked(record_of(live_onnxruntime, name, "onnxruntime-cpu"))
    with pytest.raises(UserError, match="no axis for it"):
        inputs_of(name, batch=2)


def test_the_reference_of_an_onnx_file_notices_a_wrong_output() -> None:
    operator, params = operator_and_params(linear(), batch=2)
    x = np.random.default_rng(1).standard_normal((2, 8))
    (expected,) = operator.reference(params, x=x)
    weight = numpy_helper.to_array(onnx.load("net.onnx").graph.initializer[0])
    assert np.allclose(expected, x @ weight, rtol=1e-4, atol=1e-5)
    (bound,) = operator.tolerance.output_bounds("float32", params) or ()
    assert 1e-7 < bound < 1e-4
    (coarser,) = operator.tolerance.output_bounds("bfloat16", params) or ()
    assert coarser > 100 * bound


def test_torch_has_no_implementation_of_an_onnx_file() -> None:
    (case,) = cases = select_cases(Selection(f"model:{linear()}")).cases
    assert default_backends(cases) == ["onnxruntime-cpu"]
    plan = make_plan([case], ["torch-cpu", "onnxruntime-cpu"], [SETTINGS])
    assert [task.backend for task in plan.tasks] == ["onnxruntime-cpu"]
    assert [record.reason for record in plan.skipped] == [
        "`model:net.onnx` has no implementation for torch; it has some for onnx"
    ]


def test_the_type_of_an_onnx_file_is_its_own() -> None:
    with pytest.raises(UserError, match="computes in float32, and the case says bfloat16") as caught:
        inputs_of(linear(), dtype="bfloat16")
    assert caught.value.hint == "give -p dtype=float32"


def test_an_onnx_file_is_converted_to_float16(live_onnxruntime: Backend) -> None:
    record = record_of(live_onnxruntime, linear(), "onnxruntime-cpu", batch=2, dtype="float16")
    assert_checked(record)
    assert record.verification is not None
    operator, params = operator_and_params(linear(), batch=2, dtype="float16")
    assert operator.result_dtype is not None
    assert operator.result_dtype(params) == "float16"


def test_an_operator_that_a_backend_lacks_is_named(live_onnxruntime: Backend) -> None:
    name = save_onnx("blub.onnx", helper.make_node("Blub", ["x"], ["y"], domain="mine"), domain="mine")
    record = record_of(live_onnxruntime, name, "onnxruntime-cpu")
    assert record.status == "skipped"
    assert "mine:Blub" in record.reason
    operator, params = operator_and_params(name)
    with pytest.raises(Unsupported, match="mine:Blub"):
        operator.reference(params, x=np.zeros((1, 8)))


def test_indices_of_an_onnx_file_stay_within_its_tables() -> None:
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["y"])], "graph",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["batch", "seq_len"]),
         helper.make_tensor_value_info("attention_mask", onnx.TensorProto.INT64, ["batch", "seq_len"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", "seq_len", 4])],
        [numpy_helper.from_array(np.ones((50, 4), "float32"), "table")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), "ids.onnx")
    found = inputs_of("ids.onnx", batch=2, seq=7)
    assert (found["ids"].shape, found["ids"].low, found["ids"].high) == ((2, 7), 0, 50)
    assert (found["attention_mask"].low, found["attention_mask"].high) == (1, 2)


# Transformers.


def save_config(folder: str, **changed: Any) -> Path:
    content = {
        "model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 100, "max_position_embeddings": 64, **changed,
    }  # fmt: skip
    Path(folder).mkdir(exist_ok=True)
    path = Path(folder, "config.json")
    path.write_text(json.dumps(content))
    return path


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_of_transformers_is_a_model(live_torch: Backend) -> None:
    import transformers

    save_config("checkpoint")
    assert inputs_of("checkpoint/config.json")["input_ids"].shape == (1, 64)
    assert inputs_of("checkpoint/config.json", seq=9)["input_ids"].high == 100
    assert_checked(record_of(live_torch, "checkpoint/config.json", seq=8, batch=2))
    model = transformers.BertForMaskedLM(transformers.BertConfig.from_json_file("checkpoint/config.json"))
    model.save_pretrained("checkpoint")
    source = source_of("checkpoint")
    assert source is not None
    loaded = source.module({})
    assert torch.equal(loaded.model.cls.predictions.bias, model.cls.predictions.bias)
    assert torch.equal(
        loaded.model.bert.embeddings.word_embeddings.weight, model.bert.embeddings.word_embeddings.weight
    )
    save_config("checkpoint", hidden_size=48)
    with pytest.raises(UserError, match=r"another shape: bert\.embeddings.*: expected 48, got 32") as caught:
        source.module({})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model_type": "bertt"}, "`bertt`.*did you mean `bert`"),
        ({"architectures": ["BertForMaskedLMM"]}, "`BertForMaskedLMM`.*did you mean `BertForMaskedLM`"),
    ],
)
def test_an_unknown_architecture_names_the_nearest(changed: Any, said: str) -> None:
    save_config("unknown", **changed)
    with pytest.raises(UserError) as caught:
        inputs_of("unknown")
    assert re.search(said, f"{caught.value.message} {caught.value.hint}")


# Files that are programs, named by workload files.


def workload(folder: Path, op: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "w.json"
    path.write_text(json.dumps({"schema": 1, "name": "w", "cases": [{"op": op}]}))
    return path


@pytest.mark.parametrize("name", ["mymodels.py:build", "net.pt", "net.pt2"])
def test_a_workload_file_may_not_run_any_program(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in ("net.pt", "net.pt2"):
        Path(file).write_text("")
    op, file = f"model:{name}", name.partition(":")[0]
    elsewhere = workload(tmp_path / "elsewhere", op)
    with pytest.raises(InvalidFile, match="is a program that a workload file may not run") as caught:
        select_cases(Selection(workload=elsewhere))
    assert f"--allow {file} " in (caught.value.hint or "")
    assert select_cases(Selection(workload=elsewhere, allow=file)).cases
    assert select_cases(Selection(workload=workload(tmp_path, op))).cases
    monkeypatch.setenv("OPMARK_ALLOW", file)
    assert select_cases(Selection(workload=elsewhere)).cases


def test_a_workload_file_may_name_models_that_are_data(tmp_path: Path) -> None:
    linear()
    assert select_cases(Selection(workload=workload(tmp_path / "elsewhere", "model:net.onnx"))).cases


def test_counting_works_where_shapes_alone_do_not() -> None:
    """A module that decides by values has to be called with values."""
    source = source_of("mymodels.py:choosing")
    assert source is not None
    found = count_user_model(source, {"batch": 2, "dtype": "float32"})  # type: ignore[arg-type]
    assert (found.flops, found.outputs) == (2 * 2 * 8 * 4, {"output": (2, 4)})
