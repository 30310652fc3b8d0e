"""PARAM's library under its own module paths, and files of users that are loaded with --plugin."""

from __future__ import annotations

import enum
import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from param_runs import ADD, Command, number, op, tensor
from rich.console import Console

from opmark.api.compare import compare
from opmark.api.history import history
from opmark.api.runs import runs as stored_runs
from opmark.api.show import show
from opmark.dashboard.pages.case import CaseQuery, view_case
from opmark.dashboard.pages.runs import SearchQuery, view_search
from opmark.dashboard.reader import Reader
from opmark.errors import OpmarkError, UserError
from opmark.interop.param import plugin
from opmark.interop.param.importer import PARAM
from opmark.interop.param.lib import pytorch as lib_pytorch
from opmark.interop.param.lib.config import BenchmarkConfig, make_op_config
from opmark.interop.param.lib.data import DataGenerator, data_generator_map, register_data_generator
from opmark.interop.param.lib.generator import IterableList, ListProduct, TableProduct, full_range
from opmark.interop.param.lib.init_helper import get_logger, init_logging, load_modules
from opmark.interop.param.lib.iterator import (
    ConfigIterator,
    DefaultConfigIterator,
    RangeConfigIterator,
    config_iterator_map,
    genericList_to_list,
    register_config_iterator,
    remove_meta_attr,
)
from opmark.interop.param.lib.operator import OperatorInterface, op_map, register_operator, register_operators
from opmark.interop.param.lib.pytorch.benchmark import Benchmark, make_default_benchmark
from opmark.interop.param.lib.pytorch.build_executor import BuildExecutor, OpBuildExecutor
from opmark.interop.param.lib.pytorch.config_util import (
    ExecutionPass,
    OpExecutionMode,
    create_bench_config,
    create_op_args,
    create_op_info,
    create_type,
    get_benchmark_options,
    param_options,
)
from opmark.interop.param.lib.pytorch.op_executor import OpExecutor
from opmark.interop.param.lib.pytorch.timer import Timer
from opmark.interop.param.lib.timer import Timer as TimerOf2021
from opmark.interop.param.options import ParamOptions
from opmark.interop.param.results import read
from opmark.interop.param.workloads import pytorch as workloads_pytorch
from opmark.interop.param.workloads.pytorch import native_basic_ops
from opmark.report.console.records import print_records
from opmark.report.formats.run_table import result_rows
from opmark.runner.workload_source import read_source
from opmark.schema.case import PLUGIN_OPERATOR

load_modules(workloads_pytorch)


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """Forget what a test registers and loads."""
    maps: tuple[dict[Any, Any], ...] = (op_map, data_generator_map, config_iterator_map, plugin._LOADED)
    before = [dict(one) for one in maps]
    yield
    for one, kept in zip(maps, before, strict=True):
        one.clear()
        one.update(kept)


def options(**changes: Any) -> dict[str, Any]:
    return {**get_benchmark_options(), "device": "null", **changes}


def test_the_example_run_op() -> None:
    """The steps of PARAM's run_op.py, in its words."""
    load_modules(lib_pytorch)
    load_modules(workloads_pytorch)
    op_name = "torch.mm"
    bench_config = create_bench_config(op_name)
    tensor_1, tensor_2 = create_type("tensor"), create_type("tensor")
    tensor_1["shape"] = tensor_2["shape"] = [16, 16]
    op_info = bench_config[op_name]
    op_info["config"][0]["input"].append(create_op_args([tensor_1, tensor_2], {}))
    run_options = get_benchmark_options()
    run_options["pass_type"] = ExecutionPass.BACKWARD
    op_config = make_op_config(op_name, op_info, run_options["device"])
    assert op_config is not None
    input_data_gen = op_config.input_data_generator()
    args, kwargs = input_data_gen.get_data(op_info["config"][0]["input"][0], run_options["device"])
    result = OpExecutor(op_name, op_config.op, run_options).run(args, kwargs, "0:0:0")
    assert list(result) == ["forward", "backward"]
    for metrics in result.values():
        assert {name: len(values) for name, values in metrics.items()} == {
            "warmup.time": 1, "warmup.gpu.memory": 1, "measure.time": 1, "measure.gpu.memory": 1,
        }  # fmt: skip


