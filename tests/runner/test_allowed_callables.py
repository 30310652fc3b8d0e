"""Which functions a workload file may call."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from inspect import isroutine
from pathlib import Path

import numpy
import pytest
from listed_names import missing_names

import opmark
from opmark.catalogue.families.callables import find_callable
from opmark.catalogue.families.computing import CLASSES, FUNCTIONS, MODELS, NAMESPACES, NOT_COMPUTING, computes
from opmark.errors import InvalidFile, UserError
from opmark.plugin.registry import resolve
from opmark.runner.workload_source import read_source
from opmark.schema import Entry, Workload

ADD = {"args": ["4 float32", "4 float32"]}


def workload(folder: Path, op: str, name: str = "w.json") -> Path:
    path = folder / name
    cases = [{"op": "add", "params": {"shape": [4]}}, {"op": op, **ADD}]
    path.write_text(json.dumps({"schema": 1, "name": "mine", "cases": cases}))
    return path


@pytest.mark.parametrize(
    ("op", "module"),
    [
        ("os:system", "os"),
        ("builtins:exec", "builtins"),
        ("subprocess:check_output", "subprocess"),
        ("runpy:run_path", "runpy"),
        ("importlib.util:find_spec", "importlib.util"),
        ("opmark.runner.git:run_git", "opmark.runner.git"),
        ("torch.hub.load", "torch.hub"),
        ("torch.utils.collect_env:run", "torch.utils"),
        ("torch.ops.load_library", "torch.ops.load_library"),
        ("numpy.load", "numpy.load"),
        ("torchlike:add", "torchlike"),
    ],
)
def test_a_file_may_not_name_just_any_function(tmp_path: Path, op: str, module: str) -> None:
    path = workload(tmp_path, op)
    with pytest.raises(InvalidFile) as caught:
        opmark.plan(workload=path, backend="numpy-cpu")
    assert f"{path}: `{op}` is not a function that a workload file may call, at `$.cases[1].op`" in caught.value.message
    assert f"--allow {module} " in (caught.value.hint or "")
    assert f"OPMARK_ALLOW={module} lets" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "op", ["torch.add", "torch.nn.functional.relu", "aten::add", "numpy.add", "scipy.special.expit", "jax.numpy.add"]
)
def test_functions_of_frameworks_are_allowed(tmp_path: Path, op: str) -> None:
    assert read_source(workload(tmp_path, op)).workload.cases[1].op == op


def test_what_the_user_allows_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = workload(tmp_path, "kernels.fast:add")
    for allow in ("kernels", "kernels.fast", "other,kernels"):
        assert opmark.plan(workload=path, backend="numpy-cpu", op="kernels*", allow=allow).tasks
    for allow in ("kernel", "kernels.slow", ""):
        with pytest.raises(InvalidFile):
            opmark.plan(workload=path, backend="numpy-cpu", allow=allow)
    monkeypatch.setenv("OPMARK_ALLOW", "other, kernels")
    assert opmark.plan(workload=path, backend="numpy-cpu", op="kernels*").tasks


def test_modules_beside_the_file_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "kernels.py").write_text("raise RuntimeError('imported by the parent')")
    (tmp_path / "elsewhere.py").touch()
    (tmp_path / "bench" / "os.py").touch()
    monkeypatch.chdir(tmp_path / "bench")
    monkeypatch.syspath_prepend(tmp_path)
    inside = tmp_path / "bench"
    assert read_source(workload(inside, "kernels:add")).workload.cases
    assert read_source(workload(inside, "bench.kernels:add")).workload.cases
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidFile, match="`kernels` lies beside the file, where Python does not look") as caught:
        read_source(workload(inside, "kernels:add"))
    assert f"PYTHONPATH={inside}" in (caught.value.hint or "")
    for op in ("elsewhere:add", "os:system", "hypothesis:given"):
        with pytest.raises(InvalidFile):
            read_source(workload(inside, op))


def test_an_environment_below_the_folder_is_not_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / ".venv" / "lib" / "site-packages"
    site.mkdir(parents=True)
    (site / "shellac.py").touch()
    monkeypatch.syspath_prepend(site)
    for op in ("shellac:run", "shellac:a.b.c.d.run"):
        with pytest.raises(InvalidFile, match=op):
            read_source(workload(tmp_path, op))


def test_data_from_no_file_have_no_folder_and_code_is_not_restricted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels.py").touch()
    cases = [{"op": "kernels:add", **ADD}]
    with pytest.raises(InvalidFile, match="kernels:add"):
        opmark.plan(workload={"schema": 1, "name": "mine", "cases": cases}, backend="numpy-cpu")
    made = Workload(1, "mine", [Entry("kernels:add", args=["4 float32"])])
    assert opmark.plan(workload=made, backend="numpy-cpu").tasks
    assert opmark.plan("os:system", args=["4 float32"], backend="numpy-cpu").tasks


def test_a_function_in_a_foreign_file_costs_its_entry_and_not_the_file(tmp_path: Path) -> None:
    config = {
        name: {"input_data_generator": "PyTorch:DefaultDataGenerator", "config": [{"input": [{"args": [
            {"type": "tensor", "dtype": "float", "shape": [4]}]}]}]}
        for name in ("torch.nn.functional.relu", "torch.hub.load")
    }  # fmt: skip
    (tmp_path / "param.json").write_text(json.dumps(config))
    found = read_source(tmp_path / "param.json")
    assert [entry.op for entry in found.workload.cases] == ["torch.nn.functional.relu"]
    (problem,) = found.problems
    assert "`torch.hub.load` is not a function that a workload file may call" in problem.message


@pytest.mark.parametrize(
    ("op", "module"),
    [
        ("torch.fx.graph_module._exec_with_source", "torch.fx.graph_module"),
        ("torch.functional.torch.load", "torch.functional.torch"),
        ("torch.nn.functional.torch.hub.load", "torch.nn.functional.torch.hub"),
        ("torch.nn.functional:torch.hub.load", "torch.nn.functional.torch.hub"),
        ("numpy.ma.core.np.load", "numpy.ma.core.np"),
        ("torch._inductor.codecache.PyCodeCache.load", "torch._inductor.codecache.PyCodeCache"),
        ("aten::from_file", "torch.ops.aten.from_file"),
        ("aten::from_file.default", "torch.ops.aten.from_file"),
        ("aten::save", "torch.ops.aten.save"),
        ("debugprims::load_tensor", "torch.ops.debugprims"),
        ("torch.ops.aten.add.default.__init__.__globals__.get", "torch.ops.aten.add.default.__init__.__globals__"),
        ("torch.UntypedStorage.from_file", "torch.UntypedStorage"),
        ("torch.PyTorchFileWriter", "torch.PyTorchFileWriter"),
        ("torch._import_dotted_name", "torch._import_dotted_name"),
        ("torch.nn.Module.__init__.__globals__.get", "torch.nn.Module.__init__.__globals__"),
        ("numpy.rec.fromfile", "numpy.rec"),
        ("numpy.matrix.tofile", "numpy.matrix"),
        ("numpy.info", "numpy.info"),  # it imports the module that `toplevel` names
        ("numpy.test", "numpy.test"),
        ("scipy.linalg.test", "scipy.linalg.test"),
        ("scipy.sparse.save_npz", "scipy.sparse"),
        ("tensorflow.raw_ops.WriteFile", "tensorflow.raw_ops"),
        ("tensorflow.import_graph_def", "tensorflow.import_graph_def"),
        ("mxnet.gluon.nn.Lambda", "mxnet.gluon.nn.Lambda"),  # calls any function of mxnet.nd by its name, `save` too
        ("mxnet.gluon.nn.HybridLambda", "mxnet.gluon.nn.HybridLambda"),
    ],
)
def test_parts_of_frameworks_that_do_not_compute_are_refused(tmp_path: Path, op: str, module: str) -> None:
    with pytest.raises(InvalidFile, match="is not a function that a workload file may call") as caught:
        read_source(workload(tmp_path, op))
    assert f"--allow {module} " in (caught.value.hint or "")
    assert read_source(workload(tmp_path, op), allow=[module]).workload.cases[1].op == op


def test_lists_of_what_computes_name_modules_that_exist_and_functions_that_are_reached() -> None:
    listed = FUNCTIONS | CLASSES | NAMESPACES | {*NOT_COMPUTING}
    names = sorted(name for name in listed if find_spec(name.partition(".")[0]))
    before_numpy_2 = {f"numpy.{name}" for name in ("DataSource", "lookfor", "recfromcsv", "recfromtxt", "source")}
    assert set(missing_names(sys.executable, names)) <= before_numpy_2
    for path in MODELS:
        assert find_callable(path.replace("library.", "library:").replace("driver.", "driver:"))


@pytest.mark.parametrize("module", sorted(module for module in FUNCTIONS | CLASSES if module.startswith("numpy")))
def test_what_computes_is_reached_under_its_name(module: str) -> None:
    """No function that a file may call is taken for one that leads elsewhere."""
    names = [name for name in dir(resolve(module)) if computes(f"{module}.{name}", {"numpy"})]
    functions = [f"{module}.{name}" for name in names if isroutine(getattr(resolve(module), name))]
    assert functions
    for name in functions:
        assert find_callable(name)


def test_of_a_framework_from_a_plug_in_the_top_module_computes() -> None:
    assert computes("newframe.add", {"newframe", "numpy"})
    assert not computes("newframe.io.load", {"newframe", "numpy"})
    assert not computes("newframe.add", {"numpy"})
    assert not computes("jax.jit", {"jax"})


@pytest.mark.parametrize("name", ["numpy.ma.core.np.load", "numpy.ma:core.np.load"])
def test_an_alias_does_not_lead_out_of_its_module(name: str) -> None:
    with pytest.raises(UserError, match="leads into another module, `numpy`"):
        find_callable(name)


def test_an_alias_of_a_function_that_does_not_compute_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numpy.linalg.read", numpy.load, raising=False)
    with pytest.raises(UserError, match="leads into another module, `numpy`"):
        find_callable("numpy.linalg.read")
    assert find_callable("numpy.load")  # whoever types it means it


@pytest.mark.parametrize(
    "name", ["numpy.os.system", "numpy:os.system", "numpy.sys.exit", "numpy:linalg.linalg.os.system"]
)
def test_a_name_does_not_lead_into_another_package(name: str) -> None:
    with pytest.raises(UserError):
        find_callable(name)


def test_a_module_does_not_offer_what_it_imports_from_the_standard_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from os import system\nimport numpy\nfrom functools import partial\nadd = partial(numpy.add)\n"
    (tmp_path / "open_kernels.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert callable(find_callable("open_kernels:add"))
    for name in ("open_kernels:system", "open_kernels:numpy.add"):
        with pytest.raises(UserError, match="leads into another package"):
            find_callable(name)


def test_a_folder_is_checked_file_by_file(tmp_path: Path) -> None:
    workload(tmp_path, "numpy.add", "good.json")
    workload(tmp_path, "os:system", "bad.json")
    found = read_source(tmp_path)
    assert {case.op for case in found.cases} == {"add", "numpy.add"}
    (problem,) = found.problems
    assert "bad.json" in str(problem)
