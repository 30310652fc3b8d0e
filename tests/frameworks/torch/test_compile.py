"""torch.compile on the CPU: what is compiled, what is told about it, and what is not done silently."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from opmark.errors import Unsupported, WrongResult
from opmark.frameworks import cache_folder
from opmark.frameworks.torch.launch_key import launch_key
from opmark.plugin import Implementation
from opmark.plugin.registry import backend, operator
from opmark.schema import EFFORTS, Case, Settings, Task
from opmark.schema.record import GraphCoverage
from opmark.worker.verify.outputs import verify

THREADS = 2
SETTINGS = Settings(1, "quick", EFFORTS["quick"])
# torch warns of parts of itself while it loads its compiler.
pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module", autouse=True)
def compiler_as_it_was() -> Iterator[None]:
    """The backend sets the compiler up for the whole process."""
    import torch._dynamo
    import torch._functorch.config

    folders = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS")
    before = {name: os.environ.get(name) for name in folders}
    dynamo = torch._dynamo.config.patch(recompile_limit=8, fail_on_recompile_limit_hit=False)
    with dynamo, torch._functorch.config.patch(donated_buffer=True), torch.compiler.set_stance("default"):
        yield
    torch._dynamo.reset()
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture(scope="module")
def live(compiler_as_it_was: None) -> Any:
    return backend("torch-compile-cpu").load(THREADS)


@pytest.fixture(autouse=True)
def no_gradients(live: Any) -> None:
    """As in a worker; the settings of torch are put back after every test."""
    torch.set_grad_enabled(False)
    torch.set_num_threads(THREADS)


def softmax(rows: int = 8) -> tuple[Any, Any]:
    x = torch.rand(rows, 16)
    return x, partial(torch.softmax, x, dim=-1)


def test_what_was_compiled_is_told(live: Any) -> None:
    x, built = softmax()
    told = live.compile(built, {"x": x}).compilation
    assert (told.graphs, told.breaks) == (1, ())
    assert told.operators == ("aten._softmax.default",)
    assert any("softmax" in kernel for kernel in told.kernels)
    assert told.cold > told.cached > 0
    assert told.cache == "FX graph cache"
    nodes = told.coverage.operators
    assert nodes > 0
    assert told.coverage == GraphCoverage(nodes, nodes, 1.0)


def test_what_stays_outside_of_the_graphs_is_told_by_name_and_by_flops(live: Any) -> None:
    x = torch.rand(8, 8)

    @torch._dynamo.disable
    def outside(y: Any) -> Any:
        return y @ x

    def three_products(y: Any) -> Any:
        return outside(y @ x) @ x

    told = live.compile(partial(three_products, x), {"x": x}).compilation
    assert told.graphs == 2
    assert told.coverage == GraphCoverage(3, 2, pytest.approx(2 / 3), {"aten.mm.default": 1})


def test_a_launch_computes_with_what_its_tensors_hold_now(live: Any) -> None:
    x, built = softmax()
    with live.placing():  # as a launch is built; it is called outside
        launch = live.compile(built, {"x": x})
    for _ in range(2):
        x.copy_(torch.rand_like(x))
        torch.testing.assert_close(launch(), torch.softmax(x, -1))


def test_other_data_is_not_compiled_again_and_another_shape_is(live: Any) -> None:
    first, second, third = (live.compile(built, {"x": x}) for x, built in (softmax(), softmax(), softmax(9)))
    assert first.func is second.func is not third.func
    assert first.compilation is second.compilation


def test_launches_of_one_case_work_side_by_side(live: Any) -> None:
    """As rotating through several sets of data needs it."""
    pairs = [softmax() for _ in range(12)]
    launches = [live.compile(built, {"x": x}) for x, built in pairs]
    for (_, eager), launch in zip(pairs, launches, strict=True):
        torch.testing.assert_close(launch(), eager())


def test_functions_that_differ_are_not_taken_for_the_same(live: Any) -> None:
    x, y = torch.rand(8), torch.rand(8)
    for name in ("add_", "sub_"):
        launch = live.compile(partial(getattr(torch.Tensor, name), x, y), {"x": x, "y": y})
        before = x.clone()
        torch.testing.assert_close(launch(), getattr(before, name)(y))


@pytest.mark.parametrize("many", [False, True])
def test_inputs_that_a_launch_changes_are_as_they_were(many: bool, live: Any) -> None:
    """Also where an even number of calls would leave no trace, where nothing counts changes, and the second time."""
    for _ in range(2):
        x = torch.rand(2, 8)
        before = x.clone()
        launch = live.compile(partial(torch._foreach_neg_, list(x.unbind())) if many else partial(x.neg_), {"x": x})
        assert torch.equal(x, before)
        launch()
        assert torch.equal(x, -before)


def test_nothing_is_compiled_where_it_would_be_timed(live: Any) -> None:
    from opmark.frameworks.torch import inductor

    x, built = softmax(9)
    launch = live.compile(built, {"x": x})
    x.resize_(10, 16)
    with pytest.raises(RuntimeError, match="fail_on_recompile"):
        launch()
    with pytest.raises(RuntimeError, match="fail_on_recompile"):
        inductor.Recording("default").function()(built)


def test_what_is_left_to_eager_is_not_measured_as_compiled(live: Any) -> None:
    x = torch.rand(8)
    with pytest.raises(Unsupported, match="left it to eager"):
        live.compile(partial(torch.nonzero, x), {"x": x})


def test_graph_breaks_are_counted_with_their_reasons(live: Any) -> None:
    x = torch.rand(8)

    def broken() -> Any:
        half = torch.exp(x)
        torch._dynamo.graph_break()
        return torch.sin(half)

    launch = live.compile(broken, {"x": x})
    assert launch.compilation.graphs == 2
    assert len(launch.compilation.breaks) == 1
    torch.testing.assert_close(launch(), torch.sin(torch.exp(x)))


@pytest.mark.parametrize("forward", [False, True])
def test_a_backward_pass_is_compiled_too(forward: bool, live: Any) -> None:
    x, built = softmax(5)
    launch, seeds = live.backward(live.compile(built, {"x": x}), [x], 0, forward=forward)
    told = launch.compilation
    assert {"aten._softmax.default", "aten._softmax_backward_data.default"} <= set(told.operators)
    with torch.enable_grad():
        expected = torch.autograd.grad(torch.softmax(x, -1), x, seeds[0])
    for _ in range(2):  # the graph is kept, and nothing adds up
        torch.testing.assert_close(launch(), expected)


@pytest.mark.parametrize(("threads", "parallel"), [(1, False), (THREADS, True)])
def test_kernels_are_made_for_the_threads_that_were_asked_for(threads: int, parallel: bool, live: Any) -> None:
    torch.set_num_threads(threads)
    x = torch.rand(1 << 18, threads)
    live.compile(partial(torch.exp, x), {"x": x})
    code = "".join(path.read_text() for path in Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.cpp"))
    assert ("omp parallel" in code) == parallel
    assert live.environment()["threads"] == threads


def test_every_case_finds_its_caches_empty_and_leaves_no_process_that_compiles(live: Any) -> None:
    before, folders = psutil.Process().children(recursive=True), []
    for rows in (6, 7):
        x, built = softmax(rows)
        live.compile(built, {"x": x})
        folders.append(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    assert folders[0] != folders[1]
    assert set(psutil.Process().children(recursive=True)) <= set(before)


def test_a_wrong_implementation_is_caught(live: Any) -> None:
    op = operator("softmax")
    task = Task(Case.of("softmax", op.complete({"shape": [8, 16]}), "forward"), "", "", SETTINGS)
    (own,) = op.implementations_for("torch")
    assert verify(task, op, own, live).checked == "full"
    wrong = Implementation("torch", lambda p, x: partial(torch.log_softmax, x, dim=p["axis"]))
    with pytest.raises(WrongResult, match="are off by"):
        verify(task, op, wrong, live)


def test_the_mode_is_part_of_the_environment(live: Any) -> None:
    facts = live.environment()
    assert (facts["mode"], facts["compile_threads"]) == ("default", 1)
    assert facts["cxx"]


def test_without_a_compiler_it_says_so(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "no-such-compiler" in live.why_unavailable()


def test_a_launch_is_of_a_kind_whatever_its_data() -> None:
    assert launch_key(softmax()[1]) == launch_key(softmax()[1])
    assert launch_key(softmax(8)[1]) != launch_key(softmax(9)[1])
    x = torch.rand(4)
    assert launch_key(partial(torch.sum, x, dim=0)) != launch_key(partial(torch.sum, x, dim=-1))
    assert launch_key(partial(torch.Tensor.add_, x)) != launch_key(partial(torch.Tensor.sub_, x))
    assert launch_key(x.add_) != launch_key(x.sub_)
    assert launch_key(x) != launch_key(x.double())
    assert launch_key(lambda: x) != launch_key(lambda: 2 * x)
    assert launch_key(object()) != launch_key(object())


def test_a_closure_is_of_a_kind_by_what_it_holds() -> None:
    def scaled(factor: float) -> Any:
        x = torch.rand(4)
        return lambda: factor * x

    assert launch_key(scaled(2.0)) == launch_key(scaled(2.0))
    assert launch_key(scaled(2.0)) != launch_key(scaled(3.0))


def test_caches_lie_where_the_parent_removes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPMARK_SCRATCH", str(tmp_path))
    first, second = cache_folder.fresh(), cache_folder.fresh()
    assert first != second
    assert sorted(tmp_path.iterdir()) == sorted([first, second])


def test_without_such_a_parent_nothing_is_left_at_the_end(tmp_path: Path) -> None:
    code = "from opmark.frameworks import cache_folder; print(cache_folder.fresh())"
    environ = {key: value for key, value in os.environ.items() if key != "OPMARK_SCRATCH"} | {"TMPDIR": str(tmp_path)}
    made = subprocess.run([sys.executable, "-c", code], env=environ, check=True, capture_output=True, text=True).stdout
    assert Path(made).is_relative_to(tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_the_user_has_told_the_compiler_is_stored(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = live.environment()["variables_of_the_compiler"]
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    monkeypatch.setenv("TORCH_COMPILE_DEBUG", "0")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "of opmark's own")
    told = live.environment()["variables_of_the_compiler"]
    assert told == before | {"TORCHINDUCTOR_MAX_AUTOTUNE": "1", "TORCH_COMPILE_DEBUG": "0"}


def test_a_gpu_that_triton_is_too_new_for_is_refused_by_name(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_device", "cuda")
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_60", "sm_70"])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla P100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (6, 0))
    monkeypatch.setattr("opmark.frameworks.torch.compile.find_spec", lambda name: name)
    assert live.why_unavailable() == "Triton needs compute capability 7.0, and Tesla P100 has 6.0"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 0))
    assert live.why_unavailable() is None