def test_the_example_run_op_split_table_batched_embeddings() -> None:
    """The steps of PARAM's second example; fbgemm's PoolingMode, which it imports, is an IntEnum."""
    pooling_mode = enum.IntEnum("PoolingMode", {"SUM": 0, "MEAN": 1})
    load_modules(lib_pytorch)
    load_modules(workloads_pytorch)
    op_name = "SplitTableBatchedEmbeddingBagsCodegen"
    op_info = create_op_info()
    op_info["input_data_generator"] = "SplitTableBatchedEmbeddingBagsCodegenInputDataGenerator"
    run_options = {**options(), "pass_type": ExecutionPass.BACKWARD}
    op_config = make_op_config(op_name, op_info, run_options["device"])
    assert op_config is not None
    sizes = {"num_tables": 1, "rows": 100, "dim": 8, "batch_size": 4, "pooling_factor": 5}
    specs = [{"type": "int", "name": name, "value": value} for name, value in sizes.items()]
    specs += [{"type": "bool", "name": "weighted", "value": True}, {"type": "str", "value": "fp16"}]
    spec = create_op_args(specs, {"optimizer": {"type": "str", "value": "sgd"}})
    args, kwargs = op_config.input_data_generator().get_data(spec, run_options["device"])
    op_config.op.build(1, 100, 8, pooling_mode.SUM, True, "fp16", "sgd")
    executor = OpExecutor(op_name, op_config.op, run_options)
    assert [len(metric["measure.time"]) for metric in executor.run(args, kwargs, "0:0:0").values()] == [1, 1]
    with pytest.raises(UserError, match="InputDataGenerator"):
        executor.run(["20 int64"], {}, "0:0:0")
    op_config.op.cleanup()
    with pytest.raises(UserError, match="expected a build"):
        executor.run(args, kwargs, "0:0:0")


def test_the_iterator_of_lookups_is_a_class() -> None:
    build = {"args": [number(n) for n in (1, 100, 8, 0, 0, 0)]}
    lookups = {"args": [number(4), {**number(0), "value": [5, 7, 2], "__range__": ["value"]}]}
    kind = config_iterator_map["SplitTableBatchedEmbeddingBagsCodegenInputIterator"]
    points = dict(kind({"build": build, "input": [lookups]}, "input", "cpu"))
    assert {point_id: spec["args"][4]["value"] for point_id, spec in points.items()} == {"0_0": 5, "0_1": 7}


def test_the_operators_of_param_are_registered_and_called_by_opmark_itself() -> None:
    assert {"torch.add", "torch.add_", "torch.nn.Linear", "pytorch.model.resnet"} <= set(op_map)
    assert {*native_basic_ops.unary_ops, *native_basic_ops.callable_ops, *native_basic_ops.buildable_ops} <= set(op_map)
    with pytest.raises(ValueError, match=r"torch\.add"):
        register_operator("torch.add", op_map["torch.add"])
    (entry,) = PARAM.read(Path("c.json"), {"torch.add": op([tensor(4), tensor(4)])}, 0).entries
    assert (entry.op, entry.build) == ("torch.add", None)


def test_an_operator_that_is_built_first_and_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    op_config = make_op_config("torch.nn.Linear", op([tensor(2, 8)]), "cpu")
    assert op_config is not None
    op_config.op.build(8, 4)
    executor = OpExecutor("torch.nn.Linear", op_config.op, options(device="cpu", iteration=2))
    for args in (["2x8 float32"], [torch.rand(2, 8)]):
        assert len(executor.run(args, {}, "0:0:0")["forward"]["measure.time"]) == 2
    with pytest.raises(OpmarkError, match=r"torch\.nn\.Linear\|0\|0\|1: forward: .*shapes"):
        executor.run([torch.rand(2, 9)], {}, "0:0:1")


def test_a_whole_config_and_its_lines(tmp_path: Path) -> None:
    stream = io.StringIO()
    config = BenchmarkConfig(options(out_stream=stream, iteration=3))
    file = tmp_path / "add.json"
    file.write_text(json.dumps(ADD))
    config.load_json_file(file)
    config.load_json(json.dumps({"torch.mm": op([tensor(4, 8), tensor(8, 4)])}))
    assert (config.has_op("torch.mm"), config.has_op("torch.add"), config.has_op("torch.no")) == (True, True, False)
    (result,) = make_default_benchmark(config).run()
    assert result.op_run_id == "torch.mm|0|0|0"
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert len(line["metric"]["forward"]["measure.time"]) == 3


