"""Names to objects through entry points. Plug-ins here are folders on the path, as an installer would leave them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest

import opmark
from opmark.api.describe import describe
from opmark.api.list_ import list_
from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.plugin import BackendInfo, Operator, registry

# A plug-in in one file: all that it takes to add an operator.
DOUBLE = """
    import numpy as np
    from opmark.plugin import Implementation, Operator
    from opmark.schema import Cost, TensorSpec
    from opmark.plugin.param import dtype, size

    OPERATORS = (
        Operator(
            name="{name}",
            summary="twice x",
            category="element-wise",
            params=(size("n", "elements"), dtype("float32")),
            inputs=lambda p: {{"x": TensorSpec((p["n"],), p["dtype"])}},
            cost=lambda p: Cost(p["n"], 4 * p["n"], 4 * p["n"]),
            reference=lambda p, x: 2 * x,
            presets={{"small": {{"n": 16}}, "typical": {{"n": 1024}}, "large": {{"n": 65536}}}},
            implementations=(Implementation("numpy", lambda p, x: lambda: x + x),),
            aliases=("twice",),
        ),
    )
"""


class Site:
    """A folder of installed packages that the interpreter looks into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, package: str, entry_points: str, files: dict[str, str]) -> None:
        """`entry_points` as in the file of that name; files by path, with their text."""
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text))
        info = self.folder / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(dedent(entry_points))
        invalidate_caches()
        registry.forget()

    def operator(self, package: str, module: str, text: str) -> None:
        self.install(package, f"[opmark.operators]\n{package} = {module}\n", {f"{module}.py": text})


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    known = set(sys.modules)
    yield Site(folder)
    for name in set(sys.modules) - known:
        if getattr(sys.modules[name], "__file__", None) and str(folder) in str(sys.modules[name].__file__):
            del sys.modules[name]
    monkeypatch.undo()
    registry.forget()


# What ships


@pytest.mark.parametrize(
    ("alias", "name"), [("mm", "matmul"), ("gemm", "matmul"), ("bmm", "batched_matmul"), ("sum", "reduce_sum")]
)
def test_an_operator_is_found_by_its_aliases(alias, name):
    assert registry.operator(alias) is registry.operator(name) is registry.catalogue()[name]


def test_no_alias_is_taken_twice_and_none_hides_a_name():
    found = registry.catalogue()
    aliases = [alias for op in found.values() for alias in op.aliases]
    assert len(set(aliases)) == len(aliases)
    assert not set(aliases) & set(found)


def test_every_operator_stands_under_its_own_name():
    assert all(name == op.name for name, op in registry.catalogue().items())
    assert all(isinstance(op, Operator) for op in registry.catalogue().values())


def test_every_backend_stands_under_its_own_name():
    assert all(name == info.name for name, info in registry.backends().items())
    assert {"null", "numpy-cpu", "torch-cpu", "torch-cuda"} <= set(registry.backends())


@pytest.mark.parametrize(
    ("wrong", "near"), [("matmull", "matmul"), ("expp", "exp"), ("flash_atention", "flash_attention")]
)
def test_an_unknown_operator_is_named_with_the_nearest_name_or_alias(wrong, near):
    with pytest.raises(UnknownName) as caught:
        registry.operator(wrong)
    assert caught.value.message == f"no operator named `{wrong}`"
    assert caught.value.hint == f"did you mean `{near}`? `opmark list ops` lists them all"


def test_an_unknown_backend_is_named_with_the_nearest():
    with pytest.raises(UnknownName) as caught:
        registry.backend("torch-cpuu")
    assert caught.value.message == "no backend named `torch-cpuu`"
    assert caught.value.hint == "did you mean `torch-cpu`? `opmark list backends` lists them all"


def test_a_backend_is_found_by_name():
    assert registry.backend("numpy-cpu").framework == "numpy"


# A stranger's


def test_an_operator_in_one_file_is_found_described_and_expanded(site):
    site.operator("opmark-double", "double_plugin", DOUBLE.format(name="double"))
    found = registry.operator("double")
    assert describe("twice") is found
    assert found in list_("ops")
    assert found.complete(found.preset("small")) == {"n": 16, "dtype": "float32"}
    assert "matmul" in registry.catalogue(), "ours are still there"


