"""What can be varied of a case, and what of it is chosen."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from opmark.api.factors import factors
from opmark.api.requests import FactorsRequest
from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.hardware import topology
from opmark.hardware.multiprocessors import Multiprocessors
from opmark.hardware.topology import LogicalCore
from opmark.plugin.registry import backend
from opmark.runner.plan import make_plan, settings_for
from opmark.runner.selection import select_cases
from opmark.schema import Availability, Resources, Task
from opmark.schema.load import Load
from opmark.schema.options import MeasureOptions, Selection
from opmark.tuning import factors as module
from opmark.tuning.factors import CaseFactor, TaskDraft, choose_factors, find_factors, make_task


def task(op: str = "matmul", where: str = "numpy-cpu", threads: int = 2, **params: Any) -> Task:
    params = params or {"M": 256, "N": 128, "K": 128}
    cases = select_cases(Selection(ops=op, params=params), 0).cases
    return make_plan(cases, [where], settings_for(MeasureOptions(threads=threads, processes=1))).tasks[0]


def known(base: Task) -> dict[str, CaseFactor]:
    return {factor.name: factor for factor in find_factors(base, backend(base.backend))}


def point(base: Task, **values: Any) -> Task:
    found = known(base)
    return make_task(base, [found[name] for name in values], values)


@pytest.fixture
def big(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes of four physical cores with two threads each."""
    cores = [LogicalCore(n, n % 8 // 4, 0, n % 8, "") for n in range(16)]
    monkeypatch.setattr(topology, "logical_cores", lambda: cores)
    monkeypatch.setattr(module, "affinity", lambda: list(range(16)))


def test_default_ranges_are_those_of_the_readme() -> None:
    found = known(task())
    assert (found["size"].low, found["size"].high) == (1, 4096)
    assert (found["working_set"].low, found["working_set"].high) == (1 << 20, 80 << 20)
    assert found["threads"].low == 1


def test_sizes_keep_their_proportions() -> None:
    assert {"M": 512, "N": 256, "K": 256}.items() <= point(task(), size=512).case.params.items()
    assert {"M": 1, "N": 1, "K": 1}.items() <= point(task(), size=1).case.params.items()
    assert point(task("add", shape=[64, 32]), size=128).case.params["shape"] == [128, 64]


def test_an_image_grows_and_its_channels_stay() -> None:
    base = task("conv2d", batch=2, in_channels=8, image=[32, 32], out_channels=8)
    params = point(base, size=64).case.params
    assert (params["image"], params["in_channels"], params["batch"]) == ([64, 64], 8, 2)


def test_a_working_set_is_met() -> None:
    base = task("add", shape=[64, 64])
    params = point(base, working_set=8 << 20).case.params
    assert 3 * 4 * params["shape"][0] * params["shape"][1] == pytest.approx(8 << 20, rel=0.02)


def test_settings_become_those_of_the_task() -> None:
    base = task()
    made = point(base, threads=1, dtype="float64", cache_state="rotated", seed=2)
    assert made.settings.threads == 1
    assert made.settings.caches == ("rotated",)
    assert made.settings.seed == 2
    assert made.case.params["dtype"] == "float64"
    assert made.settings.resources is None
    assert point(base, size=base.case.params["M"]).case.id == base.case.id


def test_clients_are_a_load() -> None:
    load = point(task(), clients=2).settings.load
    assert load is not None
    assert load.clients == 2


@pytest.mark.usefixtures("big")
def test_placements_follow_the_number_of_threads() -> None:
    base = task(threads=4)
    assert known(base)["affinity"].levels == ("free", "scatter", "compact")
    assert point(base, threads=2, affinity="compact").settings.resources == Resources("compact", (0, 8))
    assert point(base, threads=2, affinity="scatter").settings.resources == Resources("scatter", (0, 4))
    assert point(base, affinity="free").settings.resources is None
    assert point(base, smt="siblings").settings.resources == Resources("siblings", (0, 1, 8, 9))
    assert point(base, numa="node 1").settings.resources == Resources("node 1", (4, 5, 12, 13))
    remote = point(base, memory="remote").settings.resources
    assert remote is not None
    assert (remote.memory_node, remote.cores) == (1, (0, 1, 8, 9))


@pytest.mark.usefixtures("big")
def test_too_many_threads_have_no_cores_of_their_own() -> None:
    assert "do not fit on 8 physical cores" in known(task(threads=12))["smt"].why_not
    assert "have one placement" in known(task(threads=16))["affinity"].why_not


@pytest.mark.usefixtures("knobs")
def test_knobs_are_factors_with_the_implementation_that_has_them() -> None:
    base = task("exp", "knobs-cpu", shape=[64])
    found = known(base)
    assert found["unroll"].levels == (1, 2, 4, 8)
    assert found["unroll"].implementation == base.implementation
    assert (64, 1) in found["tile"].levels
    made = make_task(base, [found["unroll"]], {"unroll": 4})
    assert made.settings.configuration == (("unroll", 4),)
    refitted = make_task(base, [found["size"], found["tile"]], {"size": 128, "tile": (4, 16)})
    assert dict(refitted.settings.configuration) == {"tile": (8, 16)}


def chosen(*texts: str) -> list[CaseFactor]:
    base = task()
    return choose_factors(texts, find_factors(base, backend(base.backend)), base)


def test_ranges_and_levels_may_be_typed() -> None:
    size, dtype = chosen("dtype=float32,float64", "size=16:512")
    assert (size.low, size.high, size.base) == (16, 512, 256)
    assert dtype.levels == ("float32", "float64")
    (sizes,) = chosen("size=64,256,128")
    assert sizes.levels == (64, 128, 256)
    (working_set,) = chosen("working_set=1M:16M")
    assert (working_set.low, working_set.high) == (1 << 20, 16 << 20)
    (outside,) = chosen("size=16:64")
    assert outside.base == 64


def test_a_range_begins_in_equal_ratios_with_the_base_among_them() -> None:
    (size,) = chosen("size=16:4096")
    assert size.first_levels() == [16, 64, 256, 1024, 4096]
    assert size.between(256, 1024) == 512
    assert size.between(16, 17) is None


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (["tempo"], UnknownName, "tempo"),
        (["size=9:1"], InvalidParameter, "from a lower to a higher number"),
        (["size=0:16"], InvalidParameter, "above 0"),
        (["size=a:b"], InvalidParameter, "expected a number, got `a`"),
        (["size=8"], InvalidParameter, "at least 2 levels, got 1"),
        (["size="], InvalidParameter, "at least 2 levels, got 0"),
        (["dtype=float32:float64"], InvalidParameter, "has no range"),
        (["dtype=float33,float32"], UnknownName, "float33"),
        (["working_set=1X:2M"], InvalidParameter, "expected a size such as 16M"),
        (["threads=1:100000"], InvalidParameter, "more than there is"),
        (["threads=1,100000"], InvalidParameter, "outside of what there is"),
        (["size", "M"], UserError, "both set M"),
        (["size", "size"], InvalidParameter, "named twice"),
        (["sm_percent"], UserError, "does not compute on an NVIDIA GPU"),
        (["processes"], UserError, "opmark corun"),
    ],
)
def test_mistakes_are_explained(texts: list[str], error: type[UserError], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        chosen(*texts)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ops": "matmul", "size": "small,typical"}, "around one case, and 2 cases are selected"),
        ({"ops": "matmul", "size": "small", "backend": "numpy-cpu,null"}, "expected one backend"),
        ({"ops": "matmul", "size": "small", "backend": "numpy-cpu/tuned"}, "applies what was tuned"),
        ({"ops": "matmul", "size": "small", "backend": "numpy-cpu", "threads": [1, 2]}, "expected one number"),
        ({"ops": "matmul", "size": "small", "backend": "numpy-cpu", "trials": 3}, "need at least"),
        ({"ops": "all_reduce", "size": "small", "backend": "torch-cpu"}, "several ranks"),
        ({"ops": "matmul", "run": "x"}, "--run reads a stored run"),
        ({"run": "x"}, "there is no store yet"),
    ],
)
def test_what_cannot_be_studied_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        factors(**options)


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A GPU with 132 multiprocessors, and facts of the torch beside it."""
    facts = {"torch": "2.11.0+cu130"}
    monkeypatch.setattr(module, "survey", lambda infos: [Availability(infos[0].name, "", None, facts)])
    monkeypatch.setattr(module, "multiprocessors", lambda: Multiprocessors(132, 8))
    return facts


def sms_of(*texts: str, where: str = "torch-cuda", **changes: Any) -> CaseFactor:
    base = task()
    base = replace(base, backend=where, settings=replace(base.settings, **changes))
    listed = find_factors(base, backend(where))
    return choose_factors(texts, listed, base)[0] if texts else next(one for one in listed if one.name == "sms")


def test_multiprocessors_are_what_a_driver_can_give(hopper: dict[str, str]) -> None:
    assert (sms_of().why_not, sms_of().setting().range) == ("", "8 to 132")
    assert sms_of().first_levels() == [8, 16, 32, 64, 132]
    assert (sms_of().between(64, 132), sms_of().between(8, 16)) == (88, None)
    assert sms_of("sms=8:64").first_levels() == [8, 16, 24, 40, 64]
    assert sms_of("sms=32,132").levels == (32, 132)
    draft = TaskDraft({}, {}, task().settings)
    sms_of().apply(draft, 32)
    assert Resources(**draft.resources).text == "32 SMs"
    for text in ("sms=33,132", "sms=8:60"):
        with pytest.raises(InvalidParameter, match="expected multiples of 8, or 132"):
            sms_of(text)


def test_multiprocessors_that_cannot_be_had_say_why(hopper: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "on other streams" in sms_of(where="jax-cuda").why_not
    assert "on other streams" in sms_of(where="torch-compile-cuda").why_not
    assert "clients" in sms_of(load=Load(2)).why_not
    assert "graph" in sms_of(timer="graph").why_not
    assert "does not compute on an NVIDIA GPU" in sms_of(where="torch-cpu").why_not
    hopper["torch"] = "2.10.0"
    assert sms_of().why_not == "streams of green contexts came with torch 2.11, and this is 2.10.0"
    hopper["torch"] = "2.11.0"

    def fails() -> Multiprocessors:
        raise OSError("libcuda.so.1: no such file")

    monkeypatch.setattr(module, "multiprocessors", fails)
    assert sms_of().why_not == "libcuda.so.1: no such file"


def test_one_process_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="processes"):
        FactorsRequest(ops="matmul", processes=1)