def test_an_executor_of_a_user_gets_every_build() -> None:
    seen: list[tuple[str, Any]] = []

    class Recording(OpBuildExecutor):
        def run(self, op_config: Any, build_input_config: Any, config_build_id: str) -> Any:
            seen.append((config_build_id, build_input_config["build"]))
            return super().run(op_config, build_input_config, config_build_id)

    ranged = tensor(4) | {"shape": [[4, 8, 4]], "__range__": ["shape"]}
    info = op([], input_iterator="RangeConfigIterator", build_data_generator="PyTorch:DefaultDataGenerator")
    builds = [{"args": [number(n)]} for n in (1, 2)]
    info["config"] = [{"build": builds, "input": [{"args": [ranged]}]}]
    config = BenchmarkConfig(options())
    config.load({"torch.nn.Softmax": info})
    results = Benchmark(config, Recording).run()
    assert seen == [("0|0", builds[0]), ("0|1", builds[1])]
    assert [result.id for result in results] == ["0|0|0_0", "0|0|0_1", "0|1|0_0", "0|1|0_1"]
    resumed = BenchmarkConfig(options(resume_op_run_id="torch.nn.Softmax:0:1:0_0"))
    resumed.load({"torch.nn.Softmax": info})
    assert [result.id for result in Benchmark(resumed, Recording).run()] == ["0|1|0_0", "0|1|0_1"]
    with pytest.raises(TypeError):
        BuildExecutor()  # type: ignore[abstract]


def test_run_options() -> None:
    found = param_options({"warmup": 3, "pass_type": ExecutionPass.BACKWARD, "op_exec_mode": "continuous"})
    assert (found.warmup, found.backward, found.exec_mode) == (3, True, "continuous")
    hyphens = param_options({"pass-type": "ExecutionPass.BACKWARD", "op-exec-mode": OpExecutionMode.DISCRETE})
    assert (hyphens.backward, hyphens.exec_mode) == (True, "discrete")
    with pytest.raises(UserError, match=r"`pass_type`: .*backwards"):
        param_options({"pass_type": "backwards"})
    with pytest.raises(UserError, match=r"`warmup`: expected a whole number of at least 0, got `-1`"):
        param_options({"warmup": -1})
    with pytest.raises(UserError, match="run_ncu"):
        param_options({"run_ncu": True})


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({"op_exec_mode": None, "op_exe_mode": "continuous"}, "continuous"),
        ({"op_exe_mode": "continuous", "op_exec_mode": ""}, "continuous"),
        ({"op-exec-mode": "", "op_exe_mode": None}, "discrete"),
        ({"op_exec_mode": "continuous_events", "op_exe_mode": "continuous"}, "continuous_events"),
        ({"op-exe-mode": "continuous", "op-exec-mode": "continuous_events"}, "continuous_events"),
    ],
)
def test_the_newer_name_of_the_mode_wins_unless_it_is_empty(given: dict[str, Any], mode: str) -> None:
    assert param_options(given).exec_mode == mode


def test_iterators_as_classes() -> None:
    spec = {"args": [number(1) | {"value": [1, 2], "__range__": ["value"]}]}
    assert [spec for _, spec in DefaultConfigIterator({"input": [spec]}, "input", "cpu")] == [spec]
    points = list(RangeConfigIterator({"input": [spec]}, "input", "cpu"))
    assert points == [("0_0", {"args": [number(1)]}), ("0_1", {"args": [number(2)]})]
    assert remove_meta_attr(spec) == {"args": [{"type": "int", "value": [1, 2]}]}
    with pytest.raises(UserError):
        list(RangeConfigIterator({"input": [{"args": [{"type": "int", "__range__": ["value"]}]}]}, "input", "cpu"))


alternatives = st.one_of(
    st.builds(full_range, st.integers(0, 3), st.integers(0, 3)),
    st.builds(IterableList, st.lists(st.text(), max_size=3)),
)
constants = st.integers() | st.lists(st.integers(), max_size=2)


@given(st.lists(alternatives | constants | st.lists(alternatives, max_size=2).map(ListProduct), max_size=3))
def test_products_have_all_combinations_with_the_last_fastest_and_can_be_repeated(items: list[Any]) -> None:
    kinds = (range, IterableList, ListProduct)
    expected = [list(values) for values in product(*(item if isinstance(item, kinds) else [item] for item in items))]
    whole = ListProduct(items)
    assert list(whole) == list(whole) == expected
    table = TableProduct({f"key{i}": item for i, item in enumerate(items)})
    assert [list(found.values()) for found in table] == expected
    assert list(ListProduct([0, table])) == [[0, dict(zip(table.table, values, strict=True))] for values in expected]