def test_a_package_is_searched_module_by_module_but_not_where_the_name_is_private(site):
    site.install(
        "opmark-many",
        "[opmark.operators]\nmany = many_plugin\n",
        {
            "many_plugin/__init__.py": "",
            "many_plugin/one.py": DOUBLE.format(name="one"),
            "many_plugin/sub/__init__.py": "",
            "many_plugin/sub/two.py": DOUBLE.format(name="two"),
            "many_plugin/_hidden.py": "raise RuntimeError('never imported')",
        },
    )
    assert {"one", "two"} <= set(registry.catalogue())


def test_a_backend_of_a_strangers_is_found_without_loading_its_framework(site):
    text = """
        from opmark.plugin import BackendInfo
        NPU = BackendInfo(name="my-npu", framework="npu", device="npu", loads="no_such_module:Backend",
                          requires="no_such_module", install="ask the vendor")
    """
    site.install("opmark-npu", "[opmark.backends]\nmy-npu = npu_plugin:NPU\n", {"npu_plugin.py": text})
    info = registry.backend("my-npu")
    assert isinstance(info, BackendInfo)
    assert info.why_missing() == "no_such_module is not installed (ask the vendor)"


def test_what_is_installed_is_looked_at_once_until_told_otherwise(site):
    before = registry.catalogue()
    assert registry.catalogue() is before
    registry.forget()
    again = registry.catalogue()
    assert again is not before
    assert list(again) == list(before)


# A broken one


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise RuntimeError('out of order')", "RuntimeError: out of order"),
        ("import no_such_framework", "ModuleNotFoundError: No module named 'no_such_framework'"),
        ("def f(:", "SyntaxError: "),
        ("OPERATORS = ('double',)", "Operator, got str"),
        ("OPERATORS = 7", "TypeError: "),
    ],
    ids=["raises", "lacks a module", "does not parse", "no operators", "no list"],
)
def test_a_broken_plug_in_is_named_and_left_out_while_the_rest_works(site, capsys, text, reason):
    site.operator("opmark-broken", "broken_plugin", text)
    site.operator("opmark-zdouble", "double_plugin", DOUBLE.format(name="double"))
    assert {"double", "matmul"} <= set(registry.catalogue())
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(
        "warning: plug-in `opmark-broken` of `opmark-broken` (broken_plugin) is broken and left out: "
    )
    assert reason in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("\nmade = None\nmade.name\n", 3, "AttributeError: "),
        ("\nfrom os import path\nimport no_such_framework\n", 3, "ModuleNotFoundError: "),
        ("def f():\n    return int('x')\n\nf()\n", 4, "ValueError: "),
        ("x = 1\ndef f(:\n", 2, "SyntaxError: "),
    ],
)
def test_a_broken_module_is_named_with_its_line_and_costs_no_other_module(site, capsys, text, line, reason):
    modules = {"zoo/__init__.py": "", "zoo/broken.py": text, "zoo/double.py": DOUBLE.format(name="double")}
    site.install("opmark-zoo", "[opmark.operators]\nzoo = zoo\n", modules)
    assert {"double", "matmul"} <= set(registry.catalogue())
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("warning: plug-in `zoo` of `opmark-zoo` (zoo.broken) is broken and left out: ")
    assert reason in said
    assert said.endswith(f"zoo/broken.py:{line}")


def test_a_plug_in_that_is_gone_is_named(site, capsys):
    site.install("opmark-gone", "[opmark.operators]\ngone = gone_plugin\n", {})
    assert "matmul" in registry.catalogue()
    assert "plug-in `gone` of `opmark-gone` (gone_plugin) is broken" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise RuntimeError('out of order')", "RuntimeError: out of order"),
        ("NPU = 'a chip'", "expected BackendInfo, got str"),
        ("", "AttributeError: "),
    ],
)
def test_a_broken_backend_is_named_and_left_out_while_the_rest_works(site, capsys, text, reason):
    site.install("opmark-npu", "[opmark.backends]\nmy-npu = npu_plugin:NPU\n", {"npu_plugin.py": text})
    assert "my-npu" not in registry.backends()
    assert "numpy-cpu" in registry.backends()
    err = capsys.readouterr().err
    assert err.startswith("warning: plug-in `my-npu` of `opmark-npu` (npu_plugin:NPU) is broken and left out: ")
    assert reason in err


MOVED = "opmark." + "interfaces"
"""Where 0.8 had what a plug-in imports."""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"raise ModuleNotFoundError('No module named {MOVED}', name='{MOVED}')",
            "a plug-in imports from opmark.plugin",
        ),
        ("from opmark.schema import WhatIsNoMore", "a plug-in imports from opmark.plugin"),
        (
            f"from {registry.BackendInfo.__module__} import BackendInfo\nNPU = BackendInfo('my-npu', 'npu', 'npu')",
            "BackendInfo takes its fields by name",
        ),
    ],
    ids=["a module that has moved", "a name that has moved", "fields by position"],
)
def test_a_backend_for_an_older_opmark_is_listed_with_what_to_write_now(site, capsys, text, reason):
    site.install("opmark-npu", "[opmark.backends]\nmy-npu = npu_plugin:NPU\n", {"npu_plugin.py": text})
    info = registry.backend("my-npu")
    assert info.why_missing() == info.load(1).why_unavailable() == info.outdated
    assert info.outdated.startswith("opmark-npu was made for another version of opmark (")
    assert reason in info.outdated
    assert "write `class MyBackend(Backend)` with upload, download, compile and synchronize" in info.outdated
    with pytest.raises(UserError, match="opmark-npu was made for another version"):
        opmark.plan("relu", size="small", backend="my-npu")
    assert capsys.readouterr() == ("", "")


def test_operators_for_an_older_opmark_are_named_and_left_out(site, capsys):
    site.operator("opmark-old", "old_plugin", "from opmark.schema import WhatIsNoMore")
    assert "matmul" in registry.catalogue()
    said = capsys.readouterr().err
    assert "it was made for another version of opmark (cannot import name 'WhatIsNoMore' from 'opmark.schema'" in said
    assert "since 0.9 a plug-in imports from opmark.plugin" in said
    assert "Traceback" not in said


def test_a_warning_is_given_once(site, capsys):
    site.operator("opmark-broken", "broken_plugin", "raise RuntimeError('out of order')")
    for _ in range(3):
        registry.catalogue()
    assert capsys.readouterr().err.count("opmark-broken") == 1 + 1, "one line, with plug-in and package"


# Two of a name


def test_an_operator_name_that_is_taken_stays_with_the_first_and_the_second_is_named(site, capsys):
    # The name of the package sorts before ours, and ours is still the first.
    site.operator("aaa-double", "double_plugin", DOUBLE.format(name="matmul"))
    assert registry.operator("matmul").summary != "twice x"
    assert capsys.readouterr().err == (
        "warning: plug-in `aaa-double` of `aaa-double` (double_plugin) is broken and left out: "
        "the name `matmul` is taken already\n"
    )


def test_a_backend_name_that_is_taken_stays_with_the_first_and_the_second_is_named(site, capsys):
    text = """
        from opmark.plugin import BackendInfo
        MINE = BackendInfo(name="numpy-cpu", framework="numpy", device="cpu", loads="m:C")
    """
    site.install("aaa-npu", "[opmark.backends]\nnumpy-cpu = npu_plugin:MINE\n", {"npu_plugin.py": text})
    assert registry.backend("numpy-cpu").summary != "mine"
    assert "of `aaa-npu` (npu_plugin:MINE)" in capsys.readouterr().err


def test_of_two_strangers_with_one_name_the_first_counts(site, capsys):
    site.operator("opmark-two", "two_plugin", DOUBLE.format(name="double").replace("twice x", "the second"))
    site.operator("opmark-one", "one_plugin", DOUBLE.format(name="double"))
    assert registry.operator("double").summary == "twice x"
    err = capsys.readouterr().err
    assert "plug-in `opmark-two` of `opmark-two` (two_plugin)" in err
    assert "the name `double` is taken already" in err
    assert "one_plugin" not in err


# From the shell