def test_both_timers_of_param() -> None:
    timer = Timer("cpu")
    timer.start()
    timer.stop()
    assert timer.elapsed_time_ms() == 1e3 * timer.elapsed_time_sec() >= 0
    with TimerOf2021("cpu") as context:
        pass
    assert context.elapsed_time() == context.end_time - context.start_time >= 0


def test_a_timer_waits_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    monkeypatch.setattr("opmark.interop.param.lib.pytorch.timer.resolve", lambda name: lambda: waited.append(name))
    with Timer("cuda:1"):
        assert len(waited) == 1
    assert waited == 2 * ["torch.cuda.synchronize"]


def test_helpers_that_scripts_for_param_import() -> None:
    logger = get_logger()
    level = logger.level
    try:
        assert init_logging(logging.WARNING) is logger
        assert logger.level == logging.WARNING
    finally:
        logger.setLevel(level)
    assert genericList_to_list({"type": "genericlist", "value": [{"type": "int", "value": 3}, {"value": 4}]}) == [3, 4]


def test_tensors_for_a_worker_are_in_a_folder_that_does_not_outlive_a_killed_process() -> None:
    pytest.importorskip("torch")
    with plugin.kept_tensors() as keep:
        path = Path(keep([1]))
        assert path.exists()
        assert path.parent.name.startswith("opmark-scratch-tensors-")
    assert not path.parent.exists()


def test_registries_refuse_a_name_twice() -> None:
    class Mine(OperatorInterface):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return args

    register_operators({"mine.a": Mine()})
    for register, name in (
        (register_operator, "mine.a"),
        (register_config_iterator, "RangeConfigIterator"),
        (register_data_generator, "PyTorch:DefaultDataGenerator"),
    ):
        with pytest.raises(ValueError, match=name):
            register(name, Mine())  # type: ignore[operator]
    for kind in (OperatorInterface, DataGenerator, ConfigIterator):
        with pytest.raises(TypeError):
            kind()  # type: ignore[abstract]


def test_an_unknown_generator_is_a_warning_as_in_param(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert make_op_config("torch.mm", {"input_data_generator": "Nothing", "config": []}, "cpu") is None
    assert "invalid input_data_generator: Nothing" in caplog.text


def test_a_module_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    package = tmp_path / "my_workloads"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "bad.py").write_text("raise OSError('undefined symbol')")
    (package / "good.py").write_text("LOADED = True")
    monkeypatch.syspath_prepend(tmp_path)
    with caplog.at_level(logging.ERROR):
        load_modules(__import__("my_workloads"))
    assert "my_workloads.bad: OSError: undefined symbol" in caplog.text
    assert sys.modules["my_workloads.good"].LOADED


# Files of users.

MINE = """
import torch
from opmark.interop.param.lib.data import DataGenerator, register_data_generator
from opmark.interop.param.lib.iterator import ConfigIterator, register_config_iterator
from opmark.interop.param.lib.operator import OperatorInterface, register_operator

MADE = []

class Scale(OperatorInterface):
    def build(self, factor, shape):
        assert isinstance(shape, tuple)
        self.factor = torch.full((), float(factor), device=self.device)

    def forward(self, x, extra=0):
        return x * self.factor + extra

class Halves(ConfigIterator):
    def __init__(self, configs, key, device):
        super().__init__(configs, key, device)
        (spec,) = configs[key]
        self.left = [(f"0_{n}", {"size": spec["size"] // (n + 1)}) for n in (0, 1)]

    def __next__(self):
        if not self.left:
            raise StopIteration
        return self.left.pop(0)

class Square(DataGenerator):
    def get_data(self, config, device):
        MADE.append(config)
        return [torch.rand(config["size"], config["size"], device=device, requires_grad=True)], {}

register_operator("mine.scale", Scale())
register_config_iterator("Halves", Halves)
register_data_generator("Square", Square)
"""
OWN = {
    "mine.scale": {
        "build_data_generator": "PyTorch:DefaultDataGenerator",
        "input_data_generator": "Square",
        "input_iterator": "Halves",
        "config": [{"build": [{"args": [number(3), {"type": "tuple", "value": [number(1)]}]}], "input": [{"size": 8}]}],
    },
    "torch.exp": {"input_data_generator": "Square", "config": [{"input": [{"size": 4}]}]},
    "torch.neg": op([tensor(4, 4)]),
}