def shell(site: Site, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from opmark.cli.main import main; main()"
    paths = os.pathsep.join(filter(None, [str(site.folder), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_plug_in_is_described_on_the_command_line_beside_a_broken_one(site):
    site.operator("opmark-broken", "broken_plugin", "raise RuntimeError('out of order')")
    site.operator("opmark-zdouble", "double_plugin", DOUBLE.format(name="double"))
    done = shell(site, "describe", "double")
    assert done.returncode == 0
    assert "twice x" in done.stdout
    assert "opmark-broken" in done.stderr
    assert "Traceback" not in done.stderr


# From the plug-in to the number: a row of a table and a complete operator


TABLE = """
    from opmark.catalogue.operators._elementwise import POSITIVE, pointwise
    from opmark.plugin import Implementation, Operator, ParamRule
    from opmark.schema import Cost, TensorSpec
    from opmark.plugin.param import dtype, size

    ROW = pointwise(
        "stranger_log", "the logarithm of x, of a stranger's", torch="torch.log", numpy="numpy.log",
        domains=(POSITIVE,), flops=1, aliases=("StrangerLog",),
    )


    def build(p, x, y):
        return lambda: x * p["factor"] + y


    WHOLE = Operator(
        name="stranger_axpy",
        summary="factor x + y, of a stranger's",
        category="strange",
        params=(size("n", "elements"), size("factor", "of x", 2), dtype("float32", "float64")),
        inputs=lambda p: {name: TensorSpec((p["n"],), p["dtype"]) for name in ("x", "y")},
        cost=lambda p: Cost(2 * p["n"], 8 * p["n"], 4 * p["n"]),
        backward_cost=lambda p: Cost(p["n"], 4 * p["n"], 4 * p["n"]),
        reference=lambda p, x, y: p["factor"] * x + y,
        presets={"small": {"n": 16}, "typical": {"n": 1024}, "large": {"n": 65536}},
        implementations=(Implementation("numpy", build), Implementation("torch", build)),
        gradients=("x", "y"),
        gradient_view=True,  # that of y is the incoming one
        rules=(ParamRule("factor", "be at most n", lambda p: p["factor"] <= p["n"]),),
        aliases=("StrangerAxpy",),
    )
    OFF = Operator(**{**vars(WHOLE), "name": "stranger_off", "aliases": (), "reference": lambda p, x, y: x})
    OPERATORS = (ROW, WHOLE, OFF)
"""


@pytest.fixture
def stranger(site, tmp_path, monkeypatch):
    monkeypatch.setenv("OPMARK_DB", str(tmp_path / "store.db"))
    site.operator("opmark-stranger", "stranger_plugin", TABLE)
    return site


def measured(site: Site, *arguments: str) -> list[dict]:
    done = shell(site, "run", *arguments, "--effort", "quick", "--threads", "1", "--json")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_operators_of_a_plug_in_are_listed_with_ours(stranger):
    found = shell(stranger, "list", "ops", "--json")
    assert (found.returncode, found.stderr) == (0, "")
    rows = {row["operator"]: row for row in map(json.loads, found.stdout.splitlines())}
    assert rows["stranger_axpy"] == {
        "operator": "stranger_axpy", "category": "strange", "phases": ["forward", "backward"],
        "summary": "factor x + y, of a stranger's",
    }  # fmt: skip
    assert rows["stranger_log"]["category"] == "element-wise"
    assert "matmul" in rows
    page = shell(stranger, "list", "ops", "--markdown").stdout
    assert "| `stranger_log` | the logarithm of x, of a stranger's | forward, backward | StrangerLog |" in page


@pytest.mark.parametrize(("name", "says"), [("StrangerLog", "the logarithm of x"), ("stranger_axpy", "at most n")])
def test_an_operator_of_a_plug_in_is_described_by_name_or_alias(stranger, name, says):
    found = shell(stranger, "describe", name)
    assert found.returncode == 0
    assert says in found.stdout


def test_operators_of_a_plug_in_are_verified_and_measured_in_a_worker(stranger):
    """On NumPy, which is always there."""
    rows = measured(stranger, "StrangerLog", "stranger_axpy", "--size", "small", "--backend", "numpy-cpu")
    assert [(row["op"], row["status"], row["reason"]) for row in rows] == [
        ("stranger_log", "ok", ""),
        ("stranger_axpy", "ok", ""),
    ]
    for row in rows:
        assert row["verification"]["checked"] == "full"
        assert row["verification"]["after"] == "same"
        assert row["quantities"]["latency"]["warm"]["median"] > 0
        assert row["environment"], "it ran"
    assert rows[0]["cost"] == {"flops": 256 * 256, "bytes_read": 4 * 256 * 256, "bytes_written": 4 * 256 * 256}
    assert rows[1]["cost"] == {"flops": 32, "bytes_read": 128, "bytes_written": 64}


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_gradients_of_a_plug_in_are_verified_and_measured_in_a_worker(stranger):
    rows = measured(
        stranger, "stranger_log", "stranger_axpy", "--size", "small", "--phase", "backward", "--backend", "torch-cpu"
    )
    assert [(row["op"], row["status"], row["reason"]) for row in rows] == [
        ("stranger_log", "ok", ""),
        ("stranger_axpy", "ok", ""),
    ]
    assert all(row["verification"]["checked"] == "full" for row in rows)
    assert rows[1]["cost"] == {"flops": 16, "bytes_read": 64, "bytes_written": 64}


def test_an_operator_of_a_plug_in_that_computes_something_else_is_wrong(stranger):
    (row,) = measured(stranger, "stranger_off", "--size", "small", "--backend", "numpy-cpu")
    assert row["status"] == "wrong"
    assert row["quantities"] == {}


def test_a_rule_of_a_plug_in_is_kept(stranger):
    done = shell(stranger, "run", "stranger_axpy", "-p", "n=4", "-p", "factor=5", "--backend", "numpy-cpu")
    assert (done.returncode, done.stdout) == (2, "")
    assert "operator `stranger_axpy`: parameter `factor` must be at most n" in done.stderr


def test_a_plug_in_is_selected_by_category_and_swept_by_a_workload(stranger, tmp_path):
    plan = shell(stranger, "run", "--category", "strange", "--size", "small", "--dry-run", "--json",
                 "--backend", "numpy-cpu")  # fmt: skip
    assert {json.loads(line)["op"] for line in plan.stdout.splitlines()} == {"stranger_axpy", "stranger_off"}
    workload = tmp_path / "mine.yaml"
    workload.write_text("schema: 1\nname: mine\ncases: [{op: 'stranger_*', elements: [100, 10000]}]\n")
    plan = shell(stranger, "run", "-w", str(workload), "--dry-run", "--json", "--backend", "numpy-cpu")
    assert plan.returncode == 0, plan.stderr
    ops = [json.loads(line)["op"] for line in plan.stdout.splitlines()]
    assert {op: ops.count(op) for op in ops} == dict.fromkeys(["stranger_log", "stranger_axpy", "stranger_off"], 2)


# Operators made from names


FAMILY = """
    from opmark.plugin.registry import operator as find

    class Family:
        last = False

        def operator(self, name):
            return find("exp") if name.startswith(("mine-", "mine:")) else None

        def names(self, pattern):
            return ["mine-a", "mine-b"] if pattern == "mine-*" else None

    FAMILY = Family()
"""


def test_a_family_of_a_strangers_makes_operators_and_lists_its_names(site):
    site.install("opmark-mine", "[opmark.families]\nmine = mine_plugin:FAMILY\n", {"mine_plugin.py": FAMILY})
    assert registry.operator("mine-anything") is registry.operator("exp")
    assert registry.operator("mine:anything") is registry.operator("exp"), "and no function of a module `mine`"
    assert registry.operators_like("mine-*") == ["mine-a", "mine-b"]
    assert {"mine", "callables", "opinfo"} <= registry.families().keys()


def test_a_broken_family_is_named_and_left_out(site, capsys):
    site.install("opmark-mine", "[opmark.families]\nmine = mine_plugin:FAMILY\n", {"mine_plugin.py": "1 / 0"})
    assert registry.operator("torch.add").foreign
    assert "plug-in `mine` of `opmark-mine` (mine_plugin:FAMILY) is broken" in capsys.readouterr().err


def test_the_catalogue_comes_before_the_families():
    assert not registry.operator("add").foreign


def test_a_plain_name_stands_for_itself_even_if_nobody_has_it():
    assert registry.operators_like("no_such") == ["no_such"]


def test_a_pattern_stands_for_the_operators_that_it_matches():
    found = registry.operators_like("*_norm")
    assert {"layer_norm", "rms_norm"} <= set(found)
    assert all(name.endswith("_norm") for name in found)
    assert "softmax" not in found
    assert "exp" in registry.operators_like("ex?")


def test_a_pattern_that_matches_nothing_is_unknown():
    with pytest.raises(InvalidParameter, match=r"no operator matches `zzz\*`"):
        registry.operators_like("zzz*")


@pytest.mark.parametrize("name", ["no.such.thing", "paddle.add", "a:b:c"])
def test_a_name_that_looks_like_a_callable_and_is_none_says_what_one_looks_like(name):
    with pytest.raises(UserError) as caught:
        registry.operator(name)
    assert caught.value.message == f"no callable named `{name}` can be had"
    assert "package.module:function" in str(caught.value.hint)


# Objects by their paths


def test_a_path_leads_to_a_function_a_method_or_a_module():
    import math

    assert registry.resolve("math.sin") is math.sin
    assert registry.resolve("pathlib.Path.exists") is Path.exists
    assert registry.resolve("os.path") is os.path


def test_a_path_that_ends_nowhere_names_the_nearest():
    with pytest.raises(UnknownName) as caught:
        registry.resolve("math.sinn")
    assert caught.value.message == "no function of math named `sinn`"
    assert "`sin`" in str(caught.value.hint)


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        registry.resolve("no_such_module.function")


def test_a_module_that_lacks_something_says_what_and_not_that_it_is_missing_itself(site):
    site.install("needy", "", {"needy_module.py": "import no_such_need\ndef f(): pass\n"})
    with pytest.raises(ModuleNotFoundError, match="no_such_need"):
        registry.resolve("needy_module.f")


# Implementations from tables.

ROWS = """
    from opmark.plugin import Implementation

    def build(p, x):
        return lambda: x

    IMPLEMENTATIONS = {rows}
"""


def table(site, name: str, rows: str, package: str = "strange-table") -> None:
    module = package.replace("-", "_")
    site.install(
        package, f"[opmark.implementations]\n{name} = {module}\n", {f"{module}.py": ROWS.replace("{rows}", rows)}
    )


def taken(backend: str) -> list[tuple[str, str]]:
    found = registry.implementations(registry.operator("softmax"), registry.backend(backend))
    return [(one.label, one.source) for one in found]


def test_a_table_of_a_stranger_is_taken_like_ours(site) -> None:
    table(site, "strange", "{'softmax': Implementation('numpy', build, 'mine')}")
    assert taken("numpy-cpu") == [("numpy", "opmark"), ("mine", "strange-table")]


def test_what_is_made_for_a_backend_alone_goes_before_its_framework(site) -> None:
    table(site, "strange", "{'softmax': Implementation('numpy-cpu', build, 'mine')}")
    assert taken("numpy-cpu") == [("mine", "strange-table")]
    assert taken("torch-cpu") == [("torch", "opmark")]


def test_a_row_that_is_none_is_named_and_left_out(site, capsys) -> None:
    table(site, "strange", "{'softmax': 3, 'exp': (Implementation('numpy', build, 'mine'),)}")
    assert taken("numpy-cpu") == [("numpy", "opmark")]
    assert "`strange` of `strange-table`" in (said := capsys.readouterr().err)
    assert "`softmax`: expected Implementation, got int" in said


def test_a_table_that_is_called_after_a_framework_holds_nothing_else(site, capsys) -> None:
    table(site, "jax", "{'softmax': Implementation('numpy', build, 'mine')}")
    assert taken("numpy-cpu") == [("numpy", "opmark")]
    assert "strange_table" not in sys.modules  # nobody asked for jax
    registry.implementation_tables()
    assert "`softmax` is for numpy, and it is called after jax; give it another name" in capsys.readouterr().err


def test_a_table_that_cannot_be_read_takes_nothing_with_it(site, capsys) -> None:
    table(site, "strange", "1 / 0")
    assert taken("numpy-cpu") == [("numpy", "opmark")]
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_every_row_of_ours_is_about_an_operator() -> None:
    assert registry.implementation_tables().keys() <= {*registry.catalogue(), registry.ANY_OPERATOR}


def test_what_computes_nothing_takes_any_operator_of_one_process() -> None:
    null = registry.backend("null")
    assert [one.framework for one in registry.implementations(registry.operator("conv2d"), null)] == ["null"]
    assert registry.implementations(registry.operator("all_reduce"), null) == ()
    assert registry.implementations(registry.operator("lstm"), registry.backend("triton-cuda")) == ()