KINDS = """
import torch
from opmark.interop.param.lib.operator import register_operators
from opmark.interop.param.lib.pytorch.operator_impl import BuildableOp, CallableOp, TorchScriptOp, UnaryOp

register_operators({
    "mine.unary": UnaryOp("mul_"),
    "mine.callable": CallableOp(torch.softmax),
    "mine.buildable": BuildableOp(torch.nn.Linear),
    "aten::sub": TorchScriptOp("aten::sub"),
})
"""


def test_each_kind_of_operator_that_a_workload_of_param_registers(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "kinds.py"
    path.write_text(KINDS)
    schema = "aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    built = {"build_data_generator": "PyTorch:DefaultDataGenerator"}
    config = {
        "mine.unary": op([tensor(4, 4), number(1)]),
        "mine.callable": op([tensor(4, 4), number(1)]),
        "mine.buildable": op([tensor(4, 8)], **built),
        "aten::sub": op([tensor(4), tensor(4), number(2)], **built),
    }
    config["mine.buildable"]["config"][0]["build"] = [{"args": [number(8), number(2)]}]
    config["aten::sub"]["config"][0]["build"] = [{"args": [{"type": "str", "value": schema}]}]
    ran = Command(tmp_path)(config, "-d", "cpu", "-b", "--plugin", str(path), "--db", str(tmp_path / "x.db"))
    assert ran.code == 0, ran.lines
    counts = {line["op_name"]: [len(part["measure.time"]) for part in line["metric"].values()] for line in ran.cases}
    assert counts == {"mine.unary": [1, 0], "mine.callable": [1, 1], "mine.buildable": [1, 1], "aten::sub": [1, 1]}
    assert "works in place" in ran.cases[0]["opmark"]["backward"]["reason"]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_a_plugin_file_without_packaging(mine: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    db = str(tmp_path / "x.db")
    ran = Command(tmp_path)(OWN, "-d", "cpu", "-b", "-i", "2", "--db", db, "--plugin", str(mine))
    assert ran.code == 0, ran.lines
    assert ran.ids == ["mine.scale|0|0|0_0", "mine.scale|0|0|0_1", "torch.exp|0|0|0", "torch.neg|0|0|0"]
    for line in ran.cases:
        assert [len(line["metric"][phase]["measure.time"]) for phase in ("forward", "backward")] == [2, 2]
    assert ran.cases[1]["config"]["input"] == {"size": 4}
    # The worker made the tensors of the generator, and they count as read.
    assert [line["opmark"]["forward"]["bytes"] for line in ran.cases[:3]] == [2 * 4 * 64, 2 * 4 * 16, 2 * 4 * 16]
    (module,) = plugin._LOADED.values()
    assert module.MADE == []


def test_tables_name_an_operator_of_a_user_as_it_is_registered(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    db = tmp_path / "x.db"
    for name in ("one", "two"):
        prefix = str(tmp_path / name)
        assert Command(tmp_path).code(
            OWN, "-d", "cpu", "-i", "2", "--db", str(db), "--plugin", str(mine), "-o", prefix) == 0  # fmt: skip
    table = capsys.readouterr().out
    runs = [run.id for run in stored_runs(db=db)]
    print_records(show(runs[0], db=db).records, Console(width=200))
    shown = capsys.readouterr().out
    for text in (table, shown):
        assert re.search(r'^mine\.scale +\(3, \{"tuple":\[1\]\}\)\(Square \{"size": 8\}\) ', text, re.MULTILINE), text
        assert re.search(r'^torch\.exp +Square \{"size": 4\} ', text, re.MULTILINE)
        assert "PluginOperator" not in text
    compared = compare(runs[0], runs[1], db=db)
    assert {pair.op for pair in compared.pairs} == {"mine.scale", "torch.exp", "torch.neg"}
    assert {run.id for run in stored_runs(op="mine.*", db=db)} == set(runs)
    assert stored_runs(op="their.*", db=db) == []
    assert {one.op for one in history("mine.scale", db=db)} == {"mine.scale"}
    assert {one.params for one in history("torch.exp", db=db)} == {'Square {"size": 4}'}
    assert len(history(PLUGIN_OPERATOR, db=db)) == 3
    with closing(Reader(db)) as reader:
        found = view_search(reader, SearchQuery(q="mine.scale")).cases
        pages = [view_case(reader, CaseQuery(case=one.case)) for one in found]
    shown_twice = [(one.op, one.parameters) for one in found]
    assert [(page.op, page.parameters) for page in pages] == shown_twice
    assert sorted(shown_twice) == [("mine.scale", f'(3, {{"tuple":[1]}})(Square {{"size": {n}}})') for n in (4, 8)]
    # The stored case still says what a worker has to load, and so do formats that have its parameters as data.
    stored = show(runs[0], db=db)
    for rows in (stored.rows(), result_rows(stored.results())):
        assert {row["op"] for row in rows} == {PLUGIN_OPERATOR, "torch.neg"}
    assert {record.task.case.op for record in stored.records} == {PLUGIN_OPERATOR, "torch.neg"}


@pytest.mark.parametrize(
    "name", ["opmark.interop.param.plugin:PluginOperator", "opmark.interop:param.plugin.PluginOperator"]
)
def test_a_config_does_not_name_the_class_that_loads_plugins(name: str, mine: Path, tmp_path: Path) -> None:
    """It would load any Python file that the config names, also where the user loaded another one."""
    plugin.load_plugin(mine)
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"torch.neg": op([tensor(4)]), name: op([tensor(4)])}))
    found = read(config, ParamOptions())
    assert [spot.entry.op for spot in found.spots] == ["torch.neg"]
    (problem,) = found.problems
    assert f"`{name}` is not a function that a config may call" in problem.message


def test_a_generator_of_a_user_does_not_make_every_function_callable(mine: Path, tmp_path: Path) -> None:
    plugin.load_plugin(mine)
    config = tmp_path / "c.json"
    square = {"input_data_generator": "Square", "config": [{"input": [{"size": 4}]}]}
    config.write_text(json.dumps({"torch.exp": square, "torch.hub.load": square, "os:system": square}))
    found = read(config, ParamOptions())
    assert [spot.place.op for spot in found.spots] == ["torch.exp"]
    assert [problem.where for problem in found.problems] == [
        f"{config}: torch.hub.load|0|0|0", f"{config}: os:system|0|0|0"
    ]  # fmt: skip
    with pytest.raises(UserError, match=r"`torch\.hub\.load` is not a function that a workload file may call"):
        read(config, ParamOptions(strict=True))


def test_only_the_command_of_param_runs_operators_of_plugins(mine: Path, tmp_path: Path) -> None:
    """Elsewhere a config has them only if the user allows it."""
    plugin.load_plugin(mine)
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"torch.neg": op([tensor(4)]), "mine.scale": op([tensor(4, 4)])}))
    assert [spot.place.op for spot in read(config, ParamOptions()).spots] == ["torch.neg", "mine.scale"]
    assert [case.op for case in read_source(config).cases] == ["torch.neg"]


def test_an_operator_of_a_user_with_described_tensors(mine: Path) -> None:
    plugin.load_plugin(mine)
    config = {"mine.scale": op([tensor(4, 4)])}
    (entry,) = PARAM.read(Path("c.json"), config, 0).entries
    assert (entry.op, entry.args) == (PLUGIN_OPERATOR, ["4x4 float32 0..1"])
    assert entry.build == {"args": ["mine.scale", {"value": [str(mine)]}, {"value": None}, {"value": None}]}


def test_an_operator_of_a_user_in_the_library(mine: Path) -> None:
    pytest.importorskip("torch")
    plugin.load_plugin(mine)
    op_config = make_op_config("mine.scale", {**op([tensor(4, 4)]), "input_data_generator": "Square"}, "cpu")
    assert op_config is not None
    args, kwargs = op_config.input_data_generator().get_data({"size": 4}, "cpu")
    assert tuple(args[0].shape) == (4, 4)
    with pytest.raises(OpmarkError, match="factor"):  # it is not built
        OpExecutor("mine.scale", op_config.op, options(device="cpu")).run(args, kwargs, "0:0:0")
    op_config.op.build(3, shape=(1,))
    result = OpExecutor("mine.scale", op_config.op, options(device="cpu")).run(args, kwargs, "0:0:0")
    assert len(result["forward"]["measure.time"]) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise OSError('no library')", "OSError: no library"),
        ("def", "SyntaxError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        (None, "no such"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_named(text: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=words) as error:
        Command(tmp_path).code(ADD, "--plugin", str(path))
    assert str(path) in error.value.message


def test_a_plugin_is_loaded_once(mine: Path) -> None:
    assert plugin.load_plugin(mine) is plugin.load_plugin(str(mine))
